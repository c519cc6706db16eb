//! Every tool has the same manners, and most of them are about failing: full disks, closed pipes, odd arguments, odd
//! input (rows U-01 to U-08, J-08, J-13, J-14).
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::pipe;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use xt_harness::{Folder, Outcome, programs};

/// A tool, and what it is asked here.
struct Tool {
    name: &'static str,
    /// A command line that works and prints.
    works: &'static str,
    /// Whether two such calls print the same.
    repeats: bool,
    /// What makes it read documents from standard input, and a file with one that it takes.
    reads: Option<(&'static str, &'static str)>,
    /// A command line that writes to `out` with -o, before the inputs.
    writes: Option<&'static str>,
}

const TOOLS: [Tool; 9] = [
    Tool {
        name: "compile",
        works: "xt-compile candidate.json",
        repeats: true,
        reads: Some(("xt-compile", "candidate.json")),
        writes: Some("xt-compile -o out"),
    },
    Tool {
        name: "decide",
        works: "xt-decide context.json",
        repeats: true,
        reads: Some(("xt-decide", "context.json")),
        writes: Some("xt-decide -o out"),
    },
    Tool {
        name: "freeze",
        works: "xt-freeze verify model.tar.zst",
        repeats: true,
        reads: Some(("xt-freeze", "run.json")),
        writes: Some("xt-freeze -o out"),
    },
    Tool { name: "log", works: "xt-log events", repeats: true, reads: None, writes: None },
    Tool {
        name: "replay",
        works: "xt-replay run.json",
        repeats: false,
        reads: Some(("xt-replay", "run.json")),
        writes: Some("xt-replay -o out"),
    },
    Tool {
        name: "run",
        works: "xt-run plan.json",
        repeats: false,
        reads: Some(("xt-run", "plan.json")),
        writes: Some("xt-run -o out"),
    },
    Tool {
        name: "snapshot",
        works: "xt-snapshot --step 2 run.json",
        repeats: true,
        reads: Some(("xt-snapshot show", "snapshot.json")),
        writes: None,
    },
    Tool {
        name: "store",
        works: "xt-store canon candidate.json",
        repeats: true,
        reads: Some(("xt-store canon", "candidate.json")),
        writes: None,
    },
    Tool {
        name: "triage",
        works: "xt-triage incident.json",
        repeats: true,
        reads: Some(("xt-triage", "incident.json")),
        writes: Some("xt-triage -o out"),
    },
];

fn readers() -> impl Iterator<Item = (&'static Tool, &'static str, &'static str)> {
    TOOLS.iter().filter_map(|tool| tool.reads.map(|(command, document)| (tool, command, document)))
}

const CANDIDATE: &str = include_str!("../golden/train/in/candidate.json");
const TEXT: &str = include_str!("../golden/train/in/text.txt");
/// Limits only, so that this runs on any host: what is tested here is not isolation.
const INTENT: &str = r#"{"schema":"xt.intent/1","principal":"tester","purpose":"manners",
    "resources":{"cores":1,"memory_bytes":4294967296,"accelerators":[],"storage_bytes":1073741824,
        "duration_seconds":600,"log_bytes":1048576,"conflict_domains":[]},
    "isolation":{"profile":"none","floor":{"limit.cpu":"preferred","limit.memory":"preferred","limit.processes":"preferred"}},
    "secrets":[],"network":"none","runtime":{"kind":"local"}}"#;

/// A folder with a document of each kind, made by the tools themselves; a stand-in does the training.
fn world() -> Folder {
    let folder = Folder::new();
    folder.write("text.txt", TEXT);
    folder.write("candidate.json", CANDIDATE);
    folder.write("intent.json", INTENT);
    folder.write("context.json", vector(include_str!("vectors/decide.jsonl"), "STOP_SUCCEEDED"));
    folder.write("incident.json", vector(include_str!("vectors/triage.jsonl"), "CONTINUE_BOUNDED_DIAGNOSTICS"));
    let script = "xt-compile dataset text.txt > dataset.json
        xt-compile --intent intent.json candidate.json > plan.json
        xt-run plan.json > run.json
        xt-snapshot --step 2 run.json > snapshot.json
        xt-freeze -o model.tar.zst run.json > bundle.json";
    sh(&folder, script).expect(0);
    folder
}

