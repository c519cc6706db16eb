//! A library planted where libtorch looks first. The run path of libtorch's own libraries begins with five folders beside
//! its installation, before its own folder and before `LD_LIBRARY_PATH`; whoever can write there has code in every program
//! that links libtorch and leaves the rest to that search. Here it is done, with the true worker.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::intent::{Floor, Intent, Network, Profile};
use xt_core::manifest::run::{Mapped, Run, Status};
use xt_harness::{Folder, programs};
use xt_sandbox::{Brought, Limits, Policy, Running, start};

/// The folders that come first, as readelf shows them: below `$ORIGIN/../../nvidia`.
const FIRST: [&str; 5] = ["cudnn", "nvshmem", "nccl", "cusparselt", "cu13"];
const LIBRARY: &str = "libgomp.so.1";
/// What a planted library says when it is loaded.
const CRY: &str = "PLANTED";

/// A library with a constructor that shows outside and inside that it ran, and then does what the true one does.
const SOURCE: &str = r#"
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <unistd.h>
    __attribute__((constructor)) static void cry(void) {
        write(2, "PLANTED\n", 8);
        close(open(MARK, O_CREAT | O_WRONLY, 0666));
        dlopen(TRUE, RTLD_NOW | RTLD_GLOBAL);
    }
"#;

/// An installation: `site/xt-train` and the libraries below `site/lib`, and `nvidia` beside it, where anyone may write.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    /// Nothing, with a word why, where the worker is not built.
    fn new() -> Option<Self> {
        let (worker, torch) = (programs().join("xt-train"), std::env::var_os("LIBTORCH").map(PathBuf::from));
        let lib = torch.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".libtorch")).join("lib");
        if !worker.exists() || !lib.join(LIBRARY).exists() {
            println!("not run here: xt-train is not built, or its libtorch has no {LIBRARY} of its own");
            return None;
        }
        let site = Self { folder: tempfile::Builder::new().prefix("xt-planted-").tempdir_in("/tmp").unwrap() };
        fs::create_dir_all(site.at("site/lib")).unwrap();
        for entry in fs::read_dir(lib).unwrap() {
            let path = entry.unwrap().path();
            symlink(path.canonicalize().unwrap(), site.at("site/lib").join(path.file_name().unwrap())).unwrap();
        }
        assert!(Command::new("cp").arg(worker).arg(site.at("site/xt-train")).status().unwrap().success());
        let whole = fs::read(site.at("site/xt-train")).unwrap();
        fs::write(site.at("site/careless"), without_name(whole)).unwrap();
        for (name, mode) in [("", 0o755), ("site", 0o755), ("site/lib", 0o755), ("site/careless", 0o755)] {
            fs::set_permissions(site.at(name), Permissions::from_mode(mode)).unwrap();
        }
        site.compile();
        Some(site)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self) {
        fs::write(self.at("plant.c"), SOURCE).unwrap();
        let path = |name: &str| format!("\"{}\"", self.at(name).display());
        let done = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wl,-soname,libgomp.so.1", "-o"])
            .arg(self.at("planted.so"))
            .arg(format!("-DMARK={}", path("mark")))
            .arg(format!("-DTRUE={}", path("site/lib/libgomp.so.1")))
            .arg(self.at("plant.c"))
            .status();
        assert!(done.unwrap().success());
    }

    /// Plants it in these folders and no other.
    fn plant(&self, folders: &[&str]) {
        for name in FIRST {
            let place = self.at(&format!("nvidia/{name}/lib"));
            fs::create_dir_all(&place).unwrap();
            match fs::remove_file(place.join(LIBRARY)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
                _ => {}
            }
            if folders.contains(&name) {
                fs::copy(self.at("planted.so"), place.join(LIBRARY)).unwrap();
            }
        }
    }

    /// Whether it was loaded since the last question.
    fn was_loaded(&self) -> bool {
        fs::remove_file(self.at("mark")).is_ok()
    }

    fn policy(&self, profile: Profile, program: &str) -> Policy {
        for name in ["in", "out"] {
            fs::create_dir_all(self.at(name)).unwrap();
            fs::set_permissions(self.at(name), Permissions::from_mode(0o777)).unwrap();
        }
        let libraries: Vec<PathBuf> =
            fs::read_dir(self.at("site/lib")).unwrap().map(|entry| entry.unwrap().path()).collect();
        // Not hashed each time: half a gigabyte.
        let digest = |path: &PathBuf| (path.clone(), Self::digest(path));
        Policy {
            profile,
            floor: ["limit.cpu", "limit.memory", "limit.processes"]
                .map(|id| (String::from(id), Floor::Preferred))
                .into(),
            program: self.at("site").join(program),
            arguments: Vec::new(),
            digests: libraries.iter().map(digest).collect(),
            libraries,
            root: None,
            inputs: self.at("in"),
            outputs: self.at("out"),
            environment: BTreeMap::new(),
            descriptors: Vec::new(),
            brought: Brought::default(),
            limits: Limits::of(1, 4 << 30, 1 << 24),
            network: Network::None,
        }
    }

    fn digest(path: &Path) -> Digest {
        if path.ends_with(LIBRARY) { Digest::of(&fs::read(path).unwrap()) } else { Digest::of(b"not read") }
    }
}

