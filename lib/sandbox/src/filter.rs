//! The system-call filter: what no trainer needs is refused, whatever its arguments point to. Written as classic BPF
//! by hand, because the filter needs what filter compilers lack: a guard against the x32 numbering and hand-over of
//! refused calls to the guard, which counts them (seccomp(2), seccomp_unotify(2)).

use std::collections::BTreeMap;

use libc::{BPF_ABS, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
use nix::errno::Errno;
use xt_core::digest::{Digest, Hasher};
use xt_core::manifest::intent::Network;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// Offset of the high half of an argument; both architectures are little-endian.
const HIGH: u32 = 4;

/// `AUDIT_ARCH_*` of linux/audit.h.
#[cfg(target_arch = "x86_64")]
const OURS: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = 0xc000_00b7;

/// Numbers from here on are the x32 calls of x86-64.
const X32: u32 = 0x4000_0000;
/// The newest call that may pass (mseal, Linux 6.10): numbers above are answered as an older kernel would.
const NEWEST: u32 = 462;

/// Bits of a mode that let others run with the owner's rights.
const SET_ID: u32 = 0o6000;

/// A test of an argument, of its low half unless it says otherwise.
#[derive(Clone, Copy)]
enum Test {
    /// Any of these bits is set.
    Any(u32),
    /// Any of these bits of the high half is set.
    AnyHigh(u32),
    /// It is this value.
    Is(u32),
    /// It is another value.
    Not(u32),
}

/// What happens to a refused call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// It is counted and fails with EPERM.
    Counted,
    /// It fails as if the kernel did not know it; programs then fall back to an older call.
    Unknown,
    /// It is noted with what it asks for, and goes on.
    Noted,
}

struct Rule {
    number: i64,
    tests: Vec<(u32, Test)>,
    answer: Answer,
}

/// Names and numbers of calls: `calls![SYS_socket, …]`.
macro_rules! calls {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), libc::$name)),*]
    };
}

/// Refused whatever the arguments, and counted.
const REFUSED: &[(&str, i64)] = calls![
    // Other processes.
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_process_madvise,
    SYS_process_mrelease,
    // Code that did not come from an admitted file.
    SYS_memfd_create,
    SYS_memfd_secret,
    SYS_execveat,
    // Name spaces and mounts.
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_swapon,
    SYS_swapoff,
    SYS_quotactl,
    SYS_quotactl_fd,
    SYS_acct,
    // Large surfaces of the kernel that no trainer needs.
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_fanotify_init,
    SYS_fanotify_mark,
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_seccomp,
    SYS_landlock_create_ruleset,
    SYS_landlock_add_rule,
    SYS_landlock_restrict_self,
    SYS_lookup_dcookie,
    SYS_nfsservctl,
    SYS_vhangup,
    // Things that outlive the trainer or that others share.
    SYS_flock,
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_shmdt,
    SYS_semget,
    SYS_semctl,
    SYS_semop,
    SYS_semtimedop,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_mq_open,
    SYS_mq_unlink,
    SYS_mq_timedsend,
    SYS_mq_timedreceive,
    SYS_mq_notify,
    SYS_mq_getsetattr,
    // What an output may not be, and attributes that outlive it.
    SYS_mknodat,
    SYS_symlinkat,
    SYS_linkat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    // The machine.
    SYS_syslog,
    SYS_reboot,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_sched_setscheduler,
    SYS_sched_setparam,
    SYS_sched_setattr,
    SYS_setpriority,
    SYS_ioprio_set,
    SYS_migrate_pages,
    SYS_move_pages,
];

/// Sockets of every family, refused where no network is admitted: with none, there is no network, whatever the namespaces
/// and landlock may miss.
const SOCKETS: &[(&str, i64)] =
    calls![SYS_socket, SYS_socketpair, SYS_bind, SYS_connect, SYS_listen, SYS_accept, SYS_accept4];

/// Noted where a network is admitted: with an address they say whom the program wants to reach, or to be for others.
const NOTED: &[(&str, i64)] = calls![SYS_bind, SYS_connect, SYS_sendto, SYS_sendmsg];

/// Where a network is admitted: many messages in one call, which could be noted only in part. Programs then send one
/// after the other.
const MANY: &[(&str, i64)] = calls![SYS_sendmmsg];

/// Calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[(&str, i64)] = calls![
    SYS_mknod,
    SYS_symlink,
    SYS_link,
    SYS_inotify_init,
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
    SYS_uselib,
    SYS_ustat,
    SYS__sysctl,
    SYS_afs_syscall,
    SYS_tuxcall,
    SYS_security,
    SYS_getpmsg,
    SYS_putpmsg,
    SYS_vserver,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[(&str, i64)] = &[];

/// Refused as if unknown: their arguments lie in memory, where no filter can look, and there is an older call.
const UNKNOWN: &[(&str, i64)] = calls![SYS_clone3, SYS_openat2];

/// Changes of metadata, which landlock does not restrict: refused where no read-only mount protects the inputs.
const METADATA: &[(&str, i64)] =
    calls![SYS_fchmod, SYS_fchmodat, SYS_fchmodat2, SYS_fchown, SYS_fchownat, SYS_utimensat];
#[cfg(target_arch = "x86_64")]
const METADATA_HERE: &[(&str, i64)] = calls![SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const METADATA_HERE: &[(&str, i64)] = &[];

/// `CLONE_NEWNS`, `_NEWCGROUP`, `_NEWUTS`, `_NEWIPC`, `_NEWUSER`, `_NEWPID`, `_NEWNET` of linux/sched.h. (clone(2)
/// cannot ask for a time namespace: that bit is part of its exit signal.)
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// Names of calls that are refused for some arguments only.
const BY_ARGUMENT: &[(&str, i64)] =
    calls![SYS_clone, SYS_mkdirat, SYS_openat, SYS_personality, SYS_fcntl, SYS_ioctl, SYS_prctl];
#[cfg(target_arch = "x86_64")]
const BY_ARGUMENT_HERE: &[(&str, i64)] = calls![SYS_mkdir, SYS_creat, SYS_open];
#[cfg(not(target_arch = "x86_64"))]
const BY_ARGUMENT_HERE: &[(&str, i64)] = &[];

/// Refused for some arguments: name, number, and tests that must all hold.
fn by_argument() -> Vec<Rule> {
    let one = |call: &[(&str, i64)], tests: &[(u32, Test)]| Rule {
        number: call[0].1,
        tests: tests.to_vec(),
        answer: Answer::Counted,
    };
    let mut rules = vec![
        one(calls![SYS_clone], &[(0, Test::Any(NEW_NAMESPACES))]),
        one(calls![SYS_fchmod], &[(1, Test::Any(SET_ID))]),
        one(calls![SYS_fchmodat], &[(2, Test::Any(SET_ID))]),
        one(calls![SYS_fchmodat2], &[(2, Test::Any(SET_ID))]),
        one(calls![SYS_mkdirat], &[(2, Test::Any(SET_ID))]),
        one(calls![SYS_openat], &[(3, Test::Any(SET_ID)), (2, Test::Any(CREATES))]),
        one(calls![SYS_personality], &[(0, Test::Not(u32::MAX))]),
    ];
    // Advisory locks on inputs would be seen by others; leases and signals on descriptors reach beyond the sandbox.
    for command in [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK, libc::F_OFD_SETLKW, libc::F_SETLEASE] {
        rules.push(one(calls![SYS_fcntl], &[(1, Test::Is(command.cast_unsigned()))]));
    }
    for command in [libc::F_NOTIFY, libc::F_SETOWN, SET_OWNER_EXTENDED, SET_SIGNAL] {
        rules.push(one(calls![SYS_fcntl], &[(1, Test::Is(command.cast_unsigned()))]));
    }
    for request in TERMINAL_AND_FLAGS {
        rules.push(one(calls![SYS_ioctl], &[(1, Test::Is(request))]));
    }
    for option in [libc::PR_SET_PDEATHSIG, libc::PR_SET_CHILD_SUBREAPER, libc::PR_SET_SECCOMP, libc::PR_SET_PTRACER] {
        rules.push(one(calls![SYS_prctl], &[(0, Test::Is(option.cast_unsigned()))]));
    }
    #[cfg(target_arch = "x86_64")]
    rules.extend([
        one(calls![SYS_chmod], &[(1, Test::Any(SET_ID))]),
        one(calls![SYS_mkdir], &[(1, Test::Any(SET_ID))]),
        one(calls![SYS_creat], &[(1, Test::Any(SET_ID))]),
        one(calls![SYS_open], &[(2, Test::Any(SET_ID)), (1, Test::Any(CREATES))]),
    ]);
    rules
}

/// Flags of `open` that make a file: only with them its mode counts. `__O_TMPFILE` without `O_DIRECTORY`.
const CREATES: u32 = 0o100 | 0o20_000_000;
/// `F_SETOWN_EX` and `F_SETSIG` of asm-generic/fcntl.h.
const SET_OWNER_EXTENDED: i32 = 15;
const SET_SIGNAL: i32 = 10;
/// Pushing input to a terminal (`TIOCSTI`, `TIOCLINUX`, `TIOCSCTTY`), ownership of descriptors (`FIOSETOWN`,
/// `SIOCSPGRP`), and flags of files (`FS_IOC_SETFLAGS`, `FS_IOC_FSSETXATTR`).
const TERMINAL_AND_FLAGS: [u32; 7] = [0x5412, 0x541c, 0x540e, 0x8901, 0x8902, 0x4008_6602, 0x401c_5820];

/// Rules for sockets. Path sockets are granted only with a file system of its own: landlock does not restrict them before
/// its ninth version, and they lead out of everything else.
fn sockets(paths: bool, network: Network) -> Vec<Rule> {
    let rule =
        |call: &[(&str, i64)], tests: &[(u32, Test)], answer| Rule { number: call[0].1, tests: tests.to_vec(), answer };
    if network == Network::None {
        return SOCKETS.iter().map(|call| rule(&[*call], &[], Answer::Counted)).collect();
    }
    let families: &[i32] =
        if paths { &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] } else { &[libc::AF_INET, libc::AF_INET6] };
    let others: Vec<(u32, Test)> = families.iter().map(|family| (0, Test::Not(family.cast_unsigned()))).collect();
    vec![
        rule(calls![SYS_socket], &others, Answer::Counted),
        rule(calls![SYS_socketpair], &[(0, Test::Not(libc::AF_UNIX.cast_unsigned()))], Answer::Counted),
        rule(calls![SYS_bind], &[], Answer::Noted),
        rule(calls![SYS_connect], &[], Answer::Noted),
        rule(calls![SYS_sendmsg], &[], Answer::Noted),
        // Without an address it goes where an earlier call has led.
        rule(calls![SYS_sendto], &[(4, Test::Any(u32::MAX))], Answer::Noted),
        rule(calls![SYS_sendto], &[(4, Test::AnyHigh(u32::MAX))], Answer::Noted),
        rule(MANY, &[], Answer::Unknown),
    ]
}

