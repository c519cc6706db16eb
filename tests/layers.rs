//! The repository as a whole: who may use whom, where `unsafe` may stand, how long things may be, what files may say.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xt_core::canonical::{Value, parse};

/// Which crates of this repository a crate may use. A crate that is not named here may not exist.
const MAY_USE: &[(&str, &[&str])] = &[
    ("xt-core", &[]),
    ("xt-data", &["xt-core"]),
    ("xt-store", &["xt-core"]),
    ("xt-record", &["xt-core"]),
    ("xt-sandbox", &["xt-core"]),
    ("xt-cli", &["xt-core", "xt-sandbox"]),
    ("xt-bundle", &["xt-core", "xt-store"]),
    ("xt-signing", &["xt-core"]),
    ("xt-runtime", &["xt-core", "xt-store", "xt-record", "xt-sandbox"]),
    ("xt-torch", &[]),
    // The trainer never sees the store: it gets folders and descriptors.
    ("xt-trainer", &["xt-core", "xt-data", "xt-torch"]),
    ("xt-train", &["xt-core", "xt-torch", "xt-trainer"]),
    (
        "xt",
        &[
            "xt-core",
            "xt-data",
            "xt-store",
            "xt-record",
            "xt-sandbox",
            "xt-cli",
            "xt-bundle",
            "xt-signing",
            "xt-runtime",
        ],
    ),
    ("xt-harness", &["xt-core"]),
    ("xt-contract", &["xt-core"]),
];
/// What tests may use beside that.
const TESTS_MAY_USE: &[(&str, &[&str])] = &[("xt", &["xt-harness"]), ("xt-train", &["xt-data", "xt-harness"])];
/// The only crates that link libtorch.
const TORCH: &[&str] = &["xt-torch", "xt-train", "xt-trainer"];

const LONGEST_FUNCTION: usize = 120;
const LONGEST_FILE: usize = 800;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The files of the repository with their paths from its root; what .gitignore names is left out.
fn files() -> Vec<(String, PathBuf)> {
    let ignored: BTreeSet<String> = fs::read_to_string(root().join(".gitignore"))
        .unwrap()
        .lines()
        .map(|line| line.trim_matches('/').to_string())
        .chain([".git".to_string()])
        .collect();
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_string();
            if ignored.contains(&name) || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((name, path));
            }
        }
    }
    found.sort();
    assert!(found.len() > 50, "the repository was not found");
    found
}

fn rust_files() -> Vec<(String, String)> {
    let rust = |(name, path): (String, PathBuf)| {
        let is_rust = Path::new(&name).extension().is_some_and(|extension| extension == "rs");
        is_rust.then(|| (name, fs::read_to_string(path).unwrap()))
    };
    files().into_iter().filter_map(rust).collect()
}

fn metadata() -> Value {
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    parse(&output.stdout).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    match value.get(key) {
        Some(Value::List(items)) => items,
        _ => panic!("cargo metadata has no list {key}"),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[test]
fn every_crate_uses_only_what_the_table_allows() {
    let metadata = metadata();
    let ours: BTreeSet<&str> = list(&metadata, "packages").iter().map(|package| text(package, "name")).collect();
    let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let for_tests: BTreeMap<&str, &[&str]> = TESTS_MAY_USE.iter().copied().collect();
    assert_eq!(ours, table.keys().copied().collect(), "the crates are not those of the table");
    let mut edges = 0;
    for package in list(&metadata, "packages") {
        let name = text(package, "name");
        for dependency in list(package, "dependencies") {
            let used = text(dependency, "name");
            if ours.contains(used) {
                let in_tests = text(dependency, "kind") == "dev";
                let allowed = table[name].contains(&used)
                    || in_tests && for_tests.get(name).is_some_and(|allowed| allowed.contains(&used));
                assert!(allowed, "{name} may not use {used}");
                edges += 1;
            }
        }
    }
    assert!(edges > 15, "only {edges} uses were seen");
}

/// Package and what it needs, from Cargo.lock: whatever the features and the platform, nothing beyond it is built.
fn locked() -> BTreeMap<String, BTreeSet<String>> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let quoted =
            |line: &str| line.split('"').nth(1).unwrap_or_default().split(' ').next().unwrap_or_default().to_string();
        let name = package.lines().find(|line| line.starts_with("name = ")).map(quoted).unwrap();
        let needs = package.lines().filter(|line| line.starts_with(" \"")).map(quoted);
        graph.entry(name).or_default().extend(needs);
    }
    graph
}

