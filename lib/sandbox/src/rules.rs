//! Landlock: what the trainer may open, by path, on top of what its file system shows.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use nix::errno::Errno;
use xt_core::manifest::intent::Network;

use crate::admit::Admitted;
use crate::cache::{self, CACHE};
use crate::namespace::{DEVICES, Failed, at};
use crate::policy::{Policy, Root};
use crate::sys;

/// The newest version that this crate knows rights of.
const NEWEST: u64 = 10;

/// Version that the kernel offers; 0 without landlock.
pub(crate) fn version() -> u64 {
    static VERSION: OnceLock<u64> = OnceLock::new();
    *VERSION.get_or_init(|| ask().unwrap_or(0))
}

/// Asks the kernel for its version (landlock_create_ruleset(2) with `LANDLOCK_CREATE_RULESET_VERSION`).
fn ask() -> Result<u64, Errno> {
    let version = sys::call(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0])?;
    Ok(u64::try_from(version).unwrap_or(0))
}

/// Rights that newer versions add and this kernel lacks, in words.
pub(crate) fn dropped(version: u64) -> Vec<String> {
    let since = [
        (2, "refer"),
        (3, "truncate"),
        (4, "TCP bind and connect"),
        (5, "ioctl on devices"),
        (6, "signals and abstract sockets out of the domain"),
        (9, "resolving path sockets"),
        (10, "UDP"),
    ];
    let lacking = since.into_iter().filter(|(needs, _)| version < *needs);
    lacking.map(|(needs, right)| format!("landlock: {right} needs version {needs}, the kernel has {version}")).collect()
}

/// What may be done below a path.
#[derive(Clone, Copy)]
enum Grant {
    Run,
    ReadFile,
    ReadTree,
    RunTree,
    WriteTree,
    Sink,
}

impl Grant {
    /// What may be done with a root.
    fn root(root: &Root) -> Self {
        match (root.path.is_dir(), root.execute) {
            (true, true) => Self::RunTree,
            (true, false) => Self::ReadTree,
            (false, true) => Self::Run,
            (false, false) => Self::ReadFile,
        }
    }

    fn rights(self, version: ABI) -> BitFlags<AccessFs> {
        let rights = match self {
            Self::Run => AccessFs::Execute | AccessFs::ReadFile,
            Self::ReadFile => AccessFs::ReadFile.into(),
            Self::ReadTree => AccessFs::ReadFile | AccessFs::ReadDir,
            Self::RunTree => AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute,
            Self::WriteTree => {
                let never = AccessFs::Execute
                    | AccessFs::MakeSock
                    | AccessFs::MakeFifo
                    | AccessFs::MakeBlock
                    | AccessFs::MakeChar
                    | AccessFs::MakeSym
                    | AccessFs::IoctlDev;
                AccessFs::from_all(version) & !never
            }
            Self::Sink => AccessFs::ReadFile | AccessFs::WriteFile,
        };
        rights & AccessFs::from_all(version)
    }
}

/// The paths, as the trainer sees them. Every one must exist: a rule for a missing path would protect nothing.
fn grants(policy: &Policy, admitted: &[Admitted], proc: bool) -> Vec<(PathBuf, Grant)> {
    let file = |file: &Admitted| (file.at.clone(), if file.runs { Grant::Run } else { Grant::ReadFile });
    let mut grants: Vec<(PathBuf, Grant)> = admitted.iter().map(file).collect();
    grants.extend(policy.brought.roots.iter().map(|root| (root.path.clone(), Grant::root(root))));
    grants.push((policy.inputs_inside().into(), Grant::ReadTree));
    grants.push((policy.outputs_inside().into(), Grant::WriteTree));
    grants.push((DEVICES[0].into(), Grant::Sink));
    grants.push((DEVICES[1].into(), Grant::ReadFile));
    if policy.own_root() && cache::of_policy(policy).is_some() {
        grants.push((CACHE.into(), Grant::ReadFile));
    }
    if Path::new("/proc/cpuinfo").exists() {
        grants.push(("/proc/cpuinfo".into(), Grant::ReadFile));
    }
    // Without a process namespace the trainer gets nothing of /proc but the processor.
    if proc {
        grants.push(("/proc/pid".into(), Grant::ReadTree));
    }
    grants
}

/// Confines the calling thread and its children for ever.
pub(crate) fn confine(policy: &Policy, admitted: &[Admitted], proc: bool) -> Result<(), Failed> {
    restrict(&grants(policy, admitted, proc), policy.network)
}

/// Confines the calling thread for ever to reading below `folder`, with the same rights withheld as from a trainer.
pub(crate) fn confine_to_read(folder: &Path, network: Network) -> Result<(), Failed> {
    restrict(&[(folder.into(), Grant::ReadTree)], network)
}

/// Who is admitted to a network may use its ports; sockets by abstract name stay within the run all the same.
fn restrict(grants: &[(PathBuf, Grant)], network: Network) -> Result<(), Failed> {
    let offered = ask().map_err(at("landlock"))?;
    let version = ABI::from(i32::try_from(offered.min(NEWEST)).unwrap_or(0));
    let failed = |stage: &str| (format!("landlock: {stage}"), last());
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(version))
        .map_err(|_| failed("files"))?;
    if version >= ABI::V4 && network == Network::None {
        ruleset = ruleset.handle_access(AccessNet::from_all(version)).map_err(|_| failed("network"))?;
    }
    if version >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(version)).map_err(|_| failed("scopes"))?;
    }
    let mut created = ruleset.create().map_err(|_| failed("creating the rules"))?;
    for (path, grant) in grants {
        let open = PathFd::new(path).map_err(|_| failed(&format!("opening {}", path.display())))?;
        created = created
            .add_rule(PathBeneath::new(open, grant.rights(version)))
            .map_err(|_| failed(&format!("rule for {}", path.display())))?;
    }
    let status = created.restrict_self().map_err(|_| failed("confining"))?;
    if status.ruleset == RulesetStatus::FullyEnforced {
        return Ok(());
    }
    Err(("landlock: only a part is in force".into(), Errno::EOPNOTSUPP))
}

/// The crate's errors keep no number; the kernel's last answer is still there.
fn last() -> Errno {
    Errno::last()
}
