//! Programs that try to bring their supervisor down: by processes, by memory, by stopping, by talking. Each is run by the
//! command line under every profile that confines; what ended it is in the record, from counters, and the supervisor
//! lives to write it.
#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use xt_core::canonical::parse;
use xt_core::field::Manifest as _;
use xt_core::manifest::custody::{Custody, State};
use xt_core::manifest::intent::{Floor, Intent, Profile};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status};
use xt_harness::Folder;
use xt_store::Store;

const PROFILES: [Profile; 2] = [Profile::Full, Profile::InContainer];

/// What a bomb does, by its only argument.
const BOMB: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void touch(size_t size) {
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) _exit(7);
    for (size_t i = 0; i < size; i += 4096) at[i] = 1;
    _exit(0);
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "";
    if (!strcmp(how, "forks")) {
        /* Children that stay and ignore everything, then a thousand tries more. */
        for (int refused = 0; refused < 1000;) {
            pid_t child = fork();
            if (child == 0) { for (int s = 1; s < 65; s++) signal(s, SIG_IGN); for (;;) pause(); }
            if (child < 0) refused++;
        }
        return 1;
    }
    if (!strcmp(how, "memory")) { touch(1UL << 30); }
    if (!strcmp(how, "memories")) {
        /* Each alone would have room. */
        for (int i = 0; i < 12; i++) if (fork() == 0) touch(24UL << 20);
        int status, lost = 0;
        while (wait(&status) > 0) lost += WIFSIGNALED(status);
        return lost > 0;
    }
    if (!strcmp(how, "stop")) {
        /* The supervisor first, or whoever stands before it; then the own group. */
        kill(getppid(), SIGSTOP);
        kill(-1, SIGSTOP);
        dprintf(4, "{\"step\":1}\n");
        kill(0, SIGSTOP);
        raise(SIGSTOP);
        for (;;) pause();
    }
    if (!strcmp(how, "flood")) {
        static char block[1 << 16];
        memset(block, 'x', sizeof block);
        for (int i = 0; i < 400; i++) if (write(1 + i % 2, block, sizeof block) < 0) return 1;
        return 0;
    }
    if (!strcmp(how, "telemetry")) for (long i = 1;; i++) dprintf(4, "{\"step\":%ld}\n", i);
    return 3;
}
"#;

struct Place {
    folder: Folder,
    site: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let site = tempfile::Builder::new().prefix("xt-bombs-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(site.path(), Permissions::from_mode(0o755)).unwrap();
        let source = site.path().join("bomb.c");
        fs::write(&source, BOMB).unwrap();
        let done = Command::new("cc").arg("-o").arg(site.path().join("bomb")).arg(&source).status().unwrap();
        assert!(done.success());
        Self { folder: Folder::new(), site }
    }

    fn bomb(&self) -> PathBuf {
        self.site.path().join("bomb")
    }

    fn plan(&self, profile: Profile, how: &str, change: impl FnOnce(&mut Intent)) -> Plan {
        let mut intent = Intent::default_for(1);
        intent.isolation.profile = profile;
        if profile != Profile::Full {
            intent.isolation.floor.values_mut().for_each(|floor| *floor = Floor::Preferred);
        }
        change(&mut intent);
        self.folder.write("intent.json", intent.encode().canonical());
        let candidate = format!(
            r#"{{"schema":"xt.candidate/1","name":"bomb","trainer":{{"kind":"command","executable":"{}",
            "arguments":["{how}"],"environment":{{}},"roots":[],"files":{{}},"threads":1}},
            "parameters":{{}},"data":null,"steps":null,"regime":"exact"}}"#,
            self.bomb().display()
        );
        let compiled = self.folder.xt("compile").args(["--intent", "intent.json"]).input(candidate).run().expect(0);
        Plan::decode(&compiled.document()).unwrap()
    }

    /// Runs to the end. The supervisor came to write it, and nothing of the run is left.
    fn run(&self, plan: &Plan) -> Run {
        let outcome = self.folder.xt("run").input(plan.encode().canonical()).run();
        let run = Run::decode(&outcome.document()).unwrap_or_else(|faults| panic!("{faults}: {}", outcome.stderr));
        self.is_over(&run);
        run
    }

    fn is_over(&self, run: &Run) {
        assert!(!matches!(run.status, Status::Lost | Status::NotStarted), "{:?}: {}", run.status, run.cause);
        assert_eq!(alive(&self.bomb()), Vec::<i32>::new());
        let log = self.folder.at(".xt/runs").join(run.attempt.as_str()).join("log/supervisor");
        let said = fs::read_to_string(log).unwrap_or_default();
        assert!(!said.contains("panicked"), "{said}");
    }

    fn counted(&self, run: &Run, control: &str) -> bool {
        let store = Store::open(&self.folder.at(".xt")).unwrap();
        let custody: Custody = store.manifest(run.custody.unwrap()).unwrap();
        let control = custody.controls.iter().find(|found| found.id == control).unwrap();
        control.mechanisms.iter().any(|mechanism| mechanism.starts_with("cgroup"))
    }
}

