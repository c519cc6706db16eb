//! Programs that are brought as they are: compiled, run in custody, recorded, frozen, verified and replayed.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use xt_core::canonical::{Value, parse};
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::custody::{Custody, State};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status};
use xt_core::manifest::trace::read_metrics;
use xt_harness::{Folder, Outcome};
use xt_store::Store;

/// A command that runs a script with the system's shell, and nothing else of the system.
const SCRIPT: &str = r#"{"schema":"xt.candidate/1","name":"script",
    "trainer":{"kind":"command","executable":"/bin/sh","arguments":["-eu","${XT_FILES}/train.sh"],"environment":{},
        "roots":[],"files":{"train.sh":"SCRIPT"},"threads":1},
    "parameters":{"rate":0.5,"layers":[4,2],"name":"x"},"data":null,"steps":null,"regime":"exact"}"#;

/// The candidate of a script, once the script is in the store.
fn candidate(folder: &Folder, script: &str) -> String {
    let store = Store::open_or_create(&folder.at(".xt")).unwrap();
    SCRIPT.replace("SCRIPT", &store.put(script.as_bytes()).unwrap().to_string())
}

fn compiled(folder: &Folder, candidate: &str, arguments: &[&str]) -> Plan {
    let document = folder.xt("compile").args(arguments).input(candidate).run().expect(0).document();
    Plan::decode(&document).unwrap_or_else(|faults| panic!("{faults}"))
}

fn ran(folder: &Folder, plan: &Plan) -> Outcome {
    folder.xt("run").input(plan.encode().canonical()).run()
}

fn record(outcome: &Outcome, status: Status) -> Run {
    let run = Run::decode(&outcome.document()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(run.status, status, "{}: {}", run.cause, outcome.stderr);
    run
}

/// Runs a script to its end.
fn run(folder: &Folder, script: &str, status: Status) -> Run {
    let plan = compiled(folder, &candidate(folder, script), &["--seed", "7"]);
    record(&ran(folder, &plan), status)
}

fn store(folder: &Folder) -> Store {
    Store::open(&folder.at(".xt")).unwrap()
}

fn stdout(folder: &Folder, run: &Run) -> String {
    String::from_utf8(store(folder).get(run.logs.stdout.digest).unwrap()).unwrap()
}

fn paths(run: &Run) -> Vec<&str> {
    run.artifacts.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn a_program_that_does_nothing_succeeds_and_its_custody_is_enforced() {
    let folder = Folder::new();
    let text = SCRIPT.replace("/bin/sh", "/bin/true").replace("[\"-eu\",\"${XT_FILES}/train.sh\"]", "[]");
    let text = text.replace("{\"train.sh\":\"SCRIPT\"}", "{}");
    let plan = compiled(&folder, &text, &[]);
    assert!(plan.inputs.is_empty() && plan.dataset.is_none());
    let run = record(&ran(&folder, &plan), Status::Succeeded);
    assert_eq!((run.exit.code, run.progress.steps, run.progress.completed), (Some(0), 0, true));
    assert!(run.artifacts.is_empty());
    let custody: Custody = store(&folder).manifest(run.custody.unwrap()).unwrap();
    assert_eq!(custody.overall, State::Enforced);
    let program = plan.program.unwrap();
    assert_eq!(program.executable.digest, Digest::of(&fs::read("/bin/true").unwrap()));
    assert!(program.libraries.iter().all(|pin| custody.mounts.iter().any(|mount| mount.digest == Some(pin.digest))));
    // The control: a program that fails has failed, and says how.
    let failing = compiled(&folder, &text.replace("/bin/true", "/bin/false"), &[]);
    let outcome = ran(&folder, &failing).expect(14);
    assert_eq!(record(&outcome, Status::Failed).exit.code, Some(1));
}

#[test]
fn a_script_finds_plan_parameters_files_seed_and_writes_telemetry_and_outputs() {
    let folder = Folder::new();
    let script = r#"
        read -r parameters < "$XT_PARAMETERS"
        read -r plan < "$XT_PLAN"
        echo "$XT_SEED $XT_THREADS $OMP_NUM_THREADS $parameters"
        case "$plan" in *'"seed":7'*) ;; *) exit 9 ;; esac
        echo '{"step": 1, "loss": 2.5, "tokens": 12}' >&4
        echo '{"loss":1.25,"step":5,"accuracy":null}' >&4
        echo weights > model.bin
    "#;
    let run = run(&folder, script, Status::Succeeded);
    assert_eq!(stdout(&folder, &run), "7 1 1 {\"layers\":[4,2],\"name\":\"x\",\"rate\":0.5}\n");
    assert_eq!(paths(&run), ["model.bin"]);
    assert_eq!(store(&folder).get(run.artifacts[0].digest).unwrap(), b"weights\n");
    let trace = run.trace.clone().unwrap();
    let lines = store(&folder).get(trace.digest).unwrap();
    let (metrics, bad) = read_metrics(run.plan, &lines);
    assert_eq!((metrics.len(), bad, metrics[1].step, metrics[1].chain), (2, None, 5, trace.chain));
    assert_eq!(metrics[0].values["loss"].as_ref().unwrap().approximate().to_bits(), 2.5f64.to_bits());
    assert_eq!(metrics[1].values["accuracy"], None);
    assert_eq!((run.progress.steps, run.generator.as_str(), run.precision), (2, "the program's own", None));
}

