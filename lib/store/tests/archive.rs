//! Archives depend on their content alone, and anything but the one form is refused by name and rule.
#![allow(clippy::unwrap_used)]

use std::io::{self, Cursor, Read, Write as _};
use std::time::{Duration, Instant};

use tar::{EntryType, Header};
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure as _};
use xt_core::relpath::RelativePath;
use xt_store::archive::{self, ArchiveError, Limits};
use xt_store::tree::Tree;

type Files = Vec<(String, Vec<u8>)>;

fn write(files: &[(&str, &[u8])]) -> (Digest, Vec<u8>) {
    let members = files.iter().map(|(path, bytes)| (RelativePath::new(path).unwrap(), bytes.len() as u64, *bytes));
    let mut out = Vec::new();
    let digest = archive::write(&mut out, members).unwrap();
    (digest, out)
}

fn read(input: impl Read) -> Result<(Digest, Files), ArchiveError> {
    let mut files = Files::new();
    let digest = archive::read(input, &Limits::default(), |path, bytes, content| {
        let mut found = Vec::new();
        content.read_to_end(&mut found).map_err(|source| ArchiveError::System { action: "read", source })?;
        assert_eq!(found.len() as u64, bytes);
        files.push((path.to_string(), found));
        Ok(())
    })?;
    Ok((digest, files))
}

fn zstd(level: i32, tar: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), level).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(tar).unwrap();
    encoder.finish().unwrap()
}

fn tar_of(archive: &[u8]) -> Vec<u8> {
    zstd::decode_all(archive).unwrap()
}

/// A header in our form, for tests to spoil.
fn header(name: &str, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_entry_type(kind);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    header
}

fn spoiled(spoil: impl Fn(&mut Header)) -> Vec<u8> {
    let mut header = header("a", EntryType::Regular, 0);
    spoil(&mut header);
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// An entry with content, padded.
fn entry(name: &str, kind: EntryType, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, content.len() as u64).as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    entry(name, EntryType::Regular, content)
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (key, value) in records {
        let mut length = key.len() + value.len() + 4;
        length = key.len() + value.len() + 3 + length.to_string().len();
        body.extend_from_slice(format!("{length} {key}={value}\n").as_bytes());
    }
    entry("././@PaxHeader", EntryType::XHeader, &body)
}

fn ended(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut tar = parts.concat();
    tar.resize(tar.len() + 1024, 0);
    tar
}

/// Reads a hostile tar; it must be refused quickly, with this word, naming this entry.
fn refused(tar: &[u8], word: &str, name: &str) {
    refused_archive(&zstd(1, tar), word, name);
}

fn refused_archive(archive: &[u8], word: &str, name: &str) {
    let start = Instant::now();
    let error = read(archive).unwrap_err();
    assert_eq!((error.word(), error.exit()), (word, Exit::Refused), "{error}");
    assert!(error.to_string().contains(name), "{error} should name {name}");
    assert!(start.elapsed() < Duration::from_secs(1), "{error}: {:?}", start.elapsed());
}

#[test]
fn members_come_back_in_order_whatever_level_of_zstd_was_used() {
    let long = format!("{}/{}", "d/".repeat(40) + &"e".repeat(200), "f".repeat(255));
    let files: Vec<(&str, &[u8])> = vec![
        ("manifest.json", b"{}"),
        ("model/weights.safetensors", &[7; 100_000]),
        ("b/empty", b""),
        ("a/512", &[1; 512]),
        ("\u{e9}/\u{65e5}\u{672c}", b"names"),
        (&long, b"long"),
    ];
    let (digest, bytes) = write(&files);
    let expected: Files = files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
    assert_eq!(read(&bytes[..]).unwrap(), (digest, expected.clone()));
    let tar = tar_of(&bytes);
    assert_eq!(Digest::of(&tar), digest);
    for level in [1, 9, 19] {
        let other = zstd(level, &tar);
        assert_ne!(other, bytes, "level {level} is another text");
        assert_eq!(read(&other[..]).unwrap(), (digest, expected.clone()));
    }
    let mut without = zstd::Encoder::new(Vec::new(), 3).unwrap();
    without.include_checksum(false).unwrap();
    without.write_all(&tar).unwrap();
    assert_eq!(read(&without.finish().unwrap()[..]).unwrap().0, digest);
    let other = write(&files.iter().rev().copied().collect::<Vec<_>>());
    assert_ne!(other.0, digest, "order is identity");
}

