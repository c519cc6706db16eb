//! The manual: generated pages are those of the tools, written pages agree with the code, and all of them are sound.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xt_core::digest::Digest;
use xt_core::fault::Exit;
use xt_core::manifest::intent::Profile;
use xt_core::verb::custody::{CONTROLS, OWN_NETWORK, residue};
use xt_harness::Folder;

const TOOLS: [&str; 9] = ["compile", "decide", "freeze", "log", "replay", "run", "snapshot", "store", "triage"];

fn man() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/man"))
}

/// The pages by file name.
fn pages() -> BTreeMap<String, String> {
    let entries = fs::read_dir(man()).unwrap().map(|entry| entry.unwrap().path());
    let pages = entries.filter(|path| path.extension().is_some_and(|extension| extension != "md"));
    pages
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_string(), fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
fn the_page_of_each_tool_is_the_one_it_prints() {
    let folder = Folder::new();
    for tool in TOOLS {
        let printed = folder.xt(tool).args(["--generate", "man"]).run().expect(0).stdout;
        let page = fs::read_to_string(man().join(format!("xt-{tool}.1"))).unwrap_or_default();
        assert!(page == printed, "man/xt-{tool}.1 is stale: run `make generate`");
    }
}

#[test]
fn there_are_no_other_pages_than_those_that_are_looked_after() {
    let mut expected: Vec<String> = TOOLS.iter().map(|tool| format!("xt-{tool}.1")).collect();
    expected.extend(["xt-manifest.5", "xt-store.5", "xt-trainer.7", "xt.7"].map(String::from));
    expected.sort();
    assert_eq!(pages().into_keys().collect::<Vec<_>>(), expected);
}

#[test]
fn each_tool_says_what_it_reads_writes_and_returns() {
    for tool in TOOLS {
        let page = &pages()[&format!("xt-{tool}.1")];
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "INPUT", "OUTPUT", "EXIT STATUS", "EXAMPLES"] {
            let headed = page.contains(&format!(".SH {section}\n")) || page.contains(&format!(".SH \"{section}\"\n"));
            assert!(headed, "xt-{tool}.1 has no {section}");
        }
    }
}

#[test]
fn every_flag_of_the_help_is_in_the_page() {
    let folder = Folder::new();
    let plain = |text: &str| text.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "");
    for tool in TOOLS {
        let page = plain(&pages()[&format!("xt-{tool}.1")]);
        let help = folder.xt(tool).arg("--help").run().expect(0).stdout;
        let words = help.split(|c: char| c.is_whitespace() || c == ',' || c == '=' || c == '[');
        let flags: Vec<&str> = words.filter(|word| word.starts_with("--") && word.len() > 2).collect();
        assert!(flags.len() > 5, "{help}");
        for flag in flags {
            let flag = flag.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            assert!(page.contains(flag), "xt-{tool}.1 does not have {flag}");
        }
    }
}

#[test]
fn completion_scripts_come_from_every_tool_for_three_shells() {
    let folder = Folder::new();
    for tool in TOOLS {
        for shell in ["bash", "zsh", "fish"] {
            let script = folder.xt(tool).args(["--generate", shell]).run().expect(0).stdout;
            assert!(script.contains(&format!("xt-{tool}")) && script.contains("store"), "{tool} {shell}");
        }
    }
}

#[test]
fn every_page_lists_what_every_tool_can_end_with() {
    for tool in TOOLS {
        let page = &pages()[format!("xt-{tool}.1").as_str()];
        for exit in [Exit::Yes, Exit::Usage, Exit::Refused, Exit::System, Exit::Bug] {
            assert!(page.contains(&format!(".TP\n\\fB{}\\fR\n", exit.code())), "xt-{tool}: {}", exit.code());
        }
    }
}

#[test]
fn the_exit_codes_in_page_and_readme_are_those_of_the_code() {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let page = &pages()["xt.7"];
    for exit in Exit::ALL {
        let (code, meaning) = (exit.code(), exit.meaning());
        assert!(readme.contains(&format!("| {code} | {meaning} |\n")), "README.md: {code} {meaning}");
        assert!(page.contains(&format!(".TP\n.B {code}\n{meaning}\n")), "man/xt.7: {code} {meaning}");
    }
    assert!(readme.contains("| 128+n |") && page.contains(".B 128+n\n"));
}

#[test]
fn the_page_names_every_control_and_everything_that_a_profile_leaves_open() {
    let page = &pages()["xt.7"];
    let mut open = 0;
    for control in CONTROLS.into_iter().chain([OWN_NETWORK]) {
        assert!(page.contains(&format!(".TP\n.B {control}\n")), "{control}");
        for residue in [Profile::Full, Profile::InContainer].iter().flat_map(|profile| residue(*profile, control)) {
            assert!(page.contains(&format!(".BR {control} :\n{residue}\n")), "{control}: {residue}");
            open += 1;
        }
    }
    assert!(open > 0);
}

