//! What the record says: events, standings, actions, reconciliations and quiescence.

use xt_core::canonical::Value;
use xt_core::field::object;
use xt_core::manifest::action::{Action, ActionKind, Step};
use xt_core::manifest::event::{Event, Level};
use xt_core::manifest::quiescence::{Node as QuietNode, Quiescence, Run as QuietRun, Try};
use xt_core::manifest::reconciliation::{Found as Settled, Reason, Reconciliation};
use xt_core::manifest::status::{Liveness, Observed as Seen, Status as Standing, Supervisor};
use xt_core::verb::quiesce::Stage as Next;
use xt_core::verb::settle::{ActionState, AttemptState, ExperimentState, NodeState, OperationState, RunState};

use super::{digest, instant, name};

pub fn events() -> Vec<Event> {
    let event = |before, after, payload| Event {
        sequence: 1,
        at: instant(1_796_000_000),
        subject: name("attempt-1"),
        level: Level::Attempt,
        kind: name("attempt.running"),
        before,
        after,
        payload,
    };
    vec![
        event(None, Some(name("requested")), object([("pid", 7u64.into())])),
        event(Some(name("requested")), None, Value::Null),
    ]
}

pub fn standings() -> Vec<Standing> {
    let waiting = Standing {
        attempt: name("attempt-1"),
        level: Level::Attempt,
        state: AttemptState::Requested,
        observed: Seen::Waiting,
        why: String::from("no supervisor has claimed it"),
        liveness: None,
        supervisor: None,
        run_record: None,
        last_event: 3,
        last_event_at: instant(1_796_000_000),
        retry_of: None,
        operation: name("operation-1"),
        operation_state: OperationState::Intended,
        run: name("run-1"),
        run_state: RunState::Created,
        node: name("node-1"),
        node_state: NodeState::Created,
        experiment: name("experiment-1"),
        experiment_state: ExperimentState::Active,
        fingerprint: digest("fingerprint"),
        seed: 7,
        plan: digest("plan"),
        request: digest("request"),
    };
    let mut working = waiting.clone();
    working.retry_of = Some(name("attempt-0"));
    working.liveness = Some(Liveness::Alive);
    working.supervisor =
        Some(Supervisor { pid: 77, start_time: 1234, boot_id: String::from("boot"), namespace: 4_026_531_836 });
    working.run_record = Some(digest("run"));
    vec![waiting, working]
}

pub fn actions() -> Vec<Action> {
    let asked = Action {
        action: name("act-1"),
        kind: ActionKind::Cancel,
        level: Level::Attempt,
        target: name("attempt-1"),
        by: String::from("xt-run --cancel"),
        at: instant(1_796_000_000),
        state: ActionState::Active,
        operations: vec![Step {
            operation: name("operation-2"),
            attempt: name("attempt-1"),
            state: OperationState::Sent,
            outcome: None,
        }],
    };
    let mut done = asked.clone();
    done.kind = ActionKind::Drain;
    let mut preempted = done.clone();
    preempted.kind = ActionKind::Preempt;
    done.state = ActionState::Done;
    done.operations[0].outcome = Some(AttemptState::Drained);
    vec![asked, done, preempted]
}

pub fn reconciliations() -> Vec<Reconciliation> {
    let adopted = Reconciliation {
        attempt: name("attempt-1"),
        level: Level::Attempt,
        experiment: name("experiment-1"),
        operation: name("operation-1"),
        found: Settled::Adopted,
        state: AttemptState::Running,
        reason: None,
        why: String::from("its supervisor runs"),
    };
    let of = |found| Reconciliation { found, ..adopted.clone() };
    let mut all: Vec<_> = Settled::ALL.iter().map(|found| of(*found)).collect();
    all.extend(Reason::ALL.iter().map(|reason| Reconciliation { reason: Some(*reason), ..of(Settled::Escalated) }));
    all
}

pub fn quiescences() -> Vec<Quiescence> {
    let tries = |run_record| vec![Try { attempt: name("attempt-1"), state: AttemptState::Failed, run_record }];
    let run = QuietRun {
        run: name("run-1"),
        level: Level::Run,
        seed: 7,
        state: RunState::Failed,
        subject: None,
        cycle: None,
        attempts: tries(None),
    };
    let evaluation = QuietRun {
        level: Level::EvaluationRun,
        subject: Some(digest("bundle")),
        cycle: Some(1),
        attempts: tries(Some(digest("run"))),
        ..run.clone()
    };
    let node = QuietNode {
        node: name("node-1"),
        fingerprint: digest("fingerprint"),
        state: NodeState::Active,
        runs: vec![run, evaluation],
    };
    let ended = Quiescence {
        experiment: name("experiment-1"),
        status: ExperimentState::Cancelled,
        quiescent: true,
        next_stage: None,
        objective: None,
        last_event: 9,
        nodes: vec![node],
    };
    let going = Quiescence { objective: Some(String::from("{}")), quiescent: false, ..ended.clone() };
    let mut all = vec![ended, going.clone()];
    all.extend(Next::ALL.iter().map(|stage| Quiescence { next_stage: Some(*stage), ..going.clone() }));
    all
}