/// N-08: the same files, made again in another order, touched, with other modes and owners.
#[test]
fn an_archive_of_files_depends_on_their_names_and_content_alone() {
    let directory = tempfile::tempdir().unwrap();
    let names = ["model/weights", "model/a-b", "config", "z/y/x"];
    let archived = |folder: &str| {
        let tree = Tree::open(&directory.path().join(folder)).unwrap();
        let open = |path: &RelativePath| tree.source(path).map(|source| (path.clone(), source.size(), source)).unwrap();
        let mut out = Vec::new();
        let digest = archive::write(&mut out, tree.files().iter().map(open)).unwrap();
        (digest, out)
    };
    let make = |folder: &str, names: &mut dyn Iterator<Item = &&str>| {
        for name in names {
            let path = directory.path().join(folder).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name.repeat(500)).unwrap();
        }
    };
    make("one", &mut names.iter());
    make("two", &mut names.iter().rev());
    let script =
        "cd two; touch -d 1999-01-01 config model; chmod 0600 config; chmod 4777 z/y/x; chown 1000 config || true";
    let changed = std::process::Command::new("sh").args(["-euc", script]).current_dir(directory.path()).status();
    assert!(changed.unwrap().success());
    assert_eq!(archived("one"), archived("two"));
    std::fs::rename(directory.path().join("two/config"), directory.path().join("two/configure")).unwrap();
    assert_ne!(archived("one").0, archived("two").0, "control");
}

