//! What this host can enforce, found out by setting everything up around a process that then ends.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use xt_core::manifest::custody::Custody;
use xt_core::manifest::intent::{Floor, Network, Profile};

use crate::canary::fresh_folder;
use crate::error::{SandboxError, doing, errno};
use crate::evidence::{judge, mounts};
use crate::parent::stand;
use crate::policy::{Brought, Limits, Policy};

/// What this host enforces of `profile`: the record that a run would get, without any program or input. Nothing is
/// started. `floor` says which controls count for `overall`.
pub fn doctor(profile: Profile, floor: BTreeMap<String, Floor>) -> Result<Custody, SandboxError> {
    let scratch = Scratch::make()?;
    let policy = Policy {
        profile,
        floor,
        program: "/none".into(),
        arguments: Vec::new(),
        libraries: Vec::new(),
        root: None,
        digests: BTreeMap::new(),
        inputs: scratch.0.join("in"),
        outputs: scratch.0.join("out"),
        environment: BTreeMap::new(),
        descriptors: Vec::new(),
        brought: Brought::default(),
        limits: Limits::of(1, 1 << 30, 1 << 24),
        network: Network::None,
    };
    let standing = stand(&policy, &[], profile == Profile::Full, None)?;
    let mut custody = judge(&policy, &standing.evidence);
    custody.mounts = mounts(&policy, &[], &[]);
    Ok(custody)
}

/// Empty folders for inputs and outputs; gone when this is dropped, or with the canaries of a maker that was killed.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> Result<Self, SandboxError> {
        let scratch = Self(fresh_folder().map_err(|error| doing("making a folder")(errno(&error)))?);
        for name in ["in", "out"] {
            let path = scratch.0.join(name);
            // Under root the trainer is another user.
            let made = fs::create_dir(&path).and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)));
            made.map_err(|error| doing("making empty folders")(errno(&error)))?;
        }
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is swept by the next start.
        fs::remove_dir_all(&self.0).ok();
    }
}
