//! From a command to a plan: is what enters the program declared, can it be honoured, and what will it be told?

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::Manifest;
use crate::fingerprint;
use crate::manifest::command::{Command, Program, Trainer};
use crate::manifest::dataset::{Dataset, Member};
use crate::manifest::intent::Intent;
use crate::manifest::plan::{Ground, Input, Mode, Plan, Role, Work};
use crate::relpath::RelativePath;
use crate::verb::{admit, envelope};

/// The number of the descriptor on which a command writes its telemetry.
pub const TELEMETRY: i32 = 4;
/// Variables that name places. They are set when the program starts, since a place differs from one profile to another.
pub const PLACES: [&str; 7] =
    ["XT_DATA", "XT_FILES", "XT_INPUTS", "XT_OUTPUTS", "XT_PARAMETERS", "XT_PLAN", "XT_SNAPSHOTS"];
/// The place that only a program has that measures a model.
pub const MODEL_PLACE: &str = "XT_MODEL";
/// Variables that numeric libraries read their number of threads from.
const THREADS: [&str; 3] = ["MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"];
/// Folders of which the sandbox makes its own.
pub const RESERVED: [&str; 4] = ["/dev", "/proc", "/sys", "/xt"];
/// The plan among the inputs of a command.
pub const PLAN: &str = "plan.json";
/// The parameters among the inputs of a command.
pub const PARAMETERS: &str = "parameters.json";
/// The folder of its files among its inputs.
pub const FILES: &str = "files";
/// The folder of its data among its inputs.
pub const DATA: &str = "data";
/// The folder of the model that it measures among its inputs, when it measures one.
pub const MODEL: &str = "model";

/// Everything in the input folder of a command, by name: each input by the digits of its digest, and what points to them.
pub fn input_names(plan: &Plan) -> BTreeSet<String> {
    let model = plan.evaluation.as_ref().map(|_| MODEL);
    let named = [PLAN, PARAMETERS, FILES, DATA].into_iter().chain(model).map(String::from);
    plan.inputs.iter().map(|input| input.digest.hex()).chain(named).collect()
}

/// The members that a command reads: those of its split, or all.
pub fn members<'a>(command: &Command, dataset: Option<&'a Dataset>) -> Vec<&'a Member> {
    let split = command.data.as_ref().and_then(|data| data.split.as_ref());
    let all = dataset.map(|dataset| dataset.members.as_slice()).unwrap_or_default();
    all.iter().filter(|member| split.is_none_or(|split| member.split == *split)).collect()
}

/// Notes what makes a command impossible, alone and with its dataset and intent.
pub fn check(command: &Command, dataset: Option<&Dataset>, intent: &Intent, faults: &mut Faults) {
    check_with(command, dataset, intent, &PLACES, faults);
}

/// The same for a program that knows these places.
pub(crate) fn check_with(
    command: &Command,
    dataset: Option<&Dataset>,
    intent: &Intent,
    places: &[&str],
    faults: &mut Faults,
) {
    let Trainer::Command { executable, arguments, environment, roots, files, threads } = &command.trainer;
    check_path("/trainer/executable", executable, faults);
    for (index, argument) in arguments.iter().enumerate() {
        check_argument(&format!("/trainer/arguments/{index}"), argument, places, faults);
    }
    for (name, value) in environment {
        check_variable(name, value, faults);
    }
    for (index, root) in roots.iter().enumerate() {
        let at = format!("/trainer/roots/{index}/path");
        check_path(&at, &root.path, faults);
        let others = roots.iter().enumerate().filter(|(other, _)| *other != index);
        if let Some((_, other)) = others.into_iter().find(|(_, other)| inside(&root.path, &other.path)) {
            faults.add(at, "command.root", format!("{} lies in {}, which is a root, too", root.path, other.path));
        }
    }
    check_files(files, faults);
    if command.steps == Some(0) {
        faults.add("/steps", "field.range", "expected a number at least 1, or null, found 0");
    }
    check_data(command, dataset, faults);
    envelope::check(intent, faults);
    if intent.resources.cores < *threads {
        let message = format!("{threads} threads do not fit into the {} cores of the intent", intent.resources.cores);
        faults.add("/trainer/threads", "intent.cores", message);
    }
    if let Some(accelerator) = intent.resources.accelerators.first() {
        let message = format!("no device of this version is an accelerator, so {accelerator} cannot be had");
        faults.add("intent#/resources/accelerators/0", "intent.accelerator", message);
    }
}