/// The worker as it would be if it did not name what libtorch needs, which leaves that to the search: the entry of its
/// dynamic section becomes one that the loader does not know (System V ABI, chapter 5).
fn without_name(mut file: Vec<u8>) -> Vec<u8> {
    const UNKNOWN: u64 = 0x6fef_fff0;
    let number = |file: &[u8], at: usize, size: usize| {
        file[at..at + size].iter().rev().fold(0_usize, |all, byte| all << 8 | usize::from(*byte))
    };
    let (table, count) = (number(&file, 32, 8), number(&file, 56, 2));
    let segments: Vec<[usize; 4]> = (0..count)
        .map(|index| table + 56 * index)
        .map(|at| {
            [number(&file, at, 4), number(&file, at + 8, 8), number(&file, at + 16, 8), number(&file, at + 32, 8)]
        })
        .collect();
    let [_, start, _, size] = *segments.iter().find(|segment| segment[0] == 2).unwrap();
    let entries: Vec<(usize, usize, usize)> =
        (start..start + size).step_by(16).map(|at| (at, number(&file, at, 8), number(&file, at + 8, 8))).collect();
    let strings = entries.iter().find(|(_, tag, _)| *tag == 5).unwrap().2;
    let loaded = segments.iter().find(|[kind, _, at, size]| *kind == 1 && (*at..at + size).contains(&strings)).unwrap();
    let strings = strings - loaded[2] + loaded[1];
    let named = entries
        .iter()
        .find(|(_, tag, name)| *tag == 1 && file[strings + name..].starts_with(format!("{LIBRARY}\0").as_bytes()));
    let (at, ..) = *named.unwrap_or_else(|| panic!("the worker does not name {LIBRARY}"));
    file[at..at + 8].copy_from_slice(&UNKNOWN.to_le_bytes());
    file
}

