//! Whether a run stops before its last step: what the rule of `xt_core::verb::early` remembers, as a part of the state.

use xt_core::manifest::candidate::{Decay, Early};
use xt_core::manifest::run::StopReason;
use xt_core::verb::early::{Looks, sentence};

use crate::fault::TrainError;
use crate::layout::{Declared, Layout, Start};
use crate::optim::Row;

/// What the names of its tensors begin with.
pub const PREFIX: &str = "early_stop/";

/// The losses so far, as far as the rule remembers them: kept as a row, so that it is saved, hashed, compared and restored
/// as every other.
#[derive(Debug)]
pub struct EarlyStop {
    rule: Early,
    row: Row,
}

impl EarlyStop {
    /// Before the first step; `None` where the candidate goes on to its length.
    pub fn new(rule: &Early) -> Result<Option<Self>, TrainError> {
        if *rule == (Early::None {}) {
            return Ok(None);
        }
        let declared =
            Looks::NONE.named().map(|(name, _)| Declared { name: name.into(), shape: vec![1], start: Start::Zeros });
        let row = Row::zeros(PREFIX, Layout::new(declared.into(), Decay::All))?;
        Ok(Some(Self { rule: rule.clone(), row }))
    }

    /// Everything it remembers; the rule is the plan's. Taken apart without `..`: a new field does not compile until someone
    /// decides whether it is remembered.
    pub const fn memory(&self) -> &Row {
        let Self { rule: _, row } = self;
        row
    }

    /// The same, to be filled from a snapshot.
    pub const fn memory_mut(&mut self) -> &mut Row {
        let Self { rule: _, row } = self;
        row
    }

    fn looks(&self) -> Looks {
        let values = self.row.values.values();
        let mut named = Looks::NONE.named();
        // Spans and names are both sorted.
        for ((_, value), span) in named.iter_mut().zip(self.row.layout.spans()) {
            *value = values[span.offset];
        }
        Looks::of(named.map(|(_, value)| value))
    }

    fn keep(&mut self, looks: Looks) {
        let values = self.row.values.values_mut();
        for ((_, value), span) in looks.named().into_iter().zip(self.row.layout.spans()) {
            values[span.offset] = value;
        }
    }

    /// Takes in the loss of a step; `acts` says whether the run may stop there.
    pub fn after(&mut self, loss: f32, acts: bool) {
        let mut looks = self.looks();
        looks.take_in(&self.rule, loss, acts);
        self.keep(looks);
    }

    /// Goes on, although the run that this state belongs to had ended: what leaves from its last state is another run.
    pub fn go_on(&mut self) {
        self.keep(Looks { stopped: 0.0, ..self.looks() });
    }

    /// Why the run stops here, and in words; `None` while it goes on.
    pub fn stops(&self) -> Option<(StopReason, String)> {
        let looks = self.looks();
        looks.stops().map(|reason| (reason, sentence(&self.rule, reason, looks.mean)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xt_core::number::Finite;

    #[test]
    fn what_it_remembers_is_in_its_row_and_the_row_says_when_it_stops() {
        let rule = Early::TrainingLoss {
            window: 2,
            target: None,
            patience: Some(1),
            minimum_improvement: Finite::ZERO,
            limit: None,
        };
        assert!(EarlyStop::new(&Early::None {}).unwrap().is_none());
        let mut first = EarlyStop::new(&rule).unwrap().unwrap();
        for loss in [3.0, 1.0, 2.5] {
            first.after(loss, true);
        }
        assert!(first.stops().is_none());
        let mut second = EarlyStop::new(&rule).unwrap().unwrap();
        second.memory_mut().values.values_mut().copy_from_slice(first.memory().values.values());
        for stop in [&mut first, &mut second] {
            stop.after(2.5, true);
            let (reason, why) = stop.stops().unwrap();
            assert_eq!(reason, StopReason::Patience);
            assert!(why.contains("2.5"), "{why}");
        }
        second.go_on();
        assert!(second.stops().is_none() && second.looks().best == 2.0);
    }
}