/// Whether `path` is `folder` or lies below it.
pub fn inside(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check_path(at: &str, path: &str, faults: &mut Faults) {
    let relative = path.strip_prefix('/').ok_or("must be absolute".to_string());
    let sound = relative.and_then(|rest| RelativePath::new(rest).map_err(|error| error.to_string()));
    if let Err(why) = sound {
        faults.add(at, "command.path", format!("{path:?}: {why}"));
    } else if let Some(place) = RESERVED.iter().find(|place| inside(path, place)) {
        faults.add(at, "command.path", format!("{path} lies in {place}, of which the sandbox makes its own"));
    }
}

fn check_argument(at: &str, argument: &str, places: &[&str], faults: &mut Faults) {
    if argument.contains('\0') {
        faults.add(at, "command.argument", "an argument holds no zero character");
    }
    for (_, name) in placeholders(argument) {
        if !places.contains(&name) {
            let message = format!("there is no place ${{{name}}}; the places are {}", places.join(", "));
            faults.add(at, "command.argument", message);
        }
    }
}

/// Every `${XT_…}` in a text: what stands before it, and its name.
fn placeholders(text: &str) -> Vec<(&str, &str)> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(start) = rest.find("${XT_") {
        let tail = &rest[start + 2..];
        let Some(end) = tail.find('}') else { break };
        found.push((&rest[..start], &tail[..end]));
        rest = &tail[end + 1..];
    }
    found
}

/// The argument with every place in it replaced by where it lies.
pub fn expand(argument: &str, places: &BTreeMap<&'static str, String>) -> String {
    let (mut out, mut used) = (String::new(), 0);
    for (before, name) in placeholders(argument) {
        out.push_str(before);
        out.push_str(places.get(name).map_or("", String::as_str));
        used += before.len() + name.len() + 3;
    }
    out + &argument[used..]
}

fn check_variable(name: &str, value: &str, faults: &mut Faults) {
    let at = crate::field::child("/trainer/environment", name);
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if name.is_empty() || !letters || name.as_bytes()[0].is_ascii_digit() {
        faults.add(at.clone(), "command.variable", "a name is made of letters, digits and _ and starts with no digit");
    }
    if let Some(prefix) = ["XT_", "LD_"].iter().find(|prefix| name.starts_with(**prefix)) {
        faults.add(at.clone(), "command.variable", format!("names that begin with {prefix} are not free"));
    }
    if THREADS.contains(&name) {
        faults.add(at.clone(), "command.variable", "follows from `threads`");
    }
    if value.contains('\0') {
        faults.add(at, "command.variable", "a value holds no zero character");
    }
}

fn check_files(files: &BTreeMap<String, Digest>, faults: &mut Faults) {
    for path in files.keys() {
        let at = crate::field::child("/trainer/files", path);
        if let Err(error) = RelativePath::new(path) {
            faults.add(at.clone(), "command.file", error.to_string());
        }
        if let Some(other) = files.keys().find(|other| *other != path && inside(path, other)) {
            faults.add(at, "command.file", format!("{other} is a file, so that nothing lies below it"));
        }
    }
}

fn check_data(command: &Command, dataset: Option<&Dataset>, faults: &mut Faults) {
    let (Some(data), Some(dataset)) = (&command.data, dataset) else {
        if command.data.is_some() != dataset.is_some() {
            faults.add(
                "/data",
                "data.other",
                "the candidate names a dataset, and there is none; or the other way round",
            );
        }
        return;
    };
    let mut found = Faults::new();
    admit::check(dataset, &mut found);
    faults.0.extend(found.within("dataset").0);
    if dataset.id() != data.dataset {
        let message = format!("the candidate names {}, the dataset at hand is {}", data.dataset, dataset.id());
        faults.add("/data/dataset", "data.other", message);
    }
    if let Some(split) = data.split.as_ref().filter(|_| members(command, Some(dataset)).is_empty()) {
        let known: Vec<&str> = dataset.counts.keys().map(String::as_str).collect();
        let message = format!("the dataset has no split {split}; it has {}", known.join(", "));
        faults.add("/data/split", "data.split", message);
    }
}

/// The environment of a command but for the places: numbers of threads, a fixed language and time zone, what it declares,
/// and what it is told of its plan.
pub fn environment(command: &Command, seed: u64) -> BTreeMap<String, String> {
    let Trainer::Command { environment, threads, .. } = &command.trainer;
    let threads = threads.to_string();
    let fixed = [("LC_ALL", "C"), ("TZ", "UTC"), ("OMP_DYNAMIC", "FALSE"), ("MKL_DYNAMIC", "FALSE")];
    let mut all: BTreeMap<String, String> =
        fixed.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    all.extend(environment.clone());
    all.extend(THREADS.map(|name| (name.to_string(), threads.clone())));
    all.extend([
        ("XT_SEED".to_string(), seed.to_string()),
        ("XT_TELEMETRY".to_string(), TELEMETRY.to_string()),
        ("XT_THREADS".to_string(), threads),
    ]);
    all
}

