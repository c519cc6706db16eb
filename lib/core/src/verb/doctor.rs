//! A custody record for people: a row for each control, what is missing of it and what can be done, and a verdict.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::manifest::custody::{Control, Custody, State};
use crate::verb::custody::missing;

/// The lines of the report, without line ends. Made for a terminal of 120 columns.
pub fn report(custody: &Custody) -> Vec<String> {
    let (host, principal) = (&custody.host, &custody.principal);
    let landlock = if host.landlock == 0 { "no landlock".into() } else { format!("landlock {}", host.landlock) };
    let within = if principal.user_namespace { " of a user namespace of its own" } else { "" };
    let mut lines = Vec::from([
        format!("profile {} on kernel {}, {landlock}", custody.profile, host.kernel),
        format!("a trainer would be user {}{within}", principal.user),
        String::new(),
        row(["CONTROL", "ASKED", "STATE", "BLOCKED", "BY"]),
    ]);
    lines.extend(custody.controls.iter().map(control));
    lines.push(String::new());
    for control in custody.controls.iter().filter(|control| !whole(control)) {
        lines.push(format!("{} ({}) is {}:", control.id, control.floor, in_words(control.state)));
        lines.extend(control.missing.iter().map(|text| format!("  - {text}")));
        lines.extend(once([control]).into_iter().map(|text| format!("  what to do: {text}")));
    }
    if lines.last().is_some_and(|line| !line.is_empty()) {
        lines.push(String::new());
    }
    lines.push(verdict(custody));
    lines
}

fn row(cells: [&str; 5]) -> String {
    let [control, asked, state, blocked, by] = cells;
    String::from(format!("{control:<18} {asked:<10} {state:<12} {blocked:<8} {by}").trim_end())
}

fn control(control: &Control) -> String {
    let asked = if control.state == State::NotRequested { "no" } else { control.floor.word() };
    let state = if control.state == State::NotRequested { "-" } else { in_words(control.state) };
    // An attempt that fails outside as well shows nothing, and counts for nothing.
    let telling = control.proof.iter().filter(|probe| probe.control == "OK");
    let (tried, blocked) =
        telling.fold((0, 0), |(tried, blocked), probe| (tried + 1, blocked + u32::from(probe.inside != "OK")));
    let blocked = if tried == 0 { "-".into() } else { format!("{blocked} of {tried}") };
    row([&control.id, asked, state, &blocked, &by(&control.mechanisms)])
}

/// The mechanisms, namespaces together.
fn by(mechanisms: &[String]) -> String {
    let namespaces: Vec<&str> = mechanisms.iter().filter_map(|name| name.strip_suffix(" namespace")).collect();
    let mut all: Vec<String> = mechanisms.iter().filter(|name| !name.ends_with(" namespace")).cloned().collect();
    if !namespaces.is_empty() {
        all.push(format!("{} namespace{}", namespaces.join(", "), if namespaces.len() > 1 { "s" } else { "" }));
    }
    all.join("; ")
}

fn in_words(state: State) -> &'static str {
    if state == State::NotRequested { "not asked for" } else { state.word() }
}

fn whole(control: &Control) -> bool {
    matches!(control.state, State::Enforced | State::NotRequested)
}

fn verdict(custody: &Custody) -> String {
    let missing = missing(custody);
    let profile = custody.profile;
    if missing.is_empty() {
        return format!("Every required control is what the profile {profile} promises: xt-run would start.");
    }
    let ids: Vec<&str> = missing.iter().map(|(index, _)| custody.controls[*index].id.as_str()).collect();
    format!(
        "Required and not what the profile {profile} promises: {}. xt-run would start nothing, and exit with 13.",
        ids.join(", ")
    )
}

/// What can be done about the required controls that are not what the profile promises, each advice once.
pub fn advise(custody: &Custody) -> Vec<&'static str> {
    once(missing(custody).into_iter().map(|(index, _)| &custody.controls[index]))
}

fn once<'a>(controls: impl IntoIterator<Item = &'a Control>) -> Vec<&'static str> {
    let mut advised: Vec<&str> = Vec::new();
    for control in controls {
        // Where something else is missing, an attempt that showed nothing follows from that.
        let alone = control.missing.len() == 1;
        let texts = control.missing.iter().filter(|text| alone || !text.starts_with(UNPROVEN));
        for advice in texts.filter_map(|text| advice(text)) {
            if !advised.contains(&advice) {
                advised.push(advice);
            }
        }
    }
    advised
}

/// How a custody record says that nothing was shown.
const UNPROVEN: &str = "no attempt that works outside";

/// What a person can do about something that a custody record calls missing; nothing for what a profile leaves open by
/// its nature.
fn advice(missing: &str) -> Option<&'static str> {
    let ends = |words: &[&str]| words.iter().any(|word| missing.ends_with(word));
    if missing.contains("covered by") {
        return None;
    }
    if missing.contains("namespaces: ") {
        return Some(if ends(&["ENOSPC", "EUSERS"]) {
            "the host has no namespaces left to give: raise the limit, as root: sysctl user.max_user_namespaces=10000"
        } else if ends(&["EACCES"]) {
            "AppArmor keeps this user's namespaces without rights: start as root, or, as root: sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0"
        } else {
            "this host grants no namespaces, as most containers: run outside the container, let its engine's filter pass \
             clone, unshare, mount and pivot_root, or ask in the intent for the weaker profile \"in-container\" by name"
        });
    }
    if missing.contains("control group for") {
        return Some(if ends(&["ENOENT"]) {
            "this controller is not mounted for this process: mount it below /sys/fs/cgroup"
        } else if ends(&["EBUSY"]) {
            "processes lie in the very group that would have to be divided: start in one of its own: systemd-run --scope \
             -p Delegate=yes xt-run ..."
        } else {
            "start as root, or in a group that was handed over: systemd-run --user --scope -p Delegate=yes xt-run ..."
        });
    }
    let known = [
        (
            "landlock",
            "the kernel needs landlock: Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK=y, and landlock among the \
             names of lsm= on its command line; a container engine's filter must let its three calls pass",
        ),
        ("filter: ", "the kernel needs CONFIG_SECCOMP_FILTER=y, and a container engine's filter must let seccomp pass"),
        (
            "fresh /proc",
            "the container engine covers parts of /proc: have it leave them visible (Docker: --security-opt \
             systempaths=unconfined), or call the control preferred in the intent: a trainer needs no /proc",
        ),
        (
            UNPROVEN,
            "the host denies this to everybody, so that nothing could be shown; call the control preferred in the \
             intent if that is enough",
        ),
    ];
    // A profile without namespaces leaves open what landlock does not restrict; that is no fault of the host.
    let found = known.into_iter().find(|(words, _)| missing.contains(words) && !missing.contains("does not restrict"));
    found.map(|(_, advice)| advice)
}