/// The first input of some vectors whose expectation holds `word`.
fn vector<'a>(vectors: &'a str, word: &str) -> &'a str {
    let mut pairs = vectors.lines().filter_map(|line| line.strip_prefix("{\"input\": ")?.rsplit_once(", \"expect\": "));
    pairs.find(|(_, expect)| expect.contains(word)).unwrap_or_else(|| panic!("no vector expects {word}")).0
}

fn sh(folder: &Folder, script: &str) -> Outcome {
    let outcome = folder.sh(script).env("XT_TRAIN", programs().join("xt-stand-in")).run();
    assert!(!outcome.stderr.contains("panicked"), "{script}: {}", outcome.stderr);
    outcome
}

#[test]
fn every_tool_says_its_version_and_its_help() {
    let folder = Folder::new();
    for Tool { name, .. } in TOOLS {
        let version = folder.xt(name).arg("--version").run().expect(0);
        assert_eq!(version.stdout, format!("xt-{name} {}\n", env!("CARGO_PKG_VERSION")));
        for flag in ["-h", "--help"] {
            let help = folder.xt(name).arg(flag).run().expect(0);
            assert!(help.stdout.contains("Usage:") && help.stderr.is_empty(), "{help:?}");
        }
        let wrong = folder.xt(name).arg("--no-such-flag").run().expect(2);
        assert!(wrong.stdout.is_empty() && wrong.stderr.contains("--no-such-flag"), "{wrong:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "asking made something");
}

/// Row U-02.
#[test]
fn a_full_disk_under_standard_output_is_an_error_that_says_so() {
    let folder = world();
    for tool in TOOLS {
        let name = tool.name;
        sh(&folder, tool.works).expect(0);
        for command in [tool.works, &format!("xt-{name} --help"), &format!("xt-{name} --version")] {
            let full = sh(&folder, &format!("{command} > /dev/full")).expect(20);
            assert!(full.stderr.contains("cannot write standard output: No space left"), "{command}: {}", full.stderr);
        }
        sh(&folder, &format!("xt-{name} --generate man > /dev/full")).expect(20);
    }
}

#[test]
fn a_closed_standard_output_is_an_error_that_says_so() {
    let folder = world();
    for tool in TOOLS {
        let name = tool.name;
        for command in [tool.works, &format!("xt-{name} --help")] {
            let closed = sh(&folder, &format!("{command} >&-")).expect(20);
            assert!(closed.stderr.contains("cannot write standard output"), "{command}: {}", closed.stderr);
        }
    }
}

/// Row U-01. The reader is gone before the tool starts, so nothing depends on who is faster.
#[test]
fn a_pipe_that_nobody_reads_ends_a_tool_without_a_panic() {
    let folder = world();
    for tool in TOOLS {
        let name = tool.name;
        for command in [tool.works, &format!("xt-{name} --help"), &format!("xt-{name} --version")] {
            let (reader, writer) = pipe().unwrap();
            drop(reader);
            let mut child =
                folder.sh(&format!("exec {command}")).env("XT_TRAIN", programs().join("xt-stand-in")).command();
            let output = child.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(20), "{command}: {stderr}");
            assert!(stderr.contains("Broken pipe") && !stderr.contains("panicked"), "{command}: {stderr}");
        }
    }
    sh(&folder, "xt-store verify").expect(0);
}

/// Row U-08.
#[test]
fn diagnostics_are_not_vital() {
    let folder = world();
    for tool in TOOLS {
        let expected = sh(&folder, tool.works).expect(0).stdout;
        let refused = tool.reads.map(|(command, _)| format!("echo '{{\"a\":1,\"a\":2}}' | {command}"));
        for stderr in ["2>/dev/full", "2>&-"] {
            let found = sh(&folder, &format!("{} {stderr}", tool.works)).expect(0).stdout;
            assert!(!found.is_empty() && (!tool.repeats || found == expected), "{}: {found}", tool.works);
            if let Some(refused) = &refused {
                sh(&folder, &format!("{refused} {stderr}")).expect(10);
            }
            sh(&folder, &format!("xt-{} --no-such-flag {stderr}", tool.name)).expect(2);
        }
    }
}

/// Row U-05.
#[test]
fn a_name_that_is_not_utf_8_is_a_name() {
    let folder = world();
    for (_, command, document) in readers() {
        let absent = sh(&folder, &format!("{command} \"$(printf 'absent\\377')\""));
        assert!(![0, 70, 101].contains(&absent.code.unwrap()), "{command}: {absent:?}");
        assert!(absent.stdout.is_empty() && absent.stderr.contains("absent"), "{command}: {absent:?}");
        let there = format!("name=$(printf 'there\\377'); cp {document} \"$name\"; {command} \"$name\"");
        assert!(!sh(&folder, &there).expect(0).stdout.is_empty(), "{command}");
    }
    sh(&folder, "xt-store put \"$(printf 'there\\377')\"").expect(0);
    for tool in TOOLS {
        // As the name of a flag's value, of the home folder, and of the store.
        let odd = format!("HOME=$(printf '/h\\377') {}", tool.works);
        sh(&folder, &odd).expect(0);
        // The supervisor of the last run may still be closing the record, whose files come and go.
        let copy = "s=$(printf 's\\377'); cp -r .xt \"$s\" || { sleep 1; rm -rf \"$s\"; cp -r .xt \"$s\"; }";
        let store = format!("{copy}; XT_STORE=$s {}", tool.works);
        let found = sh(&folder, &store);
        // Without a file system of its own the worker would have to be told this name.
        let told = found.code == Some(14) && found.stderr.contains("not UTF-8");
        assert!(found.code == Some(0) || ["run", "replay"].contains(&tool.name) && told, "{found:?}");
        sh(&folder, "rm -rf s?").expect(0);
    }
}

#[test]
fn several_documents_may_follow_one_another() {
    let folder = world();
    for (tool, command, document) in readers() {
        let twice = sh(&folder, &format!("cat {document} {document} | {command}"));
        if tool.name == "replay" {
            // One report is one answer.
            assert!(twice.code == Some(10) || twice.documents().len() == 2, "{twice:?}");
            continue;
        }
        assert_eq!(twice.expect(0).documents().len(), 2, "{command}");
    }
}

/// Row U-04: what follows a failed command finds nothing, and says so.
#[test]
fn an_empty_input_is_refused_with_a_hint_at_the_pipeline() {
    let folder = world();
    for (_, command, _) in readers() {
        for input in ["", " \n\t\n"] {
            let empty =
                folder.sh(command).env("XT_TRAIN", programs().join("xt-stand-in")).input(input).run().expect(10);
            assert!(empty.stdout.is_empty() && empty.stderr.contains("hint: "), "{command}: {empty:?}");
        }
    }
    let failed = sh(&folder, "echo '{}' | xt-compile | xt-run | xt-freeze -o frozen.tar.zst");
    assert_ne!(failed.code, Some(0), "the last command of the pipeline must fail, too");
    assert!(failed.stdout.is_empty() && !folder.at("frozen.tar.zst").exists());
}

#[test]
fn a_file_for_results_appears_whole_or_not_at_all() {
    let folder = world();
    let before = fs::read_dir(folder.path()).unwrap().count();
    for tool in &TOOLS {
        let (Some(command), Some((_, document))) = (tool.writes, tool.reads) else { continue };
        sh(&folder, &format!("echo '{{\"schema\":\"xt.nothing/1\"}}' | {command}")).expect(10);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before, "{command} left something");
        folder.write("out", "from before");
        sh(&folder, &format!("echo '{{\"schema\":\"xt.nothing/1\"}}' | {command}")).expect(10);
        assert_eq!(fs::read(folder.at("out")).unwrap(), b"from before", "{command} touched the file");
        sh(&folder, &format!("{command} {document}")).expect(0);
        assert_ne!(fs::read(folder.at("out")).unwrap(), b"from before", "{command}");
        fs::remove_file(folder.at("out")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before, "{command} left something");
    }
    sh(&folder, "xt-store put text.txt; xt-store get sha256:0000000000000000000000000000000000000000000000000000000000000000 -o out || test $? = 11").expect(0);
    assert!(!folder.at("out").exists());
}

