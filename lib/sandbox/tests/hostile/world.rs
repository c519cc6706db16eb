//! The surroundings of a hostile trainer: secrets, listeners and a victim on the host, all as reachable as they can be.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xt_core::manifest::intent::{Floor, Network, Profile};
use xt_sandbox::{Brought, Limits, Policy, start};

use crate::support::open_up;

/// An ordinary user.
const NOBODY: u32 = 65_534;
/// The user that a trainer started by root becomes.
const DEDICATED: u32 = 61_183;
/// Number of the descriptor that is left open.
const LEAKED: i32 = 9;

const LIMITS: Limits = Limits {
    memory_bytes: 256 << 20,
    storage_bytes: 16 << 20,
    file_count: 1000,
    cores: 2,
    processes: 40,
    open_files: 64,
    cpu_seconds: Some(300),
};

/// What came of an arm.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Error number of each attempt; 0 when it succeeded.
    pub attempts: BTreeMap<String, i32>,
    /// Connections and datagrams that reached the host: TCP, UDP, path socket, abstract socket.
    pub hits: [usize; 4],
    /// Whether the victim's process still lives.
    pub victim_alive: bool,
    /// Things left on the host.
    pub left: i32,
    /// Whether an input has other bytes, another mode or another owner.
    pub changed: bool,
    /// Collected files that no collector should take.
    pub taken_badly: BTreeSet<String>,
    /// Refused calls that were counted.
    pub denied: u64,
}

/// A way to run the hostile trainer.
pub struct Arm {
    /// Its name in the printed table.
    pub name: &'static str,
    profile: Option<Profile>,
    as_user: bool,
}

impl Arm {
    pub fn new(name: &'static str, profile: Option<Profile>, as_user: bool) -> Self {
        Self { name, profile, as_user }
    }

    /// Runs the hostile trainer, and looks at what it did to the world.
    pub fn run(&self, program: &Path) -> Outcome {
        let root = nix::unistd::geteuid().is_root();
        let owner = match (root, self.as_user) {
            (true, true) => NOBODY,
            (true, false) => DEDICATED,
            (false, _) => nix::unistd::geteuid().as_raw(),
        };
        let world = tempfile::Builder::new().prefix("xt-world-").tempdir_in("/tmp").unwrap();
        let at = |name: &str| world.path().join(name);
        lay_out(world.path(), program, owner, root);
        let before = fs::metadata(at("in/data")).unwrap();
        let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let paths = UnixListener::bind(at("socket")).unwrap();
        open_up(&at("socket"), 0o777);
        let name = world.path().file_name().unwrap().as_encoded_bytes();
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let mut victim = as_user(Command::new("sleep"), root.then_some(owner)).arg("300").spawn().unwrap();
        let facts = [
            ("XT_TCP", tcp.local_addr().unwrap().port().to_string()),
            ("XT_UDP", udp.local_addr().unwrap().port().to_string()),
            ("XT_VICTIM", victim.id().to_string()),
            ("XT_WORLD", world.path().to_string_lossy().into_owned()),
            ("XT_PROFILE", self.profile.map_or("", Profile::word).into()),
            ("XT_TEST_SECRET", "an inherited secret".into()),
        ];
        // The test itself, where every user can run it.
        fs::copy(std::env::current_exe().unwrap(), at("test")).unwrap();
        open_up(&at("test"), 0o755);
        let starter = (root && self.as_user).then_some(NOBODY);
        let output = as_user(Command::new(at("test")), starter)
            .args(["--ignored", "--exact", "arm", "--nocapture"])
            .envs(facts)
            .current_dir(world.path())
            .stdin(fs::File::options().read(true).write(true).open(at("home/stdin")).unwrap())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}: {text}", self.name);
        let mut outcome = read_outcome(&text);
        outcome.victim_alive = victim.try_wait().unwrap().is_none();
        outcome.hits = hits(&tcp, &udp, &paths, &hidden);
        outcome.left = leftovers(program, root.then_some(owner));
        let after = fs::metadata(at("in/data"));
        outcome.changed = after.as_ref().map_or(true, |after| {
            (after.ino(), after.mode(), after.mtime(), after.uid())
                != (before.ino(), before.mode(), before.mtime(), before.uid())
        }) || fs::read(at("in/data")).unwrap_or_default() != b"admitted\n"
            || fs::read_dir(at("in")).unwrap().count() != 3;
        victim.kill().unwrap();
        victim.wait().unwrap();
        outcome
    }
}

/// Everything in the worst state: owned by the trainer's user, and open to everybody.
fn lay_out(world: &Path, program: &Path, owner: u32, root: bool) {
    for folder in ["", "in", "out", "home", "home/.ssh", "store"] {
        fs::create_dir_all(world.join(folder)).unwrap();
    }
    for (file, text) in [
        ("in/data", "admitted\n"),
        ("home/.ssh/id", "a private key\n"),
        ("store/object", "not admitted\n"),
        ("home/stdin", "typed\n"),
    ] {
        fs::write(world.join(file), text).unwrap();
        open_up(&world.join(file), 0o666);
    }
    fs::copy(program, world.join("in/program")).unwrap();
    fs::copy(program, world.join("hostile")).unwrap();
    fs::copy(program, world.join("suid")).unwrap();
    drop(UnixListener::bind(world.join("in/socket")).unwrap());
    for program in ["in/program", "hostile"] {
        open_up(&world.join(program), 0o755);
    }
    for folder in ["", "in", "out", "home", "home/.ssh", "store"] {
        open_up(&world.join(folder), 0o777);
    }
    if root {
        for name in
            ["in", "out", "home", "home/.ssh", "in/data", "in/program", "hostile", "home/.ssh/id", "store/object"]
        {
            chown(world.join(name), Some(owner), Some(owner)).unwrap();
        }
        open_up(&world.join("suid"), 0o4755);
    } else {
        println!("not tested: a set-user-id program (this test does not run as root)");
    }
    // An access time in the past, so that a read can be seen.
    let touched = Command::new("touch").args(["-a", "-d", "2001-01-01"]).arg(world.join("in/data")).status();
    assert!(touched.unwrap().success());
}

