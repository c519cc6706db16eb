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

/// A right that some version added.
struct Right {
    since: u64,
    words: &'static str,
    /// The controls that it is a part of.
    controls: &'static [&'static str],
    /// What stands in for it, with namespaces and without; nothing does where this is empty.
    others: [&'static str; 2],
}

/// Rights by the version that added them (landlock(7)).
const RIGHTS: [Right; 8] = [
    right(2, "refer", &["filesystem.write"], ["mount namespace", ""]),
    right(3, "truncate", &["filesystem.write"], ["mount namespace", ""]),
    right(4, "TCP bind and connect", &["network.none"], ["network namespace and filter", "filter"]),
    right(5, "ioctl on devices", &["filesystem.write"], ["mount namespace", ""]),
    right(6, "abstract sockets out of the domain", &["network.none"], ["network namespace and filter", "filter"]),
    right(6, "signals out of the domain", &["process.isolated"], ["process namespace", ""]),
    right(9, "resolving path sockets", &["network.none"], ["network namespace and filter", "filter"]),
    right(10, "UDP", &["network.none"], ["network namespace and filter", "filter"]),
];

const fn right(since: u64, words: &'static str, controls: &'static [&'static str], others: [&'static str; 2]) -> Right {
    Right { since, words, controls, others }
}

/// Rights of a control that newer versions add and `version` lacks: those that something else stands in for, and those
/// that nothing does.
pub(crate) fn dropped(control: &str, version: u64, namespaces: bool) -> (Vec<String>, Vec<String>) {
    let lacking = RIGHTS.iter().filter(|right| version < right.since && right.controls.contains(&control));
    let (mut covered, mut open) = (Vec::new(), Vec::new());
    for Right { since, words, others, .. } in lacking {
        let text = format!("landlock: {words} needs version {since}, the kernel has {version}");
        match others[usize::from(!namespaces)] {
            "" => open.push(text),
            other => covered.push(format!("{text}; covered by {other}")),
        }
    }
    (covered, open)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Case B-04: rights newer than the kernel's version were dropped, and what was left passed for the whole.
    #[test]
    fn b_04_a_right_that_the_kernel_lacks_is_named_and_without_a_stand_in_it_counts_as_missing() {
        let [newest, seven, two] = [10, 7, 2].map(|version| dropped("network.none", version, true));
        assert_eq!((newest.0.len(), newest.1.len()), (0, 0));
        assert_eq!((seven.0.len(), seven.1.len()), (2, 0));
        assert!(
            seven.0[1].contains("UDP needs version 10, the kernel has 7; covered by network namespace"),
            "{seven:?}"
        );
        assert_eq!(two.0.len(), 4);
        let (covered, open) = dropped("filesystem.write", 2, false);
        assert!(covered.is_empty() && open.len() == 2 && open[0].contains("truncate needs version 3"), "{open:?}");
        assert_eq!(dropped("filesystem.write", 2, true).1.len(), 0, "a file system of its own needs neither");
        assert_eq!(dropped("process.isolated", 5, false).1.len(), 1);
        assert!(dropped("process.isolated", 6, false).1.is_empty() && dropped("limit.cpu", 0, false).1.is_empty());
    }
}
