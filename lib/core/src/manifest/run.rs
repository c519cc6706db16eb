//! `xt.run/1`: what ran, on what, and how it ended (L38–L51). One attempt, one record; a retry is another record.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::field::{Field as _, Range};
use crate::instant::Instant;
use crate::manifest::Artifact;
use crate::manifest::candidate::{Precision, Regime};
use crate::manifest::intent::{Intent, Profile};
use crate::manifest::plan::{Input, Mode};
use crate::manifest::snapshot::Cadence;
use crate::name::Name;
use crate::number::Finite;
use crate::tag;

crate::record! {
    /// What ran, on what, and how it ended.
    pub struct Run as tag::RUN {
        /// This attempt; never used twice.
        attempt: Name,
        /// Operation that asked for it.
        operation: Name,
        /// Id of the plan.
        plan: Digest,
        /// Request digest of the plan.
        request: Digest,
        /// Fingerprint of the candidate.
        fingerprint: Digest,
        /// What the run was for. A replay runs the plan of the earlier run, so this may differ from the plan's mode.
        mode: Mode,
        /// Regime of the candidate.
        regime: Regime,
        /// Precision of the candidate; `null` for a command, which does not say.
        precision: Option<Precision>,
        /// Generator of all randomness; a command has its own.
        generator: String,
        /// Seed of the run.
        seed: u64,
        /// Id of the dataset; `null` for a command that reads none.
        dataset: Option<Digest>,
        /// Every file the trainer could read.
        inputs: Vec<Input>,
        /// What it ran on; `null` when the worker could not be read.
        stack: Option<Stack>,
        /// The whole environment of the trainer.
        environment: BTreeMap<String, String>,
        /// What it was allowed to use.
        intent: Intent,
        /// Isolation profile in force.
        isolation: Profile,
        /// Id of the custody record; `null` when it never came to a sandbox.
        custody: Option<Digest>,
        /// How it ended.
        status: Status,
        /// Who or what is at fault, when it did not end well.
        at_fault: AtFault,
        /// Why, in words.
        cause: String,
        /// How the trainer's process ended.
        exit: ProcessExit,
        /// What it did.
        progress: Progress,
        /// Its trace; `null` when there is no whole line.
        trace: Option<TraceReference>,
        /// What it went on from; `null` when it began at the first step.
        start: Option<Start>,
        /// When it was to take snapshots; no part of the plan, because it changes nothing that is learned.
        cadence: Cadence,
        /// The snapshots it took that are kept, by step. What a run that did not succeed has taken is as good as any other.
        snapshots: Vec<Taken>,
        /// Files of a succeeded run, sorted by path.
        artifacts: Vec<Artifact>,
        /// Files of any other run, kept apart for diagnosis, sorted by path.
        quarantined: Vec<Artifact>,
        /// Standard output and standard error.
        logs: Logs,
        /// When it was started.
        started: Instant,
        /// When it ended; for a lost run, when that was found.
        finished: Instant,
        /// Figures that differ between two runs of one plan.
        observed: Observed,
    }
}

crate::record! {
    /// What a run went on from. The steps up to there were taken by other runs, and their lines stand at the head of its trace.
    pub struct Start {
        /// Id of the run whose trace it continues.
        run: Digest,
        /// Id of the snapshot that was restored.
        snapshot: Digest,
        /// Steps that were taken before.
        step: u64 [Range::from(1.0)],
    }
}

crate::record! {
    /// A snapshot that a run took.
    pub struct Taken {
        /// Steps taken before it.
        step: u64 [Range::from(1.0)],
        /// Id of the `xt.snapshot/1`.
        snapshot: Digest,
    }
}

crate::record! {
    /// Identity of the execution stack (T77): exactness is claimed within one.
    pub struct Stack {
        /// Digest of the worker program, or of the executable of a command.
        worker: Digest,
        /// What the worker said about itself; `null` when it was never ready, and for a command.
        reported: Option<Reported>,
        /// Every library the worker loads, sorted by name. The roots of a command stand in its plan and its custody record.
        libraries: Vec<Library>,
        /// Processor model.
        processor: String,
        /// Digest of the processor's feature list.
        processor_features: Digest,
        /// Operating system and architecture.
        system: String,
    }
}

impl Stack {
    /// The one digest that stands for it: of all of it but what the worker says about itself, which follows from the plan.
    pub fn identity(&self) -> Digest {
        Self { reported: None, ..self.clone() }.write().digest()
    }
}

crate::record! {
    /// What the worker says about itself when it is ready.
    pub struct Reported {
        /// Version of the worker.
        version: String,
        /// Vector instructions in use, as the tensor library reports them.
        cpu_capability: String,
        /// Threads in use.
        threads: u64,
        /// Trainable parameters.
        parameters: u64,
        /// Samples it found in one epoch.
        samples_per_epoch: u64,
    }
}

crate::record! {
    /// A library that the worker loads.
    pub struct Library {
        /// File name.
        name: String,
        /// SHA-256 of its bytes.
        digest: Digest,
    }
}