#[test]
fn telemetry_that_is_none_fails_the_run_and_what_was_promised_must_come() {
    for (line, cause) in [
        ("step 1", "line 1 of the telemetry is no message"),
        ("{\"loss\":1.0}", "line 1 of the telemetry is no message: /step"),
        ("{\"step\":1,\"loss\":NaN}", "line 1 of the telemetry is no message"),
        ("{\"step\":1,\"loss\":\"1\"}", "expected a finite number, or null"),
        ("{\"step\":0}", "expected a number at least 1"),
        ("{\"step\":2}\n{\"step\":2}", "step 2 came where step 3 was due"),
    ] {
        let folder = Folder::new();
        let run = run(&folder, &format!("printf '%s\\n' '{line}' >&4"), Status::Failed);
        assert!(run.cause.contains(cause), "{line}: {}", run.cause);
    }
    let folder = Folder::new();
    let script = "echo '{\"step\":1}' >&4; echo '{\"step\":2}' >&4; echo x > out";
    for (promised, status) in [("1", Status::Failed), ("2", Status::Succeeded), ("3", Status::Failed)] {
        let text = candidate(&folder, script).replace("\"steps\":null", &format!("\"steps\":{promised}"));
        record(&ran(&folder, &compiled(&folder, &text, &[])), status);
    }
    let torn = run_torn();
    assert!(torn.cause.contains("no whole line"), "{}", torn.cause);
}

fn run_torn() -> Run {
    run(&Folder::new(), "printf '{\"step\":1}' >&4", Status::Failed)
}

#[test]
fn data_lies_under_the_names_of_the_dataset_and_nothing_else_of_the_host_is_there() {
    let folder = Folder::new();
    folder.write("data/a/one.txt", "one");
    folder.write("data/two.txt", "two");
    let dataset = folder.xt("compile").args(["dataset", "data"]).run().expect(0).text("/id");
    let script = r#"
        read -r one < "$XT_DATA/a/one.txt" || true
        read -r two < "$XT_DATA/two.txt" || true
        echo "$one $two"
        if [ -e /etc/passwd ] || [ -e /bin/true ] || [ -e /usr/lib ]; then exit 9; fi
        if (echo x > "$XT_DATA/two.txt") 2>/dev/null; then exit 8; fi
        echo out > out
    "#;
    let text = candidate(&folder, script)
        .replace("\"data\":null", &format!("\"data\":{{\"dataset\":\"{dataset}\",\"split\":null}}"));
    let run = record(&ran(&folder, &compiled(&folder, &text, &[])), Status::Succeeded);
    assert_eq!(stdout(&folder, &run), "one two\n");
    assert_eq!(run.dataset.unwrap().to_string(), dataset);
    let other = text.replace("\"split\":null", "\"split\":\"dev\"");
    let refused = folder.xt("compile").input(other).run().expect(10);
    assert!(refused.stderr.contains("/data/split"), "{}", refused.stderr);
}

/// A root of its own: a folder with a program that a script may start, and one that it may not.
fn with_root(folder: &Folder, execute: bool) -> String {
    fs::create_dir_all(folder.at("root/bin")).unwrap();
    for name in ["true", "cat"] {
        fs::copy(Path::new("/bin").join(name), folder.at("root/bin").join(name)).unwrap();
    }
    folder.write("root/text", "from the root");
    let root = folder.at("root").display().to_string();
    let script = format!(
        "read -r text < {root}/text || true\necho $text\n{root}/bin/true && {root}/bin/cat $XT_FILES/train.sh > copy"
    );
    candidate(folder, &script)
        .replace("\"roots\":[]", &format!("\"roots\":[{{\"path\":\"{root}\",\"execute\":{execute}}}]"))
}

