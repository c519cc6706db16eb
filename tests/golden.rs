//! Runs the cases of golden/ and compares byte for byte what they print and return (see golden/README.md).
//!
//! Each case is a test of its own, so this is its own little test harness: it takes names to choose from, `--exact` and
//! `--list`, and ends with the line that cargo's tests end with. `XT_GOLDEN=rewrite` writes `out/` anew.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use xt_harness::{NOW, programs};

/// Never rewritten: hostile inputs must stay refused, documents of earlier versions must stay readable.
const KEPT: [&str; 2] = ["hostile/", "archive/"];
/// A locale with a comma in numbers and another order of letters; whether it is installed or not, nothing may change.
const OTHER_LOCALE: &str = "de_DE.UTF-8";

/// What a case prints and returns.
#[derive(PartialEq, Eq)]
struct Result {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    code: Vec<u8>,
}

impl Result {
    fn parts(&self) -> [(&'static str, &[u8]); 3] {
        [("stdout", &self.stdout), ("stderr", &self.stderr), ("code", &self.code)]
    }

    fn read(out: &Path) -> Self {
        let part = |name: &str| fs::read(out.join(name)).unwrap_or_default();
        Self { stdout: part("stdout"), stderr: part("stderr"), code: part("code") }
    }

    fn write(&self, out: &Path) {
        fs::create_dir_all(out).unwrap();
        for (name, bytes) in self.parts() {
            fs::write(out.join(name), bytes).unwrap();
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen = |name: &&String| {
        wanted.is_empty() || wanted.iter().any(|w| if has("--exact") { w == name } else { name.contains(w.as_str()) })
    };
    let cases = cases();
    if has("--list") {
        cases.iter().filter(|_| !has("--ignored")).for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for name in cases.iter().filter(chosen) {
        match case(name) {
            Ok(None) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Ok(Some(why)) => {
                ignored += 1;
                println!("test {name} ... ignored, {why}");
            }
            Err(difference) => {
                failed += 1;
                println!("test {name} ... FAILED\n{difference}");
            }
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn golden() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"))
}

/// Every folder of golden/ with a `cmd`, by its path from there.
fn cases() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![golden()];
    while let Some(folder) = folders.pop() {
        if folder.join("cmd").is_file() {
            found.push(folder.strip_prefix(golden()).unwrap().to_str().unwrap().to_string());
            continue;
        }
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        folders.extend(entries.filter(|path| path.is_dir()));
    }
    found.sort();
    assert!(!found.is_empty(), "golden/ holds no case");
    found
}

/// Runs a case. `Ok(Some(why))` when this host cannot run it, `Err` with what differs.
fn case(name: &str) -> std::result::Result<Option<String>, String> {
    let folder = golden().join(name);
    if let Some(why) = missing(&folder) {
        return Ok(Some(why));
    }
    let found = run(&folder, "C");
    let out = folder.join("out");
    let rewrite = std::env::var_os("XT_GOLDEN").is_some_and(|word| word == "rewrite");
    if rewrite && !KEPT.iter().any(|kept| name.starts_with(kept)) {
        found.write(&out);
    }
    compare(name, "", &Result::read(&out), &found)?;
    if !folder.join("needs").exists() {
        let elsewhere = run(&folder, OTHER_LOCALE);
        compare(name, " under another locale", &found, &elsewhere)?;
    }
    Ok(None)
}

/// What the case needs and this host has not; `needs` lists words.
fn missing(folder: &Path) -> Option<String> {
    let needs = fs::read_to_string(folder.join("needs")).unwrap_or_default();
    needs.split_whitespace().find_map(|need| match need {
        "worker" => (!programs().join("xt-train").is_file()).then(|| "xt-train is not built".to_string()),
        "namespaces" => {
            let made = |flags: &str| {
                let status = Command::new("unshare").args([flags, "true"]).stderr(Stdio::null()).status();
                status.is_ok_and(|status| status.success())
            };
            (!made("-mnp") && !made("-Urmnp")).then(|| "this host grants no namespaces".to_string())
        }
        other => panic!("{}: unknown need {other}", folder.display()),
    })
}

fn run(folder: &Path, locale: &str) -> Result {
    let (work, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    if folder.join("in").is_dir() {
        copy(&folder.join("in"), work.path());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .arg("-eu")
        .arg(folder.join("cmd"))
        .current_dir(work.path())
        .env_clear()
        .env("PATH", format!("{}:{path}", programs().display()))
        .env("HOME", home.path())
        .env("LC_ALL", locale)
        .env("TZ", "UTC")
        .env("XT_NOW", NOW)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let code = output.status.code().map_or_else(|| "signal".to_string(), |code| code.to_string());
    Result { stdout: output.stdout, stderr: output.stderr, code: format!("{code}\n").into_bytes() }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

fn compare(name: &str, when: &str, expected: &Result, found: &Result) -> std::result::Result<(), String> {
    for ((part, expected), (_, found)) in expected.parts().into_iter().zip(found.parts()) {
        if expected != found {
            let (expected, found) = (String::from_utf8_lossy(expected), String::from_utf8_lossy(found));
            let line = expected.lines().zip(found.lines()).position(|(a, b)| a != b).map_or(1, |line| line + 1);
            return Err(format!(
                "golden/{name}: {part} differs{when}, first in line {line}\n--- expected\n{expected}\n--- found\n{found}\n---"
            ));
        }
    }
    Ok(())
}