/// The plan of one run of a command. `sizes` gives the bytes of each of its files.
pub fn compile(
    command: Command,
    dataset: Option<Dataset>,
    intent: Intent,
    seed: u64,
    program: Program,
    sizes: &BTreeMap<Digest, u64>,
) -> Result<Plan, Faults> {
    let mut faults = Faults::new();
    check(&command, dataset.as_ref(), &intent, &mut faults);
    check_program(&command, &program, &mut faults);
    let inputs = inputs(&command, dataset.as_ref(), sizes, &mut faults);
    faults.or(())?;
    let steps = command.steps.unwrap_or(0);
    let mut plan = Plan {
        mode: Mode::Mainline,
        fingerprint: fingerprint::command(&command, &program),
        seed,
        inputs,
        fitted: Vec::new(),
        work: Work { tokens: 0, samples_per_epoch: 0, micro_batches_per_epoch: 0, steps },
        environment: environment(&command, seed),
        request: Digest::of(b""),
        program: Some(program),
        evaluation: None,
        departure: None,
        ground: Ground::None {},
        candidate: command.into(),
        dataset,
        intent,
    };
    plan.request = fingerprint::request(&plan);
    Ok(plan)
}

/// What was found on the host must be what the candidate declares.
pub(crate) fn check_program(command: &Command, program: &Program, faults: &mut Faults) {
    let Trainer::Command { executable, roots, .. } = &command.trainer;
    if program.executable.path != *executable {
        let message = format!("the candidate declares {executable}, the plan pins {}", program.executable.path);
        faults.add("/program/executable", "plan.derived", message);
    }
    let declared: Vec<_> = roots.iter().map(|root| (&root.path, root.execute)).collect();
    let pinned: Vec<_> = program.roots.iter().map(|root| (&root.path, root.execute)).collect();
    if declared != pinned {
        faults.add("/program/roots", "plan.derived", "are not those that the candidate declares");
    }
    if !program.libraries.windows(2).all(|pair| pair[0].path < pair[1].path) {
        faults.add("/program/libraries", "plan.derived", "are not sorted by path, each once");
    }
}

/// Every file the program may read beside its roots, once, sorted by digest. A file that is both data and script is
/// listed as data.
pub(crate) fn inputs(
    command: &Command,
    dataset: Option<&Dataset>,
    sizes: &BTreeMap<Digest, u64>,
    faults: &mut Faults,
) -> Vec<Input> {
    let mut all = BTreeMap::new();
    for (path, digest) in command.trainer.files() {
        let Some(bytes) = sizes.get(digest) else {
            let message = format!("the store has no file {digest}; `xt-store put` brings it in");
            faults.add(crate::field::child("/trainer/files", path), "store.missing", message);
            continue;
        };
        all.insert(*digest, Input { digest: *digest, bytes: *bytes, role: Role::File });
    }
    for member in members(command, dataset) {
        all.insert(member.digest, Input { digest: member.digest, bytes: member.bytes, role: Role::Data });
    }
    all.into_values().collect()
}

