//! The store and the record in it: what was measured, and what is decided on it.

use xt_cli::{Common, Error, note, parse_one};
use xt_core::fault::Faults;
use xt_core::field::Field as _;
use xt_core::manifest::comparison::Comparison;
use xt_core::manifest::decision::{Context, Decision, Objective, Operator, Outcome, Role};
use xt_core::manifest::evaluation::Evaluation;
use xt_core::manifest::event::Level;
use xt_core::manifest::promotion::{CandidateRule, Promotion, PromotionPolicy};
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::decision_context::{self, About, Measured};
use xt_core::verb::settle::{AttemptState, NodeState, RunState};
use xt_core::verb::{compare_candidates, promote, scores};
use xt_record::{Attempt, Decided, DecisionRow, Judgement, NodeRow, Overview, Record, RecordError, RunRow};
use xt_store::Store;

use crate::assembling::Assemble;
use crate::branching;
use crate::comparing::RESAMPLING;
use crate::name;

/// The store and the record in it.
pub(crate) struct Ledger {
    pub(crate) store: Store,
    pub(crate) record: Record,
}

impl Ledger {
    pub(crate) fn open(common: &Common) -> Result<Self, Error> {
        let store = Store::open(&common.store)?;
        // A record that is not there holds nothing to decide on; it is not made here.
        Record::open_read_only(&store.record_path())?;
        Ok(Self { record: Record::open(&store.record_path())?, store })
    }

    pub(crate) fn open_read_only(common: &Common) -> Result<Self, Error> {
        let store = Store::open(&common.store)?;
        Ok(Self { record: Record::open_read_only(&store.record_path())?, store })
    }

    fn objective(&self, experiment: &Name) -> Result<Objective, Error> {
        let stated = self.stated(experiment)?;
        stated.ok_or_else(|| {
            let message = format!(
                "experiment {experiment} has no objective; `xt-log experiment new` creates one that has, before anything runs"
            );
            Faults::one("", "decision.no-objective", message).into()
        })
    }

    /// The objective that an experiment was made with, if it was.
    fn stated(&self, experiment: &Name) -> Result<Option<Objective>, Error> {
        let unknown = || RecordError::Unknown { level: Level::Experiment, name: experiment.clone() };
        let found = self.record.experiment(experiment)?.ok_or_else(unknown)?;
        let Some(text) = found.objective else { return Ok(None) };
        let mut faults = Faults::new();
        let read = Objective::read(&parse_one(text.as_bytes(), "the objective")?, "", &mut faults);
        read.filter(|_| faults.is_empty()).map(Some).ok_or_else(|| faults.into())
    }

    /// What succeeded in a cycle of a candidate.
    fn measured(&self, overview: &Overview, node: &Name, cycle: u64) -> Result<Vec<Measured>, Error> {
        let of_cycle =
            |run: &&RunRow| run.node == *node && run.cycle == Some(cycle) && run.state == RunState::Succeeded;
        let mut measured = Vec::new();
        for run in overview.runs.iter().filter(of_cycle) {
            let succeeded = |attempt: &&Attempt| attempt.run == run.id && attempt.state == AttemptState::Succeeded;
            let Some(attempt) = overview.attempts.iter().find(succeeded) else { continue };
            let evaluation = self.evaluation(&attempt.id)?;
            let execution = branching::of_model(&self.store, &evaluation)?;
            measured.push(Measured { run: run.id.clone(), evaluation, execution });
        }
        Ok(measured)
    }

    /// The evaluation that an attempt gave.
    fn evaluation(&self, attempt: &Name) -> Result<Evaluation, Error> {
        for reference in self.store.references()? {
            if reference.name.as_str().starts_with("evaluations/") {
                let evaluation: Evaluation = self.store.manifest(reference.digest)?;
                if evaluation.attempt == *attempt {
                    return Ok(evaluation);
                }
            }
        }
        let message = format!("the store has no evaluation of attempt {attempt}, which succeeded");
        Err(Faults::one("", "decision.no-evaluation", message).into())
    }

