//! Replaying a few parts of a run, drawn by lot.

use xt_cli::{Error, note};
use xt_core::fault::Exit;
use xt_core::field::Manifest as _;
use xt_core::manifest::replay::{Audit, Outcome, Segment};
use xt_core::manifest::run::Start;
use xt_core::random::Stream;
use xt_core::verb::sentence;
use xt_runtime::Signals;

use crate::again::{Again, Part};

impl Again<'_> {
    /// Replays `count` parts between stored states. Which ones follows from the digest of the trace, so that nobody who
    /// wrote the trace could choose them without writing another trace.
    pub(crate) fn audit(&self, count: u64, signals: &Signals) -> Result<Exit, Error> {
        let (parts, of_steps) = (self.parts()?, self.recorded.steps);
        let of = parts.len() as u64;
        let seed =
            self.recorded.run.trace.as_ref().map_or(0, |trace| {
                trace.digest.bytes().iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
            });
        let mut drawn: Vec<u64> = Stream::new(seed, "audit", 0).permutation(of);
        drawn.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        drawn.sort_unstable();
        let mut audit = Audit { segments: Vec::new(), of, steps: 0, of_steps };
        let mut last = None;
        for index in drawn {
            let part = &parts[usize::try_from(index).unwrap_or_default()];
            let Some(done) = self.run(part, signals)? else { return Ok(Exit::Workload) };
            let (from, to, equal_steps) = (part.begin(), part.to, done.comparison.equal);
            audit.segments.push(Segment { from, to, equal_steps, replayed: done.followed.run.id() });
            audit.steps += to - from;
            let replay = done.comparison.conclude(self.recorded, &done.followed, part);
            let parted = replay.outcome != Outcome::Equal;
            last = Some((replay, done.followed));
            if parted {
                break;
            }
        }
        let Some((mut replay, followed)) = last else { return Ok(Exit::Undecided) };
        note(&self.arguments.common, &format!("replay: {}", sentence::audit(&audit)));
        (replay.steps, replay.equal_steps) = (of_steps, audit.segments.iter().map(|segment| segment.equal_steps).sum());
        replay.audit = Some(audit);
        self.arguments.report(self.recorded, &replay, &followed)
    }

    /// The run in parts between stored states.
    fn parts(&self) -> Result<Vec<Part>, Error> {
        let (states, _) = self.recorded.original().states(&self.recorded.store)?;
        let (mut parts, mut from) = (Vec::new(), self.recorded.original().begin());
        for taken in states.into_iter().filter(|taken| taken.step < self.recorded.steps) {
            let start = Start { run: self.recorded.id, snapshot: taken.snapshot, step: taken.step };
            parts.push(Part { from: from.replace(start), to: taken.step });
        }
        parts.push(Part { from, to: self.recorded.steps });
        Ok(parts)
    }
}
