//! Whether a run may start now: what it asks for, held against what there is, what others have, and what can be seen. It
//! is granted, postponed or refused, with every reason (L14–L20). Training has no priority over anything.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::manifest::intent::Resources as Asked;
use crate::manifest::resources::{Admission, Inventory, Lease, Observation, Policy};
use crate::name::Name;

/// The answer to a run that asks to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Grant,
    /// Not now; each reason may pass by itself.
    Postpone(Vec<String>),
    /// Not here; waiting does not help.
    Refuse(Vec<String>),
}

/// Judges. Without a declared inventory only conflict domains and accelerators are kept apart: what nobody declared
/// nobody promised.
///
/// Two runs are in conflict when they name a domain or an accelerator in common; that is the whole conflict graph.
pub fn admit(asked: &Asked, inventory: Option<&Inventory>, held: &[Lease], seen: &Observation) -> Verdict {
    let (mut never, mut later) = (Vec::new(), Vec::new());
    if let Some(inventory) = inventory {
        too_much(asked, inventory, &mut never);
        taken(asked, inventory, held, &mut later);
        unseen(asked, inventory, seen, &mut later);
        policy(asked, inventory, &mut never, &mut later);
    }
    for lease in held {
        let common: Vec<String> = conflicts(asked, lease).iter().map(ToString::to_string).collect();
        if !common.is_empty() {
            later.push(format!("{} has {}", lease.attempt, common.join(", ")));
        }
    }
    match (never.is_empty(), later.is_empty()) {
        (true, true) => Verdict::Grant,
        (true, false) => Verdict::Postpone(later),
        (false, _) => Verdict::Refuse(never.into_iter().chain(later).collect()),
    }
}

/// Judges whether a run goes on with what it had. It is nothing new to the operator or to the host, so that no policy and
/// no observation is held against it: only what others have.
pub fn take_over(asked: &Asked, inventory: Option<&Inventory>, held: &[Lease], seen: &Observation) -> Verdict {
    let inventory = inventory.map(|inventory| Inventory { policy: Policy::OPEN, ..inventory.clone() });
    match admit(asked, inventory.as_ref(), held, &blind(seen)) {
        // More than there is in all, by a declaration of today: it had it nevertheless.
        Verdict::Refuse(_) if held.iter().all(|lease| conflicts(asked, lease).is_empty()) => Verdict::Grant,
        Verdict::Refuse(reasons) => Verdict::Postpone(reasons),
        verdict => verdict,
    }
}

/// The leases whose holders must stop so that a run can start: those in conflict with it, and of the others as few as
/// will do, the youngest first, since they lose the least. None when stopping does not help, because the operator or the
/// host stands in its way or somebody who cannot stop.
pub fn in_the_way<'a>(
    asked: &Asked,
    inventory: Option<&Inventory>,
    held: &'a [Lease],
    seen: &Observation,
    can_stop: &dyn Fn(&Lease) -> bool,
) -> Vec<&'a Lease> {
    let fits = |rest: &[&Lease]| {
        let rest: Vec<Lease> = rest.iter().map(|lease| (*lease).clone()).collect();
        admit(asked, inventory, &rest, &blind(seen)) == Verdict::Grant
    };
    let (mut chosen, mut rest): (Vec<&Lease>, Vec<&Lease>) =
        held.iter().partition(|lease| !conflicts(asked, lease).is_empty());
    let needed = chosen.len();
    while !fits(&rest) {
        let Some(youngest) = rest.iter().rposition(|lease| can_stop(lease)) else { return Vec::new() };
        chosen.push(rest.remove(youngest));
    }
    // Of those, whoever need not stop after all goes back, the oldest first.
    for at in (needed..chosen.len()).rev() {
        let lease = chosen.remove(at);
        rest.push(lease);
        if !fits(&rest) {
            rest.pop();
            chosen.insert(at, lease);
        }
    }
    if chosen.iter().all(|lease| can_stop(lease)) { chosen } else { Vec::new() }
}