#[test]
fn a_root_lies_where_it_lies_on_the_host_and_runs_only_what_it_may() {
    let folder = Folder::new();
    let plan = compiled(&folder, &with_root(&folder, true), &[]);
    let run = record(&ran(&folder, &plan), Status::Succeeded);
    assert_eq!((stdout(&folder, &run).as_str(), paths(&run)), ("from the root\n", vec!["copy"]));
    let refused = compiled(&folder, &with_root(&folder, false), &[]);
    assert_ne!(refused.fingerprint, plan.fingerprint);
    let run = record(&ran(&folder, &refused), Status::Failed);
    assert_eq!(stdout(&folder, &run), "from the root\n");
}

#[test]
fn a_root_that_changed_since_the_plan_is_not_started_and_a_root_that_changes_meanwhile_fails() {
    let folder = Folder::new();
    let plan = compiled(&folder, &with_root(&folder, true), &[]);
    let pinned = plan.program.as_ref().unwrap().roots[0].digest;
    folder.write("root/text", "from another root");
    let run = record(&ran(&folder, &plan).expect(14), Status::NotStarted);
    assert!(run.cause.contains("root ") && run.cause.contains(&pinned.to_string()), "{}", run.cause);
    folder.write("root/text", "from the root");
    record(&ran(&folder, &plan), Status::Succeeded);
    // A script that waits until somebody has written into the root.
    let root = folder.at("root").display().to_string();
    let script = format!("echo x > out\necho '{{\"step\":1}}' >&4\nwhile [ ! -e {root}/new ]; do :; done");
    let text = with_root(&folder, true);
    let old = text.split("\"train.sh\":\"").nth(1).unwrap().split('"').next().unwrap().to_string();
    let new = store(&folder).put(script.as_bytes()).unwrap().to_string();
    let plan = compiled(&folder, &text.replace(&old, &new), &[]);
    let child = folder.xt("run").args([folder.write("plan.json", plan.encode().canonical())]).start();
    let begun = std::time::Instant::now();
    let said = || {
        walk(&folder.at(".xt/runs"))
            .iter()
            .any(|path| path.ends_with("telemetry.jsonl") && fs::metadata(path).unwrap().len() > 0)
    };
    while !said() && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    folder.write("root/new", "");
    let output = child.wait_with_output().unwrap();
    let run = Run::decode(&parse(&output.stdout).unwrap()).unwrap();
    assert_eq!(run.status, Status::Failed, "{}", run.cause);
    assert!(run.cause.contains("changed after it was hashed"), "{}", run.cause);
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.flat_map(|entry| if entry.path().is_dir() { walk(&entry.path()) } else { vec![entry.path()] }).collect()
}

#[test]
fn a_second_run_reads_no_file_of_the_program_again_and_says_so() {
    let folder = Folder::new();
    let plan = compiled(&folder, &candidate(&folder, "echo x > out"), &[]);
    let runs = [(); 2].map(|()| record(&ran(&folder, &plan), Status::Succeeded));
    let files = 1 + plan.program.as_ref().unwrap().libraries.len() as u64;
    assert_eq!(runs[1].observed.digests_cached, Some(files));
    fs::remove_file(folder.at(".xt/cache/digests")).unwrap();
    assert_eq!(record(&ran(&folder, &plan), Status::Succeeded).observed.digests_cached, Some(0));
}

