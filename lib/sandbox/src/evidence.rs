//! From what was set up and what was tried to a verdict for each control.

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::sys::utsname::uname;
use xt_core::digest::Digest;
use xt_core::manifest::custody::{Attestation, Control, Custody, Host, Layer, Mount, Principal, Probe, State};
use xt_core::manifest::intent::{Floor, Profile};
use xt_core::verb::custody::{self as promised, OWN_NETWORK, asked, controls, overall, residue as residue_of};

use crate::admit::Admitted;
use crate::cache::{self, CACHE};
use crate::group::{Group, Refused};
use crate::identity::Way;
use crate::namespace::{Failed, ROOT, code_attributes, folders, names};
use crate::outside::CONTROL;
use crate::policy::{INPUTS, Policy};
use crate::probe::{OK, TWINS, attempts_of};
use crate::{filter, rules};

/// What was set up and what was tried.
pub(crate) struct Evidence {
    way: Way,
    asked_namespaces: bool,
    /// Whether there are namespaces with a root of their own.
    pub(crate) namespaces: Result<(), Failed>,
    /// Whether the guard reported that it stands in a root of its own.
    pub(crate) entered: bool,
    /// How landlock and the filter fared.
    pub(crate) layers: BTreeMap<String, Result<(), Failed>>,
    /// Outcomes of the attempts, by `STAGE/ATTEMPT`.
    pub(crate) tried: BTreeMap<String, String>,
    /// Effective capabilities of the trainer's process as it found them, in hexadecimal digits.
    pub(crate) capabilities: Option<String>,
    /// Why there is no `/proc`.
    pub(crate) without_proc: Option<Errno>,
    /// Why the trainer cannot start although its sandbox stands.
    pub(crate) failed: Option<Failed>,
    memory: Result<&'static str, Refused>,
    processes: Result<&'static str, Refused>,
    processor: Result<&'static str, Refused>,
}

impl Evidence {
    /// Nothing is known yet but what can be found outside.
    pub(crate) fn new(way: Way, namespaces: bool) -> Self {
        let none = Err(("looking for the controller", Errno::ENOENT));
        Self {
            way,
            asked_namespaces: namespaces,
            namespaces: Ok(()),
            entered: false,
            layers: BTreeMap::new(),
            tried: BTreeMap::new(),
            capabilities: None,
            without_proc: None,
            failed: None,
            memory: none,
            processes: none,
            processor: none,
        }
    }

    /// Takes note of which limits the control groups hold.
    pub(crate) fn limits(&mut self, group: &Group) {
        (self.memory, self.processes, self.processor) = (group.memory(), group.processes(), group.processor());
    }

    fn outcome(&self, stage: &str, attempt: &str) -> Option<&String> {
        self.tried.get(&format!("{stage}/{attempt}"))
    }

    /// Whether the layers stand, so that a failure from now on is one of the trainer's start.
    pub(crate) fn standing(&self) -> bool {
        !self.asked_namespaces || self.entered
    }
}

/// A mechanism and how it fared.
type Mechanism = (String, Result<(), String>);

/// What a control consists of in a profile.
struct Made {
    mechanisms: Vec<Mechanism>,
    /// What this profile does not cover, by its nature.
    residue: Vec<&'static str>,
}

/// The record, but for what was mounted.
pub(crate) fn judge(policy: &Policy, evidence: &Evidence) -> Custody {
    let controls: Vec<Control> = controls(policy.network).iter().map(|id| control(policy, evidence, id)).collect();
    let overall = overall(&controls);
    let filtered = evidence.layers.get("filter").is_some_and(Result::is_ok);
    Custody {
        profile: policy.profile,
        network: policy.network,
        host: Host {
            kernel: uname().map_or_else(|_| "unknown".into(), |name| name.release().to_string_lossy().into_owned()),
            landlock: rules::version(),
        },
        principal: Principal {
            user: evidence.way.user().into(),
            capabilities: evidence.capabilities.clone().unwrap_or_else(|| "not seen".into()),
            user_namespace: evidence.way == Way::Mapped,
        },
        overall,
        controls,
        mounts: Vec::new(),
        filter: filtered.then(|| filter::digest(&filter::program(evidence.asked_namespaces, true, policy.network))),
        environment: policy.environment.keys().cloned().collect(),
        descriptors: descriptors(policy),
        attestation: Attestation::SelfAttested,
    }
}

fn descriptors(policy: &Policy) -> Vec<u64> {
    let given = policy.descriptors.iter().filter_map(|(_, target)| u64::try_from(*target).ok());
    let mut all: Vec<u64> = given.chain([0, 1, 2]).collect();
    all.sort_unstable();
    all
}

