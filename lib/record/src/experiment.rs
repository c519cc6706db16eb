//! Experiments: what the work is for.

use xt_core::canonical::Value;
use xt_core::field::object;
use xt_core::instant::Instant;
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::ExperimentState;

use crate::Record;
use crate::error::RecordError;
use crate::query::{self, ExperimentRow};
use crate::state::created;

impl Record {
    /// Creates an experiment with an objective. Doing it again with the same objective gives what is there; with another
    /// one it is refused, as is giving an objective to an experiment that began without one.
    pub fn new_experiment(&self, id: &Name, objective: &Value, now: Instant) -> Result<ExperimentRow, RecordError> {
        self.write(|transaction| {
            if let Some(known) = query::experiment(transaction, id)? {
                if known.objective.as_deref() == Some(objective.canonical().as_str()) {
                    return Ok(known);
                }
                let recorded = known.objective.unwrap_or_else(|| "none".into());
                return Err(RecordError::Objective { experiment: id.clone(), recorded });
            }
            created::<ExperimentState>(transaction, id, now, &object([("objective", objective.clone())]))?;
            let unknown = || RecordError::Unknown { level: Level::Experiment, name: id.clone() };
            query::experiment(transaction, id)?.ok_or_else(unknown)
        })
    }
}
