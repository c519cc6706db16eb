//! What hosts have to give, and what they enforce.

use xt_core::manifest::custody::{Attestation, Control, Custody, Host, Layer, Mount, Principal, Probe, State};
use xt_core::manifest::intent::{Floor, Network, Profile};
use xt_core::manifest::resources::{Admission, Inventory, Lease, Observation, Policy, Resources};
use xt_core::verb::settle::LeaseState;

use super::{digest, instant, name, number};

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

pub fn custodies() -> Vec<Custody> {
    let probe = Probe {
        probe: String::from("connect 127.0.0.1"),
        stage: Layer::Net,
        control: String::from("OK"),
        inside: String::from("ENETUNREACH"),
    };
    let custody = Custody {
        profile: Profile::Full,
        network: Network::None,
        host: Host { kernel: String::from("6.18.0"), landlock: 7 },
        principal: Principal { user: 65_534, capabilities: String::from("0"), user_namespace: true },
        controls: vec![Control {
            id: String::from("network.none"),
            floor: Floor::Required,
            mechanisms: vec![String::from("network namespace")],
            state: State::Enforced,
            missing: vec![String::from("nothing")],
            proof: vec![probe],
        }],
        mounts: vec![
            Mount { at: String::from("/in"), digest: Some(digest("in")), flags: vec![String::from("ro")] },
            Mount { at: String::from("/out"), digest: None, flags: vec![String::from("nosuid")] },
        ],
        filter: Some(digest("filter")),
        environment: vec![String::from("LC_ALL")],
        descriptors: vec![0, 1, 2, 3],
        overall: State::Enforced,
        attestation: Attestation::SelfAttested,
    };
    let mut unfiltered = custody.clone();
    unfiltered.filter = None;
    let mut networks: Vec<Custody> =
        Network::ALL.iter().map(|network| Custody { network: *network, ..custody.clone() }).collect();
    networks.push(unfiltered);
    networks
}
