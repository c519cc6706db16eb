//! `xt.intent/1`: what a run may use, and the isolation asked for (L14, L22–L32).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::field::Range;
use crate::name::Name;
use crate::tag;

crate::record! {
    /// What a run may use: the resource envelope and the isolation asked for.
    pub struct Intent as tag::INTENT {
        /// Who asks.
        principal: Name,
        /// What for; for people.
        purpose: String,
        /// The resource envelope.
        resources: Resources,
        /// The isolation asked for.
        isolation: Isolation,
        /// Names of the secrets that the program gets, each as a descriptor. Their bytes are given when the run is asked for, and stand nowhere.
        secrets: Vec<Name>,
        /// The network that the program gets.
        network: Network,
        /// Where it runs.
        runtime: Venue,
    }
}

crate::words! {
    /// The network that a program gets. What it asks for on an admitted one is in the run record.
    pub enum Network {
        /// None, not even to this machine.
        None "none",
        /// One of its own, with nothing in it but itself: its processes can talk to each other, and to nobody else.
        Loopback "loopback",
        /// That of the host, with everything that the host can reach.
        Host "host",
    }
}

crate::choice! {
    /// Where a run takes place.
    pub enum Venue {
        /// On this machine.
        Local "local" {},
        /// On someone else's, under the same custody. This version has no such runtime.
        Remote "remote" {
            /// The runtime.
            name: Name,
            /// What leaves this machine, and where it goes.
            egress: String,
            /// Who has custody of it there.
            provider: String,
            /// How long it is kept there.
            retention: String,
        },
    }
}

crate::record! {
    /// The resource envelope.
    pub struct Resources {
        /// Processor cores.
        cores: u64 [Range::from(1.0).to(4096.0)],
        /// Memory in bytes.
        memory_bytes: u64 [Range::from(1_048_576.0).to(1e15)],
        /// Accelerators by name; none so far.
        accelerators: Vec<Name>,
        /// Bytes of outputs.
        storage_bytes: u64 [Range::from(1_048_576.0).to(1e15)],
        /// Wall-clock seconds.
        duration_seconds: u64 [Range::from(1.0).to(1e9)],
        /// Bytes of standard output and standard error kept, each.
        log_bytes: u64 [Range::from(0.0).to(1e12)],
        /// Work that may not run at the same time shares a domain.
        conflict_domains: Vec<Name>,
    }
}

crate::record! {
    /// The isolation asked for.
    pub struct Isolation {
        /// Which set of controls.
        profile: Profile,
        /// Per control, whether a run without it may start. Controls not named are `required`.
        floor: BTreeMap<String, Floor>,
    }
}

crate::words! {
    /// Which set of controls.
    pub enum Profile {
        /// Namespaces, landlock, system-call filter and limits.
        Full "full",
        /// Landlock, system-call filter and limits, for hosts that grant no namespaces.
        InContainer "in-container",
        /// Limits only. The record says so.
        None "none",
    }
}

crate::words! {
    /// Whether a run may start without a control.
    pub enum Floor {
        /// It may not.
        Required "required",
        /// It may, and the record says so.
        Preferred "preferred",
    }
}

impl Intent {
    /// The envelope of a plan that was compiled without an intent: one core, 4 GiB, one hour, full isolation. Processor
    /// time, memory and process counts need a control group, which not every host grants, so these are preferred.
    pub fn default_for(cores: u64) -> Self {
        let name = |text: &str| Name::new(text).unwrap_or_else(|| unreachable!("a literal identifier"));
        Self {
            principal: name("operator"),
            purpose: String::from("none stated"),
            resources: Resources {
                cores,
                memory_bytes: 4 << 30,
                accelerators: Vec::new(),
                storage_bytes: 1 << 30,
                duration_seconds: 3600,
                log_bytes: 4 << 20,
                conflict_domains: Vec::new(),
            },
            isolation: Isolation {
                profile: Profile::Full,
                floor: ["limit.cpu", "limit.memory", "limit.processes"]
                    .map(|control| (String::from(control), Floor::Preferred))
                    .into(),
            },
            secrets: Vec::new(),
            network: Network::None,
            runtime: Venue::Local {},
        }
    }
}