/// Whether a call that was handed over is to go on.
pub(crate) fn is_noted(number: i32, network: Network) -> bool {
    network != Network::None && NOTED.iter().any(|(_, noted)| *noted == i64::from(number))
}

/// The rules, in the order in which the program tests them.
fn rules(metadata: bool, network: Network) -> Vec<Rule> {
    let plain = |calls: &[(&str, i64)], answer| {
        calls.iter().map(|(_, number)| Rule { number: *number, tests: Vec::new(), answer }).collect::<Vec<_>>()
    };
    let mut rules = plain(REFUSED, Answer::Counted);
    rules.extend(plain(REFUSED_HERE, Answer::Counted));
    rules.extend(sockets(metadata, network));
    rules.extend(plain(UNKNOWN, Answer::Unknown));
    if !metadata {
        rules.extend(plain(METADATA, Answer::Counted));
        rules.extend(plain(METADATA_HERE, Answer::Counted));
    }
    rules.extend(by_argument());
    rules
}

/// Name of the refused or noted call with this number.
pub(crate) fn name(number: i32) -> Option<&'static str> {
    let tables =
        [REFUSED, REFUSED_HERE, SOCKETS, NOTED, MANY, UNKNOWN, METADATA, METADATA_HERE, BY_ARGUMENT, BY_ARGUMENT_HERE];
    let named = tables.into_iter().flatten().find(|(_, known)| *known == i64::from(number));
    named.map(|(name, _)| name.trim_start_matches("SYS_"))
}

