//! The kinds of document and their versions. A new field means a new version beside the old one.

macro_rules! tags {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal;)*) => {
        $($(#[doc = $doc])* pub const $name: &str = $text;)*
        /// Every kind of document that this version reads or writes.
        pub const ALL: &[&str] = &[$($text),*];
    };
}

tags! {
    /// One training hypothesis: every value that changes what is learned.
    CANDIDATE = "xt.candidate/1";
    /// Admitted data: members and exclusions by digest.
    DATASET = "xt.dataset/1";
    /// What a run may use: the resource envelope and the isolation asked for.
    INTENT = "xt.intent/1";
    /// The resolved whole: what exactly will run.
    PLAN = "xt.plan/1";
    /// What ran, on what, and how it ended.
    RUN = "xt.run/1";
    /// Each isolation control: asked, mechanism, state, proof.
    CUSTODY = "xt.custody/1";
    /// Head of a trace of steps.
    TRACE = "xt.trace/1";
    /// The complete state of a run between two steps.
    SNAPSHOT = "xt.snapshot/1";
    /// How two snapshots differ, tensor by tensor.
    SNAPSHOT_DIFF = "xt.snapshot-diff/1";
    /// A frozen candidate with everything that binds it.
    BUNDLE = "xt.bundle/1";
    /// Whether a bundle verifies, and everything that is wrong with it.
    VERIFICATION = "xt.verification/1";
    /// The outcome of a replay.
    REPLAY = "xt.replay/1";
    /// The micro-batches after a state, which all of its branches see.
    FUTURE = "xt.future/1";
    /// What came of a branch, against the no-op of its set.
    BRANCH = "xt.branch/1";
    /// What a calibration must reach.
    GATES = "xt.gates/1";
    /// How far a regime that is not exact can be trusted.
    CALIBRATION = "xt.calibration/1";
    /// Two recorded traces, compared without running anything.
    TRACE_DIFF = "xt.trace-diff/1";
    /// One entry of the event log.
    EVENT = "xt.event/1";
    /// What the record says of an attempt, and what can be seen of it now.
    STATUS = "xt.status/1";
    /// Something a person asked for, such as a cancel, and what came of it.
    ACTION = "xt.action/1";
    /// What was found about an attempt whose end the record does not know, and what was done about it.
    RECONCILIATION = "xt.reconciliation/1";
    /// An experiment in which nothing moves any more, and what would move it on.
    QUIESCENCE = "xt.quiescence/1";
    /// What a host has to give to runs, as its operator declares it.
    INVENTORY = "xt.inventory/1";
    /// What a host has, what is taken, and what can be seen of it now.
    RESOURCES = "xt.resources/1";
    /// Every reason why an input was refused.
    REFUSAL = "xt.refusal/1";
    /// A contract and the evidence of one step's stages.
    INCIDENT = "xt.incident/1";
    /// Where the earliest evidenced non-finite value is.
    INCIDENT_REPORT = "xt.incident-report/1";
    /// An objective and the results of one evaluation cycle.
    DECISION_CONTEXT = "xt.decision-context/1";
    /// What is proposed for a candidate, and on which comparisons.
    DECISION = "xt.decision/1";
    /// How a trained model is to be measured.
    EVALUATION_SPEC = "xt.evaluation-spec/1";
    /// What an evaluator measured.
    METRICS = "xt.metrics/1";
    /// What was measured of a frozen model, and by which run.
    EVALUATION = "xt.evaluation/1";
    /// What two or more candidates scored, seed by seed.
    COMPARISON_CONTEXT = "xt.comparison-context/1";
    /// Whether candidates differ by more than chance.
    COMPARISON = "xt.comparison/1";
    /// By what rule a bundle of an experiment is chosen.
    PROMOTION_POLICY = "xt.promotion-policy/1";
    /// Which bundle was chosen, and on what.
    PROMOTION = "xt.promotion/1";
    /// Something that is not to be relied on any more.
    WITHDRAWAL = "xt.withdrawal/1";
}