/// Row U-06: make takes a half-written target for a made one.
#[test]
fn a_failed_recipe_leaves_no_target_behind() {
    let folder = world();
    folder.write("bad.json", "{\"schema\":\"xt.candidate/1\"}");
    folder.write("Makefile", "out.json: bad.json ; xt-compile -o $@ $<\n");
    for _ in 0..2 {
        let made = folder.sh("make out.json").run();
        if made.code == Some(127) {
            println!("not run here: make is not installed");
            return;
        }
        assert!(!made.expect(2).stdout.contains("up to date"));
    }
    fs::copy(folder.at("candidate.json"), folder.at("bad.json")).unwrap();
    folder.sh("make out.json").run().expect(0);
    assert!(folder.sh("make out.json").run().expect(0).stdout.contains("up to date"));
}

/// Under `script`, standard output and standard error are a terminal.
#[test]
fn colours_are_for_terminals_and_for_people_who_did_not_say_no() {
    if !Path::new("/usr/bin/script").exists() {
        println!("not run here: script is not installed");
        return;
    }
    let folder = world();
    let sgr = |text: &str| {
        text.match_indices("\u{1b}[").any(|(at, _)| {
            text[at + 2..]
                .find(|c: char| !c.is_ascii_digit() && c != ';')
                .is_some_and(|end| text[at + 2 + end..].starts_with('m'))
        })
    };
    for tool in TOOLS {
        let command = format!("script -qec 'xt-{} --no-such-flag' /dev/null || :", tool.name);
        let terminal = folder.sh(&command).env("TERM", "xterm").run().expect(0).stdout;
        let plain = folder.sh(&command).env("TERM", "xterm").env("NO_COLOR", "1").run().expect(0).stdout;
        assert!(sgr(&terminal), "the control shows no colour: {terminal:?}");
        assert!(plain.contains("--no-such-flag") && !sgr(&plain), "{plain:?}");
        let works = format!("script -qec '{}' /dev/null", tool.works);
        let worker = programs().join("xt-stand-in");
        let quiet = folder.sh(&works).env("TERM", "xterm").env("NO_COLOR", "1").env("XT_TRAIN", worker).run().expect(0);
        assert!(!sgr(&quiet.stdout), "{:?}", quiet.stdout);
    }
}

