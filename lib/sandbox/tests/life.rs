//! How runs begin and end: what never starts, what will not stop, what tries to stay, and what dies with whom.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "hostile/support.rs"]
mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe};
use support::{Place, copy, open_up, read};
use xt_core::fault::{Exit, Failure as _};
use xt_core::manifest::custody::State;
use xt_core::manifest::intent::Profile;
use xt_sandbox::{SandboxError, start};

const CONFINED: [Profile; 2] = [Profile::Full, Profile::InContainer];

#[test]
fn a_daemon_that_outlives_the_trainer_is_killed_and_counted() {
    for profile in CONFINED {
        let place = Place::new();
        let started = Instant::now();
        let (_, ending) = place.run(profile, &["daemon"]);
        assert_eq!((ending.code, ending.survivors_killed), (Some(0), Some(1)), "{profile}");
        assert!(started.elapsed() < Duration::from_secs(20), "it waited for the daemon");
        assert!(alive_in(&place).is_empty(), "{profile}");
    }
}

#[test]
fn two_thousand_orphans_are_reaped_while_the_trainer_runs() {
    for profile in CONFINED {
        let (_, ending) = Place::new().run(profile, &["children"]);
        // The last ones may still be on their way out when the trainer ends.
        assert!(ending.code == Some(0) && ending.survivors_killed.unwrap() < 10, "{profile}: {ending:?}");
    }
}

#[test]
fn a_trainer_that_ignores_every_signal_is_killed() {
    for profile in CONFINED {
        let place = Place::new();
        let mut running = start(place.policy(profile, "hostile", &["hang"])).unwrap();
        let (stdout, _stderr) = running.take_streams().unwrap();
        BufReader::new(fs::File::from(stdout)).read_line(&mut String::new()).unwrap();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            running.signal(signal).unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(!is_over(&running), "{profile}: it was not to end by a signal that it ignores");
        running.kill().unwrap();
        assert_eq!(running.finish().unwrap().signal, Some(libc::SIGKILL), "{profile}");
    }
}

#[test]
fn a_trainer_without_handlers_ends_by_the_signal_that_it_gets() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let place = Place::new();
        let mut running = start(place.policy(Profile::Full, "hostile", &["wait"])).unwrap();
        let (stdout, _stderr) = running.take_streams().unwrap();
        BufReader::new(fs::File::from(stdout)).read_line(&mut String::new()).unwrap();
        running.signal(signal).unwrap();
        assert_eq!(running.finish().unwrap().signal, Some(signal as i32));
    }
}

/// While the sandbox is made, its processes stay on one processor each.
#[test]
fn a_trainer_may_use_the_processors_that_its_starter_may() {
    let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::count()).rfind(|number| all.is_set(*number).unwrap()).unwrap()).unwrap();
    let numbers = |set: &CpuSet| -> Vec<String> {
        (0..CpuSet::count()).filter(|number| set.is_set(*number).unwrap()).map(|number| number.to_string()).collect()
    };
    for profile in [Profile::Full, Profile::InContainer, Profile::None] {
        for set in [one, all] {
            // Of this thread alone, and of what it forks.
            sched_setaffinity(Pid::from_raw(0), &set).unwrap();
            let text = Place::new().run(profile, &["processors"]).0;
            assert_eq!(text.split_whitespace().collect::<Vec<_>>(), numbers(&set), "{profile}");
            assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), set, "{profile}: the starter itself");
        }
    }
}

#[test]
fn a_crash_leaves_its_signal_and_no_core() {
    let place = Place::new();
    let (_, ending) = place.run(Profile::Full, &["segv"]);
    assert_eq!((ending.code, ending.signal), (None, Some(libc::SIGSEGV)));
    let limits = place.policy(Profile::Full, "hostile", &[]).limits;
    assert_eq!(ending.outputs.collect(&place.at("collected"), &limits).unwrap().files, []);
}

