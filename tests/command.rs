//! Programs that are brought as they are: compiled, run in custody, recorded, frozen, verified and replayed.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use xt_core::canonical::{Value, parse};
use xt_core::digest::Digest;
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::custody::{Custody, State};
use xt_core::manifest::intent::{Floor, Intent, Profile};
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
fn a_program_that_failed_is_told_with_the_last_line_it_said_and_where_the_rest_is() {
    let folder = Folder::new();
    let script = "echo first >&2; printf 'no such layer: \\033[2J nine\\n\\n' >&2; exit 3";
    let plan = compiled(&folder, &candidate(&folder, script), &[]);
    let outcome = ran(&folder, &plan).expect(14);
    let run = record(&outcome, Status::Failed);
    let log = format!(".xt/runs/{}/log/stderr", run.attempt);
    for part in ["the last line of its standard error: no such layer: \u{fffd}[2J nine\n", &log] {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
    assert!(!outcome.stderr.contains("first"), "{}", outcome.stderr);
    let story = folder.xt("log").args(["why", run.attempt.as_str()]).run().expect(0).stdout;
    assert!(story.contains("nine") && story.contains(&log), "{story}");
    assert!(fs::read_to_string(folder.at(&log)).unwrap().starts_with("first\n"));
    // The control: what succeeded has no last words, whatever it said.
    let fine = compiled(&folder, &candidate(&folder, "echo much >&2"), &[]);
    let outcome = ran(&folder, &fine).expect(0);
    assert!(!outcome.stderr.contains("standard error"), "{}", outcome.stderr);
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
        if [ -e /etc/passwd ] || [ -e /bin/true ] || [ -e /usr/share ]; then exit 9; fi
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

/// An intent that admits the secret `token`, written to a file.
fn intent(folder: &Folder, change: &[(&str, &str)]) -> String {
    let mut text = Intent::default_for(1).write().canonical();
    text = text.replace("\"secrets\":[]", "\"secrets\":[\"token\"]");
    for (from, to) in change {
        assert!(text.contains(from), "{from} in {text}");
        text = text.replace(from, to);
    }
    folder.write("intent.json", text).display().to_string()
}

const TOKEN: &str = "hunter2-hunter2-hunter2";

#[test]
fn a_secret_reaches_the_program_as_a_descriptor_and_is_nowhere_else() {
    let folder = Folder::new();
    // It may be used, said by mistake, and its variable holds a number only; the last loop gives the test time to look.
    let script = r#"
        read -r token <&"$XT_SECRET_TOKEN"
        [ "${#token}" = 23 ] || exit 9
        echo "number $XT_SECRET_TOKEN said $token"
        echo "$token" >&2
        echo "{\"step\":1,\"length\":${#token}}" >&4
        echo fine > out
        i=0; while [ "$i" -lt 100000 ]; do i=$((i + 1)); done
    "#;
    let plan = compiled(&folder, &candidate(&folder, script), &["--intent", &intent(&folder, &[])]);
    let file = folder.write("token.txt", format!("{TOKEN}\n"));
    let given = format!("token={}", file.display());
    let child =
        folder.xt("run").args(["--secret", &given]).args([folder.write("plan.json", plan.encode().canonical())]);
    let mut child = child.start();
    let (mut seen, mut looked) = (Vec::new(), 0);
    while child.try_wait().unwrap().is_none() {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            for kind in ["environ", "cmdline"] {
                let bytes = fs::read(format!("/proc/{name}/{kind}")).unwrap_or_default();
                looked += usize::from(bytes.windows(7).any(|window| window == b"train.s" || window == b"XT_SECR"));
                if bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes()) {
                    seen.push(format!("{name}/{kind}"));
                }
            }
        }
    }
    let output = child.wait_with_output().unwrap();
    let run = Run::decode(&parse(&output.stdout).unwrap()).unwrap();
    assert_eq!(run.status, Status::Succeeded, "{}", run.cause);
    assert_eq!(seen, Vec::<String>::new());
    assert!(looked > 0, "the program was seen at work");
    assert_eq!(stdout(&folder, &run), "number 5 said [secret token taken out]\n");
    assert_eq!(run.environment["XT_SECRET_TOKEN"], "5");
    nowhere_in_the_store(&folder);
    let custody: Custody = store(&folder).manifest(run.custody.unwrap()).unwrap();
    assert!(custody.descriptors.contains(&5));
    folder.xt("freeze").args(["-o", "b.tar.zst"]).input(run.encode().canonical()).run().expect(0);
    // A replay needs the secret again.
    let refused = folder.xt("replay").input(run.encode().canonical()).run().expect(10);
    assert!(refused.stderr.contains("secret.missing"), "{}", refused.stderr);
    folder.xt("replay").args(["--secret", &given]).input(run.encode().canonical()).run().expect(0);
    nowhere_in_the_store(&folder);
}