#[test]
fn no_tool_asks_a_question() {
    let folder = world();
    for tool in TOOLS {
        // Standard input is closed, and nothing is there to answer on the terminal either.
        let begun = Instant::now();
        sh(&folder, &format!("setsid {} <&-", tool.works)).expect(0);
        assert!(begun.elapsed() < Duration::from_mins(1));
    }
}

/// Rows J-08, J-12, J-13, J-14: what other readers let pass.
#[test]
fn hostile_documents_are_refused_in_every_tool() {
    let folder = world();
    let hostile: [(&str, Vec<u8>, &str); 8] = [
        ("a byte-order mark", b"\xef\xbb\xbf{}".to_vec(), "byte-order mark"),
        ("UTF-16", b"\xff\xfe{\0}\0".to_vec(), "byte-order mark"),
        ("a key twice", br#"{"schema":"xt.plan/1","seed":1,"seed":2}"#.to_vec(), "\"seed\" occurs twice"),
        ("a key twice, deep", br#"{"a":[{"b":{"c":1,"c":1}}]}"#.to_vec(), "\"c\" occurs twice"),
        ("128 levels", [vec![b'['; 128], vec![b']'; 128]].concat(), "deeper than 127 levels"),
        ("100000 levels", vec![b'['; 100_000], "deeper than 127 levels"),
        ("half a surrogate pair", br#"{"schema":"\ud800"}"#.to_vec(), "surrogate"),
        ("NaN", br#"{"schema":NaN}"#.to_vec(), "NaN"),
    ];
    let before = fs::read_dir(folder.path()).unwrap().count();
    for (_, command, _) in readers() {
        for (what, bytes, message) in &hostile {
            let worker = programs().join("xt-stand-in");
            let refused = folder.sh(command).env("XT_TRAIN", worker).input(bytes.clone()).run();
            assert_eq!(refused.code, Some(10), "{command}, {what}: {refused:?}");
            assert!(refused.stdout.is_empty() && refused.stderr.contains(message), "{command}, {what}: {refused:?}");
            assert!(refused.stderr.len() < 1000, "{command}, {what}: {}", refused.stderr);
        }
        let wrong = sh(&folder, &format!("echo '{{\"schema\":\"xt.nothing/1\"}}' | {command}"));
        let canon = command.ends_with("canon");
        assert_eq!(wrong.code, Some(if canon { 0 } else { 10 }), "{command}: {wrong:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before);
}

/// Row J-14: the limits hold for memory and time, too. 1 GiB of address space, for documents of up to 200 MB.
#[test]
fn enormous_documents_take_bounded_memory_and_time() {
    let folder = world();
    let begun = Instant::now();
    let text = "printf '\"'; head -c 200000000 /dev/zero | tr '\\0' a; printf '\"'";
    for (_, command, _) in readers() {
        let long = sh(&folder, &format!("ulimit -v 1048576; ({text}) 2>/dev/null | {command}")).expect(10);
        assert!(long.stdout.is_empty() && long.stderr.contains("longer than 67108864 bytes"), "{command}: {long:?}");
    }
    folder.write(
        "keys.json",
        format!("{{{}}}", (0..1_000_000).map(|n| format!("\"k{n}\":{n}")).collect::<Vec<_>>().join(",")),
    );
    let keys = sh(&folder, "ulimit -v 1048576; xt-store canon keys.json").expect(0).stdout;
    assert!(keys.starts_with("{\"k0\":0,\"k1\":1,\"k10\":10,\"k100\":100,") && keys.ends_with("\"k999999\":999999}\n"));
    let refused = sh(&folder, "ulimit -v 1048576; xt-compile keys.json").expect(10);
    assert!(refused.stdout.is_empty() && refused.stderr.contains("there are more than these 1000 faults"));
    assert!(begun.elapsed() < Duration::from_mins(3), "{:?}", begun.elapsed());
}

/// A person's terminal must not be steered by what stands in a document.
#[test]
fn control_characters_of_a_document_do_not_reach_the_terminal() {
    let folder = world();
    for (_, command, _) in readers().filter(|(tool, ..)| tool.name != "store") {
        let document = r#"{"schema":"\u001b[31m","\u001b]0;title\u0007":1,"name":"\u001b[2J"}"#;
        let worker = programs().join("xt-stand-in");
        let refused = folder.sh(command).env("XT_TRAIN", worker).input(document).run().expect(10);
        assert!(!refused.stderr.contains(['\u{1b}', '\u{7}']), "{command}: {:?}", refused.stderr);
    }
}