#[test]
fn gnu_tar_reads_what_we_write() {
    let long = "f".repeat(200);
    let (_, bytes) = write(&[("a/b", b"one"), (&long, b"two"), ("\u{e9}", b"three")]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.tar");
    std::fs::write(&path, tar_of(&bytes)).unwrap();
    let status = std::process::Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(directory.path()).status();
    assert!(status.unwrap().success());
    for (name, content) in [("a/b", "one"), (&long, "two"), ("\u{e9}", "three")] {
        assert_eq!(std::fs::read_to_string(directory.path().join(name)).unwrap(), content);
    }
}

#[test]
fn a_visitor_may_leave_content_and_its_own_error_comes_through() {
    let (digest, bytes) = write(&[("a", &vec![1; 300_000]), ("b", b"x")]);
    let mut seen = Vec::new();
    let found = archive::read(&bytes[..], &Limits::default(), |path, _, content| {
        let mut first = [0];
        content.read_exact(&mut first).map_err(|source| ArchiveError::System { action: "read", source })?;
        seen.push((path.to_string(), first[0]));
        Ok::<(), ArchiveError>(())
    });
    assert_eq!((found.unwrap(), seen), (digest, vec![("a".to_owned(), 1), ("b".to_owned(), b'x')]));
    let error = archive::read(&bytes[..], &Limits::default(), |_, _, _| {
        Err(ArchiveError::System { action: "keep", source: io::Error::other("full") })
    });
    assert_eq!(error.unwrap_err().to_string(), "cannot keep the archive: full");
}

#[test]
fn members_that_lie_about_their_size_are_refused_by_the_writer() {
    for announced in [2, 4, 1000] {
        let mut writer = archive::Writer::new(Vec::new()).unwrap();
        let error = writer.member(&RelativePath::new("a").unwrap(), announced, &b"abc"[..]).unwrap_err();
        assert_eq!(error.word(), "archive.length", "{announced}");
    }
    let mut writer = archive::Writer::new(Vec::new()).unwrap();
    writer.member(&RelativePath::new("a").unwrap(), 3, &b"abc"[..]).unwrap();
    let error = writer.member(&RelativePath::new("A").unwrap(), 3, &b"abc"[..]).unwrap_err();
    assert_eq!(error.word(), "archive.collision");
}

#[test]
fn the_raw_entries_of_this_test_are_accepted_unspoiled() {
    let tar = ended(&[file("a", b"x"), file("b/c", b"")]);
    assert_eq!(read(&zstd(1, &tar)[..]).unwrap().1.len(), 2);
    assert_eq!(read(&zstd(1, &ended(&[]))[..]).unwrap().1.len(), 0);
    let long = "n".repeat(101);
    let tar = ended(&[pax(&[("path", &long)]), file(&long[..100], b"x")]);
    assert_eq!(read(&zstd(1, &tar)[..]).unwrap().1, [(long, b"x".to_vec())]);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in ["../evil", "/etc/x", "a/../../evil", "..\\evil", "C:..\\x", "a//b", "./a", "a/.", "a\nb", "a\x1b[31mb"]
    {
        let tar = ended(&[file("fine", b"x"), file(name, b"x")]);
        refused(&tar, "archive.path", &format!("{name:?}").replace('"', ""));
    }
    let mut bad = header("x", EntryType::Regular, 0);
    bad.as_old_mut().name[..3].copy_from_slice(b"b\xffc");
    bad.set_cksum();
    refused(&ended(&[bad.as_bytes().to_vec()]), "archive.path", "b");
    let deep = "d/".repeat(64) + "f";
    refused(&ended(&[pax(&[("path", &deep)]), file("x", b"")]), "archive.path", "d/d/d");
    refused(&ended(&[file(".git/hooks/post-checkout", b"x")]), "archive.reserved", ".git/hooks");
    refused(&ended(&[file(".xt/FORMAT", b"x")]), "archive.reserved", ".xt/FORMAT");
}

#[test]
fn entries_that_are_no_regular_files_are_refused() {
    let mut link = header("lnk", EntryType::Symlink, 0);
    link.set_link_name("/tmp/outside").unwrap();
    link.set_cksum();
    let through = ended(&[link.as_bytes().to_vec(), file("lnk/f", b"x")]);
    refused(&through, "archive.link", "lnk");
    refused(&ended(&[entry("weights.bin", EntryType::Link, b"")]), "archive.link", "weights.bin");
    refused(&ended(&[entry("e", EntryType::Symlink, b"")]), "archive.link", "e");
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo, EntryType::Directory] {
        refused(&ended(&[entry("odd", kind, b"")]), "archive.kind", "odd");
    }
    refused(&ended(&[entry("big", EntryType::GNUSparse, &[0; 512])]), "archive.kind", "sparse");
    refused(&ended(&[entry("what", EntryType::new(b'Z'), b"")]), "archive.kind", "'Z'");
    let mut old = header("old", EntryType::Regular, 0);
    old.as_mut_bytes()[156] = 0;
    old.set_cksum();
    refused(&ended(&[old.as_bytes().to_vec()]), "archive.kind", "old");
    refused(&ended(&[entry("tight", EntryType::Continuous, b"")]), "archive.kind", "'7'");
}

#[test]
fn two_entries_of_one_name_are_refused() {
    let tar = |a: &str, b: &str| ended(&[file(a, b"1"), file(b, b"2")]);
    refused(&tar("manifest.json", "manifest.json"), "archive.duplicate", "manifest.json");
    refused(&tar("Model.bin", "model.bin"), "archive.collision", "Model.bin");
    refused(&tar("\u{e9}", "e\u{301}"), "archive.collision", "same name");
    refused(&tar("stra\u{df}e", "strasse"), "archive.collision", "strasse");
    refused(&tar("a", "a/b"), "archive.collision", "a/b");
    refused(&tar("a/b", "a"), "archive.collision", "folder");
}