/// No file of the store holds the token, and no object does. The control: the search finds what is there.
fn nowhere_in_the_store(folder: &Folder) {
    let holds = |bytes: &[u8], needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    let files = walk(&folder.at(".xt"));
    let (mut control, store) = (false, store(folder));
    for path in files {
        let bytes = fs::read(&path).unwrap_or_default();
        control |= holds(&bytes, b"taken out");
        assert!(!holds(&bytes, TOKEN.as_bytes()), "{}", path.display());
    }
    for (digest, _) in store.list().unwrap() {
        let bytes = store.get(digest).unwrap();
        control |= holds(&bytes, b"taken out");
        assert!(!holds(&bytes, TOKEN.as_bytes()), "{digest}");
    }
    assert!(control, "the search finds what is there");
}

#[test]
fn a_program_that_writes_a_secret_into_an_output_or_its_telemetry_fails_and_the_bytes_are_removed() {
    for (script, cause) in [
        (
            "read -r token <&5; echo \"a $token b\" > model.bin; echo x > other",
            "model.bin holds the bytes of the secret token: removed",
        ),
        (
            "read -r token <&5; echo \"{\\\"step\\\":1,\\\"$token\\\":1}\" >&4; echo x > other",
            "it holds the bytes of the secret token",
        ),
    ] {
        let folder = Folder::new();
        let plan = compiled(&folder, &candidate(&folder, script), &["--intent", &intent(&folder, &[])]);
        let file = folder.write("token.txt", format!("{TOKEN}\n"));
        let given = format!("token={}", file.display());
        let outcome = folder.xt("run").args(["--secret", &given]).input(plan.encode().canonical()).run().expect(14);
        let run = record(&outcome, Status::Failed);
        assert!(run.cause.contains(cause) && !run.cause.contains(TOKEN), "{}", run.cause);
        assert!(run.artifacts.is_empty());
        for path in walk(&folder.at(".xt")) {
            let bytes = fs::read(&path).unwrap_or_default();
            assert!(!bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes()), "{}", path.display());
        }
    }
}

/// What is refused for another reason is kept for people to look at, and its names are told: neither may show a secret.
#[test]
fn a_secret_beside_something_refused_or_in_a_name_is_nowhere_either() {
    let cases = [
        ("beside a FIFO it cannot make", "read -r token <&5; echo \"$token\" > kept; : > 'odd:name'"),
        ("a file named by it", "read -r token <&5; echo fine > \"a $token b\""),
        (
            "a folder named by it",
            "read -r token <&5; cd \"$XT_OUTPUTS\"; echo fine > \"$token:x\"; echo \"$token\" > kept",
        ),
        ("an exit with it kept", "read -r token <&5; echo \"$token\" > kept; exit 4"),
    ];
    for (what, script) in cases {
        for profile in ["full", "in-container"] {
            let folder = Folder::new();
            let weaker = ("\"profile\":\"full\"", format!("\"profile\":\"{profile}\""));
            let preferred = [(weaker.0, weaker.1.as_str())];
            let plan = compiled(&folder, &candidate(&folder, script), &["--intent", &intent(&folder, &preferred)]);
            let given = format!("token={}", folder.write("token.txt", format!("{TOKEN}\n")).display());
            let outcome = folder.xt("run").args(["--secret", &given]).input(plan.encode().canonical()).run().expect(14);
            let run = record(&outcome, Status::Failed);
            assert!(!outcome.stdout.contains(TOKEN) && !outcome.stderr.contains(TOKEN), "{what}, {profile}");
            assert!(run.cause.contains("the secret token") || run.exit.code == Some(4), "{what}: {}", run.cause);
            for path in walk(&folder.at(".xt")) {
                let bytes = fs::read(&path).unwrap_or_default();
                let shown = path.display().to_string();
                assert!(!shown.contains(TOKEN), "{what}, {profile}: {shown}");
                assert!(
                    !bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes()),
                    "{what}, {profile}: {shown}"
                );
            }
        }
    }
}