fn reachable<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        if seen.insert(name) {
            next.extend(graph.get(name).into_iter().flatten().map(String::as_str));
        }
    }
    seen
}

#[test]
fn only_the_worker_and_its_two_libraries_need_libtorch() {
    let (metadata, graph) = (metadata(), locked());
    let needs = |name: &str| reachable(&graph, name).contains("torch-sys");
    let needing: Vec<&str> =
        list(&metadata, "packages").iter().map(|package| text(package, "name")).filter(|name| needs(name)).collect();
    assert_eq!(needing.iter().copied().collect::<BTreeSet<_>>(), TORCH.iter().copied().collect());
}

#[test]
fn what_is_built_by_default_needs_no_libtorch() {
    let metadata = metadata();
    let default: BTreeSet<&str> =
        list(&metadata, "workspace_default_members").iter().filter_map(Value::as_str).collect();
    let packages = list(&metadata, "packages");
    let names: BTreeSet<&str> = packages
        .iter()
        .filter(|package| default.contains(text(package, "id")))
        .map(|package| text(package, "name"))
        .collect();
    assert!(names.contains("xt") && names.contains("xt-core"));
    // Everything that can be built without libtorch is a default member, tests of the repository aside.
    let expected = MAY_USE.iter().map(|(name, _)| *name);
    let expected = expected.filter(|name| !TORCH.contains(name) && *name != "xt-contract");
    assert_eq!(names, expected.collect());
}

#[test]
fn core_is_no_std() {
    let library = fs::read_to_string(root().join("lib/core/src/lib.rs")).unwrap();
    assert!(library.lines().any(|line| line == "#![no_std]"));
    for (name, source) in rust_files() {
        if name.starts_with("lib/core/src/") {
            let code = code(&source);
            assert!(!code.contains("extern crate std") && !code.contains("std::"), "{name} uses std");
        }
    }
}