/// The program. `metadata` is whether modes, owners and times may be changed, because the trainer has a file system of
/// its own; `listen` hands counted calls over, otherwise they fail without being counted, and noted ones, which otherwise
/// go on without being noted.
pub(crate) fn program(metadata: bool, listen: bool, network: Network) -> Vec<sock_filter> {
    let mut program = vec![
        load(ARCHITECTURE),
        jump(BPF_JEQ, OURS, 1, 0),
        // Calls through another architecture's entry would be judged by numbers that mean something else.
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
    ];
    if cfg!(target_arch = "x86_64") {
        program.extend([jump(BPF_JGE, X32, 0, 1), answer(refused(Errno::EPERM))]);
    }
    program.extend([jump(BPF_JGT, NEWEST, 0, 1), answer(refused(Errno::ENOSYS))]);
    let mut by_number: BTreeMap<u32, Vec<Rule>> = BTreeMap::new();
    for rule in rules(metadata, network) {
        by_number.entry(u32::try_from(rule.number).unwrap_or(u32::MAX)).or_default().push(rule);
    }
    search(&mut program, &by_number.into_iter().collect::<Vec<_>>(), listen);
    program
}

/// So many calls are tested one after the other at the end of a search.
const LEAF: usize = 6;

/// Appends a search for the call's number: the kernel runs the program for every call, and once for every number when it
/// is installed, so that a list of all would be slow.
fn search(program: &mut Vec<sock_filter>, calls: &[(u32, Vec<Rule>)], listen: bool) {
    if calls.len() > LEAF {
        let (below, above) = calls.split_at(calls.len() / 2);
        let mut first = Vec::new();
        search(&mut first, below, listen);
        // A conditional jump reaches 255 steps, an unconditional one everywhere.
        program.push(jump(BPF_JGE, above[0].0, 0, 1));
        program.push(step(BPF_JMP | BPF_JA, u32::try_from(first.len()).unwrap_or(0), 0, 0));
        program.extend(first);
        return search(program, above, listen);
    }
    // Those that are refused whatever their arguments share one answer at the end.
    let plain = |rules: &[Rule]| rules[0].tests.is_empty() && rules[0].answer == Answer::Counted;
    let (refused, others): (Vec<_>, Vec<_>) = calls.iter().partition(|(_, rules)| plain(rules));
    for (number, rules) in others {
        let judgement = judge(rules, listen);
        program.push(jump(BPF_JEQ, *number, 0, u8::try_from(judgement.len()).unwrap_or(u8::MAX)));
        program.extend(judgement);
    }
    for (index, (number, _)) in refused.iter().enumerate() {
        // Over the tests that remain, and over the pass.
        let away = refused.len() - index;
        program.push(jump(BPF_JEQ, *number, u8::try_from(away).unwrap_or(u8::MAX), 0));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    if !refused.is_empty() {
        program.push(answer(counted(listen)));
    }
}

/// What becomes of one call: the first rule whose tests all hold, else it passes.
fn judge(rules: &[Rule], listen: bool) -> Vec<sock_filter> {
    let mut judgement = Vec::new();
    for rule in rules {
        append(&mut judgement, rule, listen);
        if rule.tests.is_empty() {
            return judgement;
        }
    }
    judgement.push(answer(libc::SECCOMP_RET_ALLOW));
    judgement
}

fn counted(listen: bool) -> u32 {
    if listen { libc::SECCOMP_RET_USER_NOTIF } else { refused(Errno::EPERM) }
}

/// Digest of a program: eight bytes for each instruction, little-endian.
pub(crate) fn digest(program: &[sock_filter]) -> Digest {
    let mut hasher = Hasher::new();
    for step in program {
        hasher.update(&step.code.to_le_bytes());
        hasher.update(&[step.jt, step.jf]);
        hasher.update(&step.k.to_le_bytes());
    }
    hasher.finish()
}

fn append(program: &mut Vec<sock_filter>, rule: &Rule, listen: bool) {
    let end = match rule.answer {
        Answer::Counted => counted(listen),
        Answer::Unknown => refused(Errno::ENOSYS),
        Answer::Noted if listen => libc::SECCOMP_RET_USER_NOTIF,
        Answer::Noted => libc::SECCOMP_RET_ALLOW,
    };
    // Two steps a test, then the answer.
    let tests = u8::try_from(rule.tests.len()).unwrap_or(u8::MAX / 4);
    for (index, (argument, test)) in (0_u8..).zip(&rule.tests) {
        let high = if matches!(test, Test::AnyHigh(_)) { HIGH } else { 0 };
        program.push(load(ARGUMENTS + 8 * argument + high));
        // From the jump of this test past the answer: the remaining tests, and one.
        let away = 2 * (tests - 1 - index) + 1;
        program.push(match test {
            Test::Any(bits) | Test::AnyHigh(bits) => jump(BPF_JSET, *bits, 0, away),
            Test::Is(value) => jump(BPF_JEQ, *value, 0, away),
            Test::Not(value) => jump(BPF_JEQ, *value, away, 0),
        });
    }
    program.push(answer(end));
}

fn refused(errno: Errno) -> u32 {
    libc::SECCOMP_RET_ERRNO | (errno as i32).cast_unsigned()
}

fn load(offset: u32) -> sock_filter {
    step(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

fn jump(condition: u32, value: u32, yes: u8, no: u8) -> sock_filter {
    step(BPF_JMP | condition | BPF_K, value, yes, no)
}

fn answer(value: u32) -> sock_filter {
    step(BPF_RET | BPF_K, value, 0, 0)
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program says to a call, as the kernel would run it.
    fn run(program: &[sock_filter], number: u32, arguments: [u32; 6]) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            let code = u32::from(step.code);
            let hop = |yes: bool| usize::from(if yes { step.jt } else { step.jf });
            match code {
                code if code == BPF_RET | BPF_K => return step.k,
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    accumulator = match step.k {
                        NUMBER => number,
                        ARCHITECTURE => OURS,
                        // No argument of these tests has a high half.
                        offset if offset % 8 == HIGH => 0,
                        offset => arguments[((offset - ARGUMENTS) / 8) as usize],
                    }
                }
                code if code == BPF_JMP | BPF_JA => at += step.k as usize,
                code if code == BPF_JMP | BPF_JEQ | BPF_K => at += hop(accumulator == step.k),
                code if code == BPF_JMP | BPF_JGE | BPF_K => at += hop(accumulator >= step.k),
                code if code == BPF_JMP | BPF_JGT | BPF_K => at += hop(accumulator > step.k),
                code if code == BPF_JMP | BPF_JSET | BPF_K => at += hop(accumulator & step.k != 0),
                other => panic!("a step that the kernel may know, but this test does not: {other:#x}"),
            }
        }
    }

    /// The same, from the rules as they are written.
    fn expected(rules: &[Rule], number: u32, arguments: [u32; 6], listen: bool) -> u32 {
        let holds = |(argument, test): &(u32, Test)| {
            let value = arguments[*argument as usize];
            match test {
                Test::Any(bits) => value & bits != 0,
                Test::Is(wanted) => value == *wanted,
                Test::Not(other) => value != *other,
                Test::AnyHigh(_) => false,
            }
        };
        let first = rules.iter().find(|rule| rule.number == i64::from(number) && rule.tests.iter().all(holds));
        match first.map(|rule| rule.answer) {
            Some(Answer::Counted | Answer::Noted) if listen => libc::SECCOMP_RET_USER_NOTIF,
            None | Some(Answer::Noted) => libc::SECCOMP_RET_ALLOW,
            Some(Answer::Counted) => refused(Errno::EPERM),
            Some(Answer::Unknown) => refused(Errno::ENOSYS),
        }
    }

    #[test]
    fn the_search_says_of_every_call_what_the_rules_say() {
        let worlds = Network::ALL.iter().flat_map(|network| {
            [(true, true), (true, false), (false, true), (false, false)]
                .map(|(metadata, listen)| (metadata, listen, *network))
        });
        for (metadata, listen, network) in worlds {
            let (program, rules) = (program(metadata, listen, network), rules(metadata, network));
            let mut values: Vec<u32> = vec![0, u32::MAX, 0o100, SET_ID, NEW_NAMESPACES];
            values.extend(rules.iter().flat_map(|rule| &rule.tests).map(|(_, test)| match test {
                Test::Any(value) | Test::AnyHigh(value) | Test::Is(value) | Test::Not(value) => *value,
            }));
            let mut refusals = 0;
            for number in 0..=NEWEST {
                for value in &values {
                    for arguments in [[*value; 6], [0, *value, *value, 0, 0, 0], [0, 0, 0o100, *value, 0, 0]] {
                        let wanted = expected(&rules, number, arguments, listen);
                        assert_eq!(run(&program, number, arguments), wanted, "call {number} {arguments:?}");
                        refusals += u32::from(wanted != libc::SECCOMP_RET_ALLOW);
                    }
                }
            }
            assert!(refusals > 1000, "hardly anything is refused");
            assert_eq!(run(&program, NEWEST + 1, [0; 6]), refused(Errno::ENOSYS));
            assert!(program.len() < 600, "{} steps", program.len());
        }
    }

    #[test]
    fn every_refused_call_has_a_name() {
        for rule in Network::ALL.iter().flat_map(|network| rules(false, *network)) {
            assert!(name(i32::try_from(rule.number).unwrap()).is_some(), "call {}", rule.number);
        }
        assert_eq!(name(i32::try_from(libc::SYS_socket).unwrap()), Some("socket"));
        assert_eq!(name(i32::try_from(libc::SYS_read).unwrap()), None);
    }

    #[test]
    fn an_admitted_network_has_sockets_of_three_families_and_no_other() {
        let socket = u32::try_from(libc::SYS_socket).unwrap();
        let granted = |paths, network| -> Vec<u32> {
            let program = program(paths, false, network);
            (0..64)
                .filter(|family| run(&program, socket, [*family, 1, 0, 0, 0, 0]) == libc::SECCOMP_RET_ALLOW)
                .collect()
        };
        assert_eq!(granted(true, Network::None), Vec::<u32>::new());
        assert_eq!(granted(true, Network::Loopback), [1, 2, 10]);
        assert_eq!(granted(false, Network::Host), [2, 10], "path sockets lead out where there is no own file system");
        let program = program(true, true, Network::Host);
        let say = |number: i64, arguments| run(&program, u32::try_from(number).unwrap(), arguments);
        assert_eq!(say(libc::SYS_connect, [0; 6]), libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(say(libc::SYS_sendto, [3, 1, 1, 0, 1, 16]), libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(say(libc::SYS_sendto, [3, 1, 1, 0, 0, 0]), libc::SECCOMP_RET_ALLOW);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_by_the_x32_numbers_are_refused() {
        assert_eq!(run(&program(true, true, Network::None), X32 + 1, [0; 6]), refused(Errno::EPERM));
    }

    #[test]
    fn what_the_design_wants_refused_is_refused_whatever_the_arguments() {
        let program = program(true, false, Network::None);
        for (name, number) in calls![
            SYS_socket,
            SYS_memfd_create,
            SYS_flock,
            SYS_inotify_init1,
            SYS_io_uring_setup,
            SYS_io_uring_enter,
            SYS_io_uring_register,
            SYS_add_key,
            SYS_request_key,
            SYS_keyctl,
            SYS_userfaultfd,
            SYS_bpf,
            SYS_perf_event_open,
            SYS_ptrace,
            SYS_process_vm_readv,
            SYS_mount,
            SYS_unshare,
            SYS_setns,
            SYS_pivot_root,
            SYS_fanotify_init,
        ] {
            let answer = run(&program, u32::try_from(*number).unwrap(), [0; 6]);
            assert_eq!(answer, refused(Errno::EPERM), "{name}");
        }
        for (name, number) in calls![SYS_clone3, SYS_openat2] {
            let answer = run(&program, u32::try_from(*number).unwrap(), [0; 6]);
            assert_eq!(answer, refused(Errno::ENOSYS), "{name}");
        }
        // The control: what every program needs passes.
        for (name, number) in calls![SYS_read, SYS_mmap, SYS_futex, SYS_exit_group] {
            let answer = run(&program, u32::try_from(*number).unwrap(), [0; 6]);
            assert_eq!(answer, libc::SECCOMP_RET_ALLOW, "{name}");
        }
    }
}