#[test]
fn refused_calls_are_counted_and_the_first_ones_recorded() {
    for profile in CONFINED {
        let (_, ending) = Place::new().run(profile, &["refused"]);
        let denied = ending.denied.unwrap();
        assert_eq!(denied.counts.get("socket"), Some(&100), "{profile}");
        assert_eq!(denied.first.len(), 64);
        assert_eq!(denied.first[1], "socket(2,1,1,0,0,0)".replace(",0,0,0)", &tail(&denied.first[1])));
        assert_eq!(ending.opened, None, "no network was admitted");
    }
}

/// The last three arguments, which a call of three arguments leaves to chance.
fn tail(call: &str) -> String {
    let parts: Vec<&str> = call.split(',').collect();
    format!(",{}", parts[3..].join(","))
}

#[test]
fn a_run_that_nobody_watches_any_more_ends() {
    for profile in CONFINED {
        let place = Place::new();
        let running = start(place.policy(profile, "hostile", &["daemon_and_wait"])).unwrap();
        drop(running);
        assert!(alive_in(&place).is_empty(), "{profile}");
    }
}

#[test]
fn what_a_killed_guard_had_in_its_charge_is_killed_too() {
    for profile in CONFINED {
        let place = Place::new();
        let running = start(place.policy(profile, "hostile", &["daemon_and_wait"])).unwrap();
        let grouped = running.custody().controls.iter().any(|control| {
            control.id == "limit.processes" && control.mechanisms.iter().any(|name| name.starts_with("cgroup"))
        });
        if profile == Profile::InContainer && !grouped {
            println!("not tested: a killed guard (no control group here, so nobody knows what it left)");
            continue;
        }
        let deadline = Instant::now() + Duration::from_mins(1);
        while alive_in(&place).len() < 3 {
            assert!(Instant::now() < deadline, "{profile}: its daemons did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap();
        let guard = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
        kill(Pid::from_raw(guard), Signal::SIGKILL).unwrap();
        let ending = running.finish().unwrap();
        assert_eq!(
            (ending.code, ending.signal, ending.survivors_killed),
            (None, Some(libc::SIGKILL), None),
            "{profile}"
        );
        while !alive_in(&place).is_empty() {
            assert!(Instant::now() < deadline, "{profile}: {:?}", alive_in(&place));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn the_trainer_dies_with_its_supervisor() {
    for profile in CONFINED {
        let place = Place::new();
        let mut supervisor = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "supervisor", "--nocapture"])
            .env("XT_PLACE", place.folder.path())
            .env("XT_PROFILE", profile.word())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(supervisor.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "waiting"), "{profile}: the trainer did not start");
        assert!(!alive_in(&place).is_empty(), "{profile}");
        // Looked at while it lives: once it is dead, any start of another test may sweep what it left.
        assert!(!left_by(supervisor.id()).is_empty(), "{profile}: it has nothing to leave, so this shows nothing");
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !alive_in(&place).is_empty() {
            assert!(Instant::now() < deadline, "{profile}: the trainer survives its supervisor");
            std::thread::sleep(Duration::from_millis(5));
        }
        // What the killed supervisor left is swept by the next start, once the kernel lets go of a group's last process.
        loop {
            let (_, ending) = place.run(profile, &["exit42"]);
            assert_eq!(ending.code, Some(42));
            let left = left_by(supervisor.id());
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "{profile}: {left}");
        }
    }
}

/// Folders of canaries and control groups that this supervisor made.
fn left_by(supervisor: u32) -> String {
    let found = Command::new("find")
        .args(["/sys/fs/cgroup", "/tmp", "/dev/shm", "/var/tmp", "-maxdepth", "5", "(", "-name"])
        .arg(format!("xt-run-{supervisor}-*"))
        .args(["-o", "-name", &format!("xt-canary-{supervisor}-*"), ")"])
        .output()
        .unwrap();
    String::from_utf8_lossy(&found.stdout).into_owned()
}

/// Started by the test above, and killed by it.
#[test]
#[ignore = "started by the_trainer_dies_with_its_supervisor"]
fn supervisor() {
    let folder = std::path::PathBuf::from(std::env::var_os("XT_PLACE").unwrap());
    let profile = Profile::parse(&std::env::var("XT_PROFILE").unwrap()).unwrap();
    let place = Place::new();
    let mut policy = place.policy(profile, "hostile", &["wait"]);
    policy.program = folder.join("hostile");
    policy.inputs = folder.join("in");
    policy.outputs = folder.join("out");
    // Dropping it would not be what is to be tested.
    let mut running = start(policy).unwrap();
    let (stdout, _stderr) = running.take_streams().unwrap();
    std::mem::forget(place);
    let mut line = String::new();
    BufReader::new(fs::File::from(stdout)).read_line(&mut line).unwrap();
    println!("\n{line}");
    std::thread::sleep(Duration::from_mins(1));
}

#[test]
fn descriptors_arrive_at_their_numbers_and_no_other() {
    let place = Place::new();
    let (job, job_end) = pipe().unwrap();
    let (telemetry, telemetry_end): (OwnedFd, OwnedFd) = pipe().unwrap();
    let script = "read line <&3; echo \"got $line\" >&4; for fd in 5 6 7 8 9; do (echo x >&$fd) 2>/dev/null && echo $fd; done; exit 0";
    let mut policy = place.policy(Profile::Full, "hostile", &["-c", script]);
    policy.program = "/bin/dash".into();
    policy.descriptors = vec![(job, 3), (telemetry_end, 4)];
    let mut running = start(policy).unwrap();
    fs::File::from(job_end).write_all(b"the job\n").unwrap();
    assert_eq!(read(&mut running), "");
    let mut said = String::new();
    fs::File::from(telemetry).read_to_string(&mut said).unwrap();
    assert_eq!(said, "got the job\n");
    assert_eq!(running.custody().descriptors, [0, 1, 2, 3, 4]);
    assert_eq!(running.finish().unwrap().code, Some(0));
}

#[test]
fn what_cannot_start_is_told_apart_from_what_failed() {
    let place = Place::new();
    fs::write(place.at("text"), "#!/no/such/interpreter\n").unwrap();
    open_up(&place.at("text"), 0o755);
    fs::write(place.at("garbage"), [0_u8; 100]).unwrap();
    open_up(&place.at("garbage"), 0o755);
    copy(&place.at("hostile"), &place.at("plain"));
    open_up(&place.at("plain"), 0o644);
    let cases = [
        ("none", Errno::ENOENT),
        ("in", Errno::EACCES),
        ("text", Errno::ENOENT),
        ("garbage", Errno::ENOEXEC),
        ("plain", Errno::EACCES),
    ];
    for profile in CONFINED {
        for (name, expected) in cases {
            match start(place.policy(profile, name, &[])) {
                Err(error @ SandboxError::NotStarted { errno, .. }) => {
                    assert_eq!(errno, expected, "{profile} {name}: {error}");
                    assert_eq!(error.exit(), Exit::Workload);
                }
                other => panic!("{profile} {name}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_program_that_the_trainers_user_cannot_read_is_named() {
    if !nix::unistd::geteuid().is_root() {
        println!("not tested: a program that another user cannot read (this test does not run as root)");
        return;
    }
    for profile in CONFINED {
        let place = Place::new();
        open_up(&place.at("hostile"), 0o700);
        let error = start(place.policy(profile, "hostile", &[])).err().unwrap();
        assert!(matches!(&error, SandboxError::NotStarted { errno: Errno::EACCES, .. }), "{profile}: {error:?}");
        assert!(error.to_string().contains("reading") && error.hints()[0].contains("readable"), "{error}");
    }
}

#[test]
fn a_library_that_nobody_admitted_is_named() {
    let place = Place::new();
    compile(&place, "libodd.so", "int odd(void) { return 7; }", &["-shared", "-fPIC"]);
    let folder = place.folder.path().to_string_lossy().into_owned();
    let link = ["-L", folder.as_str(), "-lodd", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/lib"];
    compile(&place, "odd", "int odd(void); int main(void) { return odd(); }", &link);
    let error = start(place.policy(Profile::Full, "odd", &[])).err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("libodd.so"), "{error}");
    let mut policy = place.policy(Profile::Full, "odd", &[]);
    policy.libraries = vec![place.at("libodd.so")];
    let running = start(policy).unwrap_or_else(|error| panic!("{error}"));
    assert!(running.custody().mounts.iter().any(|mount| mount.at == "/xt/bin/lib/libodd.so" && mount.digest.is_some()));
    assert_eq!(running.finish().unwrap().code, Some(7));
}

#[test]
fn a_planted_library_is_loaded_outside_and_never_inside() {
    let place = Place::new();
    fs::create_dir_all(place.at("admitted")).unwrap();
    fs::create_dir_all(place.at("planted")).unwrap();
    compile(&place, "admitted/libodd.so", "int odd(void) { return 7; }", &["-shared", "-fPIC"]);
    compile(&place, "planted/libodd.so", "int odd(void) { return 66; }", &["-shared", "-fPIC"]);
    let folder = place.at("admitted").to_string_lossy().into_owned();
    let link =
        ["-L", folder.as_str(), "-lodd", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/planted:$ORIGIN/lib:$ORIGIN/admitted"];
    compile(&place, "odd", "int odd(void); int main(void) { return odd(); }", &link);
    assert_eq!(Command::new(place.at("odd")).status().unwrap().code(), Some(66), "the control arm");
    for profile in CONFINED {
        let mut policy = place.policy(profile, "odd", &[]);
        policy.libraries = vec![place.at("admitted/libodd.so")];
        let running = start(policy).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(running.finish().unwrap().code, Some(7), "{profile}");
    }
}

/// The loader's cache of a host leads to libraries outside the loader's own folders; the one made inside must, too.
#[test]
fn a_brought_program_without_a_run_path_finds_a_library_that_only_a_cache_can_lead_to() {
    let place = Place::new();
    compile(&place, "libodd.so", "int odd(void) { return 7; }", &["-shared", "-fPIC", "-Wl,-soname,libodd.so"]);
    let folder = place.folder.path().to_string_lossy().into_owned();
    compile(&place, "odd", "int odd(void); int main(void) { return odd(); }", &["-L", &folder, "-lodd"]);
    assert_eq!(Command::new(place.at("odd")).status().unwrap().code(), Some(127), "the control: no cache knows it");
    let mut policy = place.policy(Profile::Full, "odd", &[]);
    let system = ["libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
    policy.libraries = system.iter().filter_map(|name| xt_sandbox::system_library(name)).collect();
    policy.libraries.push(place.at("libodd.so"));
    policy.brought.program_at = Some(place.at("odd"));
    let running = start(policy).unwrap_or_else(|error| panic!("{error}"));
    assert!(running.custody().mounts.iter().any(|mount| mount.at == "/etc/ld.so.cache" && mount.digest.is_some()));
    assert_eq!(running.finish().unwrap().code, Some(7));
}

#[test]
fn a_library_that_crept_in_is_named_among_what_is_mapped() {
    let place = Place::new();
    fs::create_dir_all(place.at("admitted")).unwrap();
    fs::create_dir_all(place.at("planted")).unwrap();
    for name in ["admitted/libodd.so", "planted/libodd.so"] {
        compile(&place, name, "int odd(void) { return 7; }", &["-shared", "-fPIC"]);
    }
    let folder = place.at("admitted").to_string_lossy().into_owned();
    let link = ["-L", folder.as_str(), "-lodd", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/planted:$ORIGIN/lib"];
    let source =
        "#include <unistd.h>\nint odd(void); int main(void) { write(1, \"up\\n\", 3); pause(); return odd(); }";
    compile(&place, "odd", source, &link);
    for (profile, expected) in
        [(Profile::Full, "/xt/bin/lib/libodd.so".into()), (Profile::None, place.at("planted/libodd.so"))]
    {
        let mut policy = place.policy(profile, "odd", &[]);
        policy.libraries = vec![place.at("admitted/libodd.so")];
        let mut running = start(policy).unwrap_or_else(|error| panic!("{error}"));
        let (stdout, _stderr) = running.take_streams().unwrap();
        BufReader::new(fs::File::from(stdout)).read_line(&mut String::new()).unwrap();
        let mapped = running.mapped().unwrap();
        let odd = mapped.iter().find(|file| file.path.ends_with("libodd.so")).unwrap();
        assert_eq!(std::path::Path::new(&odd.path), expected);
        assert_eq!(odd.digest.is_some(), profile == Profile::Full, "{mapped:?}");
        running.kill().unwrap();
        running.finish().unwrap();
    }
}

#[test]
fn a_host_without_namespaces_or_landlock_is_found_out() {
    if !nix::unistd::geteuid().is_root() {
        println!("not tested: taking namespaces and landlock away (this test does not run as root)");
        return;
    }
    let cases = [
        ("namespaces", Profile::Full, "namespaces"),
        ("namespaces", Profile::InContainer, "started"),
        ("landlock", Profile::Full, "landlock"),
        ("landlock", Profile::InContainer, "landlock"),
    ];
    for user in [None, Some(65_534)] {
        for (denied, profile, expected) in cases {
            let place = Place::new();
            copy(&std::env::current_exe().unwrap(), &place.at("test"));
            open_up(&place.at("test"), 0o755);
            let user = user.map_or(String::from("0"), |user: u32| user.to_string());
            let output = Command::new(support::hostile())
                .args(["deny", denied, "/usr/bin/setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"])
                .arg(place.at("test"))
                .args(["--ignored", "--exact", "denied", "--nocapture"])
                .env("XT_PROFILE", profile.word())
                .env("XT_HOSTILE", place.at("hostile"))
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let said = text.lines().find(|line| line.starts_with("SAID ")).unwrap_or(&text).to_string();
            assert!(said.contains(expected), "{denied} denied to {user}, {profile}: {said}");
        }
    }
}

/// Started by the test above in a poorer world.
#[test]
#[ignore = "started by a_host_without_namespaces_or_landlock_is_found_out"]
fn denied() {
    let profile = Profile::parse(&std::env::var("XT_PROFILE").unwrap()).unwrap();
    let folder = tempfile::Builder::new().prefix("xt-place-").tempdir_in("/tmp").unwrap();
    let place = Place { folder };
    for name in ["", "in", "out"] {
        fs::create_dir_all(place.at(name)).unwrap();
        open_up(&place.at(name), 0o777);
    }
    let mut policy = place.policy(profile, "none", &["exit42"]);
    policy.program = std::env::var_os("XT_HOSTILE").unwrap().into();
    match start(policy) {
        Err(error @ SandboxError::Unenforced { .. }) => {
            let SandboxError::Unenforced { custody, missing } = &error else { return };
            assert_eq!(error.exit(), Exit::Custody);
            assert!(!missing.is_empty() && custody.overall > State::Enforced, "{custody:?}");
            assert!(!error.hints().is_empty());
            println!("\nSAID {error}");
        }
        Err(error) => println!("\nSAID something else: {error}"),
        Ok(running) => {
            let custody = running.custody().clone();
            assert!(!custody.principal.user_namespace);
            let open = custody.controls.iter().find(|control| control.id == "filesystem.read").unwrap();
            assert_eq!(open.state, State::Partial);
            assert!(open.missing[0].contains("stat"), "{open:?}");
            assert_eq!(running.finish().unwrap().code, Some(42));
            println!("\nSAID started");
        }
    }
}

fn compile(place: &Place, name: &str, source: &str, arguments: &[&str]) {
    let file = place.at("source.c");
    fs::write(&file, source).unwrap();
    let done = Command::new("cc").arg("-o").arg(place.at(name)).arg(&file).args(arguments).status().unwrap();
    assert!(done.success());
    open_up(&place.at(name), 0o755);
}

fn is_over(running: &xt_sandbox::Running) -> bool {
    let mut polled = [nix::poll::PollFd::new(running.over(), nix::poll::PollFlags::POLLIN)];
    nix::poll::poll(&mut polled, nix::poll::PollTimeout::ZERO).unwrap() > 0
}

/// Processes that run the hostile trainer of this place, in whatever file system they see it.
fn alive_in(place: &Place) -> Vec<Pid> {
    use std::os::unix::fs::MetadataExt as _;
    let program = fs::metadata(place.at("hostile")).unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let runs = |pid: &i32| {
        fs::metadata(format!("/proc/{pid}/exe"))
            .is_ok_and(|exe| (exe.dev(), exe.ino()) == (program.dev(), program.ino()))
    };
    numbers.filter(runs).map(Pid::from_raw).filter(|pid| kill(*pid, None).is_ok()).collect()
}
