//! Archives that somebody made to do harm, beyond those of tests/freeze.rs: each is refused by name, leaves nothing, and
//! costs little time and memory, measured on the process that reads it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use frozen::stored;
use nix::sys::resource::{UsageWho, getrusage};
use tar::EntryType;
use xt_core::field::Manifest as _;
use xt_harness::Folder;
use xt_store::Store;

#[path = "../lib/core/tests/common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;
#[path = "support/frozen.rs"]
mod frozen;

/// What each may cost: 64 MB for a release build, of which a debug build is a little more; and 100 ms, which a debug build on
/// a machine that others use too cannot promise, so here only what would be a hang is a failure. The test prints both.
const MOST_BYTES: i64 = 80 << 20;
const LONGEST: Duration = Duration::from_secs(10);

/// The tar of a sound bundle without its end.
struct Sound(Vec<u8>);

impl Sound {
    fn and(&self, entries: &[Vec<u8>]) -> Vec<u8> {
        let tar = [self.0.clone(), entries.concat(), vec![0; 1024]].concat();
        zstd::encode_all(&*tar, 1).unwrap()
    }
}

fn header(kind: u8, name: &[u8], size: u64, change: impl Fn(&mut tar::Header)) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(EntryType::new(kind));
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    change(&mut header);
    header.set_cksum();
    header.as_bytes().to_vec()
}

fn entry(kind: u8, name: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(kind, name.as_bytes(), content.len() as u64, |_| ());
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn link(kind: u8, name: &str, target: &str) -> Vec<u8> {
    header(kind, name.as_bytes(), 0, |header| {
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    })
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let length =
            (1..9).map(|digits| rest + digits).find(|length| length.to_string().len() + rest == *length).unwrap();
        text.extend(format!("{length} {key}={value}\n").bytes());
    }
    entry(b'x', "pax", &text)
}

fn file(name: &str) -> Vec<u8> {
    entry(b'0', name, b"evil")
}

/// Number in the list of known attacks, bytes, and the word that refuses them.
fn cases(sound: &Sound) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let deep = "d/".repeat(70) + "x";
    let long_name = "n".repeat(2 << 20);
    let chain: Vec<Vec<u8>> = (0..16).map(|n| link(b'2', &format!("l{n}"), &"a/".repeat(40))).collect();
    let mut wrong_sum = file("model/x");
    wrong_sum[148] ^= 1;
    vec![
        ("5 link, then through it", sound.and(&[link(b'2', "s", "/tmp"), file("s/x")]), "archive.link"),
        ("6 link to the folder above", sound.and(&[link(b'2', "s", ".."), file("s/x")]), "archive.link"),
        ("7 hard link, then a file", sound.and(&[link(b'1', "h", "../outside"), file("h")]), "archive.link"),
        ("9 link, then a folder", sound.and(&[link(b'2', "d", "/etc"), entry(b'5', "d", b"")]), "archive.link"),
        ("13 world-writable", sound.and(&[header(b'0', b"model/x", 0, |h| h.set_mode(0o666))]), "archive.form"),
        ("17 composed and decomposed", sound.and(&[file("model/\u{e9}"), file("model/e\u{301}")]), "archive.collision"),
        ("17 sharp s", sound.and(&[file("model/\u{df}"), file("model/ss")]), "archive.collision"),
        ("18 two sizes", sound.and(&[pax(&[("size", "512")]), header(b'0', b"y", 0, |_| ())]), "archive.form"),
        (
            "20 two long names",
            sound.and(&[pax(&[("path", "a")]), entry(b'L', "l", b"b\0"), file("c")]),
            "archive.extension",
        ),
        ("21 a record that lies", sound.and(&[entry(b'x', "p", b"99 path=a\n"), file("c")]), "archive.extension"),
        ("23 for all files", sound.and(&[entry(b'g', "g", b"12 path=evil\n"), file("c")]), "archive.extension"),
        ("24 a name of 2 MiB", sound.and(&[entry(b'L', "l", long_name.as_bytes()), file("c")]), "archive.extension"),
        ("25 2 GiB announced", sound.and(&[header(b'x', b"p", 2 << 30, |_| ())]), "archive.extension"),
        ("27 checksum", sound.and(&[wrong_sum]), "archive.checksum"),
        (
            "30 cut in a file",
            {
                let tar = [sound.0.clone(), header(b'0', b"model/x", 4096, |_| ()), vec![0; 100]].concat();
                zstd::encode_all(&*tar, 1).unwrap()
            },
            "archive.",
        ),
        ("32 line end in a name", sound.and(&[file("model/a\nb")]), "archive.path"),
        ("34 sparse by pax", sound.and(&[pax(&[("GNU.sparse.realsize", "1099511627776")]), file("c")]), "archive.kind"),
        ("35 too deep", sound.and(&[pax(&[("path", &deep)]), file("c")]), "archive.path"),
        ("35 a long part", sound.and(&[pax(&[("path", &"c".repeat(300))]), file("c")]), "archive.path"),
        ("37 link without a name", sound.and(&[link(b'2', "", "")]), "archive.link"),
        ("38 a time of 2^33", sound.and(&[header(b'0', b"model/x", 0, |h| h.set_mtime(1 << 32))]), "archive.form"),
        (
            "38 an owner",
            sound.and(&[header(b'0', b"model/x", 0, |h| h.set_uid(4_000_000_000_u64 % 2_097_151))]),
            "archive.form",
        ),
        (
            "39 a capability",
            sound.and(&[pax(&[("SCHILY.xattr.security.capability", "x")]), file("c")]),
            "archive.extension",
        ),
        ("40 a hook of git", sound.and(&[file(".git/hooks/post-checkout")]), "archive.reserved"),
        ("41 a chain of links", sound.and(&chain), "archive.link"),
        ("45 a window of 2 GiB", vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0, 0], "archive.zstd"),
    ]
}

