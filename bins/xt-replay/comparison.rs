//! A replay held against what was recorded, message by message.

use xt_core::field::Manifest as _;
use xt_core::manifest::job::Message;
use xt_core::manifest::replay::{Divergence, Outcome, PinDifference, Replay};
use xt_core::manifest::run::{Reported, Run, Stack, Status};
use xt_core::manifest::trace::{StageName, Step};
use xt_core::verb::compare;
use xt_runtime::Followed;

use crate::Arguments;
use crate::again::Part;
use crate::recorded::Recorded;

/// Compares as messages come.
pub(crate) struct Comparison<'a> {
    pub(crate) recorded: &'a [Step],
    pub(crate) reported: Option<&'a Reported>,
    /// The last step that was compared, or the last before the first one.
    pub(crate) at: u64,
    pub(crate) due: u64,
    pub(crate) ignore_stack: bool,
    pub(crate) allowed: Vec<PinDifference>,
    /// Pins that the worker itself turned out not to meet.
    pub(crate) refused: Vec<PinDifference>,
    pub(crate) equal: u64,
    pub(crate) divergence: Option<Divergence>,
    /// The stage of the divergence.
    pub(crate) stage: Option<StageName>,
    /// The lines that came, when they are to be drawn.
    pub(crate) seen: Vec<Step>,
    pub(crate) draws: bool,
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(recorded: &'a Recorded, allowed: Vec<PinDifference>, arguments: &Arguments, part: &Part) -> Self {
        Self {
            recorded: &recorded.papers.steps,
            reported: recorded.stack.reported.as_ref(),
            at: part.begin(),
            due: part.to,
            ignore_stack: arguments.ignore_stack,
            allowed,
            refused: Vec::new(),
            equal: 0,
            divergence: None,
            stage: None,
            seen: Vec::new(),
            draws: arguments.svg.is_some(),
        }
    }

    /// Takes a message; true when nothing more is to be learned and the replay can stop.
    pub(crate) fn hear(&mut self, message: &Message) -> bool {
        match message {
            Message::Ready { version, samples_per_epoch, parameters, cpu_capability, threads } => {
                let now = Reported {
                    version: version.clone(),
                    samples_per_epoch: *samples_per_epoch,
                    parameters: *parameters,
                    cpu_capability: cpu_capability.clone(),
                    threads: *threads,
                };
                let differences = self.reported.map(|then| compare::reports(then, &now)).unwrap_or_default();
                let found = if self.ignore_stack { &mut self.allowed } else { &mut self.refused };
                found.extend(differences);
                !self.refused.is_empty()
            }
            Message::Step { line, .. } => self.step(line),
            _ => false,
        }
    }

    /// The supervisor looked at the stack again, right before it started the worker.
    pub(crate) fn check_stack(&mut self, recorded: &Stack, replayed: &Run) {
        let found = replayed.stack.as_ref().map(|stack| compare::stacks(recorded, stack)).unwrap_or_default();
        let new = found.into_iter().filter(|pin| !self.allowed.contains(pin));
        self.refused.extend(new);
    }

    pub(crate) fn step(&mut self, line: &Step) -> bool {
        if self.divergence.is_some() || line.step != self.at + 1 || line.step > self.due {
            return false;
        }
        let Some(recorded) = usize::try_from(self.at).ok().and_then(|index| self.recorded.get(index)) else {
            return false;
        };
        self.divergence = compare::steps(recorded, line);
        match &self.divergence {
            None => (self.equal, self.at) = (self.equal + 1, line.step),
            Some(_) => self.stage = Some(compare::first_stage(recorded, line)),
        }
        if self.draws {
            self.seen.push(line.clone());
        }
        self.divergence.is_some()
    }

    pub(crate) fn state(&self) -> &'static str {
        if self.divergence.is_none() { "equal" } else { "diverged" }
    }

    /// The report on a replay that has ended.
    pub(crate) fn conclude(self, recorded: &Recorded, followed: &Followed, part: &Part) -> Replay {
        let replayed = &followed.run;
        // A run that was held is repeated when it is held again, at the same step.
        let held = replayed.status == Status::Held && recorded.run.status == Status::Held;
        let done = (replayed.status == Status::Succeeded || held) && self.at == self.due;
        let outputs = if done && recorded.whole() && self.due == recorded.steps {
            compare::outputs(&recorded.run.artifacts, &replayed.artifacts)
        } else {
            Vec::new()
        };
        let parted = self.divergence.is_some() || outputs.iter().any(|file| !file.equal());
        let outcome = match (parted, done) {
            (true, _) => Outcome::Diverged,
            (false, true) => Outcome::Equal,
            (false, false) => Outcome::Incomplete,
        };
        Replay {
            run: recorded.id,
            plan: recorded.run.plan,
            replayed: replayed.id(),
            allowed: self.allowed,
            outcome,
            from: part.begin(),
            snapshot: part.from.as_ref().map(|start| start.snapshot),
            steps: self.due,
            equal_steps: self.equal,
            divergence: self.divergence,
            outputs,
            audit: None,
            localization: None,
        }
    }
}