fn as_user(mut command: Command, user: Option<u32>) -> Command {
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

fn hits(tcp: &TcpListener, udp: &UdpSocket, paths: &UnixListener, hidden: &UnixListener) -> [usize; 4] {
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    paths.set_nonblocking(true).unwrap();
    hidden.set_nonblocking(true).unwrap();
    let mut buffer = [0; 16];
    [
        std::iter::from_fn(|| tcp.accept().ok()).count(),
        std::iter::from_fn(|| udp.recv(&mut buffer).ok()).count(),
        std::iter::from_fn(|| paths.accept().ok()).count(),
        std::iter::from_fn(|| hidden.accept().ok()).count(),
    ]
}

/// Counts and removes what was left in shared places of the host.
fn leftovers(program: &Path, user: Option<u32>) -> i32 {
    let left = as_user(Command::new(program), user).arg("left").status().unwrap().code().unwrap();
    as_user(Command::new(program), user).arg("clean").status().unwrap();
    left
}

fn read_outcome(text: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in text.lines() {
        let mut words = line.split(' ');
        match (words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
            ("TAKEN", name) => {
                outcome.taken_badly.insert(format!("taken: {name}"));
            }
            ("DENIED", count) => outcome.denied = count.parse().unwrap(),
            ("end", _) => {}
            (name, code) if name.get(1..2) == Some("_") => {
                outcome.attempts.insert(name.into(), code.parse().unwrap());
            }
            _ => {}
        }
    }
    outcome
}

/// In a process of its own: starts the hostile trainer as the surroundings say.
pub fn run_arm() {
    let fact = |name: &str| std::env::var(name).unwrap();
    let world = PathBuf::from(fact("XT_WORLD"));
    let leaked = fs::File::open(world.join("home/.ssh/id")).unwrap();
    let leaked = nix::fcntl::fcntl(&leaked, nix::fcntl::FcntlArg::F_DUPFD(LEAKED)).unwrap();
    let profile = Profile::parse(&fact("XT_PROFILE"));
    let (inputs, outputs) = match profile {
        Some(Profile::Full) => (PathBuf::from(xt_sandbox::INPUTS), PathBuf::from(xt_sandbox::OUTPUTS)),
        _ => (world.join("in"), world.join("out")),
    };
    let exe = if profile == Some(Profile::Full) { "/xt/bin/hostile".into() } else { world.join("hostile") };
    let show = |path: PathBuf| path.to_string_lossy().into_owned();
    let arguments: Vec<OsString> = [
        ("in", show(inputs)),
        ("out", show(outputs)),
        ("exe", show(exe)),
        ("secret", show(world.join("home/.ssh/id"))),
        ("home", show(world.join("home"))),
        ("unadmitted", show(world.join("store/object"))),
        ("suid", show(world.join("suid"))),
        ("socket_path", show(world.join("socket"))),
        ("abstract", world.file_name().unwrap().to_string_lossy().into_owned()),
        ("tcp", fact("XT_TCP")),
        ("udp", fact("XT_UDP")),
        ("victim", fact("XT_VICTIM")),
        ("supervisor", std::process::id().to_string()),
        ("leaked", leaked.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| OsString::from(format!("{key}={value}")))
    .collect();
    let Some(profile) = profile else {
        assert!(
            Command::new(world.join("hostile")).args(arguments).stdin(Stdio::inherit()).status().unwrap().success()
        );
        return;
    };
    let policy = Policy {
        profile,
        floor: BTreeMap::from([
            ("limit.cpu".into(), Floor::Preferred),
            ("limit.memory".into(), Floor::Preferred),
            ("limit.processes".into(), Floor::Preferred),
        ]),
        program: world.join("hostile"),
        arguments,
        libraries: Vec::new(),
        root: None,
        digests: BTreeMap::new(),
        inputs: world.join("in"),
        outputs: world.join("out"),
        environment: BTreeMap::new(),
        descriptors: Vec::new(),
        brought: Brought::default(),
        limits: LIMITS,
        network: Network::None,
    };
    let mut running = start(policy).unwrap_or_else(|error| panic!("{error}"));
    let (stdout, stderr) = running.take_streams().unwrap();
    let (mut text, mut errors) = (String::new(), String::new());
    fs::File::from(stdout).read_to_string(&mut text).unwrap();
    fs::File::from(stderr).read_to_string(&mut errors).unwrap();
    let ending = running.finish().unwrap();
    println!("\n{text}");
    eprint!("{errors}");
    println!("DENIED {}", ending.denied_total().unwrap());
    let collected = ending.outputs.collect(&world.join("home/collected"), &LIMITS).unwrap();
    for file in &collected.files {
        let found = fs::symlink_metadata(world.join("home/collected").join(file.path.as_str())).unwrap();
        let plain = found.is_file() && found.mode() & 0o7000 == 0 && file.path.as_str().split('/').count() <= 16;
        if !plain {
            println!("TAKEN {}", file.path.as_str());
        }
    }
    assert!(ending.outputs.collect(&world.join("home/collected"), &LIMITS).is_err() || collected.files.is_empty());
    let deep = collected.refused.iter().any(|(_, reason)| reason.contains("deeper"));
    let name = collected.refused.iter().any(|(name, _)| name.contains("bad\\xff\\n\\x1b"));
    assert!(deep && name, "{:?}", collected.refused);
    assert_eq!(ending.code, Some(0));
}
