//! A hostile trainer makes every attempt it can think of: without a sandbox, where many must succeed (else the test
//! shows nothing), and in custody, where none may. Effects are looked at from outside as well.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "hostile/support.rs"]
mod support;
#[path = "hostile/world.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};

use world::{Arm, Outcome, run_arm};
use xt_core::manifest::intent::Profile;

/// Attempts that leave something in the output folder which only the collector can refuse.
const COLLECTOR: [&str; 4] = ["o_nonutf8", "o_deep", "o_mode000", "o_dir000"];

/// What a run without namespaces cannot stop, each with the reason (they are in the custody record and in xt(7)).
const RESIDUE: [(&str, &str); 7] = [
    ("r_stat_oracle", "landlock does not restrict stat"),
    ("w_atime", "landlock does not restrict access times, and the inputs lie on a writable mount"),
    ("p_mmap_exec_out", "landlock does not restrict executable mappings of readable files"),
    ("p_mprotect_exec_out", "landlock does not restrict executable mappings of readable files"),
    ("p_loader_out", "the loader is admitted, and maps what it can read"),
    ("o_fill", "each file is limited, their sum is not"),
    ("o_many", "no file system of its own, so no count of files"),
];

#[test]
fn nothing_that_works_outside_works_in_custody() {
    let program = support::hostile();
    let mut arms = vec![(Arm::new("none", None, true), None)];
    arms.push((Arm::new("full, user", Some(Profile::Full), true), Some(BTreeSet::new())));
    arms.push((Arm::new("in-container, user", Some(Profile::InContainer), true), Some(residue())));
    if nix::unistd::geteuid().is_root() {
        arms.push((Arm::new("full, root", Some(Profile::Full), false), Some(BTreeSet::new())));
        arms.push((Arm::new("in-container, root", Some(Profile::InContainer), false), Some(residue())));
    } else {
        println!("not tested: starting as root (this test does not run as root)");
    }
    let mut failures = Vec::new();
    let mut control = BTreeMap::new();
    for (arm, allowed) in arms {
        let outcome = arm.run(&program);
        let succeeded = succeeded(&outcome, allowed.is_some());
        println!("{}: {} of {} attempts succeed: {succeeded:?}", arm.name, succeeded.len(), outcome.attempts.len());
        let Some(allowed) = allowed else {
            control = outcome.attempts;
            assert!(succeeded.len() >= 70, "only {} attempts succeed without a sandbox: {control:?}", succeeded.len());
            assert!(outcome.hits.iter().all(|hits| *hits > 0), "listeners not reached: {:?}", outcome.hits);
            assert!(outcome.left > 0, "nothing was left behind");
            continue;
        };
        assert_eq!(outcome.attempts.len(), control.len(), "{}: attempts are missing: {outcome:?}", arm.name);
        let beyond: Vec<&String> = succeeded.iter().filter(|name| !allowed.contains(name.as_str())).collect();
        if !beyond.is_empty() {
            failures.push(format!("{}: {beyond:?}", arm.name));
        }
        if outcome.hits != [0; 4] || !outcome.victim_alive || outcome.left != 0 || outcome.changed {
            failures.push(format!("{}: effects outside: {outcome:?}", arm.name));
        }
        if outcome.denied == 0 {
            failures.push(format!("{}: no refused call was counted", arm.name));
        }
    }
    say_what_was_not_tested();
    let powerless: Vec<&String> = control.iter().filter(|(_, code)| **code != 0).map(|(name, _)| name).collect();
    println!("fail without a sandbox too, and so show nothing: {powerless:?}");
    for (name, reason) in RESIDUE {
        println!("stays open without namespaces: {name}: {reason}");
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// What this host has no means for. Nothing is left out in silence.
fn say_what_was_not_tested() {
    let controllers = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    if !["memory", "pids", "cpu"].iter().all(|name| controllers.split_whitespace().any(|found| found == *name)) {
        println!(
            "not tested: limits by control groups of version 2 (their controllers are not there: [{}])",
            controllers.trim()
        );
    }
    if !std::path::Path::new("/sys/kernel/security/apparmor").exists() {
        println!("not tested: a host whose AppArmor restricts user namespaces (there is no AppArmor here)");
    }
    if !std::path::Path::new("/dev/nvidiactl").exists() {
        println!("not tested: devices of accelerators (there are none here, and none is admitted)");
    }
    if !cfg!(target_arch = "aarch64") {
        println!("not tested: aarch64 (this is another processor)");
    }
}

fn residue() -> BTreeSet<&'static str> {
    RESIDUE.iter().map(|(name, _)| *name).collect()
}

/// What a person reads of it is what is tested, no more and no less.
#[test]
fn the_page_names_every_attempt_that_in_container_leaves_open() {
    let page = include_str!("../../../man/xt.7");
    let list = page
        .split(".\\\" residue of in-container: begin\n")
        .nth(1)
        .and_then(|rest| rest.split(".\\\" end\n").next())
        .unwrap();
    let named: Vec<(&str, &str)> =
        list.split(".IP \\(bu 3\n.B ").skip(1).map(|entry| entry.trim_end().split_once(":\n").unwrap()).collect();
    assert_eq!(named, RESIDUE);
}

/// Names of the attempts that did what they must not do.
fn succeeded(outcome: &Outcome, collected: bool) -> BTreeSet<String> {
    let mut names: BTreeSet<String> =
        outcome.attempts.iter().filter(|(_, code)| **code == 0).map(|(name, _)| name.clone()).collect();
    if collected {
        // What the collector refused has not got out.
        for name in COLLECTOR {
            names.remove(name);
        }
        names.extend(outcome.taken_badly.iter().cloned());
    }
    names
}

/// The attempts that the design lists, by the names that they have here. Three more are made from outside: a flood of
/// output and a hang by the tests of `life` and of `xt-run`, a killed supervisor by `life`.
const LISTED: &str = "\
    d_mq d_shm_left d_sysv_shm n_abstract n_alg n_dns n_fastopen n_listen n_mptcp n_netlink n_ping n_raw n_tcp \
    n_udp6 n_unix_path n_vsock o_chrdev o_deep o_dir_rmdir o_dir_swap o_fifo o_fill o_hardlink_secret \
    o_immutable o_mode000 o_nonutf8 o_setuid o_setuid_creat o_socket o_sparse p_bpf p_caps p_cgroup_escape \
    p_chroot p_clock_settime p_core_pattern p_exec_out p_exec_shm p_exec_tmp p_fanotify p_int80 p_io_uring \
    p_keyring p_mmap_exec_out p_modify_ldt p_mount p_nnp p_oom_adj p_perf p_pidfd_getfd p_priority p_ptrace \
    p_remount_rw p_rlimit_raise p_sethostname p_shell p_signal p_stop p_suid_binary p_umount p_userns p_vm_readv \
    p_x32 r_boot_id r_dev_mem r_dmesg r_env_secret r_fd_leak r_kcore r_list_home r_open_by_handle r_proc_mem \
    r_proc_root r_raw_disk r_shadow r_ssh r_stat_oracle r_stdin_reopen r_store_unadmitted w_atime w_flock \
    w_chmod w_opath_procfd w_open w_rename w_symlink w_unlink w_xrename w_own_exe w_system_dirs x_core_dump \
    x_fork_bomb x_memfd_bomb x_shm_fill x_thread_bomb x_tmp_fill";

#[test]
fn every_attempt_that_the_design_lists_is_made() {
    let sources = [
        include_str!("hostile/files.c"),
        include_str!("hostile/powers.c"),
        include_str!("hostile/nets.c"),
        include_str!("hostile/loads.c"),
    ];
    let made = |name: &str| sources.iter().any(|source| source.contains(&format!("{{\"{name}\", {name}}}")));
    let missing: Vec<&str> = LISTED.split_whitespace().filter(|name| !made(name)).collect();
    assert!(missing.is_empty() && LISTED.split_whitespace().count() >= 96, "{missing:?}");
    assert!(!made("x_unheard_of"), "the control");
}

/// One arm, in a process of its own: this test starts itself as another user, with secrets to inherit.
#[test]
#[ignore = "started by the test above"]
fn arm() {
    run_arm();
}