/// Without what the holders of leases use up themselves.
fn blind(seen: &Observation) -> Observation {
    Observation { free_memory_bytes: None, free_storage_bytes: None, ..seen.clone() }
}

/// What a lease has of what is asked for and can be had by one at a time.
pub fn conflicts(asked: &Asked, lease: &Lease) -> Vec<Name> {
    let has: BTreeSet<&Name> = lease.domains.iter().chain(&lease.accelerators).collect();
    let wants: BTreeSet<&Name> = asked.conflict_domains.iter().chain(&asked.accelerators).collect();
    wants.intersection(&has).map(|name| (*name).clone()).collect()
}

fn too_much(asked: &Asked, inventory: &Inventory, never: &mut Vec<String>) {
    for (what, wanted, there) in [
        ("cores", asked.cores, inventory.cores),
        ("bytes of memory", asked.memory_bytes, inventory.memory_bytes),
        ("bytes of storage", asked.storage_bytes, inventory.storage_bytes),
    ] {
        if wanted > there {
            never.push(format!("{wanted} {what} are asked for, and there are {there} in all"));
        }
    }
    let absent = asked.accelerators.iter().filter(|name| !inventory.accelerators.contains(name));
    never.extend(absent.map(|name| format!("there is no accelerator {name}")));
}

fn taken(asked: &Asked, inventory: &Inventory, held: &[Lease], later: &mut Vec<String>) {
    let sum = |of: fn(&Lease) -> u64| held.iter().map(of).fold(0_u64, u64::saturating_add);
    for (what, wanted, has, there) in [
        ("cores", asked.cores, sum(|lease| lease.cores), inventory.cores),
        ("bytes of memory", asked.memory_bytes, sum(|lease| lease.memory_bytes), inventory.memory_bytes),
        ("bytes of storage", asked.storage_bytes, sum(|lease| lease.storage_bytes), inventory.storage_bytes),
    ] {
        if wanted <= there && wanted.saturating_add(has) > there {
            later.push(format!("{wanted} {what} are asked for, and {} of {there} are free", there.saturating_sub(has)));
        }
    }
}