/// What was mounted: the admitted files with their digests, and the folders.
pub(crate) fn mounts(policy: &Policy, admitted: &[Admitted], digests: &[Digest]) -> Vec<Mount> {
    let file = |(file, digest): (&Admitted, &Digest)| Mount {
        at: file.at.to_string_lossy().into_owned(),
        digest: Some(*digest),
        flags: if policy.own_root() { names(code_attributes()) } else { Vec::new() },
    };
    let mut mounts: Vec<Mount> = admitted.iter().zip(digests).map(file).collect();
    let code = || if policy.own_root() { names(code_attributes()) } else { Vec::new() };
    for root in &policy.brought.roots {
        // Where it really lies, too: the kernel knows files by that.
        let real = root.path.canonicalize().ok().filter(|real| *real != root.path);
        for path in real.iter().chain([&root.path]) {
            let at = path.to_string_lossy().into_owned();
            mounts.push(Mount { at, digest: Some(root.digest), flags: code() });
        }
    }
    if policy.own_root() {
        let made = cache::of_policy(policy).map(|bytes| Digest::of(&bytes));
        let flags = || names(ROOT);
        mounts.extend(made.map(|digest| Mount { at: CACHE.into(), digest: Some(digest), flags: flags() }));
        mounts.extend(folders().into_iter().map(|(at, attributes)| Mount {
            at: at.into(),
            digest: (at == INPUTS).then(|| inputs(policy)).flatten(),
            flags: names(attributes),
        }));
    }
    mounts.sort_by(|a, b| a.at.cmp(&b.at));
    mounts
}

/// Digest of the sorted names in the input folder, one a line: there, a file is named by the digest of its bytes.
fn inputs(policy: &Policy) -> Option<Digest> {
    let entries = std::fs::read_dir(&policy.inputs).ok()?.collect::<std::io::Result<Vec<_>>>().ok()?;
    let mut names: Vec<String> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    Some(Digest::of(names.iter().fold(String::new(), |all, name| all + name + "\n").as_bytes()))
}

fn control(policy: &Policy, evidence: &Evidence, id: &str) -> Control {
    let floor = policy.floor.get(id).copied().unwrap_or(Floor::Required);
    if !asked(policy.profile, policy.network, id) {
        return Control {
            id: id.into(),
            floor,
            mechanisms: Vec::new(),
            state: State::NotRequested,
            missing: Vec::new(),
            proof: Vec::new(),
        };
    }
    let made = made(policy, evidence, id);
    let proof = proof(evidence, id);
    let failed: Vec<String> = made.mechanisms.iter().filter_map(|(_, outcome)| outcome.clone().err()).collect();
    let in_force: Vec<String> =
        made.mechanisms.into_iter().filter(|(_, outcome)| outcome.is_ok()).map(|(name, _)| name).collect();
    let mut missing = failed.clone();
    missing.extend(made.residue.iter().map(|text| String::from(*text)));
    let passed = proof.iter().filter(|probe| probe.control == OK && probe.inside == OK);
    missing.extend(passed.map(|probe| match probe.stage {
        Layer::All => format!("{} works inside", probe.probe),
        stage => format!("{} works with {stage} alone", probe.probe),
    }));
    let (covered, open) = dropped(evidence, id);
    missing.extend(open);
    missing.extend(untried(evidence, id).into_iter().map(|stage| format!("{stage} alone was not tried")));
    let all: Vec<&Probe> = proof.iter().filter(|probe| probe.stage == Layer::All).collect();
    let proven = all.iter().any(|probe| probe.control == OK && probe.inside != OK);
    // A host may already deny everyone what this control denies: new privileges, in a container without them.
    let closed = id == "privileges.none" && !all.is_empty() && all.iter().all(|probe| probe.inside != OK);
    if !proven && !closed && needs_proof(id) {
        missing.push("no attempt that works outside was seen to fail inside".into());
    }
    let state = match (in_force.is_empty(), missing.is_empty()) {
        (true, _) => State::Unavailable,
        (false, true) => State::Enforced,
        (false, false) => State::Partial,
    };
    missing.extend(covered);
    Control { id: id.into(), floor, mechanisms: in_force, state, missing, proof }
}

/// The environment is an argument of the exec, so that no attempt before it could show anything; running out of processor
/// time takes a tenth of a second.
fn needs_proof(id: &str) -> bool {
    !matches!(id, "environment.built" | "limit.cpu")
}

/// Layers that stand in the trainer's process and are to stop something alone, but of which nothing was heard.
fn untried(evidence: &Evidence, id: &str) -> Vec<Layer> {
    let stands = |stage: &Layer| match stage {
        Layer::Landlock => evidence.layers.get("landlock").is_some_and(Result::is_ok),
        Layer::Filter => evidence.layers.get("filter").is_some_and(Result::is_ok),
        _ => evidence.asked_namespaces && evidence.namespaces.is_ok(),
    };
    let version = rules::version();
    let own = attempts_of(id);
    let silent = |stage: &Layer| {
        let due = |layers: &[(Layer, u64)]| layers.iter().any(|(layer, since)| layer == stage && *since <= version);
        own.iter().any(|(name, layers)| due(layers) && evidence.outcome(stage.word(), name).is_none())
    };
    ALONE.into_iter().filter(|stage| stands(stage) && silent(stage)).collect()
}

