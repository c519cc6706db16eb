//! What each isolation profile promises: which controls a custody record has, which of them the profile asks for, and
//! what it leaves open by its nature. The sandbox judges by it before it starts a trainer, and freezing and verifying
//! judge by it again.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::manifest::custody::{Control, Custody, State};
use crate::manifest::intent::{Floor, Network, Profile};

/// Every control, in the order of the record.
pub const CONTROLS: [&str; 14] = [
    "calls.filtered",
    "credentials.none",
    "descriptors.closed",
    "environment.built",
    "filesystem.read",
    "filesystem.write",
    "limit.cpu",
    "limit.files",
    "limit.memory",
    "limit.processes",
    "limit.storage",
    "network.none",
    "privileges.none",
    "process.isolated",
];

/// The control that stands beside `network.none` when the network of its own is admitted.
pub const OWN_NETWORK: &str = "network.own";

/// The controls of a record, in its order.
pub fn controls(network: Network) -> Vec<&'static str> {
    let mut all = CONTROLS.to_vec();
    if network == Network::Loopback {
        let after = CONTROLS.iter().position(|id| *id == "network.none").map_or(0, |index| index + 1);
        all.insert(after, OWN_NETWORK);
    }
    all
}

/// Controls that the profile `none` still has.
const BARE: [&str; 4] = ["descriptors.closed", "environment.built", "limit.memory", "limit.processes"];

/// Whether the profile has this control at all, with this network admitted.
pub fn asked(profile: Profile, network: Network, control: &str) -> bool {
    match control {
        // Only a namespace makes it, whatever else the profile leaves out.
        OWN_NETWORK => network == Network::Loopback,
        "network.none" if network != Network::None => false,
        _ => profile != Profile::None || BARE.contains(&control),
    }
}

/// What stays open by the nature of a control or of a profile without namespaces (named in xt(7)).
pub fn residue(profile: Profile, control: &str) -> &'static [&'static str] {
    match control {
        "limit.cpu" => &["nobody tries to exceed it beforehand: processor time is granted by the tenth of a second"],
        _ if profile == Profile::Full => &[],
        "filesystem.read" => &["existence and size of other files can be seen: landlock does not restrict stat"],
        "filesystem.write" => &["reading changes the access times of inputs"],
        "limit.files" => &["no count of files without a file system of its own"],
        "limit.storage" => &["the size of each file is limited, their sum is not"],
        _ => &[],
    }
}

/// The worst state among the required controls.
pub fn overall(controls: &[Control]) -> State {
    let required = controls.iter().filter(|control| control.floor == Floor::Required);
    required.map(|control| control.state).max().unwrap_or(State::NotRequested)
}

/// Required controls that are not what their profile promises, each with its number and the reasons.
pub fn missing(custody: &Custody) -> Vec<(usize, String)> {
    let sentence = |control: &Control| {
        let reasons = if control.missing.is_empty() { "unknown".into() } else { control.missing.join(", ") };
        format!("{} is {} ({reasons})", control.id, control.state)
    };
    let controls = custody.controls.iter().enumerate();
    controls
        .filter(|(_, control)| control.floor == Floor::Required && !kept(custody, control))
        .map(|(index, control)| (index, sentence(control)))
        .collect()
}

/// Whether a control is what its profile promises: everything in `full`, and all but its named residue.
fn kept(custody: &Custody, control: &Control) -> bool {
    let profile = custody.profile;
    let residue = residue(profile, &control.id);
    match control.state {
        State::Enforced => true,
        State::NotRequested => !asked(profile, custody.network, &control.id),
        State::Partial => !residue.is_empty() && control.missing.iter().all(|text| residue.contains(&text.as_str())),
        State::Unavailable => profile != Profile::Full && control.id == "limit.files",
    }
}