fn unseen(asked: &Asked, inventory: &Inventory, seen: &Observation, later: &mut Vec<String>) {
    let policy = &inventory.policy;
    for (what, wanted, spare, free) in [
        ("memory", asked.memory_bytes, policy.spare_memory_bytes, seen.free_memory_bytes),
        ("disk of the store", asked.storage_bytes, policy.spare_storage_bytes, seen.free_storage_bytes),
    ] {
        let due = wanted.saturating_add(spare);
        match free {
            Some(free) if free < due => later.push(format!("{due} bytes of {what} are due, and {free} are free now")),
            _ => {}
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of processors")]
    let bound = policy.highest_load.map(|times| times.get() * seen.processors as f64);
    if let (Some(load), Some(bound)) = (seen.load, bound)
        && load.get() > bound
    {
        later.push(format!("the load is {:.2}, and runs wait while it is above {bound:.2}", load.get()));
    }
}

fn policy(asked: &Asked, inventory: &Inventory, never: &mut Vec<String>, later: &mut Vec<String>) {
    let policy = &inventory.policy;
    let why = if policy.reason.is_empty() { String::new() } else { format!(": {}", policy.reason) };
    match policy.admission {
        Admission::Open => {}
        Admission::Postpone => later.push(format!("the operator lets nothing start for now{why}")),
        Admission::Refuse => never.push(format!("the operator lets nothing start{why}")),
    }
    for domain in &asked.conflict_domains {
        if policy.postponed.contains(domain) {
            later.push(format!("the operator postpones runs of {domain}{why}"));
        }
        if policy.refused.contains(domain) {
            never.push(format!("the operator refuses runs of {domain}{why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instant::Instant;
    use crate::manifest::intent::Intent;
    use crate::manifest::resources::Policy;
    use crate::number::Finite;
    use crate::verb::settle::LeaseState;
    use alloc::vec;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn asked(cores: u64, domains: &[&str]) -> Asked {
        let mut asked = Intent::default_for(cores).resources;
        asked.memory_bytes = 1 << 30;
        asked.conflict_domains = domains.iter().map(|domain| name(domain)).collect();
        asked
    }

    fn inventory() -> Inventory {
        let policy = Policy {
            admission: Admission::Open,
            postponed: vec![],
            refused: vec![],
            spare_memory_bytes: 0,
            spare_storage_bytes: 0,
            highest_load: None,
            reason: String::new(),
        };
        Inventory { cores: 4, memory_bytes: 4 << 30, storage_bytes: 8 << 30, accelerators: vec![name("gpu-0")], policy }
    }

    fn lease(cores: u64, domains: &[&str]) -> Lease {
        Lease {
            lease: name("lease-1"),
            attempt: name("att-1"),
            state: LeaseState::Held,
            cores,
            memory_bytes: 1 << 30,
            storage_bytes: 1 << 30,
            accelerators: vec![],
            domains: domains.iter().map(|domain| name(domain)).collect(),
            why: String::new(),
        }
    }

    fn seen() -> Observation {
        Observation {
            at: Instant::from_unix(1).unwrap(),
            free_memory_bytes: Some(64 << 30),
            free_storage_bytes: Some(64 << 30),
            load: Finite::new(1.0),
            processors: 4,
        }
    }

    fn reasons(verdict: Verdict) -> (u8, Vec<String>) {
        match verdict {
            Verdict::Grant => (0, vec![]),
            Verdict::Postpone(reasons) => (1, reasons),
            Verdict::Refuse(reasons) => (2, reasons),
        }
    }

    #[test]
    fn runs_that_share_a_domain_wait_for_each_other_and_others_are_undisturbed() {
        let held = [lease(1, &["disk-a"])];
        assert_eq!(admit(&asked(1, &["disk-b"]), None, &held, &seen()), Verdict::Grant);
        let (kind, why) = reasons(admit(&asked(1, &["disk-a", "x"]), None, &held, &seen()));
        assert_eq!((kind, why), (1, vec!["att-1 has disk-a".to_string()]));
        assert_eq!(
            admit(&asked(4000, &[]), None, &held, &seen()),
            Verdict::Grant,
            "nobody declared how many there are"
        );
    }

    #[test]
    fn a_declared_inventory_is_never_given_twice() {
        let inventory = inventory();
        let judge = |cores, held: &[Lease]| reasons(admit(&asked(cores, &[]), Some(&inventory), held, &seen())).0;
        assert_eq!(judge(4, &[]), 0);
        assert_eq!(judge(2, &[lease(2, &[])]), 0);
        assert_eq!(judge(3, &[lease(2, &[])]), 1, "later");
        assert_eq!(judge(5, &[]), 2, "never");
        let held = [lease(1, &[]), lease(1, &[]), lease(1, &[])];
        assert_eq!(judge(1, &held), 0);
        let mut large = asked(1, &[]);
        large.memory_bytes = 2 << 30;
        assert_eq!(reasons(admit(&large, Some(&inventory), &held, &seen())).0, 1, "memory counts by itself");
    }

    #[test]
    fn every_reason_is_given_at_once() {
        let mut inventory = inventory();
        inventory.policy.refused = vec![name("night")];
        inventory.policy.reason = "maintenance".into();
        let mut asked = asked(5, &["night", "disk-a"]);
        asked.accelerators = vec![name("gpu-0"), name("gpu-7")];
        let (kind, why) = reasons(admit(&asked, Some(&inventory), &[lease(1, &["disk-a"])], &seen()));
        assert_eq!((kind, why.len()), (2, 4), "{why:?}");
        assert!(why.iter().any(|why| why == "the operator refuses runs of night: maintenance"), "{why:?}");
    }

    #[test]
    fn what_is_seen_now_counts_and_what_cannot_be_seen_does_not() {
        let mut inventory = inventory();
        inventory.policy.spare_memory_bytes = 1 << 30;
        inventory.policy.highest_load = Finite::new(0.5);
        let judge = |seen: &Observation| reasons(admit(&asked(1, &[]), Some(&inventory), &[], seen));
        assert_eq!(judge(&seen()).0, 0);
        assert_eq!(judge(&Observation { free_memory_bytes: Some((2 << 30) - 1), ..seen() }).0, 1);
        assert_eq!(judge(&Observation { free_memory_bytes: None, ..seen() }).0, 0);
        assert_eq!(judge(&Observation { load: Finite::new(2.5), ..seen() }).0, 1);
        assert_eq!(judge(&Observation { free_storage_bytes: Some(0), load: Finite::new(9.0), ..seen() }).1.len(), 2);
    }

    #[test]
    fn only_those_in_the_way_must_stop_and_of_the_others_as_few_as_will_do() {
        let inventory = inventory();
        let held: Vec<Lease> = [(1, "disk-a"), (2, "disk-b"), (1, "disk-c")]
            .into_iter()
            .zip(1..)
            .map(|((cores, domain), number)| Lease {
                lease: name(&format!("lease-{number}")),
                ..lease(cores, &[domain])
            })
            .collect();
        let chosen = |cores, domains: &[&str], can_stop: &dyn Fn(&Lease) -> bool| {
            let found = in_the_way(&asked(cores, domains), Some(&inventory), &held, &seen(), can_stop);
            found.into_iter().map(|lease| lease.lease.to_string()).collect::<Vec<_>>()
        };
        let any = |_: &Lease| true;
        assert_eq!(chosen(1, &["disk-a"], &any), ["lease-1"], "its core is enough");
        assert_eq!(chosen(1, &[], &any), ["lease-3"], "the youngest");
        assert_eq!(chosen(2, &[], &any), ["lease-2"], "the third alone would not do, and need not stop for it");
        assert_eq!(chosen(4, &[], &any).len(), 3);
        assert!(chosen(5, &[], &any).is_empty(), "more than there is: nobody stops in vain");
        let not_the_second = |lease: &Lease| lease.cores < 2;
        assert_eq!(chosen(2, &[], &not_the_second), ["lease-3", "lease-1"]);
        assert!(chosen(3, &[], &not_the_second).is_empty());
        assert!(chosen(1, &["disk-b"], &not_the_second).is_empty());
        let mut closed = inventory.clone();
        closed.policy.admission = Admission::Postpone;
        assert!(in_the_way(&asked(1, &[]), Some(&closed), &held, &seen(), &any).is_empty(), "the operator's word");
    }

    #[test]
    fn what_goes_on_is_held_against_what_runs_and_nothing_else() {
        let mut inventory = inventory();
        inventory.policy.admission = Admission::Refuse;
        let judge = |held: &[Lease]| reasons(take_over(&asked(2, &["disk-a"]), Some(&inventory), held, &seen())).0;
        assert_eq!(judge(&[]), 0, "the operator closed the host after it had begun");
        assert_eq!(reasons(admit(&asked(2, &["disk-a"]), Some(&inventory), &[], &seen())).0, 2, "the control");
        assert_eq!(judge(&[lease(1, &["disk-a"])]), 1);
        assert_eq!(judge(&[lease(3, &["disk-b"])]), 1);
    }

    #[test]
    fn the_operator_can_postpone_and_refuse_everything() {
        for (admission, kind) in [(Admission::Open, 0), (Admission::Postpone, 1), (Admission::Refuse, 2)] {
            let mut inventory = inventory();
            inventory.policy.admission = admission;
            assert_eq!(reasons(admit(&asked(1, &[]), Some(&inventory), &[], &seen())).0, kind);
        }
    }
}
