//! Libraries of programs that are brought as they are: inside, each finds the one that the loader outside takes, where it
//! looks for it; and what the trainer's user cannot read is refused before anything starts.
#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::custody::Custody;
use xt_core::manifest::intent::{Floor, Intent, Profile};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status};
use xt_harness::{Folder, Outcome};
use xt_store::Store;

/// The program says which library answered.
const PROGRAM: &str = "#include <stdio.h>\nconst char *answer(void);\nint main(void) { puts(answer()); return 0; }";
const PROFILES: [Profile; 2] = [Profile::Full, Profile::InContainer];

/// A place of its own with sources, programs and libraries, open to everybody.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("xt-brought-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    fn compile(&self, name: &str, source: &str, arguments: &[&str]) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = self.at("source.c");
        fs::write(&file, source).unwrap();
        let done = Command::new("cc").arg("-o").arg(&path).arg(&file).args(arguments).status().unwrap();
        assert!(done.success(), "{name}");
    }

    /// A library called `libanswer.so.1` that gives `answer`.
    fn library(&self, name: &str, answer: &str) {
        let source = format!("const char *answer(void) {{ return \"{answer}\"; }}");
        self.compile(name, &source, &["-shared", "-fPIC", "-Wl,-soname,libanswer.so.1"]);
    }

    /// A program that needs the library `with` and looks for it in `run_path`.
    fn program(&self, name: &str, with: &str, flags: &str, run_path: &str) {
        let with = self.text(with);
        self.compile(name, PROGRAM, &[&with, &format!("-Wl,{flags},-rpath,{run_path}")]);
    }

    /// What it says outside.
    fn outside(&self, program: &str) -> String {
        let output = Command::new(self.at(program)).env_clear().output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    }
}

fn candidate(executable: &str, arguments: &[&str], roots: &[(&str, bool)]) -> String {
    let roots: Vec<String> =
        roots.iter().map(|(path, execute)| format!(r#"{{"path":"{path}","execute":{execute}}}"#)).collect();
    let arguments: Vec<String> = arguments.iter().map(|argument| format!("{argument:?}")).collect();
    format!(
        r#"{{"schema":"xt.candidate/1","name":"brought","trainer":{{"kind":"command","executable":"{executable}",
        "arguments":[{}],"environment":{{}},"roots":[{}],"files":{{}},"threads":1}},
        "parameters":{{}},"data":null,"steps":null,"regime":"exact"}}"#,
        arguments.join(","),
        roots.join(",")
    )
}

fn intent(folder: &Folder, profile: Profile) {
    let mut intent = Intent::default_for(1);
    intent.isolation.profile = profile;
    if profile != Profile::Full {
        intent.isolation.floor.values_mut().for_each(|floor| *floor = Floor::Preferred);
    }
    folder.write("intent.json", intent.encode().canonical());
}

fn compiled(folder: &Folder, profile: Profile, candidate: &str) -> Outcome {
    intent(folder, profile);
    folder.xt("compile").args(["--intent", "intent.json"]).input(candidate.to_string()).run()
}

struct Seen {
    said: String,
    plan: Plan,
    custody: Custody,
}

/// Compiles and runs, and takes what it said.
fn run(profile: Profile, candidate: &str) -> Seen {
    let folder = Folder::new();
    let plan = Plan::decode(&compiled(&folder, profile, candidate).expect(0).document()).unwrap();
    let outcome = folder.xt("run").input(plan.encode().canonical()).run();
    let run = Run::decode(&outcome.document()).unwrap_or_else(|faults| panic!("{faults}: {}", outcome.stderr));
    let store = Store::open(&folder.at(".xt")).unwrap();
    let text = |digest| String::from_utf8(store.get(digest).unwrap()).unwrap();
    let stderr = text(run.logs.stderr.digest);
    assert_eq!(run.status, Status::Succeeded, "{profile}: {}: {stderr}", run.cause);
    let said = text(run.logs.stdout.digest).trim().to_string();
    Seen { said, plan, custody: store.manifest(run.custody.unwrap()).unwrap() }
}

fn pins(seen: &Seen, name: &str) -> Vec<(String, Digest)> {
    let all = seen.plan.program.iter().flat_map(|program| &program.libraries);
    all.filter(|pin| pin.path.ends_with(name)).map(|pin| (pin.path.clone(), pin.digest)).collect()
}

