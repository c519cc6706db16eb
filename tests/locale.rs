//! Numbers do not follow the locale: every tool under one whose decimal mark is a comma.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use xt_harness::{Folder, programs};

const LOCALE: &str = "de_DE.UTF-8";

/// What each tool makes of a learning rate of 0.5 and of a metric of 0.125, for programs and for people. What stands in a
/// record of one run only, such as its times, is left out.
const TOOLS: &str = r#"
    xt-compile dataset text.txt -o dataset.json
    xt-compile candidate.json -o plan.json
    xt-compile --explain candidate.json
    cat dataset.json plan.json
    xt-decide decide.json
    xt-triage hold.json || echo "exit $?"
    xt-store canon decide.json || echo "exit $?"
"#;
/// The same of what trains.
const TRAINING: &str = r#"
    xt-run --snapshot-every 4 plan.json > run.json 2> told
    sed 's/.*"trace":\({[^}]*}\).*/\1/' run.json
    xt-snapshot run.json --step 3 | sed 's/,"stack":.*"step"/"step"/; s/"plan":.*//'
    xt-replay run.json | sed 's/.*"outcome":"\([^"]*\)".*/\1/'
    xt-log export run.json --csv steps.csv > paths
    cut -d, -f 1,3-6 steps.csv
    xt-freeze run.json | sed 's/.*"members":\(\[.*\]\).*/\1/' | tr , '\n' | grep -c '"path":"model/'
"#;

/// A compiled locale with a comma, and whether programs of the system take it up: without that nothing is shown here.
fn comma(folder: &Folder) -> bool {
    fs::create_dir(folder.at("locales")).unwrap();
    let place = folder.at("locales").join(LOCALE);
    let made = Command::new("localedef").args(["-i", "de_DE", "-f", "UTF-8"]).arg(place).output();
    made.is_ok_and(|output| output.status.success()) && {
        let script = folder.sh("locale decimal_point; /usr/bin/printf '%.3f\\n' 0,125");
        let said = script.env("LC_ALL", LOCALE).env("LOCPATH", folder.at("locales")).run();
        said.stdout == ",\n0,125\n"
    }
}

/// Row N-07.
#[test]
fn n_07_a_locale_with_a_decimal_comma_changes_no_byte_that_any_tool_writes() {
    let locales = Folder::new();
    if !comma(&locales) {
        println!("not run here: localedef makes no {LOCALE}");
        return;
    }
    let worker = programs().join("xt-train").exists();
    let script = if worker { format!("{TOOLS}{TRAINING}") } else { TOOLS.to_string() };
    let said = |locale: &str| {
        let folder = Folder::new();
        let source = |path: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(path);
        fs::copy(source("train/in/text.txt"), folder.at("text.txt")).unwrap();
        fs::copy(source("triage/in/hold.json"), folder.at("hold.json")).unwrap();
        let candidate = fs::read_to_string(source("train/in/candidate.json")).unwrap();
        folder.write("candidate.json", candidate.replace("\"learning_rate\": 0.01", "\"learning_rate\": 0.5"));
        let decide = fs::read_to_string(source("decide/in/succeeded.json")).unwrap();
        folder.write("decide.json", decide.replace("\"value\": 0.5", "\"value\": 0.125"));
        folder.sh(&script).env("LC_ALL", locale).env("LOCPATH", locales.at("locales")).run().expect(0)
    };
    let (one, other) = (said("C"), said(LOCALE));
    assert!(one.stdout.contains("0.5") && one.stdout.contains("0.125") && one.stdout.len() > 5000, "{}", one.stdout);
    assert_eq!((&one.stdout, &one.stderr), (&other.stdout, &other.stderr));
}