#[test]
fn extended_headers_say_path_and_size_and_nothing_else() {
    let long = "n".repeat(101);
    let twice = [pax(&[("path", &long)]), pax(&[("path", &long)]), file(&long[..100], b"")];
    refused(&ended(&twice), "archive.extension", "followed by its file");
    let gnu = entry("././@LongLink", EntryType::GNULongName, b"other\0");
    refused(&ended(&[pax(&[("path", &long)]), gnu.clone(), file("x", b"")]), "archive.extension", "@LongLink");
    refused(&ended(&[gnu]), "archive.extension", "GNU");
    refused(&ended(&[entry("g", EntryType::XGlobalHeader, b"10 path=x\n")]), "archive.extension", "global");
    refused(&ended(&[pax(&[("path", &long)])]), "archive.extension", "(end)");
    for key in ["SCHILY.xattr.security.capability", "mtime", "uid", "linkpath"] {
        refused(&ended(&[pax(&[(key, "1")]), file("x", b"")]), "archive.extension", key);
    }
    refused(&ended(&[pax(&[("GNU.sparse.major", "1")]), file("x", b"")]), "archive.kind", "sparse");
    let malformed = entry("././@PaxHeader", EntryType::XHeader, b"99 path=x\n");
    refused(&ended(&[malformed, file("x", b"")]), "archive.extension", "malformed");
    // Where it is not needed, it could hide something from a reader that ignores it.
    refused(&ended(&[pax(&[("path", "short")]), file("short", b"")]), "archive.form", "short");
    // The size in the ustar header says nothing while the extended one says 1024: one reader would see entries there.
    let mut hidden = vec![pax(&[("size", "1024")]), header("a", EntryType::Regular, 0).as_bytes().to_vec()];
    hidden.push(file("hidden", b""));
    refused(&ended(&hidden), "archive.form", "\"a\"");
}

#[test]
fn a_length_that_is_only_claimed_allocates_nothing() {
    let start = Instant::now();
    let claim = header("././@PaxHeader", EntryType::XHeader, 2 << 30).as_bytes().to_vec();
    refused(&ended(&[claim]), "archive.extension", "2147483648");
    let gnu = entry("././@LongLink", EntryType::GNULongName, &vec![b'x'; 2 << 20]);
    refused(&ended(&[gnu]), "archive.extension", "@LongLink");
    let huge = header("huge", EntryType::Regular, 0o777_7777_7777).as_bytes().to_vec();
    refused(&huge, "archive.cut", "huge");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn every_field_of_a_header_has_one_right_value() {
    type Spoiler = (fn(&mut Header), &'static str);
    assert_eq!(spoiled(|_| {}), header("a", EntryType::Regular, 0).as_bytes(), "control");
    let spoilers: [Spoiler; 10] = [
        (|h| h.set_mode(0o4755), "mode"),
        (|h| h.set_mode(0o666), "mode"),
        (|h| h.set_uid(1000), "owner"),
        (|h| h.set_gid(u64::MAX), "group"),
        (|h| h.set_mtime(u64::MAX), "time"),
        (|h| h.set_username("root").unwrap(), "owner's name"),
        (|h| h.set_groupname("root").unwrap(), "group's name"),
        (|h| h.set_link_name("b").unwrap(), "link name"),
        (|h| h.as_old_mut().name[50] = b'x', "name"),
        (|h| h.as_mut_bytes()[511] = 1, "last 12 bytes"),
    ];
    for (spoil, field) in spoilers {
        refused(&ended(&[spoiled(spoil)]), "archive.form", field);
    }
    let mut bytes = file("a", b"x");
    bytes[600] = 1;
    refused(&ended(&[bytes]), "archive.form", "padding");
    let mut bytes = file("a", b"x");
    bytes[148] ^= 1;
    refused(&ended(&[bytes]), "archive.checksum", "\"a\"");
    let old = {
        let mut old = Header::new_old();
        old.as_mut_bytes()[0] = b'a';
        old.set_mode(0o644);
        old.set_entry_type(EntryType::Regular);
        old.set_size(0);
        old.set_cksum();
        old.as_bytes().to_vec()
    };
    refused(&ended(&[old]), "archive.form", "\"a\"");
}

#[test]
fn the_end_must_be_there_and_be_the_end() {
    let whole = ended(&[file("a", b"content"), file("b", &[5; 2000])]);
    for length in 0..whole.len() {
        if length % 37 == 0 || length % 512 < 2 {
            let word = read(&zstd(1, &whole[..length])[..]).unwrap_err().word();
            assert_eq!(word, "archive.cut", "{length}");
        }
    }
    let mut longer = whole.clone();
    longer.resize(longer.len() + 512, 0);
    refused(&longer, "archive.trailing", "(end)");
    let mut second = whole.clone();
    second.extend_from_slice(&whole);
    refused(&second, "archive.trailing", "behind the two zero blocks");
    let mut lone = file("a", b"");
    lone.resize(lone.len() + 512, 0);
    lone.extend_from_slice(&file("b", b""));
    refused(&lone, "archive.cut", "two zero blocks");
}

#[test]
fn the_frame_must_be_one_whole_zstd_frame_and_nothing_more() {
    let (_, good) = write(&[("a", &[9; 5000]), ("b", b"x")]);
    let with = |tail: &[u8]| [&good[..], tail].concat();
    let skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00evil";
    refused_archive(&with(&zstd(1, b"evil")), "archive.trailing", "second zstd frame");
    refused_archive(&with(skippable), "archive.trailing", "skippable");
    refused_archive(&with(b"junk"), "archive.trailing", "bytes behind");
    refused_archive(&with(b"\n"), "archive.trailing", "bytes behind");
    refused_archive(&[skippable, &good[..]].concat(), "archive.trailing", "skippable");
    refused_archive(b"", "archive.zstd", "no zstd frame");
    refused_archive(b"PK\x03\x04", "archive.zstd", "no zstd frame");
    for length in 4..good.len() {
        assert!(read(&good[..length]).is_err(), "cut at {length}");
    }
    for bit in good.len() * 8 - 32..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let error = read(&bad[..]).unwrap_err();
        assert_eq!(error.word(), "archive.zstd", "checksum bit {bit}: {error}");
    }
}

#[test]
fn any_flipped_bit_is_refused_or_changes_nothing() {
    let (digest, good) = write(&[("a", b"some text, some text"), ("b/c", &[9; 700])]);
    let expected = read(&good[..]).unwrap();
    assert_eq!(expected.0, digest);
    let mut accepted = 0;
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        if let Ok(found) = read(&bad[..]) {
            // Such as a larger window than needed: other frame, same content.
            assert_eq!(found, expected, "bit {bit}");
            accepted += 1;
        }
    }
    assert!(accepted < 32, "{accepted}");
}

