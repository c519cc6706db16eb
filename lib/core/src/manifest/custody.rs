//! `xt.custody/1`: each isolation control, what was asked, what did it, and the proof. Nothing in it varies between two
//! runs of one plan on one host: sizes, times and process numbers stand in the run record.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::manifest::intent::{Floor, Network, Profile};
use crate::tag;

crate::record! {
    /// Each isolation control: asked, mechanism, state, proof. Self-attested: the supervisor wrote it.
    pub struct Custody as tag::CUSTODY {
        /// The profile asked for.
        profile: Profile,
        /// The network admitted.
        network: Network,
        /// What the host offers.
        host: Host,
        /// As whom the trainer ran.
        principal: Principal,
        /// The controls, sorted by id.
        controls: Vec<Control>,
        /// What was mounted for the trainer, sorted by place.
        mounts: Vec<Mount>,
        /// Digest of the system-call filter program; `null` without one.
        filter: Option<Digest>,
        /// Names of the environment variables.
        environment: Vec<String>,
        /// Descriptors open when the trainer started.
        descriptors: Vec<u64>,
        /// The worst state among required controls.
        overall: State,
        /// Who says so.
        attestation: Attestation,
    }
}

crate::record! {
    /// What the host offers.
    pub struct Host {
        /// Kernel release.
        kernel: String,
        /// Landlock version; 0 without it.
        landlock: u64,
    }
}

crate::record! {
    /// As whom the trainer ran.
    pub struct Principal {
        /// User number inside.
        user: u64,
        /// Effective capabilities, as hexadecimal digits.
        capabilities: String,
        /// Whether in a user namespace of its own.
        user_namespace: bool,
    }
}

crate::record! {
    /// One control.
    pub struct Control {
        /// Its name, such as `network.none`.
        id: String,
        /// Whether a run may start without it.
        floor: Floor,
        /// Mechanisms that enforce it.
        mechanisms: Vec<String>,
        /// How far it is enforced.
        state: State,
        /// What is missing, with the stage and the error, in words.
        missing: Vec<String>,
        /// What was tried.
        proof: Vec<Probe>,
    }
}

crate::words! {
    /// How far a control is enforced.
    pub enum State {
        /// Set up, and its probe was blocked inside while it worked outside.
        Enforced "enforced",
        /// Something of it is missing.
        Partial "partial",
        /// The host cannot.
        Unavailable "unavailable",
        /// Not asked for.
        NotRequested "not_requested",
    }
}

crate::record! {
    /// An attempt made to prove a control.
    pub struct Probe {
        /// What was tried.
        probe: String,
        /// Which layer stood when it was tried inside.
        stage: Layer,
        /// Its outcome without the sandbox: `OK` or the error's name.
        control: String,
        /// Its outcome inside: `OK` or the error's name.
        inside: String,
    }
}

crate::words! {
    /// Which layer stood when an attempt was made.
    pub enum Layer {
        /// A file system of its own alone.
        Mount "mount",
        /// A network of its own alone.
        Net "net",
        /// A process number space of its own alone.
        Process "process",
        /// Landlock alone.
        Landlock "landlock",
        /// The system-call filter alone.
        Filter "seccomp",
        /// Every layer, as the trainer has them.
        All "all",
    }
}

crate::record! {
    /// Something mounted for the trainer.
    pub struct Mount {
        /// Where.
        at: String,
        /// Digest of the content; `null` for folders the run writes to and for virtual file systems.
        digest: Option<Digest>,
        /// Flags, such as `ro`.
        flags: Vec<String>,
    }
}

crate::words! {
    /// Who says so.
    pub enum Attestation {
        /// The supervisor itself; nobody else watched.
        SelfAttested "self",
    }
}

/// A map of floors for controls, as the intent gives it.
pub type Floors = BTreeMap<String, Floor>;
