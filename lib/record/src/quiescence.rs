//! An experiment as a whole: its candidates, their runs and attempts, and what would move it on.

use rusqlite::Connection;
use xt_core::manifest::event::Level;
use xt_core::manifest::quiescence::{Node, Quiescence, Run, Try};
use xt_core::name::Name;
use xt_core::verb::quiesce::{is_quiescent, next_stage};

use crate::Record;
use crate::error::RecordError;
use crate::query::{self, Attempt, NodeRow, RunRow};

impl Record {
    /// An experiment as it stood at one moment.
    pub fn quiescence(&self, experiment: &Name) -> Result<Quiescence, RecordError> {
        self.read(|transaction| {
            let unknown = || RecordError::Unknown { level: Level::Experiment, name: experiment.clone() };
            let row = query::experiment(transaction, experiment)?.ok_or_else(unknown)?;
            let attempts = query::attempts_of_experiment(transaction, experiment)?;
            let mut nodes = Vec::new();
            for row in query::nodes_of_experiment(transaction, experiment)? {
                nodes.push(node(transaction, row, &attempts)?);
            }
            let quiescent = is_quiescent(&nodes);
            Ok(Quiescence {
                experiment: row.id,
                status: row.state,
                quiescent,
                next_stage: if quiescent { next_stage(row.state, &nodes) } else { None },
                objective: row.objective,
                last_event: last_event(transaction)?,
                nodes,
            })
        })
    }
}

fn node(connection: &Connection, row: NodeRow, attempts: &[Attempt]) -> Result<Node, RecordError> {
    let runs = query::runs_of_node(connection, &row.id)?;
    let runs = runs.into_iter().map(|run| of(run, attempts)).collect();
    Ok(Node { node: row.id, fingerprint: row.fingerprint, state: row.state, runs })
}

fn of(run: RunRow, attempts: &[Attempt]) -> Run {
    let attempts = attempts.iter().filter(|attempt| attempt.run == run.id).map(|attempt| Try {
        attempt: attempt.id.clone(),
        state: attempt.state,
        run_record: attempt.run_record,
    });
    Run {
        attempts: attempts.collect(),
        run: run.id,
        level: run.level,
        seed: run.seed,
        state: run.state,
        subject: run.subject,
        cycle: run.cycle,
    }
}

fn last_event(connection: &Connection) -> Result<u64, RecordError> {
    let sequence: i64 = connection.query_row("SELECT coalesce(max(sequence), 0) FROM event", [], |row| row.get(0))?;
    Ok(sequence.cast_unsigned())
}