#[test]
fn windows_above_128_mib_are_refused_before_they_are_allocated() {
    let tar = ended(&[file("a", b"x")]);
    let framed = |log: u32| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(log).unwrap();
        encoder.write_all(&tar).unwrap();
        encoder.finish().unwrap()
    };
    assert!(read(&framed(27)[..]).is_ok(), "control: --long=27");
    refused_archive(&framed(28), "archive.zstd", "zstd");
    refused_archive(&framed(31), "archive.zstd", "zstd");
}

#[test]
fn limits_hold_before_content_is_read() {
    let zeros = ended(&[header("zeros", EntryType::Regular, 4 << 30).as_bytes().to_vec()]);
    let limits = Limits { entries: 10, bytes: 1 << 20 };
    let refuse = |tar: &[u8], limits: Limits| {
        archive::read(&zstd(1, tar)[..], &limits, |_, _, _| Ok::<(), ArchiveError>(())).unwrap_err().to_string()
    };
    assert!(refuse(&zeros, limits).contains("more than 1048576 bytes"));
    let many = ended(&(0..11).map(|i| file(&i.to_string(), b"")).collect::<Vec<_>>());
    assert!(refuse(&many, limits).contains("more than 10 entries"));
    let fine =
        archive::read(&zstd(1, &many)[..], &Limits { entries: 11, bytes: 0 }, |_, _, _| Ok::<(), ArchiveError>(()));
    assert!(fine.is_ok(), "control");
}

#[test]
fn a_disk_that_fails_is_no_fault_of_the_archive() {
    struct Failing<'a>(Cursor<&'a [u8]>);
    impl Read for Failing<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.0.read(&mut buffer[..10])?;
            if length > 0 { Ok(length) } else { Err(io::Error::from_raw_os_error(5)) }
        }
    }
    let (_, good) = write(&[("a", &[9; 5000])]);
    let error = read(Failing(Cursor::new(&good[..good.len() - 5]))).unwrap_err();
    assert_eq!((error.word(), error.exit()), ("archive.system", Exit::System), "{error}");
}