/// Processes that run the file, in whatever file system they see it.
fn alive(program: &Path) -> Vec<i32> {
    let file = fs::metadata(program).unwrap();
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let runs = |pid: &i32| {
        fs::metadata(format!("/proc/{pid}/exe")).is_ok_and(|exe| (exe.dev(), exe.ino()) == (file.dev(), file.ino()))
    };
    numbers.filter(runs).collect()
}

fn state_of(pid: i32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_fork_bomb_is_refused_at_the_limit_and_the_record_counts_it() {
    for profile in PROFILES {
        let place = Place::new();
        let run = place.run(&place.plan(profile, "forks", |_| {}));
        assert_eq!((run.status, run.exit.code), (Status::Failed, Some(1)), "{profile}: {}", run.cause);
        let survivors = run.observed.survivors_killed.unwrap();
        assert!((1..=36).contains(&survivors), "{profile}: {survivors}");
        if !place.counted(&run, "limit.processes") {
            println!("not tested: the counter of refused forks (no control group here)");
            assert_eq!(run.observed.process_limit_hits, None, "{profile}: not observed is not 0");
            continue;
        }
        // Version 2 counts each time, version 1 does, too; the tries of the program are a thousand.
        assert!(run.observed.process_limit_hits.unwrap() >= 1, "{profile}: {:?}", run.observed);
        assert!(run.cause.contains("new processes or threads at the limit"), "{profile}: {}", run.cause);
        // The control: who stays within the limit is told of none.
        let tame = place.run(&place.plan(profile, "none", |_| {}));
        assert_eq!((tame.observed.process_limit_hits, tame.exit.code), (Some(0), Some(3)), "{profile}");
        assert!(!tame.cause.contains("at the limit"), "{}", tame.cause);
    }
}

#[test]
fn a_memory_bomb_is_killed_by_the_limit_and_the_counter_says_so() {
    for profile in PROFILES {
        for how in ["memory", "memories"] {
            let place = Place::new();
            let run = place.run(&place.plan(profile, how, |intent| intent.resources.memory_bytes = 96 << 20));
            if !place.counted(&run, "limit.memory") {
                println!("not tested: the counter of kills for lack of memory (no control group here)");
                assert_eq!(run.observed.out_of_memory_kills, None, "{profile}: not observed is not 0");
                continue;
            }
            assert_eq!(run.status, Status::Exhausted, "{profile} {how}: {}", run.cause);
            assert!(run.cause.starts_with("the memory budget ran out"), "{profile} {how}: {}", run.cause);
            assert!(run.observed.out_of_memory_kills.unwrap() > 0, "{profile} {how}");
            // The control: with room for it, the same program ends well.
            if how == "memories" {
                let roomy = place.run(&place.plan(profile, how, |_| {}));
                assert_eq!(
                    (roomy.status, roomy.observed.out_of_memory_kills),
                    (Status::Succeeded, Some(0)),
                    "{profile}"
                );
            }
        }
    }
}

#[test]
fn a_program_that_stops_its_parent_and_itself_stops_nobody_else_and_can_be_cancelled() {
    for profile in PROFILES {
        let place = Place::new();
        let plan = place.folder.write("plan.json", place.plan(profile, "stop", |_| {}).encode().canonical());
        let child = place.folder.xt("run").args([plan]).start();
        let begun = Instant::now();
        let stopped = loop {
            let all = alive(&place.bomb());
            if let Some(pid) = all.into_iter().find(|pid| state_of(*pid) == Some('T')) {
                break pid;
            }
            assert!(begun.elapsed() < Duration::from_mins(2), "{profile}: it never came to stop itself");
            std::thread::sleep(Duration::from_millis(20));
        };
        // The supervisor goes on: it has heard the line that came after the attempt on it.
        let runs = place.folder.at(".xt/runs");
        let attempt = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
        let telemetry = runs.join(&attempt).join("telemetry.jsonl");
        while fs::metadata(&telemetry).map_or(0, |found| found.len()) == 0 {
            assert!(begun.elapsed() < Duration::from_mins(2), "{profile}: the supervisor hears nothing");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(state_of(stopped), Some('T'), "{profile}: it stays stopped while nobody does anything");
        place.folder.xt("run").args(["--cancel", &attempt]).run();
        let output = child.wait_with_output().unwrap();
        let run = Run::decode(&parse(&output.stdout).unwrap()).unwrap();
        place.is_over(&run);
        assert_eq!((run.status, run.progress.steps), (Status::Cancelled, 1), "{profile}: {}", run.cause);
    }
}

/// From outside: whoever is the same user stops the guard, and the run can be ended all the same.
#[test]
fn a_run_whose_guard_was_stopped_from_outside_is_cancelled() {
    for profile in PROFILES {
        let place = Place::new();
        let plan = place.folder.write("plan.json", place.plan(profile, "stop", |_| {}).encode().canonical());
        let child = place.folder.xt("run").args([plan]).start();
        let begun = Instant::now();
        let trainer = loop {
            let found = alive(&place.bomb()).into_iter().find(|pid| state_of(*pid) == Some('T'));
            if let Some(pid) = found {
                break pid;
            }
            assert!(begun.elapsed() < Duration::from_mins(2), "{profile}: it never came to stop itself");
            std::thread::sleep(Duration::from_millis(20));
        };
        let stat = fs::read_to_string(format!("/proc/{trainer}/stat")).unwrap();
        let guard: i32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
        let done = Command::new("kill").args(["-STOP", &guard.to_string()]).status().unwrap();
        assert!(done.success());
        let attempt = fs::read_dir(place.folder.at(".xt/runs")).unwrap().next().unwrap().unwrap().file_name();
        place.folder.xt("run").args(["--cancel", attempt.to_str().unwrap()]).run();
        let output = child.wait_with_output().unwrap();
        let run = Run::decode(&parse(&output.stdout).unwrap()).unwrap();
        place.is_over(&run);
        assert_eq!(run.status, Status::Cancelled, "{profile}: {}", run.cause);
    }
}

#[test]
fn a_flood_of_words_is_cut_at_the_cap_and_the_rest_is_counted() {
    for profile in PROFILES {
        let place = Place::new();
        let run = place.run(&place.plan(profile, "flood", |intent| intent.resources.log_bytes = 100_000));
        assert_eq!(run.status, Status::Succeeded, "{profile}: {}", run.cause);
        for log in [&run.logs.stdout, &run.logs.stderr] {
            assert_eq!((log.bytes, log.bytes + log.dropped), (100_000, 200 << 16), "{profile}");
        }
    }
}

#[test]
fn a_flood_of_telemetry_ends_at_what_may_be_written() {
    for profile in PROFILES {
        let place = Place::new();
        let run = place.run(&place.plan(profile, "telemetry", |intent| intent.resources.storage_bytes = 1 << 20));
        assert_eq!(run.status, Status::Failed, "{profile}: {}", run.cause);
        assert!(run.cause.contains("more than the 1048576 bytes"), "{profile}: {}", run.cause);
    }
}

/// Case B-11: the group was gone before its counters were read, or there never was one; 0 was written down.
#[test]
fn b_11_without_a_control_group_a_kill_is_not_observed_as_lack_of_memory_and_no_counter_is_guessed() {
    if !nix::unistd::geteuid().is_root() {
        println!("not tested: the difference between a user and root (this test does not run as root)");
        return;
    }
    let place = Place::new();
    let candidate = r#"{"schema":"xt.candidate/1","name":"killed","trainer":{"kind":"command","executable":"/bin/sh",
        "arguments":["-c","kill -9 $$"],"environment":{},"roots":[],"files":{},"threads":1},
        "parameters":{},"data":null,"steps":null,"regime":"exact"}"#;
    let plan = place.folder.xt("compile").input(candidate).run().expect(0).stdout;
    let bench = place.site.path().join("user");
    fs::create_dir(&bench).unwrap();
    std::os::unix::fs::chown(&bench, Some(65_534), Some(65_534)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_xt-run"), place.site.path().join("xt-run")).unwrap();
    fs::write(place.site.path().join("plan.json"), &plan).unwrap();
    let run = |user: &str| {
        let output = Command::new("setpriv")
            .args(["--reuid", user, "--regid", user, "--clear-groups"])
            .arg(place.site.path().join("xt-run"))
            .arg(place.site.path().join("plan.json"))
            .env_clear()
            .env("XT_STORE", bench.join(user))
            .current_dir(&bench)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let run = Run::decode(&parse(&output.stdout).unwrap_or_else(|_| panic!("{text}"))).unwrap();
        let custody: Custody = Store::open(&bench.join(user)).unwrap().manifest(run.custody.unwrap()).unwrap();
        (run, custody)
    };
    let (as_user, custody) = run("65534");
    assert_eq!((as_user.status, as_user.exit.signal), (Status::Failed, Some(9)), "{}", as_user.cause);
    assert!(!as_user.cause.contains("memory"), "{}", as_user.cause);
    let seen = &as_user.observed;
    assert_eq!((seen.out_of_memory_kills, seen.process_limit_hits, seen.throttled_periods), (None, None, None));
    let memory = custody.controls.iter().find(|control| control.id == "limit.memory").unwrap();
    assert_eq!(memory.state, State::Partial);
    assert!(memory.missing.iter().any(|text| text.contains("control group")), "{memory:?}");
    // The control: with a group, nothing happened is a number.
    let (as_root, _) = run("0");
    if place_has_groups(&as_root) {
        let seen = &as_root.observed;
        assert_eq!((seen.out_of_memory_kills, seen.process_limit_hits), (Some(0), Some(0)), "{}", as_root.cause);
        assert_eq!(as_root.status, Status::Failed, "a kill that the kernel did not count is no lack of memory");
    } else {
        println!("not tested: counters (no control group here)");
    }
}

fn place_has_groups(run: &Run) -> bool {
    run.observed.out_of_memory_kills.is_some() || Path::new("/sys/fs/cgroup/memory").is_dir()
}

/// Case B-04, on this kernel: every right that its landlock lacks is named, and what stands in for it.
#[test]
fn b_04_rights_newer_than_the_kernel_are_listed_with_what_stands_in_for_them() {
    let folder = Folder::new();
    let document = folder.xt("run").args(["doctor", "--json", "--profile", "in-container"]).run().document();
    let custody = Custody::decode(&document).unwrap();
    let network = custody.controls.iter().find(|control| control.id == "network.none").unwrap();
    let lacking = [(4, "TCP"), (6, "abstract sockets"), (9, "path sockets"), (10, "UDP")];
    for (since, words) in lacking {
        let named = network.missing.iter().any(|text| text.contains(words) && text.contains("covered by filter"));
        assert_eq!(named, custody.host.landlock < since, "{words}: {:?}", network.missing);
    }
}