#[test]
fn what_cannot_be_a_command_is_refused_with_every_reason_and_leaves_nothing() {
    let folder = Folder::new();
    let text = candidate(&folder, "true").replace("/bin/sh", "/etc/hostname");
    let text = text.replace(
        "\"roots\":[]",
        "\"roots\":[{\"path\":\"/no/such\",\"execute\":false},{\"path\":\"/proc/1\",\"execute\":true}]",
    );
    let refused = folder.xt("compile").input(text.clone()).run().expect(10);
    assert!(refused.stderr.contains("/trainer/roots/1/path") && refused.stdout.is_empty(), "{}", refused.stderr);
    let refused = folder.xt("compile").input(text.replace("/proc/1", "/no/other")).run().expect(10);
    for pointer in ["/trainer/executable", "/trainer/roots/0/path", "/trainer/roots/1/path"] {
        assert!(refused.stderr.contains(pointer), "{pointer}: {}", refused.stderr);
    }
    let mixed = candidate(&folder, "true").replace("\"steps\":null", "\"steps\":null,\"model\":{},\"optimizer\":{}");
    let refused = folder.xt("compile").input(mixed).run().expect(10);
    assert!(refused.stderr.contains("/model") && refused.stderr.contains("/optimizer"), "{}", refused.stderr);
    let missing = SCRIPT.replace("SCRIPT", &Digest::of(b"nowhere").to_string());
    let refused = folder.xt("compile").input(missing).run().expect(10);
    assert!(
        refused.stderr.contains("/trainer/files/train.sh") && refused.stderr.contains("xt-store put"),
        "{}",
        refused.stderr
    );
    let partial = compiled(&folder, &candidate(&folder, "echo x > out"), &[]);
    let mut edited = partial.encode();
    if let Value::Object(members) = &mut edited {
        members.insert("program".into(), Value::Null);
        members.remove("id");
    }
    let refused = folder.xt("run").input(edited.canonical()).run().expect(10);
    assert!(refused.stderr.contains("/program"), "{}", refused.stderr);
}

#[test]
fn a_command_freezes_verifies_and_replays_equal_from_its_archive_alone() {
    let folder = Folder::new();
    let script = "echo '{\"step\":1,\"loss\":0.5}' >&4\necho \"$XT_SEED\" > model.bin\nread -r a < \"$XT_DATA/a.txt\" || true\necho \"$a\" > data.copy";
    folder.write("a.txt", "the data");
    let dataset = folder.xt("compile").args(["dataset", "a.txt"]).run().expect(0).text("/id");
    let text = candidate(&folder, script)
        .replace("\"data\":null", &format!("\"data\":{{\"dataset\":\"{dataset}\",\"split\":\"train\"}}"));
    let plan = compiled(&folder, &text, &["--seed", "3"]);
    let run = record(&ran(&folder, &plan), Status::Succeeded);
    folder.xt("freeze").args(["-o", "bundle.tar.zst"]).input(run.encode().canonical()).run().expect(0);
    let stranger = Folder::new();
    fs::copy(folder.at("bundle.tar.zst"), stranger.at("bundle.tar.zst")).unwrap();
    let verified = stranger.xt("freeze").args(["verify", "bundle.tar.zst"]).run().expect(0);
    assert_eq!(verified.document().pointer("/verified"), Some(&Value::Bool(true)));
    let replay = stranger.xt("replay").args(["bundle.tar.zst"]).run().expect(0).document();
    assert_eq!(replay.pointer("/outcome").and_then(Value::as_str), Some("equal"));
    assert_eq!(
        replay.pointer("/outputs").map(|outputs| if let Value::List(all) = outputs { all.len() } else { 0 }),
        Some(2)
    );
}

#[test]
fn a_program_that_does_not_repeat_itself_diverges_in_what_differs() {
    let folder = Folder::new();
    let script =
        "read -r random < /proc/self/stat; echo \"$random\" > differs; echo same > same; echo '{\"step\":1}' >&4";
    let run = run(&folder, script, Status::Succeeded);
    let replay = folder.xt("replay").input(run.encode().canonical()).run().expect(1);
    assert_eq!(replay.text("/outcome"), "diverged");
    assert!(replay.stderr.contains("differs") && !replay.stderr.contains("same,"), "{}", replay.stderr);
}

#[test]
fn a_replay_where_the_program_is_another_is_refused_with_every_difference() {
    let folder = Folder::new();
    let plan = compiled(&folder, &with_root(&folder, true), &[]);
    let run = record(&ran(&folder, &plan), Status::Succeeded);
    folder.write("root/text", "another text");
    let refused = folder.xt("replay").args(["--ignore-stack"]).input(run.encode().canonical()).run().expect(10);
    let root = folder.at("root").display().to_string();
    assert!(refused.stderr.contains("replay.pin") && refused.stderr.contains(&root), "{}", refused.stderr);
    folder.write("root/text", "from the root");
    folder.xt("replay").input(run.encode().canonical()).run().expect(0);
}