/// Other pages are named as `.BR xt\-run (1)`, or in a line as `xt\-run(1)`.
#[test]
fn every_page_that_a_page_refers_to_exists() {
    let pages = pages();
    let mut seen = 0;
    for (name, page) in &pages {
        let text = page.replace("\\-", "-").replace("\\fR", "").replace("\\fB", "");
        for (at, _) in text.match_indices("xt") {
            let word: String = text[at..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            let rest = text[at + word.len()..].trim_start_matches(' ');
            if let Some(section) = ["(1)", "(5)", "(7)"].iter().find(|section| rest.starts_with(**section)) {
                let file = format!("{word}.{}", &section[1..2]);
                assert!(pages.contains_key(&file), "{name} refers to {word}{section}");
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "only {seen} references were seen");
}

/// `mandoc -T lint` where there is a mandoc, else the warnings of groff.
#[test]
fn the_pages_are_sound() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let program = if Path::new("/usr/bin/mandoc").exists() { "mandoc" } else { "groff" };
    if !has(program) {
        println!("not run here: neither mandoc nor groff is installed");
        return;
    }
    let arguments: &[&str] =
        if program == "mandoc" { &["-T", "lint", "-W", "warning"] } else { &["-man", "-Tutf8", "-ww", "-z"] };
    let complaints = |page: &Path| {
        let output = Command::new(program).args(arguments).arg(page).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    for name in pages().keys() {
        let found = complaints(&man().join(name));
        assert!(found.is_empty(), "man/{name}: {found}");
    }
    let folder = Folder::new();
    let bad = folder.write("bad.1", ".TH BAD 1\n.SH NAME\nbad \\- x\n.nosuch\n\\[nosuch]\n");
    assert!(!complaints(&bad).is_empty(), "{program} accepts anything");
}

#[test]
fn the_layout_in_the_page_is_that_of_a_store() {
    let folder = Folder::new();
    folder.xt("store").arg("put").input("x").run().expect(0);
    let page = &pages()["xt-store.5"];
    for entry in fs::read_dir(folder.at(".xt")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let slash = if entry.path().is_dir() { "/" } else { "" };
        assert!(page.contains(&format!(".I {name}{slash}\n")), "{name}{slash} is not in xt-store.5");
    }
    let format = fs::read_to_string(folder.at(".xt/FORMAT")).unwrap();
    assert!(page.contains(&format), "{format}");
}

/// A record as xt-store(5) describes it.
struct Record<'a> {
    kind: u8,
    plain: u64,
    digest: Digest,
    stored: &'a [u8],
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn digest(bytes: &[u8]) -> Digest {
    Digest::from_bytes(bytes.try_into().unwrap())
}

/// What a block or a pack is called.
fn nested(form: &[u8], bytes: &[u8]) -> Digest {
    Digest::of(&[form, blake3::hash(bytes).as_bytes()].concat())
}

fn records(pack: &[u8]) -> Vec<Record<'_>> {
    let mut rest = pack.strip_prefix(b"xtpack/1").unwrap();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at(72);
        assert_eq!(&head[..8], b"xtrecord");
        assert_eq!(head[9], 0, "these objects do not shrink, so they are stored as they are");
        assert_eq!(head[10..12], [0, 0]);
        let (stored, after) = after.split_at(usize::try_from(number(&head[12..16])).unwrap());
        let list: &[u8] = if head[8] == 2 { stored } else { &[] };
        assert_eq!(head[56..], Digest::of(&[&head[..56], list].concat()).bytes()[..16]);
        found.push(Record { kind: head[8], plain: number(&head[16..24]), digest: digest(&head[24..56]), stored });
        rest = after;
    }
    found
}

/// The object `wanted`, put together from the records of a pack.
fn object(records: &[Record<'_>], wanted: Digest) -> Vec<u8> {
    let record = records.iter().find(|record| record.digest == wanted && record.kind != 1).unwrap();
    let bytes = if record.kind == 3 { record.stored.to_vec() } else { pieces(records, record.stored) };
    assert_eq!((bytes.len() as u64, Digest::of(&bytes)), (record.plain, wanted));
    bytes
}

fn pieces(records: &[Record<'_>], extents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for extent in extents.chunks(40) {
        let block = records.iter().find(|record| record.kind != 2 && record.digest == digest(&extent[..32])).unwrap();
        assert_eq!(block.digest, nested(b"xt.block\0", block.stored));
        let at = |from: usize| usize::try_from(number(&extent[from..from + 4])).unwrap();
        bytes.extend_from_slice(&block.stored[at(32)..at(32) + at(36)]);
    }
    bytes
}

#[test]
fn a_pack_can_be_read_by_the_page_alone() {
    let folder = Folder::new();
    // Noise, so that nothing is compressed: three blocks and a bit, and a small object.
    let noise: Vec<u8> = (0..100_000u64).flat_map(|index| *Digest::of(&index.to_le_bytes()).bytes()).collect();
    let (large, small) = (&noise[..], &noise[..1000]);
    folder.write("large", large);
    folder.write("small", small);
    folder.xt("store").args(["put", "large", "small"]).run().expect(0);
    let packs = fs::read_dir(folder.at(".xt/packs")).unwrap().map(|entry| entry.unwrap().path());
    let pack = packs.filter(|path| path.extension().is_some_and(|extension| extension == "pack"));
    let pack: Vec<PathBuf> = pack.collect();
    assert_eq!(pack.len(), 1, "{pack:?}");
    let bytes = fs::read(&pack[0]).unwrap();
    assert_eq!(pack[0].file_stem().unwrap().to_str().unwrap(), nested(b"xt.pack\0", &bytes).hex());
    let records = records(&bytes);
    assert!(object(&records, Digest::of(large)) == large && object(&records, Digest::of(small)) == small);
    assert!(records.iter().any(|record| record.kind == 2));

    let index = fs::read(pack[0].with_extension("idx")).unwrap();
    let (body, check) = index.split_at(index.len() - 32);
    assert_eq!((&body[..8], digest(&body[8..40])), (&b"xtindex1"[..], nested(b"xt.pack\0", &bytes)));
    assert_eq!(digest(check), Digest::of(body));
    assert_eq!((number(&body[40..48]), body[48..].len()), (records.len() as u64, 56 * records.len()));
    for entry in body[48..].chunks(56) {
        let at = usize::try_from(number(&entry[48..56])).unwrap();
        assert_eq!(bytes[at + 24..at + 56], entry[..32], "the offset leads to the head of this record");
    }
}