/// The source with the content of comments, strings and character literals blanked out; line breaks stay.
fn code(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = literal(rest);
        if length == 0 {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(rest[..length].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
            at += length;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// How long the comment, string or character literal is that `rest` starts with; 0 when it starts with none.
fn literal(rest: &[u8]) -> usize {
    let until = |end: &[u8], from: usize| {
        rest[from..]
            .windows(end.len())
            .position(|window| window == end)
            .map_or(rest.len(), |found| from + found + end.len())
    };
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => until(b"*/", 2),
        [b'r', b'"', ..] => until(b"\"", 2),
        [b'r', b'#', b'"', ..] => until(b"\"#", 3),
        [b'"', ..] => {
            let mut at = 1;
            while at < rest.len() && rest[at] != b'"' {
                at += if rest[at] == b'\\' { 2 } else { 1 };
            }
            (at + 1).min(rest.len())
        }
        [b'\'', b'\\', ..] => until(b"'", 3),
        [b'\'', _, b'\'', ..] => 3,
        _ => 0,
    }
}

/// Name and length in lines of each function.
fn functions(source: &str) -> Vec<(String, usize)> {
    let code = code(source);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let whole = code[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && before != '_');
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let body = code[at..].find(['{', ';']).map(|start| at + start);
        let Some(body) = body.filter(|body| whole && !name.is_empty() && code.as_bytes()[*body] == b'{') else {
            continue;
        };
        let mut depth = 0_usize;
        let end = code[body..].char_indices().find(|(_, character)| {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let end = end.map_or(code.len(), |(length, _)| body + length);
        found.push((name, code[at..end].matches('\n').count() + 1));
    }
    found
}

#[test]
fn the_measure_of_functions_sees_through_literals() {
    let source = "fn a() {\n    let _ = ('{', \"}{\", r#\"{\"#); // }\n    b(|x| { x });\n}\n\ntrait T {\n    fn c();\n    fn d<'a>(&'a self) {}\n}\n";
    let found: Vec<(String, usize)> = functions(source);
    assert_eq!(found, [("a".to_string(), 4), ("d".to_string(), 1)]);
}

#[test]
fn no_function_and_no_file_is_too_long() {
    let mut functions_seen = 0;
    for (name, source) in rust_files() {
        let lines = source.lines().count();
        assert!(lines <= LONGEST_FILE, "{name} has {lines} lines, more than {LONGEST_FILE}");
        for (function, lines) in functions(&source) {
            assert!(lines <= LONGEST_FUNCTION, "{function} in {name} has {lines} lines, more than {LONGEST_FUNCTION}");
            functions_seen += 1;
        }
    }
    assert!(functions_seen > 500, "only {functions_seen} functions were seen");
}

#[test]
fn unsafe_code_stands_only_where_it_may_and_says_why_it_is_sound() {
    let word = concat!("un", "safe");
    let mut seen = 0;
    for (name, source) in rust_files() {
        let code = code(&source).replace(concat!("un", "safe_code"), "");
        let lines: Vec<&str> = source.lines().collect();
        for (number, _) in code.lines().enumerate().filter(|(_, line)| line.contains(word)) {
            let may = name == "lib/sandbox/src/sys.rs" || name.starts_with("lib/torch/");
            assert!(may, "{name}:{}: {word} code may not stand here", number + 1);
            seen += 1;
            let block = code.lines().nth(number).is_some_and(|line| line.contains(&format!("{word} {{")));
            let near = &lines[number.saturating_sub(12)..=number];
            let reason = near.iter().any(|line| line.contains("SAFETY:"));
            assert!(!block || reason, "{name}:{}: no SAFETY comment", number + 1);
        }
    }
    assert!(seen > 0, "none was seen");
}

#[test]
fn no_file_is_called_mod_rs() {
    let found: Vec<String> =
        rust_files().into_iter().map(|(name, _)| name).filter(|name| name.ends_with("mod.rs")).collect();
    assert_eq!(found, Vec::<String>::new());
}

/// Every folder of the top level, and every package, says in 3 to 30 lines what belongs in it.
#[test]
fn every_folder_says_what_belongs_in_it() {
    let files = files();
    let names: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let top = names.iter().filter_map(|name| name.split_once('/').map(|(folder, _)| folder));
    let packages = names.iter().filter_map(|name| name.strip_suffix("/Cargo.toml"));
    let folders: BTreeSet<&str> = top.chain(packages).filter(|folder| !folder.starts_with('.')).collect();
    for folder in folders {
        let readme = format!("{folder}/README.md");
        assert!(names.contains(readme.as_str()), "{folder} has no README.md");
        let lines = fs::read_to_string(root().join(&readme)).unwrap().lines().count();
        assert!((3..=30).contains(&lines), "{readme} has {lines} lines; 3 to 30 are due");
    }
}

#[test]
fn no_file_names_a_registry_host_or_a_path_of_somebodys_machine() {
    // In two parts, so that this file does not name them either.
    let hosts = [("crates", ".io"), ("pypi", ".org"), ("python", "hosted"), ("npmjs", "."), ("proxy.gol", "ang")];
    let paths =
        [("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/"), ("/fa", "rm/"), ("\"/wo", "rk/wt"), ("/wo", "rk/main")];
    let forbidden: Vec<String> = hosts.iter().chain(&paths).map(|(head, tail)| format!("{head}{tail}")).collect();
    for (name, path) in files() {
        if name == "Cargo.lock" {
            continue; // cargo writes it
        }
        let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        for (number, line) in text.lines().enumerate() {
            for word in &forbidden {
                assert!(!line.contains(word.as_str()), "{name}:{}: {word}", number + 1);
            }
        }
    }
}

/// Failures of resuming (R) and of determinism (N) that users of other tools have reported; the numbers that are missing
/// here fell together with others.
const ROWS: &[(&str, &[u8])] = &[
    ("r", &[1, 3, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24]),
    ("n", &[1, 3, 4, 5, 6, 7, 8, 9, 10]),
];

/// The names of all tests.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, source) in rust_files() {
        let mut due = false;
        for line in source.lines().map(str::trim) {
            due |= line == "#[test]";
            if let Some((name, _)) = line.strip_prefix("fn ").and_then(|rest| rest.split_once('(')).filter(|_| due) {
                found.insert(name.to_string());
                due = false;
            }
        }
    }
    found
}

#[test]
fn every_reported_failure_of_resuming_and_of_determinism_has_a_test_named_after_it() {
    let tests = tests();
    assert!(tests.len() > 500 && tests.contains("no_file_is_called_mod_rs"), "{}", tests.len());
    let named = |row: &str| tests.iter().any(|test| test.starts_with(row) || test.contains(&format!("_and_{row}")));
    let rows: Vec<String> =
        ROWS.iter().flat_map(|(kind, rows)| rows.iter().map(move |row| format!("{kind}_{row:02}_"))).collect();
    let missing: Vec<&String> = rows.iter().filter(|row| !named(row)).collect();
    assert!(missing.is_empty(), "no test is named after {missing:?}");
    println!("{} rows have a test of their name", rows.len());
    assert!(rows.len() == 30 && !named("r_02_"), "a row that is not there has none");
}