/// What a program said, started as it is, outside.
fn outside(program: &Path) -> String {
    let output = Command::new(program).env_clear().stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_folders_planted_in_are_those_that_libtorch_searches_first() {
    let Some(site) = Site::new() else { return };
    let output = Command::new("readelf").arg("-d").arg(site.at("site/lib/libtorch_cpu.so")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let path = text.lines().find(|line| line.contains("(RPATH)")).unwrap();
    let all: Vec<&str> = path.split('[').nth(1).unwrap().trim_end_matches(']').split(':').collect();
    let expected: Vec<String> = FIRST.iter().map(|name| format!("$ORIGIN/../../nvidia/{name}/lib")).collect();
    assert_eq!(all[..FIRST.len()], expected.iter().map(String::as_str).collect::<Vec<_>>(), "{path}");
    assert_eq!(all[FIRST.len()..], ["$ORIGIN"]);
}

/// Starts the worker in custody with a job that never comes, and looks at it once it has loaded everything.
fn waiting(policy: Policy) -> (Vec<xt_sandbox::Mapped>, String) {
    let (job, keep) = nix::unistd::pipe().unwrap();
    let (_ear, telemetry) = nix::unistd::pipe().unwrap();
    let policy = Policy { descriptors: vec![(job, 3), (telemetry, 4)], ..policy };
    let mut running: Running = start(policy).unwrap_or_else(|error| panic!("{error}"));
    let begun = Instant::now();
    let mapped = loop {
        let mapped = running.mapped().unwrap_or_default();
        let there = |name: &str| mapped.iter().any(|file| file.path.contains(name));
        if there("libgomp") && there("libutil") {
            // Every library is mapped before the first instruction of any of them; a planted one cries a moment later.
            std::thread::sleep(Duration::from_millis(300));
            break running.mapped().unwrap();
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "it never loaded everything: {mapped:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    let (_, stderr) = running.take_streams().unwrap();
    drop(keep);
    let mut said = String::new();
    fs::File::from(stderr).read_to_string(&mut said).unwrap();
    running.finish().unwrap();
    (mapped, said)
}

#[test]
fn a_library_planted_in_any_of_them_is_loaded_outside_and_never_in_custody() {
    let Some(site) = Site::new() else { return };
    for folder in FIRST {
        site.plant(&[folder]);
        // The control: without the sandbox, and without the worker's own precaution, it is loaded.
        let said = outside(&site.at("site/careless"));
        assert!(said.contains(CRY) && site.was_loaded(), "{folder}: {said}");
        // The precaution alone: the worker names what libtorch needs, and that is not searched for again.
        let said = outside(&site.at("site/xt-train"));
        assert!(!said.contains(CRY) && !site.was_loaded(), "{folder}: {said}");
        // The sandbox alone, and both.
        for profile in [Profile::Full, Profile::InContainer] {
            for program in ["careless", "xt-train"] {
                let (mapped, said) = waiting(site.policy(profile, program));
                assert!(!said.contains(CRY) && !site.was_loaded(), "{folder}, {profile}, {program}: {said}");
                let gomp: Vec<_> = mapped.iter().filter(|file| file.path.contains("libgomp")).collect();
                let digest = Site::digest(&site.at("site/lib/libgomp.so.1"));
                assert_eq!(gomp.len(), 1, "{folder}, {profile}, {program}: {mapped:?} {said}");
                assert_eq!((gomp[0].digest, gomp[0].admitted), (Some(digest), true), "{folder}, {profile}: {gomp:?}");
                assert!(mapped.iter().all(|file| file.admitted && !file.path.contains("nvidia")), "{mapped:?}");
            }
        }
    }
}

#[test]
fn where_nothing_stops_it_what_is_mapped_names_it_as_admitted_by_nobody() {
    let Some(site) = Site::new() else { return };
    site.plant(&["nccl"]);
    let (mapped, said) = waiting(site.policy(Profile::None, "careless"));
    assert!(said.contains(CRY) && site.was_loaded(), "{said}");
    let strangers: Vec<_> = mapped.iter().filter(|file| !file.admitted).collect();
    let planted = strangers.iter().find(|file| file.path.ends_with("nvidia/nccl/lib/libgomp.so.1"));
    assert!(planted.is_some_and(|file| file.digest.is_none()), "{mapped:?}");
}

/// A plan of the example that the golden cases train, under `profile`.
fn plan(folder: &Folder, profile: Profile) {
    let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/train/in").join(name);
    for name in ["text.txt", "candidate.json"] {
        fs::copy(source(name), folder.at(name)).unwrap();
    }
    let mut intent = Intent::default_for(1);
    intent.isolation.profile = profile;
    folder.write("intent.json", intent.encode().canonical());
    folder.xt("compile").args(["dataset", "text.txt", "-o", "dataset.json"]).run().expect(0);
    folder.xt("compile").args(["--intent", "intent.json", "candidate.json", "-o", "plan.json"]).run().expect(0);
}

#[test]
fn the_record_of_a_run_with_planted_libraries_names_what_was_mapped_and_none_of_them() {
    let Some(site) = Site::new() else { return };
    site.plant(&FIRST);
    for profile in [Profile::Full, Profile::InContainer, Profile::None] {
        let folder = Folder::new();
        open_up(folder.path());
        plan(&folder, profile);
        let worker = site.at("site/xt-train");
        let outcome = folder.xt("run").arg("--worker").arg(&worker).arg("plan.json").run().expect(0);
        let run = Run::decode(&outcome.document()).unwrap();
        assert_eq!(run.status, Status::Succeeded, "{profile}: {}", run.cause);
        assert!(!site.was_loaded(), "{profile}");
        let mapped = run.observed.mapped.clone().unwrap_or_else(|| panic!("{profile}: nobody looked"));
        let named = |name: &str| -> Vec<&Mapped> { mapped.iter().filter(|file| file.path.contains(name)).collect() };
        let gomp = Site::digest(&site.at("site/lib/libgomp.so.1"));
        assert_eq!(named("libgomp").iter().map(|file| file.digest).collect::<Vec<_>>(), [Some(gomp)], "{mapped:?}");
        assert!(!named("libtorch_cpu").is_empty() && named("nvidia").is_empty(), "{mapped:?}");
        assert!(mapped.iter().all(|file| file.digest.is_some()), "{mapped:?}");
        assert!(run.stack.unwrap().libraries.iter().any(|library| library.name == LIBRARY && library.digest == gomp));
        // The control: a worker that leaves it to the search would get a planted one, so it is not started at all.
        let outcome = folder.xt("run").arg("--worker").arg(site.at("site/careless")).arg("plan.json").run();
        assert_ne!(outcome.code, Some(0));
        assert!(outcome.stderr.contains("nvidia/cudnn/lib/libgomp.so.1"), "{profile}: {}", outcome.stderr);
        assert!(!site.was_loaded(), "{profile}: not even to look what it would load");
    }
}

fn open_up(folder: &Path) {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
}
