//! `xt-store`: what goes in comes out, or is refused by name.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_harness::{Folder, Outcome, programs};

/// Bytes that no codec shrinks.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

fn shell(folder: &Folder, script: &str) -> Outcome {
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", programs().display());
    let mut command = Command::new("sh");
    command.arg("-euc").arg(script).current_dir(folder.path()).env_clear().env("PATH", path).env("LC_ALL", "C");
    let output = command.stdin(Stdio::null()).output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn entries(path: impl AsRef<Path>) -> usize {
    fs::read_dir(path).map_or(0, Iterator::count)
}

fn texts(outcome: &Outcome, pointer: &str) -> Vec<String> {
    outcome.documents().iter().map(|line| line.pointer(pointer).and_then(Value::as_str).unwrap().to_owned()).collect()
}

#[test]
fn what_is_put_comes_back_by_the_digest_that_sha256sum_prints() {
    let folder = Folder::new();
    // S-09: line ends are content.
    let contents = [&b"a\n"[..], b"a\r\n", b"", &noise(3 << 20, 1)];
    let names: Vec<String> = (0..contents.len()).map(|i| format!("f{i}")).collect();
    for (name, bytes) in names.iter().zip(contents) {
        folder.write(name, bytes);
    }
    let put = folder.xt("store").arg("put").args(&names).run().expect(0);
    assert_eq!(texts(&put, "/path"), names);
    let sums = shell(&folder, "sha256sum f0 f1 f2 f3 | sed 's/ .*//; s/^/sha256:/'").expect(0);
    let digests = texts(&put, "/digest");
    assert_eq!(digests, sums.stdout.lines().collect::<Vec<_>>());
    assert_ne!(digests[0], digests[1]);
    for (digest, bytes) in digests.iter().zip(contents) {
        folder.xt("store").args(["get", digest, "-o", "back"]).run().expect(0);
        assert_eq!(fs::read(folder.at("back")).unwrap(), bytes);
    }
    let mut listed = digests.clone();
    listed.sort();
    assert_eq!(texts(&folder.xt("store").arg("ls").run().expect(0), "/digest"), listed);
    let piped = folder.xt("store").arg("put").input(contents[3]).run().expect(0);
    assert_eq!((texts(&piped, "/path"), texts(&piped, "/digest")), (vec!["-".to_owned()], vec![digests[3].clone()]));
    let report = folder.xt("store").arg("verify").run().expect(0).document();
    assert_eq!(report.pointer("/objects"), Some(&Value::from(4u64)));
}

#[test]
fn a_tree_has_one_order_and_one_digest_in_every_locale_and_however_it_was_made() {
    let folder = Folder::new();
    let names = ["a/x", "a-b", "a0", "B", "\u{e9}", "a/up/deep/er", "e\u{301}"];
    for name in names {
        folder.write(Path::new("one").join(name), name);
    }
    for name in names.iter().rev() {
        folder.write(Path::new("two").join(name), name);
    }
    fs::create_dir(folder.at("two/empty")).unwrap();
    let tree = |name: &str, locale: &str| folder.xt("store").args(["tree", name]).env("LC_ALL", locale).run().expect(0);
    let one = tree("one", "C");
    let order = ["B", "a-b", "a/up/deep/er", "a/x", "a0", "e\u{301}", "\u{e9}"];
    let documents = one.documents();
    let paths: Vec<&str> = documents.iter().filter_map(|line| line.get("path").and_then(Value::as_str)).collect();
    assert_eq!(paths, order);
    assert_eq!(tree("one", "en_US.UTF-8").stdout, one.stdout);
    let digest = documents.last().unwrap().get("digest").cloned();
    assert_eq!(tree("two", "C").documents().last().unwrap().get("digest").cloned(), digest);
    let check = shell(&folder, "cd one; find . -type f -printf '%P\\0' | sort -z | xargs -0 sha256sum | sha256sum");
    assert_eq!(digest, Some(Value::from(&*format!("sha256:{}", &check.expect(0).stdout[..64]))));
    assert!(!folder.at(".xt").exists(), "tree stores nothing");
    let put = folder.xt("store").args(["put", "-r", "one"]).run().expect(0);
    assert_eq!(put.stdout, one.stdout);
    let digest = digest.as_ref().and_then(Value::as_str).unwrap();
    let listing = folder.xt("store").args(["get", digest]).run().expect(0).stdout;
    assert!(listing.ends_with("\u{e9}\n") && listing.lines().count() == 7);
    folder.write("one/a/x", "other");
    assert_ne!(tree("one", "C").stdout, one.stdout, "control");
}

#[test]
fn links_fifos_sockets_and_odd_names_are_refused_all_at_once_and_nothing_hangs() {
    let folder = Folder::new();
    folder.write("d/fine", "x");
    symlink("..", folder.at("d/up")).unwrap();
    symlink("self", folder.at("d/self")).unwrap();
    symlink("nowhere", folder.at("d/dangling")).unwrap();
    symlink("/etc/passwd", folder.at("d/passwd")).unwrap();
    nix::unistd::mkfifo(&folder.at("d/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(folder.at("d/socket")).unwrap();
    folder.write(Path::new("d").join(OsStr::from_bytes(b"bad\xff")), "x");
    folder.write("d/new\nline", "x");
    folder.write("d/c:colon", "x");
    let start = Instant::now();
    for command in [["tree", "d"].as_slice(), &["put", "-r", "d"]] {
        let refused = folder.xt("store").args(command).run().expect(10);
        assert_eq!(refused.stdout, "");
        let names =
            ["d/up", "d/self", "d/dangling", "d/passwd", "d/pipe", "d/socket", "bad\\xff", "d/new\\n", "c:colon"];
        for name in names {
            let lines = refused.stderr.lines().filter(|line| line.contains(name)).count();
            assert_eq!(lines, 1, "{name}: {}", refused.stderr);
        }
        assert!(!refused.stderr.contains("fine"), "{}", refused.stderr);
    }
    for name in ["d/up", "d/passwd", "d/pipe", "d/socket", "d", "/dev/null", "d/.."] {
        let refused = folder.xt("store").args(["put", name]).run().expect(10);
        assert!(refused.stderr.contains(name) && refused.stdout.is_empty(), "{}", refused.stderr);
    }
    folder.xt("store").args(["--store", "d/inner", "put"]).input("x").run().expect(0);
    let inside = folder.xt("store").args(["tree", "d"]).run().expect(10);
    assert!(
        inside.stderr.lines().any(|line| line.contains("d/inner") && line.contains("input.store")),
        "{}",
        inside.stderr
    );
    symlink("d", folder.at("link")).unwrap();
    for name in ["link", "link/"] {
        folder.xt("store").args(["tree", name]).run().expect(10);
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(!folder.at(".xt").exists(), "nothing refused makes a store");
    folder.xt("store").args(["put", "d/fine"]).run().expect(0);
}

#[test]
fn a_file_named_in_bytes_that_are_no_text_can_be_stored() {
    let folder = Folder::new();
    let name = OsStr::from_bytes(b"caf\xe9");
    folder.write(name, "x");
    let put = folder.xt("store").arg("put").arg(name).run().expect(0);
    assert_eq!(texts(&put, "/path"), ["caf\\xe9"]);
    folder
        .xt("store")
        .args(["get", &texts(&put, "/digest")[0], "-o"])
        .arg(OsStr::from_bytes(b"out\xe9"))
        .run()
        .expect(0);
    assert_eq!(fs::read(folder.at(OsStr::from_bytes(b"out\xe9"))).unwrap(), b"x");
}

#[test]
fn every_published_canonical_form_and_digest_comes_out() {
    let vectors = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/canonical.jsonl")).unwrap();
    let vectors = xt_core::canonical::parse_all(&vectors).unwrap();
    assert_eq!(vectors.len(), 200);
    let column = |name: &str| -> Vec<&str> { vectors.iter().map(|v| v.get(name).unwrap().as_str().unwrap()).collect() };
    let folder = Folder::new();
    let input = column("json").join("\n");
    let lines = folder.xt("store").arg("canon").input(input.clone()).run().expect(0).stdout;
    assert_eq!(lines.lines().collect::<Vec<_>>(), column("canonical"));
    let ids = folder.xt("store").args(["canon", "--id"]).input(input).run().expect(0).stdout;
    let ids: Vec<&str> = ids.lines().map(|line| line.strip_prefix("sha256:").unwrap()).collect();
    assert_eq!(ids, column("sha256"));
    // One file each, by name.
    for (number, json) in column("json").iter().enumerate().take(20) {
        folder.write(format!("{number}.json"), json);
    }
    let names: Vec<String> = (0..20).map(|number| format!("{number}.json")).collect();
    let by_name = folder.xt("store").arg("canon").args(&names).run().expect(0).stdout;
    assert_eq!(by_name.lines().collect::<Vec<_>>(), column("canonical")[..20]);
}

#[test]
fn the_id_of_a_document_leaves_its_id_out() {
    let folder = Folder::new();
    let id = |text: &str| folder.xt("store").args(["canon", "--id"]).input(text).run().expect(0).stdout;
    assert_eq!(id(r#"{"b":1,"a":2}"#), format!("{}\n", Digest::of(br#"{"a":2,"b":1}"#)));
    assert_eq!(id(r#"{"b":1,"id":"sha256:0","a":2}"#), id(r#"{"b":1,"a":2}"#));
    assert_ne!(id(r#"{"b":1.0,"a":2}"#), id(r#"{"b":1,"a":2}"#), "a float is no integer");
    let stored = folder.xt("store").arg("put").input(r#"{ "x": 1e5 }"#).run().expect(0);
    let canon = folder.xt("store").args(["canon", &texts(&stored, "/digest")[0]]).run().expect(0);
    assert_eq!(canon.stdout, "{\"x\":100000.0}\n");
}

#[test]
fn text_that_is_no_strict_json_is_refused_with_its_place() {
    let folder = Folder::new();
    let deep = "[".repeat(100_000);
    let bad: [(&[u8], &str); 13] = [
        (b"", "no document"),
        (b" \n", "no document"),
        (b"{\"a\":1,\"a\":2}", "\"a\" occurs twice"),
        (b"[{\"x\":{\"k\":1,\"k\":1}}]", "\"k\" occurs twice"),
        (b"{\"value\":NaN}", "line 1, column 10"),
        (b"{\"value\":-Infinity}", "line 1"),
        (b"{\"value\":1e400}", "out of the range"),
        (b"\xef\xbb\xbf{}", "byte-order mark"),
        (b"\"\\ud800\"", "surrogate"),
        (b"\"\xff\"", "not UTF-8"),
        (b"{} x", "line 1, column 4"),
        (b"{\"a\":", "ends"),
        (deep.as_bytes(), "deeper than"),
    ];
    for (input, part) in bad {
        let refused = folder.xt("store").arg("canon").input(input).run().expect(10);
        assert_eq!(refused.stdout, "", "{part}");
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    folder.xt("store").arg("canon").input("{}{}").run().expect(0);
}

#[test]
fn damage_is_reported_with_object_and_pack_and_healed_by_the_same_bytes() {
    let folder = Folder::new();
    let bytes = noise(100_000, 4);
    folder.write("f", &bytes);
    folder.write("other", "sound");
    let put = folder.xt("store").args(["put", "f"]).run().expect(0);
    let digest = texts(&put, "/digest").remove(0);
    folder.xt("store").args(["put", "other"]).run().expect(0);
    let packs = fs::read_dir(folder.at(".xt/packs")).unwrap().map(|entry| entry.unwrap().path());
    let pack =
        packs.filter(|path| path.extension() == Some(OsStr::new("pack")) && fs::metadata(path).unwrap().len() > 9999);
    let pack = pack.last().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&pack).unwrap();
    file.write_all_at(&[bytes[5000] ^ 1], 8 + 72 + 5000).unwrap();
    let got = folder.xt("store").args(["get", &digest]).run().expect(11);
    assert_eq!(got.stdout, "");
    let hex = pack.file_stem().unwrap().to_str().unwrap();
    for part in ["store.damaged", &digest, hex] {
        assert!(got.stderr.contains(part), "{part}: {}", got.stderr);
    }
    folder.xt("store").args(["get", &digest, "-o", "out"]).run().expect(11);
    assert!(!folder.at("out").exists());
    assert_eq!(shell(&folder, "find . -name '.out*'").stdout, "");
    let report = folder.xt("store").arg("verify").run().expect(1).document();
    assert_eq!(report.pointer("/damaged/0/object").and_then(Value::as_str), Some(&*digest));
    assert_eq!(report.pointer("/damaged/0/pack").and_then(Value::as_str), Some(&*format!("sha256:{hex}")));
    folder.xt("store").args(["put", "f"]).run().expect(0);
    folder.xt("store").arg("verify").run().expect(0);
    folder.xt("store").args(["get", &digest, "-o", "out"]).run().expect(0);
    assert_eq!(fs::read(folder.at("out")).unwrap(), bytes);
}

#[test]
fn names_are_set_listed_moved_and_removed() {
    let folder = Folder::new();
    let put = |text: &str, name: &str| {
        let put = folder.xt("store").args(["put", "--name", name, "--reason", "kept"]).input(text).run().expect(0);
        texts(&put, "/digest").remove(0)
    };
    let (one, two) = (put("one", "runs/a"), put("two", "base"));
    let listed = folder.xt("store").arg("refs").run().expect(0);
    assert_eq!(
        (texts(&listed, "/name"), texts(&listed, "/digest")),
        (vec!["base".into(), "runs/a".into()], vec![two, one.clone()])
    );
    folder.xt("store").args(["refs", "--set", "base", &one]).run().expect(0);
    assert_eq!(texts(&folder.xt("store").arg("refs").run(), "/digest"), [&*one, &one]);
    let absent = Digest::of(b"absent").to_string();
    let missing = folder.xt("store").args(["refs", "--set", "x", &absent]).run().expect(11);
    assert!(missing.stderr.contains("store.missing") && missing.stderr.contains(&absent), "{}", missing.stderr);
    folder.xt("store").args(["refs", "--set", "../x", &one]).run().expect(10);
    folder.xt("store").args(["refs", "--set", "x", "latest"]).run().expect(2);
    folder.xt("store").args(["refs", "--remove", "runs/a"]).run().expect(0);
    assert_eq!(texts(&folder.xt("store").arg("refs").run(), "/name"), ["base"]);
}

#[test]
fn what_is_not_there_is_said_and_makes_nothing() {
    let folder = Folder::new();
    let digest = Digest::of(b"x").to_string();
    for command in [["ls"].as_slice(), &["verify"], &["refs"], &["get", &digest]] {
        let absent = folder.xt("store").args(command).run().expect(11);
        assert!(absent.stderr.contains("store.absent") && absent.stderr.contains("hint: "), "{}", absent.stderr);
    }
    folder.xt("store").args(["put", "absent"]).run().expect(20);
    assert!(!folder.at(".xt").exists());
    folder.xt("store").arg("put").input("y").run().expect(0);
    folder.xt("store").args(["get", &digest]).run().expect(11);
    for bad in ["latest", &digest[7..], &digest.to_uppercase(), &digest[..70]] {
        folder.xt("store").args(["get", bad]).run().expect(2);
    }
    folder.write("thesis/chapter.tex", "x");
    let foreign = folder.xt("store").args(["--store", "thesis", "put"]).input("x").run().expect(10);
    assert!(foreign.stderr.contains("chapter.tex"), "{}", foreign.stderr);
}

#[test]
fn the_umask_decides_nothing() {
    let folder = Folder::new();
    let script = "umask 077; echo one | xt-store put --name a/one > one
                  umask 000; echo two | xt-store put --name b/two > two
                  umask 077; echo three | xt-store put > three; xt-store verify > report
                  find .xt -type d ! -perm 0755 -o -type f ! -perm 0644";
    assert_eq!(shell(&folder, script).expect(0).stdout, "");
    let digest = fs::read_to_string(folder.at("one")).unwrap();
    assert!(digest.contains(&Digest::of(b"one\n").hex()), "{digest}");
    fs::set_permissions(folder.at(".xt/FORMAT"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(shell(&folder, "find .xt -type f ! -perm 0644").stdout.contains("FORMAT"), "control");
}

#[test]
fn times_decide_nothing() {
    let folder = Folder::new();
    folder.write("f", "x=1");
    let first = folder.xt("store").args(["put", "f"]).run().expect(0);
    shell(&folder, "touch -r f stamp; printf x=2 > f; touch -r stamp f; find .xt | xargs touch -d '+1 day'").expect(0);
    let second = folder.xt("store").args(["put", "f"]).run().expect(0);
    assert_eq!(texts(&second, "/digest"), [Digest::of(b"x=2").to_string()]);
    assert_ne!(second.stdout, first.stdout);
    folder.xt("store").arg("verify").run().expect(0);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    let folder = Folder::new();
    let path = folder.write("growing", noise(8 << 20, 1));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                file.write_all(b"more").unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let refused = folder.xt("store").args(["put", "growing"]).run();
        stop.store(true, Ordering::Relaxed);
        let refused = refused.expect(10);
        assert!(refused.stderr.contains("growing") && refused.stderr.contains("input.changed"), "{}", refused.stderr);
    });
    assert_eq!(folder.xt("store").arg("ls").run().expect(0).stdout, "");
    folder.xt("store").args(["put", "growing"]).run().expect(0);
}

#[test]
fn an_output_that_cannot_be_written_is_an_error_and_a_closed_stderr_is_none() {
    let folder = Folder::new();
    folder.write("f", noise(300_000, 1));
    let put = folder.xt("store").args(["put", "f"]).run().expect(0);
    let digest = texts(&put, "/digest").remove(0);
    for arguments in [["ls"].as_slice(), &["verify"], &["get", &digest], &["put", "f"], &["tree", "d"], &["refs"]] {
        fs::create_dir_all(folder.at("d")).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = folder.xt("store").args(arguments).command().stdout(full).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        // Nothing to say is nothing to fail at.
        if arguments != ["refs"] {
            assert_eq!(output.status.code(), Some(20), "{arguments:?}: {stderr}");
            assert!(stderr.contains("No space left"), "{stderr}");
        }
    }
    let script = format!("set +e; xt-store get {digest} | head -c1 | wc -c; xt-store get {digest} 2>&- | sha256sum");
    let closed = shell(&folder, &script).expect(0);
    assert_eq!(closed.stdout, format!("1\n{}  -\n", &digest[7..]));
    assert!(!closed.stderr.contains("panic"), "{}", closed.stderr);
    shell(&folder, "code=0; xt-store get sha256:0 2>/dev/full || code=$?; test $code = 2").expect(0);
}

#[test]
fn eight_put_the_same_object_at_once_into_a_store_that_does_not_exist_yet() {
    let folder = Folder::new();
    folder.write("f", noise(50_000, 1));
    for round in 0..20 {
        let store = format!("deep/{round}/store");
        let start = || folder.xt("store").args(["--store", &store, "put", "f"]).start();
        let children: Vec<_> = (0..8).map(|_| start()).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "round {round}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let store = folder.at(&store);
        assert_eq!(folder.xt("store").arg("--store").arg(&store).arg("ls").run().expect(0).documents().len(), 1);
        assert_eq!(entries(store.join("tmp")) + entries(store.join("leases")), 0, "round {round}");
        assert_eq!(entries(&store), 10);
        folder.xt("store").arg("--store").arg(&store).arg("verify").run().expect(0);
    }
}

/// Runs a script in a mount namespace of its own, or says why not.
fn with_mounts(folder: &Folder, script: &str) -> Option<Outcome> {
    folder.write("script", script);
    let allowed = shell(folder, "unshare -m mount -t tmpfs none /mnt");
    if allowed.code != Some(0) {
        eprintln!("not run here: mounting needs root and a mount namespace: {}", allowed.stderr.trim());
        return None;
    }
    Some(shell(folder, "exec unshare -m sh -eu script"))
}

#[test]
fn a_full_disk_leaves_no_object_and_no_litter_and_a_retry_works() {
    let folder = Folder::new();
    folder.write("large", noise(2 << 20, 9));
    let script = "mkdir small; mount -t tmpfs -o size=1m none small
        echo first | xt-store --store small/s put > /dev/null
        set +e; xt-store --store small/s put large > out 2> err; echo code $?; set -e
        ls small/s/tmp small/s/leases | grep -v : | grep . && exit 1
        xt-store --store small/s ls | wc -l
        xt-store --store small/s verify > /dev/null
        mount -o remount,size=8m small
        xt-store --store small/s put large > again; xt-store --store small/s ls | wc -l
        xt-store --store small/s verify > /dev/null; cat out; cat err >&2";
    let Some(outcome) = with_mounts(&folder, script) else { return };
    let outcome = outcome.expect(0);
    assert_eq!(outcome.stdout, "code 20\n1\n2\n");
    assert!(outcome.stderr.contains("No space left") && outcome.stderr.contains("hint: "), "{}", outcome.stderr);
}

#[test]
fn a_store_on_a_read_only_disk_can_be_read() {
    let folder = Folder::new();
    let script = "mkdir disk; mount -t tmpfs none disk
        echo kept | xt-store --store disk/s put --name kept > put
        mount -o remount,ro disk
        xt-store --store disk/s ls; xt-store --store disk/s refs; xt-store --store disk/s verify > /dev/null
        xt-store --store disk/s get sha256:$(echo kept | sha256sum | cut -c1-64)
        set +e; echo more | xt-store --store disk/s put; echo code $?";
    let Some(outcome) = with_mounts(&folder, script) else { return };
    let outcome = outcome.expect(0);
    assert!(outcome.stdout.ends_with("kept\ncode 20\n"), "{}\n{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.stdout.lines().count(), 4);
    assert!(outcome.stderr.contains("Read-only") && outcome.stderr.contains("can only be read"), "{}", outcome.stderr);
}

#[test]
fn the_record_of_a_store_on_a_read_only_disk_can_be_read_and_says_why_it_takes_nothing() {
    let folder = Folder::new();
    let objective = r#"{"primary":{"name":"loss","direction":"minimize"},"target":1.0,"constraints":[]}"#;
    folder.write("objective.json", objective);
    let script = "mkdir disk; mount -t tmpfs none disk
        xt-log --store disk/s experiment new objective.json --name width > /dev/null
        mount -o remount,ro disk
        xt-log --store disk/s show width > shown; xt-log --store disk/s events > shown
        set +e; xt-log --store disk/s experiment new objective.json --name depth; echo code $?";
    let Some(outcome) = with_mounts(&folder, script) else { return };
    let outcome = outcome.expect(0);
    assert_eq!(outcome.stdout, "code 20\n");
    assert!(outcome.stderr.contains("record.read-only") && !outcome.stderr.contains("SQLite"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("hint: reading works"), "{}", outcome.stderr);
}

#[test]
fn a_folder_comes_back_whole_and_its_small_files_share_the_space_of_a_few() {
    let folder = Folder::new();
    for number in 0..300 {
        folder.write(
            format!("in/{}/{number}.txt", number % 7),
            format!("a line that all files have, and {number}\n").repeat(9),
        );
    }
    folder.write("in/large", noise(3 << 20, 1));
    folder.write("in/empty", "");
    let put = folder.xt("store").args(["put", "-r", "in", "--name", "in"]).run().expect(0);
    let tree = put.documents().pop().unwrap().get("digest").and_then(Value::as_str).unwrap().to_owned();
    let bytes: u64 = fs::read_dir(folder.at(".xt/packs")).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    // Heads, lists and index entries of 300 files, beside the 3 MiB: far less than their 120 kB of text and 300 blocks.
    assert!(bytes < (3 << 20) + 100_000, "{bytes}");
    let got = folder.xt("store").args(["get", "-r", &tree, "-o", "out"]).run().expect(0);
    assert_eq!(got.text("/digest"), tree);
    shell(&folder, "diff -r in out").expect(0);
    assert!(folder.xt("store").args(["get", "-r", &tree, "-o", "out"]).run().expect(10).stderr.contains("exists"));
    folder.xt("store").arg("verify").run().expect(0);
    // What is no listing is refused and leaves nothing.
    let other = folder.xt("store").arg("put").input("no listing").run().expect(0).text("/digest");
    folder.xt("store").args(["get", "-r", &other, "-o", "none"]).run().expect(10);
    assert!(!folder.at("none").exists());
    // One file of many, put alone, is there already.
    let again = folder.xt("store").args(["put", "in/0/0.txt"]).run().expect(0);
    assert_eq!(again.text("/digest"), put.documents()[0].get("digest").and_then(Value::as_str).unwrap());
    let after: u64 = fs::read_dir(folder.at(".xt/packs")).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(after - bytes < 300, "{after} {bytes}: only the text that is no listing is new");
}

#[test]
fn what_has_not_changed_is_not_read_again_and_damage_that_was_met_is_healed_all_the_same() {
    let folder = Folder::new();
    folder.write("in/a", noise(600_000, 1));
    folder.write("in/b", noise(5000, 2));
    // Both must have rested, or they are read again.
    shell(&folder, "touch -d '1 hour ago' in/a in/b").expect(0);
    std::thread::sleep(Duration::from_secs(4));
    let put = ["put", "-r", "in"];
    let first = folder.xt("store").args(put).run().expect(0).stdout;
    let read = || {
        let traced =
            shell(&folder, "strace -f -e trace=read -o trace xt-store put -r in; grep -c '= 5000$' trace || true");
        traced.stdout.trim().lines().last().unwrap().to_owned()
    };
    let strace = shell(&folder, "strace -qq -e trace=none true && echo there || true").stdout.contains("there");
    if strace {
        assert_eq!(read(), "0", "its 5000 bytes are not read");
    }
    assert_eq!(folder.xt("store").args(put).run().expect(0).stdout, first);
    // The digest of a changed file is new.
    folder.write("in/b", noise(5000, 3));
    if strace {
        assert_ne!(read(), "0", "control: a file that was just written is read");
    }
    assert_ne!(folder.xt("store").args(put).run().expect(0).stdout, first);
    for entry in fs::read_dir(folder.at(".xt/packs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|suffix| suffix == "pack") {
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    folder.xt("store").arg("verify").run().expect(1);
    assert!(!folder.at(".xt/cache/seen").exists(), "what was met as damaged is read again");
    folder.xt("store").args(put).run().expect(0);
    let a = Digest::of(&noise(600_000, 1));
    folder.xt("store").args(["get", &a.to_string(), "-o", "out"]).run().expect(0);
}