    /// One context for each candidate that has been evaluated, of its last cycle.
    pub(crate) fn contexts(&self, given: &Assemble, common: &Common) -> Result<Vec<Context>, Error> {
        let experiment = name(&given.experiment)?;
        let objective = self.objective(&experiment)?;
        let overview = self.record.status()?;
        let mut contexts = Vec::new();
        for node in overview.nodes.iter().filter(|node| node.experiment == experiment) {
            if given.node.as_ref().is_none_or(|wanted| *wanted == node.id.as_str()) {
                contexts.extend(self.context(&overview, node, &objective, given.every_seed, common)?);
            }
        }
        if contexts.is_empty() {
            let message = format!("experiment {experiment} has no candidate whose evaluations are all there");
            return Err(Faults::one("", "decision.nothing", message).into());
        }
        Ok(contexts)
    }

    /// The context of the last cycle of a candidate; `None`, with a note, while evaluations of it are missing.
    fn context(
        &self,
        overview: &Overview,
        node: &NodeRow,
        objective: &Objective,
        every_seed: bool,
        common: &Common,
    ) -> Result<Option<Context>, Error> {
        let (Some(cycle), false) = (last_cycle(overview, &node.id), node.state == NodeState::Evaluating) else {
            note(common, &format!("xt-decide: {} is {}: its evaluations are not all there", node.id, node.state));
            return Ok(None);
        };
        let about = About { experiment: node.experiment.clone(), node: node.id.clone(), cycle };
        let assemble = if every_seed { decision_context::of_every_seed } else { decision_context::context };
        Ok(Some(assemble(&about, objective, &self.measured(overview, &node.id, cycle)?)))
    }

    /// The contexts of the candidates that some evaluations are about, in the order of the evaluations, each of its last
    /// cycle as the record holds it. What is asked for must be what their experiments were made for, if they were made for
    /// something.
    pub(crate) fn contexts_of(
        &self,
        evaluations: &[Evaluation],
        objective: &Objective,
        every_seed: bool,
        common: &Common,
    ) -> Result<Vec<Context>, Error> {
        let overview = self.record.status()?;
        let mut faults = Faults::new();
        let mut nodes: Vec<&NodeRow> = Vec::new();
        for (place, evaluation) in evaluations.iter().enumerate() {
            match node_of(&overview, evaluation) {
                // Decided on is what the record holds: one who gives something else must not be let believe otherwise.
                Ok(_) if self.evaluation(&evaluation.attempt)? != *evaluation => {
                    let message = format!("it is not what attempt {} measured", evaluation.attempt);
                    faults.add(format!("/{place}"), "decision.forged", message);
                }
                Ok(node) if nodes.iter().any(|known| known.id == node.id) => {}
                Ok(node) => nodes.push(node),
                Err((word, message)) => faults.add(format!("/{place}/attempt"), word, message),
            }
        }
        let mut experiments: Vec<&Name> = nodes.iter().map(|node| &node.experiment).collect();
        experiments.dedup();
        for experiment in experiments {
            if self.stated(experiment)?.is_some_and(|stated| stated != *objective) {
                let message = format!("experiment {experiment} was made for another objective than the one given here");
                faults.add("", "decision.objective", message);
            }
        }
        faults.or(())?;
        let contexts = nodes.iter().map(|node| self.context(&overview, node, objective, every_seed, common));
        let contexts: Vec<Context> = contexts.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        if contexts.is_empty() {
            let message = "of none of the candidates all evaluations are there".to_string();
            return Err(Faults::one("", "decision.nothing", message).into());
        }
        Ok(contexts)
    }