/// The layers that are tried alone, in the order in which they are set up.
const ALONE: [Layer; 5] = [Layer::Mount, Layer::Net, Layer::Process, Layer::Landlock, Layer::Filter];

/// Rights of this control that landlock lacks on this kernel: those that something stands in for, which are no reason to
/// call it incomplete, and those that nothing does.
fn dropped(evidence: &Evidence, id: &str) -> (Vec<String>, Vec<String>) {
    if !evidence.layers.get("landlock").is_some_and(Result::is_ok) {
        return (Vec::new(), Vec::new());
    }
    rules::dropped(id, rules::version(), evidence.asked_namespaces)
}

fn proof(evidence: &Evidence, id: &str) -> Vec<Probe> {
    let twins = TWINS.iter().filter(|(control, _, _)| *control == id).map(|(_, name, _)| (*name, &[][..]));
    let mut proof = Vec::new();
    for (name, layers) in attempts_of(id).into_iter().chain(twins) {
        let control = evidence.outcome(CONTROL, name).cloned().unwrap_or_else(|| "not tried".into());
        // What a layer does not stop alone, though it was tried for another control, shows nothing here.
        let own = |stage: &Layer| *stage == Layer::All || layers.iter().any(|(layer, _)| layer == stage);
        for stage in ALONE.into_iter().chain([Layer::All]).filter(own) {
            if let Some(inside) = evidence.outcome(stage.word(), name) {
                proof.push(Probe { probe: name.into(), stage, control: control.clone(), inside: inside.clone() });
            }
        }
    }
    proof
}

/// Which mechanisms make a control, and how each fared.
fn made(policy: &Policy, evidence: &Evidence, id: &str) -> Made {
    let words = |failed: &Failed| format!("{}: {:?}", failed.0, failed.1);
    let namespace = |name: &str| {
        let outcome = evidence.namespaces.as_ref().copied().map_err(|failed| format!("namespaces: {}", words(failed)));
        (format!("{name} namespace"), outcome)
    };
    let layer = |name: &str, what: &str| {
        let outcome = match evidence.layers.get(name) {
            Some(Ok(())) => Ok(()),
            Some(Err(failed)) => Err(words(failed)),
            None => Err(format!("{name}: not reached")),
        };
        (format!("{name}: {what}"), outcome)
    };
    let limit = |name: &str| (format!("rlimit: {name}"), Ok(()));
    let group = |outcome: Result<&'static str, Refused>, name: &str| match outcome {
        Ok(mechanism) => (mechanism.to_string(), Ok(())),
        Err((stage, errno)) => {
            (format!("cgroup: {name}"), Err(format!("control group for {name}: {stage}: {errno:?}")))
        }
    };
    let full = policy.profile == Profile::Full;
    let mut residue = Vec::new();
    let mut mechanisms = match id {
        "calls.filtered" => vec![layer("filter", "refused calls")],
        "credentials.none" => vec![layer("landlock", "files"), layer("filter", "keyrings")],
        "descriptors.closed" => vec![("close_range".into(), Ok(()))],
        "environment.built" => vec![("execve: built environment".into(), Ok(()))],
        "filesystem.read" | "filesystem.write" => vec![layer("landlock", "files")],
        "limit.cpu" => vec![group(evidence.processor, "cpu")],
        "limit.files" => Vec::new(),
        "limit.memory" => vec![group(evidence.memory, "memory"), limit("data, address space")],
        "limit.processes" if evidence.way == Way::Mapped => vec![limit("processes")],
        "limit.processes" => vec![group(evidence.processes, "pids"), limit("processes")],
        "limit.storage" => vec![limit("file size")],
        "network.none" => vec![layer("filter", "sockets"), layer("landlock", "TCP, abstract sockets")],
        OWN_NETWORK if full => vec![layer("filter", "families of sockets"), layer("landlock", "abstract sockets")],
        OWN_NETWORK => {
            vec![("network namespace".into(), Err(format!("namespaces: the profile {} has none", policy.profile)))]
        }
        "privileges.none" => vec![
            ("no_new_privs".into(), Ok(())),
            ("capabilities dropped".into(), Ok(())),
            layer("filter", "namespaces, mounts"),
        ],
        _ => vec![layer("landlock", "signals"), layer("filter", "other processes")],
    };
    if full {
        let own: &[&str] = match id {
            "credentials.none" | "filesystem.read" | "filesystem.write" | "limit.files" | "limit.storage" => &["mount"],
            "network.none" | OWN_NETWORK => &["network"],
            "process.isolated" => &["process", "ipc", "uts", "cgroup"],
            _ => &[],
        };
        mechanisms.extend(own.iter().map(|name| namespace(name)));
    }
    residue.extend(residue_of(policy.profile, id));
    if id == "process.isolated" && evidence.without_proc.is_some() {
        residue.push("the host grants no fresh /proc: the trainer has none");
    }
    Made { mechanisms, residue }
}

/// Required controls that are not what their profile promises, with the reasons.
pub(crate) fn missing(custody: &Custody) -> Vec<String> {
    promised::missing(custody).into_iter().map(|(_, sentence)| sentence).collect()
}