#[test]
fn a_plan_that_holds_the_bytes_of_a_secret_is_refused() {
    let folder = Folder::new();
    let text = candidate(&folder, "echo x > out").replace("\"rate\":0.5", &format!("\"rate\":\"{TOKEN}\""));
    let plan = compiled(&folder, &text, &["--intent", &intent(&folder, &[])]);
    let given = format!("token={}", folder.write("token.txt", TOKEN).display());
    let refused = folder.xt("run").args(["--secret", &given]).input(plan.encode().canonical()).run().expect(10);
    assert!(refused.stderr.contains("secret.in-plan") && !refused.stderr.contains(TOKEN), "{}", refused.stderr);
    assert!(walk(&folder.at(".xt/runs")).is_empty(), "nothing was recorded");
}

#[test]
fn secrets_that_do_not_match_the_intent_and_runtimes_that_do_not_exist_are_refused_with_every_reason() {
    let folder = Folder::new();
    let text = candidate(&folder, "echo x > out");
    let plan = compiled(&folder, &text, &["--intent", &intent(&folder, &[])]).encode().canonical();
    let without = compiled(&folder, &text, &[]).encode().canonical();
    let file = folder.write("token.txt", TOKEN).display().to_string();
    let refused = folder.xt("run").input(plan.clone()).run().expect(10);
    assert!(
        refused.stderr.contains("secret.missing") && refused.stderr.contains("--secret token=FILE"),
        "{}",
        refused.stderr
    );
    for form in ["token", "=file", "token="] {
        let refused = folder.xt("run").args(["--secret", form]).input(plan.clone()).run().expect(2);
        assert!(refused.stderr.contains("expected NAME=FILE"), "{}", refused.stderr);
    }
    let refused = folder.xt("run").args(["--secret", &format!("other={file}")]).input(plan).run().expect(10);
    assert!(
        refused.stderr.contains("secret.missing") && refused.stderr.contains("secret.undeclared"),
        "{}",
        refused.stderr
    );
    let refused = folder.xt("run").args(["--secret", &format!("token={file}")]).input(without).run().expect(10);
    assert!(refused.stderr.contains("secret.undeclared"), "{}", refused.stderr);
    assert!(walk(&folder.at(".xt/runs")).is_empty(), "nothing was recorded");
    let remote = r#"{"kind":"remote","name":"elsewhere","egress":"the data","provider":"","retention":" "}"#;
    let changed = intent(&folder, &[("{\"kind\":\"local\"}", remote), ("\"token\"", "\"Token\"")]);
    let refused = folder.xt("compile").args(["--intent", &changed]).input(text.clone()).run().expect(10);
    for reason in [
        "there is no runtime elsewhere; this version has: local",
        "/runtime/provider",
        "/runtime/retention",
        "/secrets/0",
    ] {
        assert!(refused.stderr.contains(reason), "{reason}: {}", refused.stderr);
    }
    let changed = intent(
        &folder,
        &[
            ("{\"kind\":\"local\"}", r#"{"kind":"local","egress":"x"}"#),
            ("\"network\":\"none\"", "\"network\":\"open\""),
        ],
    );
    let refused = folder.xt("compile").args(["--intent", &changed]).input(text).run().expect(10);
    assert!(
        refused.stderr.contains("/runtime/egress") && refused.stderr.contains("expected one of none, loopback, host"),
        "{}",
        refused.stderr
    );
}

#[test]
fn the_python_example_runs_in_custody_freezes_verifies_and_replays_equal_and_another_seed_differs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = root.join("examples/python-digits");
    let python = |folder: &Folder, script: &str| folder.sh(script).env("EXAMPLE", &example).env("ROOT", root).run();
    let folder = Folder::new();
    if folder.sh("command -v python3").run().code != Some(0) {
        println!("not run here: there is no python3");
        return;
    }
    let fetched = python(&folder, "python3 \"$ROOT/examples/fetch.py\" digits \"$ROOT/.data/digits.csv.gz\"");
    if fetched.code != Some(0) {
        println!("not run here: the digits cannot be fetched: {}", fetched.stderr.lines().last().unwrap_or_default());
        return;
    }
    fs::copy(root.join(".data/digits.csv.gz"), folder.at("digits.csv.gz")).unwrap();
    let dataset =
        folder.xt("compile").args(["dataset", "--format", "bytes", "digits.csv.gz"]).run().expect(0).text("/id");
    store(&folder).put(&fs::read(example.join("train.py")).unwrap()).unwrap();
    let candidate = python(&folder, &format!("python3 \"$EXAMPLE/candidate.py\" {dataset} 2")).expect(0).stdout;
    let runs = [1, 2].map(|seed| {
        let plan = compiled(&folder, &candidate, &["--seed", &seed.to_string()]);
        record(&ran(&folder, &plan), Status::Succeeded)
    });
    let custody: Custody = store(&folder).manifest(runs[0].custody.unwrap()).unwrap();
    assert_eq!(custody.overall, State::Enforced);
    assert_eq!(paths(&runs[0]), ["model.json", "snapshots/1/model.json", "snapshots/2/model.json"]);
    let lines = |run: &Run| read_metrics(run.plan, &store(&folder).get(run.trace.as_ref().unwrap().digest).unwrap()).0;
    let accuracy = lines(&runs[0])[1].values["accuracy"].as_ref().unwrap().approximate();
    assert!(accuracy > 0.85, "{accuracy}");
    assert_ne!(runs[0].artifacts, runs[1].artifacts, "another seed learns another model");
    folder.xt("freeze").args(["-o", "digits.tar.zst"]).input(runs[0].encode().canonical()).run().expect(0);
    let stranger = Folder::new();
    fs::copy(folder.at("digits.tar.zst"), stranger.at("digits.tar.zst")).unwrap();
    stranger.xt("freeze").args(["verify", "digits.tar.zst"]).run().expect(0);
    let replay = stranger.xt("replay").args(["digits.tar.zst"]).run().expect(0);
    assert_eq!(
        (replay.text("/outcome").as_str(), replay.document().pointer("/equal_steps").unwrap().canonical().as_str()),
        ("equal", "2")
    );
}

/// What each profile that is weaker than `full` really gives, with the program of the host doing the same work.
#[test]
fn a_program_runs_under_in_container_and_none_and_the_record_says_what_held() {
    for (profile, state) in [("in-container", "enforced"), ("none", "not_requested")] {
        let folder = Folder::new();
        let mut intent = Intent::default_for(1);
        intent.isolation.profile = Profile::parse(profile).unwrap();
        // What these profiles cannot do must be given up by name.
        intent.isolation.floor.values_mut().for_each(|floor| *floor = Floor::Preferred);
        folder.write("intent.json", intent.encode().canonical());
        let text = candidate(&folder, "echo weights > model.bin");
        let plan = compiled(&folder, &text, &["--intent", "intent.json"]);
        let run = record(&ran(&folder, &plan), Status::Succeeded);
        assert_eq!((run.isolation.word(), paths(&run)), (profile, vec!["model.bin"]));
        let custody: Custody = store(&folder).manifest(run.custody.unwrap()).unwrap();
        let calls = custody.controls.iter().find(|control| control.id == "calls.filtered").unwrap();
        assert_eq!(calls.state.word(), state, "{profile}");
    }
}