/// The library of the system is what every one of these programs would get if its own were not found: a copy of it in the
/// loader's own folder is out of a test's reach, so a second library of the same name stands for it in a later run path.
#[test]
fn a_program_finds_its_own_library_by_every_kind_of_run_path_and_the_record_names_it() {
    let site = Site::new();
    site.library("own/lib/libanswer.so.1", "own");
    site.library("other/libanswer.so.1", "other");
    let (own, other) = (site.text("own/lib"), site.text("other"));
    let ways = [
        ("absolute", format!("{own}:{other}"), "own"),
        ("origin", format!("$ORIGIN/../lib:{other}"), "own"),
        ("control", format!("{other}:{own}"), "other"),
        ("missing", format!("$ORIGIN/none:/no/such:$ORIGIN/../../other:{own}"), "other"),
    ];
    for flags in ["--enable-new-dtags", "--disable-new-dtags"] {
        for (name, run_path, expected) in &ways {
            let program = format!("own/bin/{name}");
            site.program(&program, "own/lib/libanswer.so.1", flags, run_path);
            assert_eq!(site.outside(&program), *expected, "{name} {flags}");
            for profile in PROFILES {
                for roots in [vec![], vec![(site.text("own/bin"), false)], vec![(site.text("own"), false)]] {
                    let roots: Vec<(&str, bool)> =
                        roots.iter().map(|(path, execute)| (path.as_str(), *execute)).collect();
                    let seen = run(profile, &candidate(&site.text(&program), &[], &roots));
                    let context = format!("{name} {flags} {profile} {roots:?}");
                    assert_eq!(seen.said, *expected, "{context}");
                    let folder = if *expected == "own" { "own/lib" } else { "other" };
                    let digest = Digest::of(&fs::read(site.at(folder).join("libanswer.so.1")).unwrap());
                    // Programs tried before lie in the root, too, and may name it by another path.
                    let found: Vec<Digest> = pins(&seen, "libanswer.so.1").iter().map(|(_, digest)| *digest).collect();
                    assert!(found.contains(&digest) && (roots.len() == 1 || found.len() == 1), "{context}: {found:?}");
                    assert!(seen.custody.mounts.iter().any(|mount| mount.digest == Some(digest)), "{context}");
                }
            }
        }
    }
}

#[test]
fn a_library_that_hides_one_of_the_system_is_taken_inside_as_outside() {
    let site = Site::new();
    // The C library's name for mathematics: every loader has one in its own folders.
    site.compile(
        "own/libm.so.6",
        "double cos(double x) { return x + 41.0; }",
        &["-shared", "-fPIC", "-Wl,-soname,libm.so.6", "-nostdlib"],
    );
    let source = "#include <stdio.h>\ndouble cos(double);\nint main(int n, char **a) { (void)a; printf(\"%.0f\\n\", cos(n - 1.0)); }";
    let own = site.text("own/libm.so.6");
    site.compile("bin/own", source, &["-fno-builtin", &own, "-Wl,-rpath,$ORIGIN/../own"]);
    site.compile("bin/system", source, &["-fno-builtin", &own]);
    for (name, expected) in [("own", "41"), ("system", "1")] {
        assert_eq!(site.outside(&format!("bin/{name}")), expected);
        for profile in PROFILES {
            let root = site.text("bin");
            for roots in [vec![], vec![(root.as_str(), true)]] {
                let seen = run(profile, &candidate(&site.text(&format!("bin/{name}")), &[], &roots));
                assert_eq!(seen.said, expected, "{name} {profile} {roots:?}");
            }
        }
    }
}