crate::words! {
    /// How a run ended.
    pub enum Status {
        /// Completion was reported and the exit was clean, and both agree with the plan.
        Succeeded "succeeded",
        /// The trainer failed.
        Failed "failed",
        /// Someone asked it to stop.
        Cancelled "cancelled",
        /// A budget ran out.
        Exhausted "exhausted",
        /// A stop condition held it: a non-finite stage, or a training loss above its limit.
        Held "held",
        /// It was asked to stop at a step boundary, and another run can go on from its last snapshot.
        Drained "drained",
        /// The trainer never started.
        NotStarted "not-started",
        /// Nobody saw how it ended.
        Lost "lost",
    }
}

crate::words! {
    /// Who or what is at fault for an end (L95). Whether what a good end gave is good enough is for a decision to say.
    pub enum AtFault {
        /// Nobody: it succeeded, or stopped because it was asked to.
        Nobody "nobody",
        /// Nobody: it was not let start, because something that it needs is not to be had here.
        Blocked "blocked",
        /// What runs it: the supervisor, the store or the host failed, or nobody saw the end.
        Harness "harness",
        /// What is trained or measured: its program, its numbers, or its appetite.
        Model "model",
        /// What measures it.
        Grader "grader",
    }
}

crate::record! {
    /// How a process ended.
    pub struct ProcessExit {
        /// Exit code, when it exited.
        code: Option<u64>,
        /// Signal, when a signal ended it.
        signal: Option<u64>,
    }
}

crate::record! {
    /// What a run did.
    pub struct Progress {
        /// Steps asked for: those of the plan, or fewer for a partial replay.
        planned: u64,
        /// Steps taken.
        steps: u64,
        /// Updates made.
        updates: u64,
        /// Updates left out.
        skipped: u64,
        /// Whether the trainer reported completion.
        completed: bool,
        /// Where a condition of the candidate ended it before the last step, and why; `null` when none did. The supervisor works it out from the losses that it was told.
        stopped: Option<Stopped>,
    }
}

crate::record! {
    /// Where a condition ended a run, and why.
    pub struct Stopped {
        /// The last step.
        step: u64 [Range::from(1.0)],
        /// Which condition.
        reason: StopReason,
        /// Mean training loss of the last window; `null` when it is not finite.
        mean: Option<Finite>,
    }
}

crate::words! {
    /// Which condition of a candidate ended its run.
    pub enum StopReason {
        /// The training loss reached its target.
        Target "target",
        /// The training loss was not better than its best so often in a row.
        Patience "patience",
        /// The training loss was above its limit: the run is held.
        Limit "limit",
    }
}

crate::record! {
    /// A trace by content.
    pub struct TraceReference {
        /// Digest of `steps.jsonl`.
        digest: Digest,
        /// Number of lines.
        steps: u64,
        /// `chain` of the last line.
        chain: Digest,
    }
}

crate::record! {
    /// Standard output and standard error of the trainer.
    pub struct Logs {
        /// Standard output.
        stdout: Log,
        /// Standard error.
        stderr: Log,
    }
}

crate::record! {
    /// One captured stream.
    pub struct Log {
        /// Digest of the bytes kept.
        digest: Digest,
        /// Bytes kept.
        bytes: u64,
        /// Bytes beyond the cap, dropped.
        dropped: u64,
    }
}

crate::record! {
    /// System calls that were counted.
    pub struct Calls {
        /// How many of each, by name.
        counts: BTreeMap<String, u64>,
        /// The first 64 with what they asked for, in their order.
        first: Vec<String>,
    }
}

crate::record! {
    /// A file that was mapped to be executed.
    pub struct Mapped {
        /// Where the trainer saw it.
        path: String,
        /// Digest of the admitted file in this place; `null` in a root, which has a digest as a whole, and for what nobody admitted.
        digest: Option<Digest>,
    }
}

crate::record! {
    /// Figures that differ between two runs of one plan; `null` means not observed.
    pub struct Observed {
        /// Wall-clock nanoseconds from start to end, by the monotonic clock.
        wall_nanoseconds: Option<u64>,
        /// Processor nanoseconds, user and system.
        cpu_nanoseconds: Option<u64>,
        /// Largest resident size in bytes.
        peak_memory_bytes: Option<u64>,
        /// Processes of the run that were still alive at its end and were killed.
        survivors_killed: Option<u64>,
        /// Kernel kills for lack of memory.
        out_of_memory_kills: Option<u64>,
        /// Forks refused by the process limit.
        process_limit_hits: Option<u64>,
        /// Tenths of a second in which the processor time of the envelope ran out.
        throttled_periods: Option<u64>,
        /// Nanoseconds that threads waited because of that.
        throttled_nanoseconds: Option<u64>,
        /// System calls refused and seen by the supervisor.
        denied_calls: Option<u64>,
        /// Which system calls were refused.
        denied: Option<Calls>,
        /// Which calls were made on an admitted network, as they were asked for; `null` without one, and where another program already listened to the calls of this one. A record, no proof: an address can change between the moment when it is noted and the one when the kernel reads it.
        opened: Option<Calls>,
        /// The files that the trainer had mapped to execute whenever the supervisor looked, sorted by path; `null` when it ended before the first look.
        mapped: Option<Vec<Mapped>>,
        /// Files of the worker, or of a command, whose digest was known from an earlier reading and whose times and size had not changed since, so that they were not read again.
        digests_cached: Option<u64>,
    }
}
