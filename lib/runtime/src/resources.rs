//! What the host has to give: as its operator declared it, or as it looks; and what can be seen of it now.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use xt_core::manifest::resources::{Inventory, Lease, Observation, Policy, Resources};
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::settle::Machine as _;
use xt_record::{Claim, Liveness};

use crate::conclude::Place;
use crate::error::RuntimeError;
use crate::folder::{read_document, write_document};
use crate::request::Request;
use crate::runtime::Runtime;

/// The file in the folder of the store in which the operator's declaration is kept.
const DECLARED: &str = "resources.json";

impl Runtime {
    /// What there is, what is taken, and what can be seen now.
    pub fn resources(&self) -> Result<Resources, RuntimeError> {
        let place = self.place()?;
        let declared = inventory(&place)?;
        let leases = place.record.leases()?.into_iter().map(|lease| explained(&place, lease));
        Ok(Resources {
            declared: declared.is_some(),
            inventory: declared.unwrap_or_else(|| detected(place.store.path())),
            observed: observed(&place),
            leases: leases.collect::<Result<_, _>>()?,
        })
    }

    /// Declares what there is; from now on no more than that is given. `None` takes the declaration back.
    pub fn declare(&self, inventory: Option<&Inventory>) -> Result<(), RuntimeError> {
        let path = self.place()?.store.path().join(DECLARED);
        match inventory {
            Some(inventory) => write_document(&path, inventory),
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(crate::error::file("remove", &path)(error))
                }
                _ => Ok(()),
            },
        }
    }

    /// Gives back what an attempt has that cannot be asked any more.
    pub fn clear_lease(&self, lease: &Name, by: &str) -> Result<(), RuntimeError> {
        let place = self.place()?;
        Ok(place.record.clear_lease(lease, by, place.clock.now())?)
    }

    /// Settles attempts that have something and no supervisor any more, so that what they have is free again.
    pub(crate) fn settle_holders(&self, place: &Place) -> Result<(), RuntimeError> {
        for lease in place.record.leases()? {
            let attempt = place.record.attempt(&lease.attempt)?;
            let gone = attempt.and_then(|attempt| attempt.process).is_some_and(|p| p.liveness() == Liveness::Dead);
            if gone {
                self.reconcile(&lease.attempt)?;
            }
        }
        Ok(())
    }
}

/// What a run asks for, held against this host.
pub(crate) fn claim(place: &Place, request: &Request) -> Result<Claim, RuntimeError> {
    Ok(Claim {
        asked: request.plan.intent.resources.clone(),
        inventory: inventory(place)?,
        seen: observed(place),
        beside: request.beside.clone(),
        follows: request.follows.clone(),
    })
}

fn inventory(place: &Place) -> Result<Option<Inventory>, RuntimeError> {
    read_document(&place.store.path().join(DECLARED))
}

/// A lease whose supervisor cannot be seen stays, and says how it is got back.
fn explained(place: &Place, mut lease: Lease) -> Result<Lease, RuntimeError> {
    let attempt = place.record.attempt(&lease.attempt)?;
    let ended = attempt.as_ref().is_some_and(|attempt| attempt.state.is_terminal());
    let liveness = attempt.and_then(|attempt| attempt.process).map(|process| process.liveness());
    let what = match liveness {
        _ if ended => {
            "; uncertain: it was drained for another run and has not gone on yet, so this stays closed. Whoever drained it \
             lets it go on when that run has ended; else do so with `xt-run --resume ATTEMPT`, which takes this over, or give \
             it up with `xt-log resources --clear LEASE --reason TEXT`"
        }
        Some(Liveness::Dead) => "; its supervisor is gone: `xt-log reconcile` settles it and gives this back",
        Some(Liveness::Unknown) => {
            "; its supervisor cannot be seen from here, so this stays taken: run `xt-log reconcile` where it was started, \
             or, if you know that it does not run, `xt-log resources --clear LEASE --reason TEXT`"
        }
        _ => "",
    };
    lease.why += &what.replace("LEASE", lease.lease.as_str()).replace("ATTEMPT", lease.attempt.as_str());
    Ok(lease)
}

/// The host as it looks: all of its processors and memory, and the free room of the store's disk.
fn detected(store: &Path) -> Inventory {
    Inventory {
        cores: processors(),
        memory_bytes: memory("MemTotal").unwrap_or(1 << 30).max(1 << 20),
        storage_bytes: free_storage(store).unwrap_or(1 << 30).max(1 << 20),
        accelerators: Vec::new(),
        policy: Policy::OPEN,
    }
}

fn observed(place: &Place) -> Observation {
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split_whitespace().next()?.parse().ok()).and_then(Finite::new);
    Observation {
        at: place.clock.now(),
        free_memory_bytes: memory("MemAvailable"),
        free_storage_bytes: free_storage(place.store.path()),
        load,
        processors: processors(),
    }
}

fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// A line of `/proc/meminfo`, in bytes (proc_meminfo(5): the unit is KiB).
fn memory(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn free_storage(store: &Path) -> Option<u64> {
    let found = statvfs(store).ok()?;
    found.blocks_available().checked_mul(found.fragment_size())
}
