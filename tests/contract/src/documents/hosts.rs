//! What hosts have to give.

use xt_core::manifest::resources::{Admission, Inventory, Lease, Observation, Policy, Resources};
use xt_core::verb::settle::LeaseState;

use super::{instant, name, number};

pub fn inventories() -> Vec<Inventory> {
    let one = |admission| Inventory {
        cores: 8,
        memory_bytes: 1 << 34,
        storage_bytes: 1 << 36,
        accelerators: vec![name("gpu-0")],
        policy: Policy {
            admission,
            postponed: vec![name("night")],
            refused: vec![name("weekend")],
            spare_memory_bytes: 1 << 30,
            spare_storage_bytes: 0,
            highest_load: (admission == Admission::Open).then(|| number(1.5)),
            reason: String::from("the host is being serviced"),
        },
    };
    Admission::ALL.iter().map(|admission| one(*admission)).collect()
}

pub fn resources() -> Vec<Resources> {
    let lease = |state| Lease {
        lease: name("lease-1"),
        attempt: name("attempt-1"),
        state,
        cores: 1,
        memory_bytes: 1 << 32,
        storage_bytes: 1 << 30,
        accelerators: vec![name("gpu-0")],
        domains: vec![name("disk-a")],
        why: String::from("it is running"),
    };
    let seen = Observation {
        at: instant(1_796_000_000),
        free_memory_bytes: Some(1 << 33),
        free_storage_bytes: Some(1 << 35),
        load: Some(number(0.25)),
        processors: 8,
    };
    let blind = Observation { free_memory_bytes: None, free_storage_bytes: None, load: None, ..seen.clone() };
    inventories()
        .into_iter()
        .take(2)
        .zip([seen, blind])
        .map(|(inventory, observed)| Resources {
            declared: observed.load.is_some(),
            inventory,
            observed,
            leases: LeaseState::ALL.iter().map(|state| lease(*state)).collect(),
        })
        .collect()
}