#[test]
fn libraries_of_libraries_are_found_by_their_own_run_paths_and_by_those_that_they_inherit() {
    let site = Site::new();
    site.library("deep/libanswer.so.1", "deep");
    site.library("wrong/libanswer.so.1", "wrong");
    let (deep, wrong) = (site.text("deep"), site.text("wrong"));
    let middle = "const char *answer(void);\nconst char *middle(void) { return answer(); }";
    let program = "#include <stdio.h>\nconst char *middle(void);\nint main(void) { puts(middle()); return 0; }";
    let answer = site.text("deep/libanswer.so.1");
    let shared = ["-shared", "-fPIC", &answer];
    site.compile("a/libmiddle.so", middle, &[&shared[..], &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../deep"]].concat());
    site.compile("b/libmiddle.so", middle, &shared);
    // What the library brings itself wins over what a DT_RUNPATH of the program says; without, a DT_RPATH is inherited.
    for (name, expected, flags) in [
        ("a", "deep", format!("-Wl,--enable-new-dtags,-rpath,$ORIGIN/../a:{wrong}")),
        ("b", "wrong", format!("-Wl,--disable-new-dtags,-rpath,$ORIGIN/../b:{wrong}:{deep}")),
    ] {
        let library = site.text(&format!("{name}/libmiddle.so"));
        let link = format!("-Wl,-rpath-link,{deep}");
        // Named by its path, it would be needed by its path.
        let (folder, middle) = (format!("-L{}", site.text(name)), "-lmiddle");
        site.compile(&format!("bin/{name}"), program, &[&folder, middle, &flags, &link]);
        assert!(Path::new(&library).exists());
        assert_eq!(site.outside(&format!("bin/{name}")), expected);
        for profile in PROFILES {
            let seen = run(profile, &candidate(&site.text(&format!("bin/{name}")), &[], &[]));
            assert_eq!((seen.said.as_str(), pins(&seen, "libanswer.so.1").len()), (expected, 1), "{name} {profile}");
        }
    }
}

#[test]
fn a_program_that_a_script_starts_from_a_root_finds_its_library_beside_itself_or_elsewhere() {
    let site = Site::new();
    site.library("own/lib/libanswer.so.1", "own");
    site.library("apart/libanswer.so.1", "apart");
    site.program("own/bin/inside", "own/lib/libanswer.so.1", "--enable-new-dtags", "$ORIGIN/../lib");
    site.program("own/bin/apart", "own/lib/libanswer.so.1", "--enable-new-dtags", &site.text("apart"));
    let script = format!("{0}/inside; {0}/apart", site.text("own/bin"));
    let root = site.text("own");
    for profile in PROFILES {
        let seen = run(profile, &candidate("/bin/sh", &["-euc", &script], &[(&root, true)]));
        assert_eq!(seen.said, "own\napart", "{profile}");
        assert_eq!(pins(&seen, "libanswer.so.1").len(), 1, "what lies in the root is pinned with the root");
    }
}

#[test]
fn links_on_the_way_to_program_root_and_library_lead_inside_where_they_lead_outside() {
    let site = Site::new();
    site.library("real/lib/libanswer.so.1.0", "real");
    symlink("libanswer.so.1.0", site.at("real/lib/libanswer.so.1")).unwrap();
    site.library("wrong/lib/libanswer.so.1", "wrong");
    site.program("real/bin/program", "real/lib/libanswer.so.1.0", "--enable-new-dtags", "$ORIGIN/../lib");
    // From the link's own place the run path would lead to the wrong library.
    fs::create_dir_all(site.at("wrong/bin")).unwrap();
    symlink("../../real/bin/program", site.at("wrong/bin/program")).unwrap();
    symlink(site.at("real"), site.at("alias")).unwrap();
    for program in ["wrong/bin/program", "alias/bin/program", "real/bin/program"] {
        assert_eq!(site.outside(program), "real");
        for profile in PROFILES {
            for root in [None, Some("wrong"), Some("alias"), Some("real")] {
                let root = root.map(|name| site.text(name));
                let roots: Vec<(&str, bool)> = root.iter().map(|root| (root.as_str(), false)).collect();
                let seen = run(profile, &candidate(&site.text(program), &[], &roots));
                assert_eq!(seen.said, "real", "{program} {profile} {roots:?}");
            }
        }
    }
    symlink("/proc/1", site.at("hidden")).unwrap();
    let folder = Folder::new();
    let text = candidate("/bin/true", &[], &[(&site.text("hidden"), false)]);
    let refused = compiled(&folder, Profile::Full, &text).expect(10);
    assert!(refused.stderr.contains("of which the sandbox makes its own"), "{}", refused.stderr);
}

#[test]
fn a_missing_library_and_one_by_the_working_directory_are_refused_when_compiled() {
    let site = Site::new();
    site.library("lib/libanswer.so.1", "own");
    site.program("bin/none", "lib/libanswer.so.1", "--enable-new-dtags", "$ORIGIN/none");
    site.program("bin/relative", "lib/libanswer.so.1", "--enable-new-dtags", "lib");
    for (name, why) in [("none", "libanswer.so.1"), ("relative", "libanswer.so.1")] {
        let folder = Folder::new();
        let refused = compiled(&folder, Profile::Full, &candidate(&site.text(&format!("bin/{name}")), &[], &[]));
        let refused = refused.expect(10);
        assert!(refused.stderr.contains("/trainer/executable") && refused.stderr.contains(why), "{}", refused.stderr);
        assert!(!folder.at(".xt/runs").exists());
    }
}

/// The Python of a version manager: its own library by an absolute run path, modules that need others of the system.
#[test]
fn a_python_with_a_library_of_its_own_runs_and_loads_what_its_modules_need() {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let found = fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten().map(|entry| entry.path());
    let versions: Vec<PathBuf> = found.filter(|path| path.join("lib/libpython3.12.so.1.0").exists()).collect();
    let Some(version) = versions.first() else {
        println!("not run here: there is no Python of a version manager");
        return;
    };
    let program = version.join("bin/python3.12").display().to_string();
    let root = version.join("lib/python3.12").display().to_string();
    let script =
        "import ctypes, ssl, sqlite3, hashlib, zlib, sys; print(sys.version_info[:2], ssl.OPENSSL_VERSION[:7])";
    let seen = run(Profile::Full, &candidate(&program, &["-S", "-B", "-c", script], &[(&root, false)]));
    assert_eq!(seen.said, "(3, 12) OpenSSL");
    assert_eq!(pins(&seen, "libpython3.12.so.1.0").len(), 1);
}

#[test]
fn what_the_trainers_user_cannot_read_is_refused_path_by_path_before_anything_is_stored() {
    if !nix::unistd::geteuid().is_root() {
        println!("not tested: files that another user cannot read (this test does not run as root)");
        return;
    }
    let site = Site::new();
    let path = |name: &str| site.at(name);
    for name in ["open/closed/deep", "open/good", "shut"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    for name in ["open/closed/deep/file", "open/good/file", "open/secret", "open/other", "shut/file"] {
        fs::write(path(name), "x").unwrap();
    }
    for (name, mode) in [("open/closed", 0o700), ("open/secret", 0o600), ("open/other", 0o640), ("shut", 0o700)] {
        fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::chown(path("open/closed"), Some(1234), Some(1234)).unwrap();
    let (open, shut) = (site.text("open"), site.text("shut"));
    let text = candidate("/bin/true", &[], &[(&open, false), (&shut, false)]);
    let folder = Folder::new();
    let refused = compiled(&folder, Profile::Full, &text).expect(10);
    let lines: Vec<&str> = refused.stderr.lines().filter(|line| line.contains("command.unreadable")).collect();
    assert_eq!(lines.len(), 4, "{}", refused.stderr);
    for (name, expected) in [
        ("open/closed", "mode 0700 and belongs to user 1234"),
        ("open/secret", "mode 0600"),
        ("open/other", "mode 0640"),
        ("shut", "read and enter"),
    ] {
        let named = format!("{} has", site.text(name));
        let line = lines.iter().find(|line| line.contains(&named)).unwrap_or_else(|| panic!("{name}: {lines:?}"));
        assert!(line.contains(expected) && line.contains("61183") && line.contains("chmod"), "{line}");
    }
    assert!(!refused.stderr.contains("deep") && !folder.at(".xt").exists(), "{}", refused.stderr);
    // The control: whoever keeps every right reads them, and opened up, everybody does.
    compiled(&Folder::new(), Profile::None, &text).expect(0);
    let done = Command::new("chmod").args(["-R", "o+rX"]).arg(path("open")).arg(path("shut")).status().unwrap();
    assert!(done.success());
    let plan = compiled(&folder, Profile::Full, &text).expect(0).stdout;
    // Closed between compiling and running, it is found before anything is recorded.
    fs::set_permissions(path("shut"), Permissions::from_mode(0o700)).unwrap();
    let refused = folder.xt("run").input(plan.clone()).run().expect(10);
    assert!(refused.stderr.contains("/program/roots/1") && refused.stderr.contains(&shut), "{}", refused.stderr);
    assert!(!folder.at(".xt/runs").exists() && !folder.at(".xt/record.db").exists());
    fs::set_permissions(path("shut"), Permissions::from_mode(0o755)).unwrap();
    folder.xt("run").input(plan).run().expect(0);
}

#[test]
fn folders_above_count_only_where_the_program_sees_the_hosts_own_file_system() {
    if !nix::unistd::geteuid().is_root() {
        println!("not tested: folders that another user cannot enter (this test does not run as root)");
        return;
    }
    let site = Site::new();
    fs::create_dir_all(site.at("home/tree")).unwrap();
    fs::write(site.at("home/tree/file"), "x").unwrap();
    fs::copy("/bin/true", site.at("home/program")).unwrap();
    fs::set_permissions(site.at("home"), Permissions::from_mode(0o700)).unwrap();
    let root = site.text("home/tree");
    let text = candidate(&site.text("home/program"), &[], &[(&root, false)]);
    run(Profile::Full, &text);
    let refused = compiled(&Folder::new(), Profile::InContainer, &text).expect(10);
    assert_eq!(refused.stderr.matches("cannot go through").count(), 2, "{}", refused.stderr);
    assert!(refused.stderr.contains(&site.text("home")), "{}", refused.stderr);
}