/// Compiles the plan of a command again from what it says.
pub(crate) fn again(plan: &Plan, command: &Command) -> Result<Plan, Faults> {
    let Some(program) = plan.program.clone() else {
        return Err(Faults::one("/program", "plan.derived", "a command has a program"));
    };
    let sizes = plan.inputs.iter().map(|input| (input.digest, input.bytes)).collect();
    compile(command.clone(), plan.dataset.clone(), plan.intent.clone(), plan.seed, program, &sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::canonical::parse;
    use crate::manifest::command::{Hypothesis, Pin, PinnedRoot};

    const COMMAND: &str = r#"{"schema":"xt.candidate/1","name":"fit",
        "trainer":{"kind":"command","executable":"/usr/bin/python3","arguments":["-I","${XT_FILES}/fit.py"],
            "environment":{"PYTHONHASHSEED":"0"},"roots":[{"path":"/usr/lib/python3.11","execute":false}],
            "files":{"fit.py":"FIT"},"threads":1},
        "parameters":{"rate":0.1,"layers":[4,2]},"data":null,"steps":3,"regime":"exact"}"#;

    fn fit() -> Digest {
        Digest::of(b"fit")
    }

    fn program() -> Program {
        let pin = |path: &str| Pin { path: path.into(), digest: Digest::of(path.as_bytes()) };
        let root = PinnedRoot {
            path: "/usr/lib/python3.11".into(),
            digest: Digest::of(b"root"),
            execute: false,
            files: 1,
            bytes: 2,
        };
        Program {
            executable: pin("/usr/bin/python3"),
            libraries: [pin("/lib/a"), pin("/lib/b")].into(),
            roots: [root].into(),
        }
    }

    fn read(changes: &[(&str, &str)]) -> Result<Hypothesis, Faults> {
        let mut text = COMMAND.replace("FIT", &fit().to_string());
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        Hypothesis::decode(&parse(text.as_bytes()).unwrap())
    }

    fn plan(changes: &[(&str, &str)], seed: u64, program: Program) -> Result<Plan, Faults> {
        let Hypothesis::Command(command) = read(changes)? else { panic!("a command") };
        compile(*command, None, Intent::default_for(1), seed, program, &[(fit(), 3)].into())
    }

    fn pointers<T>(result: Result<T, Faults>) -> Vec<String> {
        result.err().unwrap_or_default().0.into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn a_command_becomes_a_plan_that_follows_from_itself() {
        let plan = plan(&[], 7, program()).unwrap();
        assert_eq!(crate::verb::compile::check_plan(&plan), Ok(()));
        assert_eq!(plan.environment["XT_SEED"], "7");
        assert_eq!(plan.environment["PYTHONHASHSEED"], "0");
        assert_eq!(plan.inputs, [Input { digest: fit(), bytes: 3, role: Role::File }]);
        let mut edited = plan.clone();
        edited.environment.insert("LD_PRELOAD".into(), "x".into());
        assert_eq!(pointers(crate::verb::compile::check_plan(&edited)), ["/environment", "/request"]);
    }

    #[test]
    fn what_belongs_to_the_other_form_is_refused_by_name() {
        let model = ("\"steps\":3", "\"steps\":3,\"model\":{\"kind\":\"gpt\"},\"optimizer\":{}");
        assert_eq!(pointers(read(&[model])), ["/model", "/optimizer"]);
        assert_eq!(pointers(read(&[("\"kind\":\"command\"", "\"kind\":\"native\"")])), ["/trainer/kind"]);
        assert_eq!(pointers(read(&[("\"steps\":3,", "")])), ["/steps"]);
    }

    #[test]
    fn everything_that_cannot_be_honoured_is_refused_at_once() {
        let changes = [
            ("/usr/bin/python3", "usr/../python3"),
            ("${XT_FILES}", "${XT_FLIES}"),
            ("PYTHONHASHSEED", "LD_PRELOAD"),
            ("{\"path\":\"/usr/lib/python3.11\",\"execute\":false}", "{\"path\":\"/proc/1\",\"execute\":true}"),
            ("\"fit.py\":", "\"../fit.py\":"),
            ("\"threads\":1", "\"threads\":2"),
        ];
        let found = pointers(plan(&changes, 1, program()));
        let expected = [
            "/trainer/executable",
            "/trainer/arguments/1",
            "/trainer/environment/LD_PRELOAD",
            "/trainer/roots/0/path",
            "/trainer/files/..~1fit.py",
            "/trainer/threads",
            "/program/executable",
            "/program/roots",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_bytes_of_the_program_are_identity_and_name_and_seed_are_not() {
        let base = plan(&[], 1, program()).unwrap();
        assert_eq!(plan(&[("\"fit\"", "\"other\"")], 2, program()).unwrap().fingerprint, base.fingerprint);
        assert_ne!(plan(&[], 2, program()).unwrap().request, base.request);
        let mut others = [program(), program(), program()];
        others[0].executable.digest = Digest::of(b"x");
        others[1].libraries[1].digest = Digest::of(b"x");
        others[2].roots[0].digest = Digest::of(b"x");
        for other in others {
            assert_ne!(plan(&[], 1, other).unwrap().fingerprint, base.fingerprint);
        }
        for change in [
            ("\"-I\"", "\"-i\""),
            ("\"PYTHONHASHSEED\":\"0\"", "\"PYTHONHASHSEED\":\"1\""),
            ("\"rate\":0.1", "\"rate\":0.2"),
            ("\"steps\":3", "\"steps\":null"),
            ("fit.py\":", "fut.py\":"),
        ] {
            assert_ne!(plan(&[change], 1, program()).unwrap().fingerprint, base.fingerprint, "{change:?}");
        }
    }

    #[test]
    fn places_in_arguments_are_replaced_and_other_dollars_stay() {
        let places = BTreeMap::from([("XT_FILES", "/xt/in/files".to_string()), ("XT_DATA", "/d".to_string())]);
        assert_eq!(expand("${XT_FILES}/a=${XT_DATA}$x${HOME}", &places), "/xt/in/files/a=/d$x${HOME}");
        assert_eq!(expand("plain", &places), "plain");
    }
}
