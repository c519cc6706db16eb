//! Whether a process still runs: real processes, real namespaces.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant as Moment};

use xt_record::{Liveness, Process};

use crate::bench::{another, given, said};

/// A process that does nothing for a minute, ended when dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("60").spawn().unwrap())
    }

    fn process(&self) -> Process {
        Process::of(self.0.id()).unwrap()
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_running_process_is_alive_and_an_ended_one_is_dead() {
    assert_eq!(Process::own().unwrap().liveness(), Liveness::Alive);
    let sleeper = Sleeper::new();
    let process = sleeper.process();
    assert_eq!(process.liveness(), Liveness::Alive);
    drop(sleeper);
    assert_eq!(process.liveness(), Liveness::Dead);
}

#[test]
fn a_recycled_number_or_an_earlier_boot_is_not_alive_and_the_stranger_lives_on() {
    let mut sleeper = Sleeper::new();
    let earlier = Process { start_time: sleeper.process().start_time - 100, ..sleeper.process() };
    assert_eq!(earlier.liveness(), Liveness::Dead);
    let boot_id = "6d1f0d22-0000-4000-8000-000000000000".to_string();
    assert_eq!(Process { boot_id, ..sleeper.process() }.liveness(), Liveness::Dead);
    assert!(sleeper.runs());
}

#[test]
fn a_process_that_has_ended_but_was_not_waited_for_is_dead() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let process = Process::of(child.id()).unwrap();
    assert_eq!(process.liveness(), Liveness::Alive);
    drop(child.stdin.take());
    let began = Moment::now();
    while process.liveness() == Liveness::Alive && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(process.liveness(), Liveness::Dead);
    child.wait().unwrap();
}

/// Says what it sees of the process written in the environment.
#[test]
#[ignore = "a part of another test, run as a process of its own"]
fn look() {
    let text = given().into_os_string().into_string().unwrap();
    let fields: Vec<&str> = text.split(' ').collect();
    let process = Process {
        pid: fields[0].parse().unwrap(),
        start_time: fields[1].parse().unwrap(),
        boot_id: fields[2].to_string(),
        namespace: fields[3].parse().unwrap(),
    };
    println!("> {}", process.liveness().word());
}

/// What [`look`] says of `process` when started by `with`.
fn seen(process: &Process, with: &[&str]) -> Vec<String> {
    let text = format!("{} {} {} {}", process.pid, process.start_time, process.boot_id, process.namespace);
    let part = another("process::look", text.as_ref());
    let words = with.iter().map(std::ffi::OsStr::new).chain([part.get_program()]).chain(part.get_args());
    let words: Vec<_> = words.collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).envs(part.get_envs().filter_map(|(key, value)| Some((key, value?))));
    said(&command.stderr(Stdio::inherit()).output().unwrap().stdout)
}

#[test]
fn from_another_namespace_nothing_is_dead() {
    let sleeper = Sleeper::new();
    let process = sleeper.process();
    assert_eq!(seen(&process, &["env"]), ["alive"]);
    let namespace = ["unshare", "--user", "--map-root-user", "--pid", "--fork"];
    assert_eq!(seen(&process, &[&namespace[..], &["--mount-proc"]].concat()), ["unknown"]);
    // Its own `/proc` not mounted: the numbers there are those of the namespace outside.
    assert_eq!(seen(&process, &namespace), ["unknown"]);
    drop(sleeper);
    assert_eq!(seen(&process, &namespace), ["unknown"]);
    assert_eq!(seen(&process, &["env"]), ["dead"]);
}
