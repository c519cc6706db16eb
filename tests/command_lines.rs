//! Command lines that people write at first: flags before subcommands, and flags that are not there.
#![allow(clippy::unwrap_used)]

use xt_core::canonical::parse;
use xt_harness::Folder;

#[test]
fn a_shared_flag_may_stand_before_or_behind_every_subcommand() {
    let folder = Folder::new();
    folder.write("data/text.txt", "to be or not to be");
    for arguments in [["--store", "s", "dataset", "data"], ["dataset", "data", "--store", "s"]] {
        let made = folder.xt("compile").args(arguments).run().expect(0);
        assert_eq!(made.text("/schema"), "xt.dataset/1");
    }
    assert!(folder.at("s/packs").is_dir() && !folder.at(".xt").exists());
    let plain = folder.xt("run").args(["doctor", "--json"]).run();
    let flagged = folder.xt("run").args(["--store", "s", "--quiet", "doctor", "--json"]).run();
    assert_eq!(flagged.code, plain.code, "{}", flagged.stderr);
    assert_eq!(flagged.text("/schema"), "xt.custody/1");
    for (tool, arguments) in [
        ("snapshot", &["--store", "s", "ls", "nobody"][..]),
        ("replay", &["--store", "s", "diff", "a", "b"]),
        ("freeze", &["--store", "s", "verify", "nothing.tar.zst"]),
        ("store", &["--store", "s", "ls"]),
        ("log", &["--store", "s", "events"]),
    ] {
        let outcome = folder.xt(tool).args(arguments).run();
        assert_ne!(outcome.code, Some(2), "{tool}: {}", outcome.stderr);
    }
}

#[test]
fn what_belongs_to_the_tool_itself_is_refused_before_a_subcommand_with_what_to_write_instead() {
    let folder = Folder::new();
    for (tool, arguments, names, verb) in [
        ("run", &["--wait", "doctor"][..], "--wait", "doctor"),
        ("run", &["plan.json", "sample", "run.json"], "[FILE]", "sample"),
        ("compile", &["--seed", "1", "dataset", "data"], "--seed", "dataset"),
        ("replay", &["--to", "3", "diff", "a", "b"], "--to", "diff"),
        ("snapshot", &["--step", "3", "ls"], "--step", "ls"),
        ("decide", &["-o", "out", "context", "width"], "--output", "context"),
        ("freeze", &["--size", "thin", "verify", "x.tar.zst"], "--size", "verify"),
        ("triage", &["--run", "run.json", "seal"], "--run", "seal"),
    ] {
        let outcome = folder.xt(tool).args(arguments).run().expect(2);
        assert_eq!(outcome.stdout, "");
        for part in [names, &format!("belongs to xt-{tool} itself"), &format!("./{verb}")] {
            assert!(outcome.stderr.contains(part), "{tool} {arguments:?}: {part}: {}", outcome.stderr);
        }
    }
}

#[test]
fn a_command_line_that_cannot_be_read_is_told_to_programs_as_everything_else_is() {
    let folder = Folder::new();
    for tool in ["compile", "decide", "freeze", "log", "replay", "run", "snapshot", "store", "triage"] {
        for arguments in [["--errors", "json", "--nonsense"], ["--nonsense", "--errors", "json"]] {
            let outcome = folder.xt(tool).args(arguments).run().expect(2);
            assert_eq!((outcome.stdout.as_str(), outcome.stderr.lines().count()), ("", 1), "{}", outcome.stderr);
            let told = parse(outcome.stderr.trim_end().as_bytes()).unwrap();
            let text = |member: &str| told.get(member).unwrap().canonical();
            assert_eq!(
                (text("tool"), text("word"), text("exit")),
                (format!("\"xt-{tool}\""), "\"usage\"".into(), "2".into())
            );
            assert!(text("message").contains("--nonsense") && text("hints").contains("Usage"), "{}", outcome.stderr);
        }
        let plain = folder.xt(tool).arg("--nonsense").run().expect(2);
        assert!(plain.stderr.starts_with("error: ") && plain.stderr.contains("\n\nUsage: "), "{}", plain.stderr);
    }
}

#[test]
fn variables_that_say_nothing_sensible_are_refused_by_name_before_anything_is_done() {
    let folder = Folder::new();
    folder.write("data/text.txt", "to be or not to be");
    for (name, value, said) in
        [("XT_STORE", "", "leave both away"), ("XT_NOW", "yesterday", "2026-01-31T12:00:00Z"), ("XT_NOW", "", "1970")]
    {
        let outcome = folder.xt("compile").args(["dataset", "data"]).env(name, value).run().expect(2);
        assert!(outcome.stderr.contains(name) && outcome.stderr.contains(said), "{}", outcome.stderr);
        assert!(outcome.stdout.is_empty() && !folder.at(".xt").exists(), "{name}={value}");
    }
    folder.xt("compile").args(["dataset", "data"]).env("XT_NOW", "1970-01-02T00:00:00Z").run().expect(0);
}