    /// What a policy chooses, and the comparison that it rests on.
    pub(crate) fn promotion(
        &self,
        experiment: &Name,
        policy: &PromotionPolicy,
    ) -> Result<(Promotion, Option<Comparison>), Error> {
        let objective = self.objective(experiment)?;
        let overview = self.record.status()?;
        let (mut eligible, mut evaluations) = (Vec::new(), Vec::new());
        let accepted = |node: &&NodeRow| node.experiment == *experiment && node.state == NodeState::Completed;
        for node in overview.nodes.iter().filter(accepted) {
            let decisions = self.record.decisions(&node.id)?;
            let succeeded = |row: &&DecisionRow| row.outcome == Some(Outcome::StopSucceeded);
            let Some(decision) = decisions.iter().rev().find(succeeded) else { continue };
            let measured = self.measured(&overview, &node.id, decision.cycle)?;
            let measured: Vec<Evaluation> = measured.into_iter().map(|measured| measured.evaluation).collect();
            eligible.extend(promote::eligible(&node.id, decision.decision, &objective, &measured));
            evaluations.extend(measured.into_iter().map(|evaluation| (evaluation, None)));
        }
        let several = eligible.len() > 1 && policy.candidate == CandidateRule::Best;
        let comparison = several
            .then(|| {
                let question = promote::question(experiment, policy, &objective, RESAMPLING);
                scores::context(&question, &evaluations).map(|context| compare_candidates::compare(&context))
            })
            .transpose()?;
        let promotion = promote::promote(experiment, policy, &objective, eligible, comparison.as_ref());
        Ok((promotion, comparison))
    }

    /// Records a decision, if it was made on what the record holds. The document is in the store before the record names
    /// it.
    pub(crate) fn record(&self, decision: &Decision, common: &Common) -> Result<(), Error> {
        let (experiment, node, cycle) = (&decision.experiment_id, &decision.node_id, decision.evaluation_cycle);
        let objective = self.objective(experiment)?;
        let measured = self.measured(&self.record.status()?, node, cycle)?;
        let about = About { experiment: experiment.clone(), node: node.clone(), cycle };
        let contexts = [
            decision_context::context(&about, &objective, &measured),
            decision_context::of_every_seed(&about, &objective, &measured),
        ];
        decision_context::check(decision, &contexts)?;
        // No collection takes what is stored here before it has its name.
        let _hold = self.store.hold()?;
        let id = self.store.put_manifest(decision)?;
        let reason = format!("decision on cycle {cycle} of {node}");
        self.store.set_reference(&format!("decisions/{}", id.hex()), id, &reason)?;
        let decided = self.record.decide(&Judgement {
            experiment: experiment.clone(),
            node: node.clone(),
            cycle,
            results: measured.into_iter().map(|measured| measured.run).collect(),
            decision: id,
            input_fingerprint: decision.input_fingerprint,
            outcome: decision.outcome,
            reached: reached(decision),
            by: "xt-decide".into(),
            now: common.now()?,
        })?;
        let (word, row) = match decided {
            Decided::New(row) => ("recorded", row),
            Decided::Existing(row) => ("recorded before", row),
        };
        note(common, &format!("xt-decide: {word} as event {}: {}", row.sequence, row.decision));
        Ok(())
    }
}

/// The last evaluation cycle of a candidate.
fn last_cycle(overview: &Overview, node: &Name) -> Option<u64> {
    overview.runs.iter().filter(|run| run.node == *node).filter_map(|run| run.cycle).max()
}

/// The candidate that an evaluation is about, or why it cannot be decided on: a code word and a sentence.
fn node_of<'a>(overview: &'a Overview, evaluation: &Evaluation) -> Result<&'a NodeRow, (&'static str, String)> {
    let attempt = overview.attempts.iter().find(|attempt| attempt.id == evaluation.attempt);
    let run = attempt.and_then(|attempt| overview.runs.iter().find(|run| run.id == attempt.run));
    let node = run.and_then(|run| overview.nodes.iter().find(|node| node.id == run.node));
    let (Some(run), Some(node)) = (run, node) else {
        let attempt = &evaluation.attempt;
        let message = format!(
            "the record knows no attempt {attempt}: an evaluation is decided on in the store that it was made in"
        );
        return Err(("record.unknown", message));
    };
    let (cycle, last) = (run.cycle.unwrap_or(0), last_cycle(overview, &node.id).unwrap_or(0));
    if cycle != last {
        let message = format!("it was measured in cycle {cycle} of {}, whose last one is {last}", node.id);
        return Err(("decision.other-cycle", message));
    }
    Ok(node)
}

/// The primary metric of a decision, and the relation in which a better value of it stands to a worse one.
fn reached(decision: &Decision) -> Option<(Operator, Finite)> {
    let made = decision.evidence.iter().find(|made| made.of.role == Role::Objective)?;
    Some((made.of.operator, made.of.value))
}
