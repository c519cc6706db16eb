//! From a step at which a replay diverged to the tensors that differ there.

use xt_cli::Error;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::manifest::replay::Localization;
use xt_core::manifest::run::Taken;
use xt_core::manifest::snapshot::Snapshot;
use xt_core::manifest::trace::StageName;
use xt_core::verb::snapshot;
use xt_runtime::{Signals, last_state};

use crate::admission::ReplayError;
use crate::again::{Again, Done, Part};

/// So many tensors are listed.
const MOST_TENSORS: usize = 20;

impl Again<'_> {
    /// Finds out which tensors differ where the comparison diverged, or where a stored state contradicts the trace.
    pub(crate) fn localize(
        &self,
        done: &Done<'_>,
        part: &Part,
        signals: &Signals,
    ) -> Result<Option<Localization>, Error> {
        let original = self.recorded.original();
        let (mut states, bad) = original.states(&self.recorded.store)?;
        let planted = bad.into_iter().map(|bad| bad.taken).find(|taken| taken.step <= self.recorded.steps);
        let step = match (&done.comparison.divergence, &planted) {
            (Some(divergence), Some(taken)) => divergence.step.min(taken.step),
            (Some(divergence), None) => divergence.step,
            (None, Some(taken)) => taken.step,
            (None, None) => return Ok(None),
        };
        states.extend(planted);
        states.sort_by_key(|taken| taken.step);
        let mut found = Localization {
            step,
            stage: done.comparison.stage.unwrap_or(StageName::Optimizer),
            module: None,
            tensor: None,
            compared_at: None,
            recorded: None,
            replayed: None,
            differing: 0,
            tensors: Vec::new(),
            restores: u64::from(part.from.is_some()),
            steps_again: done.comparison.equal + u64::from(done.comparison.divergence.is_some()),
        };
        // What the record holds at the step itself is best; the first state after it has the difference in it, spread out.
        let Some(state) = states.iter().find(|taken| taken.step >= step && taken.step <= self.recorded.steps) else {
            return Ok(Some(found));
        };
        let mut before = part.from.clone();
        if let Some(nearest) =
            original.nearest(&self.recorded.store, step - 1)?.filter(|start| start.step > part.begin())
        {
            before = Some(nearest);
        }
        let to = state.step;
        let again = Part { from: before, to };
        found.restores += u64::from(again.from.is_some());
        found.steps_again += to - again.begin();
        let request = original.request(again.from.clone(), to, true);
        let Some(followed) = self.follow(&request, &again, signals, &mut |_, _| false)? else { return Ok(None) };
        let Some((_, replayed)) = last_state(&followed.run).filter(|(made, _)| *made == to) else {
            return Ok(Some(found));
        };
        self.tensors(&mut found, state, replayed)?;
        Ok(Some(found))
    }

    /// Compares the recorded state with the one that was computed again.
    fn tensors(&self, found: &mut Localization, recorded: &Taken, replayed: Digest) -> Result<(), Error> {
        let store = &self.recorded.store;
        let (first, second): (Snapshot, Snapshot) = (store.manifest(recorded.snapshot)?, store.manifest(replayed)?);
        let bytes = |snapshot: &Snapshot| -> Result<[Vec<u8>; 2], Error> {
            Ok([store.get(snapshot.parameters.file)?, store.get(snapshot.optimizer.file)?])
        };
        let (one, other) = (bytes(&first)?, bytes(&second)?);
        let diff = snapshot::diff(
            (&first, snapshot::Files { parameters: &one[0], optimizer: &one[1] }),
            (&second, snapshot::Files { parameters: &other[0], optimizer: &other[1] }),
        )
        .map_err(|why| ReplayError::Refused(Faults::one("snapshot#", "snapshot.file", why)))?;
        let differing: Vec<_> = diff.tensors.into_iter().filter(|tensor| !tensor.equal).collect();
        found.compared_at = Some(recorded.step);
        (found.recorded, found.replayed) = (Some(recorded.snapshot), Some(replayed));
        found.differing = differing.len() as u64;
        found.tensor = differing.first().map(|tensor| tensor.name.clone());
        found.module =
            found.tensor.as_ref().map(|name| name.rsplit_once('.').map_or(name.as_str(), |(module, _)| module).into());
        found.tensors = differing.into_iter().take(MOST_TENSORS).collect();
        Ok(())
    }
}