#[test]
fn every_known_attack_is_refused_by_name_leaves_nothing_and_costs_little() {
    let folder = Folder::new();
    let run = stored(&folder, |_| ()).encode().canonical();
    folder.xt("freeze").args(["-o", "sound.tar.zst"]).input(run).run().expect(0);
    let mut tar = zstd::decode_all(fs::File::open(folder.at("sound.tar.zst")).unwrap()).unwrap();
    tar.truncate(tar.len() - 1024);
    let sound = Sound(tar);
    let mut worst = (Duration::ZERO, "");
    let mut look = |name: &'static str, path: &Path, word: &str| {
        let took = refused(name, path, word);
        worst = worst.max((took, name));
    };
    let control = folder.write("control/a.tar.zst", sound.and(&[]));
    folder.xt("freeze").arg("verify").arg(control).run().expect(0);
    for (name, bytes, word) in cases(&sound) {
        look(name, &folder.write("case/a.tar.zst", bytes), word);
    }
    for (name, word, path) in streamed(&folder, &sound) {
        look(name, &path, word);
    }
    let most = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() * 1024;
    eprintln!("the longest took {} ms ({}), the largest {} MiB", worst.0.as_millis(), worst.1, most >> 20);
    assert!(most < MOST_BYTES, "{most} bytes");
}

/// Large ones, written piece by piece: this process is small, and so is what it starts.
fn streamed(folder: &Folder, sound: &Sound) -> Vec<(&'static str, &'static str, std::path::PathBuf)> {
    let zeros = folder.write("zeros/a.tar.zst", b"");
    let mut out = zstd::Encoder::new(fs::File::create(&zeros).unwrap(), 1).unwrap();
    out.write_all(&sound.0).unwrap();
    let four = 4_u64 << 30;
    out.write_all(&header(b'0', b"model/zeros", four, |_| ())).unwrap();
    std::io::copy(&mut std::io::repeat(0).take(four), &mut out).unwrap();
    out.write_all(&[0; 1024]).unwrap();
    out.finish().unwrap();
    let many = folder.write("many/a.tar.zst", b"");
    let mut out = zstd::Encoder::new(fs::File::create(&many).unwrap(), 1).unwrap();
    out.write_all(&sound.0).unwrap();
    for number in 0..1_000_000 {
        out.write_all(&header(b'0', format!("e/{number}").as_bytes(), 0, |_| ())).unwrap();
    }
    out.write_all(&[0; 1024]).unwrap();
    out.finish().unwrap();
    vec![("44 4 GiB of zeros", "archive.limit", zeros), ("54 a million files", "archive.limit", many)]
}

/// Verifies and imports it; both must refuse it with this word. Gives how long the slower one took.
fn refused(name: &str, archive: &Path, word: &str) -> Duration {
    let place = Folder::new();
    place.write("outside", "untouched");
    fs::create_dir(place.at("in")).unwrap();
    let mut longest = Duration::ZERO;
    for (verb, code) in [("verify", 1), ("import", 10)] {
        let start = Instant::now();
        let mut command = place.xt("freeze").arg(verb).arg(archive).command();
        let output = command.current_dir(place.at("in")).output().unwrap();
        longest = longest.max(start.elapsed());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{name}: {verb}: {}", &stderr[..stderr.len().min(2000)]);
        assert!(stderr.contains(word), "{name}: expected {word} in {}", &stderr[..stderr.len().min(2000)]);
    }
    assert!(longest < LONGEST, "{name} took {longest:?}");
    assert_eq!(fs::read(place.at("outside")).unwrap(), b"untouched", "{name}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "{name}: 0 bytes outside");
    assert_eq!(fs::read_dir(place.at("in")).unwrap().count(), 1, "{name}: the store alone is there");
    assert_eq!(Store::open(&place.at("in/.xt")).unwrap().list().unwrap(), [], "{name}: nothing was taken in");
    longest
}
