//! Programs of the host that measure frozen bundles: compiled, run in custody, held to what an evaluation may say, refused.
#![allow(clippy::unwrap_used)]

use std::fs;

use xt_core::canonical::{Value, parse};
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::evaluation::{Determinism, Evaluation};
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::run::{Run, Status};
use xt_harness::{Folder, Outcome, programs};
use xt_store::Store;

/// What is trained: a shell script whose model is one number.
const TRAINER: &str = r#"{"schema":"xt.candidate/1","name":"constant",
    "trainer":{"kind":"command","executable":"/bin/sh","arguments":["-eu","${XT_FILES}/train.sh"],"environment":{},
        "roots":[],"files":{"train.sh":"SCRIPT"},"threads":1},
    "parameters":{},"data":{"dataset":"DATASET","split":null},"steps":null,"regime":"exact"}"#;

/// What measures it: the share of lines of the held-out files that are longer than the model says. It tries to change the
/// model first, which it must not be able to.
const MEASURE: &str = r#"
    read -r length < "$XT_MODEL/outputs/model"
    if (echo 99 > "$XT_MODEL/outputs/model") 2> /dev/null; then exit 9; fi
    all=0; long=0
    for file in "$XT_DATA"/*; do
        while read -r line; do
            all=$((all + 1))
            if [ "${#line}" -gt "$length" ]; then long=$((long + 1)); fi
        done < "$file"
    done
    /usr/bin/mkdir evaluation
    share=$((100 * long / all))
    printf '{"schema":"xt.metrics/1","evaluator":{"name":"lines","version":"1","determinism":"deterministic"},
        "metrics":[{"name":"long","slice":null,"value":%s.0,"sample_count":%s,"standard_error":null,"interval":null}]}' \
        "$share" "$all" > evaluation/metrics.json
"#;

const SPEC: &str = r#"{"schema":"xt.evaluation-spec/1","name":"held-out",
    "evaluator":{"kind":"command","name":"lines","version":"1","determinism":"deterministic",
        "metrics":["long"],"samples":null,"confidence":null,"program":{"kind":"command","executable":"/bin/sh","arguments":["-eu","${XT_FILES}/measure.sh"],"environment":{},
            "roots":[{"path":"/usr/bin/head","execute":true},{"path":"/usr/bin/mkdir","execute":true}],"files":{"measure.sh":"SCRIPT"},"threads":1},"settings":{}},
    "parameters":"trained","data":{"dataset":"DATASET","split":"train"},"slices":"none",
    "leakage":{"minimum_bytes":4,"shared":"refuse"},"seed":11}"#;

struct World {
    folder: Folder,
    bundle: String,
}

impl World {
    /// A frozen model, held-out data, and a spec with this script.
    fn new(script: &str) -> Self {
        let folder = Folder::new();
        folder.write("train/a.txt", "a line that was trained on\n");
        folder.write("held/b.txt", "a short one\nanother that is quite a bit longer\nthird\nthe fourth of them all\n");
        let store = Store::open_or_create(&folder.at(".xt")).unwrap();
        let put = |text: &str| store.put(text.as_bytes()).unwrap().to_string();
        let id = |name: &str| folder.xt("compile").args(["dataset", name]).run().expect(0).text("/id");
        let candidate = TRAINER.replace("SCRIPT", &put("echo 15 > model")).replace("DATASET", &id("train"));
        folder.write("candidate.json", candidate);
        folder.write("spec.json", SPEC.replace("SCRIPT", &put(script)).replace("DATASET", &id("held")));
        let line = "xt-compile candidate.json | xt-run > run.json; xt-freeze run.json";
        let bundle = folder.sh(line).run().expect(0).stdout;
        Self { folder, bundle }
    }

    fn change(&self, from: &str, to: &str) {
        let spec = fs::read_to_string(self.folder.at("spec.json")).unwrap();
        assert!(spec.contains(from), "{from} in {spec}");
        self.folder.write("spec.json", spec.replace(from, to));
    }

    fn compile(&self) -> Outcome {
        self.folder.xt("compile").args(["evaluate", "spec.json"]).input(self.bundle.clone()).run()
    }

    fn run(&self) -> Outcome {
        self.folder.xt("run").input(self.compile().expect(0).stdout).run()
    }

    fn evaluations(&self) -> usize {
        let names = Store::open(&self.folder.at(".xt")).unwrap().references().unwrap();
        names.into_iter().filter(|reference| reference.name.as_str().starts_with("evaluations/")).count()
    }
}

#[test]
fn a_program_measures_a_bundle_in_custody_and_again_the_same() {
    let world = World::new(MEASURE);
    let evaluation = Evaluation::decode(&world.run().expect(0).document()).unwrap();
    assert_eq!(evaluation.evaluator.determinism, Determinism::Deterministic);
    let metric = &evaluation.metrics[0];
    assert_eq!((metric.name.as_str(), metric.value.get().to_bits(), metric.sample_count), ("long", 50f64.to_bits(), 4));
    assert_eq!((evaluation.confidence, evaluation.samples, evaluation.subject.name.as_str()), (None, None, "constant"));
    let store = Store::open(&world.folder.at(".xt")).unwrap();
    let (run, plan): (Run, Plan) = (store.manifest(evaluation.run).unwrap(), store.manifest(evaluation.plan).unwrap());
    assert_eq!((run.mode, run.status, run.trace), (Mode::Evaluation, Status::Succeeded, None));
    assert_eq!(
        plan.evaluation.unwrap().files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(),
        ["outputs/model"]
    );
    assert!(run.custody.is_some() && plan.program.is_some());
    let again = Evaluation::decode(&world.run().expect(0).document()).unwrap();
    assert_eq!((again.measured, again.fingerprint), (evaluation.measured, evaluation.fingerprint));
    // The controls: other settings and another script are measured otherwise, and say so.
    world.change("\"settings\":{}", "\"settings\":{\"x\":1}");
    let other = Evaluation::decode(&world.run().expect(0).document()).unwrap();
    assert_ne!(other.fingerprint, evaluation.fingerprint);
    assert_eq!((other.measured, world.evaluations()), (evaluation.measured, 3));
    let strange = World::new(&MEASURE.replace("-gt", "-lt"));
    let other = Evaluation::decode(&strange.run().expect(0).document()).unwrap();
    assert_ne!((other.measured, other.fingerprint), (evaluation.measured, evaluation.fingerprint));
}

/// The line of the design with programs at both ends: an objective is met by what a program measured.
#[test]
fn what_a_program_measured_is_decided_on_like_anything_else() {
    let world = World::new(MEASURE);
    let objective = r#"{"primary":{"name":"long","direction":"maximize"},"target":40.0,"constraints":[]}"#;
    world.folder.write("objective.json", objective);
    world.folder.write("bundle.json", &world.bundle);
    let line = "xt-log experiment new objective.json --name lines > /dev/null
        xt-compile candidate.json | xt-run --experiment lines > /dev/null
        xt-compile evaluate --experiment lines spec.json bundle.json | xt-run > /dev/null
        xt-decide context lines | xt-decide --record";
    assert_eq!(world.folder.sh(line).run().expect(0).text("/outcome"), "STOP_SUCCEEDED");
}

#[test]
fn metrics_that_are_none_fail_the_run_and_leave_no_evaluation() {
    let error = "\"standard_error\":null";
    for (from, to, cause) in [
        ("share=$((100 * long / all))", "share=NaN", "evaluation/metrics.json"),
        ("\"value\":%s.0", "\"value\":1e999%.0s", "evaluation/metrics.json"),
        ("\"value\":%s.0", "\"value\":null,\"was\":%s.0", "evaluation/metrics.json"),
        ("\"$share\" \"$all\"", "\"$share\" 0", "sample_count"),
        ("\"$share\" \"$all\"", "\"$share\" 1000", "evaluation.count"),
        ("\"name\":\"long\"", "\"name\":\"short\"", "evaluation.missing"),
        (error, "\"standard_error\":-0.5", "standard_error"),
        ("\"interval\":null", "\"interval\":[0.0,1.0]", "evaluation.uncertainty"),
        ("printf", "/usr/bin/head -c 70000000 /dev/urandom > evaluation/metrics.json; exit 0; printf", "longer than"),
        ("printf", ": > evaluation/metrics.json; exit 0; printf", "evaluation/metrics.json"),
        ("\"name\":\"lines\"", "\"name\":\"other\"", "evaluation.evaluator"),
        ("\"slice\":null", "\"slice\":\"b.txt\"", "evaluation.slice"),
        ("> evaluation/metrics.json", "> metrics.json", "there is no evaluation/metrics.json"),
        ("/usr/bin/mkdir evaluation", "/usr/bin/mkdir evaluation; exit 3", "exited with code 3"),
    ] {
        assert!(MEASURE.contains(from), "{from}");
        let world = World::new(&MEASURE.replace(from, to));
        let failed = world.run().expect(14);
        let run = Run::decode(&failed.document()).unwrap();
        assert!(run.cause.contains(cause), "{cause}: {}", run.cause);
        let place = world.folder.path().to_string_lossy().into_owned();
        assert!(!run.cause.contains("damaged") && !run.cause.contains(&place), "{}", run.cause);
        assert_eq!((run.status, world.evaluations()), (Status::Failed, 0));
    }
}

#[test]
fn a_value_outside_of_its_own_interval_is_no_measurement() {
    for (interval, holds) in [("[0.0,49.5]", false), ("[50.5,60.0]", false), ("[50.0,60.0]", true)] {
        let world = World::new(&MEASURE.replace("\"interval\":null", &format!("\"interval\":{interval}")));
        world.change("\"confidence\":null", "\"confidence\":0.95");
        let run = world.run();
        assert_eq!((run.code, world.evaluations()), if holds { (Some(0), 1) } else { (Some(14), 0) }, "{}", run.stderr);
        assert_eq!(run.stderr.contains("lies outside of its own interval"), !holds, "{}", run.stderr);
    }
}

/// The files of a program have a form of their own: what is written for others claims none.
#[test]
fn an_image_and_a_bill_of_a_program_s_model_claim_no_form_that_they_do_not_know() {
    let world = World::new(MEASURE);
    let id = parse(world.bundle.as_bytes()).unwrap().get("id").and_then(Value::as_str).unwrap().to_string();
    world.folder.xt("freeze").args(["export", "--format", "oci", &id, "image"]).run().expect(0);
    let blobs = fs::read_dir(world.folder.at("image/blobs/sha256")).unwrap();
    let texts: Vec<String> = blobs.filter_map(|blob| fs::read_to_string(blob.unwrap().path()).ok()).collect();
    let config = texts.iter().find(|text| text.contains("\"modelfs\"")).unwrap();
    assert!(!config.contains("safetensors") && !config.contains("undeclared"), "{config}");
    world.folder.xt("freeze").args(["export", "--mlbom", &id, "out"]).run().expect(0);
    let bill = parse(&fs::read(world.folder.at("out/bom.cdx.json")).unwrap()).unwrap();
    assert_eq!(bill.pointer("/metadata/component/modelCard/modelParameters/architectureFamily"), None);
    assert!(bill.pointer("/metadata/component/modelCard/modelParameters/datasets").is_some());
}

#[test]
fn what_rests_on_something_withdrawn_is_told_when_it_is_compiled_measured_and_run() {
    let world = World::new(MEASURE);
    let plan = world.folder.xt("compile").arg("candidate.json").run().expect(0);
    assert!(!plan.stderr.contains("withdrawn"), "the control: {}", plan.stderr);
    let data = Digest::of(b"a line that was trained on\n").to_string();
    world.folder.xt("log").args(["withdraw", &data, "--why", "mislabelled"]).run().expect(0);
    let again = world.folder.xt("compile").arg("candidate.json").run();
    let measuring = world.compile();
    let run = world.folder.xt("run").input(plan.stdout.clone()).run();
    for told in [again, measuring, run] {
        let told = told.expect(0);
        let says = format!("rests on {data}, which was withdrawn: mislabelled");
        assert!(told.stderr.contains(&says), "{}", told.stderr);
    }
}

/// The numbers that the spec promises: a wrong one is no measurement.
#[test]
fn another_number_of_samples_than_the_spec_promises_fails_the_run() {
    let world = World::new(MEASURE);
    world.change("\"samples\":null", "\"samples\":4");
    world.run().expect(0);
    world.change("\"samples\":4", "\"samples\":5");
    let run = Run::decode(&world.run().expect(14).document()).unwrap();
    assert!(run.cause.contains("promises 5 samples, found 4"), "{}", run.cause);
    assert_eq!(world.evaluations(), 1);
}

#[test]
fn each_slice_has_to_be_measured_and_no_slice_has_more_samples_than_everything() {
    let sliced = MEASURE.replace("\"interval\":null}", "\"interval\":null},
        {\"name\":\"long\",\"slice\":\"b.txt\",\"value\":0.5,\"sample_count\":SLICED,\"standard_error\":null,\"interval\":null}");
    for (script, cause) in [
        (sliced.replace("SLICED", "4"), None),
        (sliced.replace("SLICED", "5"), Some("5 samples in a slice, and 4 in everything")),
        (MEASURE.to_string(), Some("\"long\" over the slice \"b.txt\" was promised and is not there")),
    ] {
        let world = World::new(&script);
        world.change("\"slices\":\"none\"", "\"slices\":\"member\"");
        let Some(cause) = cause else {
            let evaluation = Evaluation::decode(&world.run().expect(0).document()).unwrap();
            assert_eq!(evaluation.metrics[1].slice.as_deref(), Some("b.txt"));
            continue;
        };
        let run = Run::decode(&world.run().expect(14).document()).unwrap();
        assert!(run.cause.contains(cause), "{cause}: {}", run.cause);
        assert_eq!(world.evaluations(), 0);
    }
}

#[test]
fn a_spec_that_cannot_be_honoured_is_refused_with_every_reason_at_once() {
    let world = World::new(MEASURE);
    world.change("/bin/sh", "bin/sh");
    world.change("${XT_FILES}", "${XT_FLIES}");
    world.change("\"parameters\":\"trained\"", "\"parameters\":\"averaged\"");
    world.change("\"version\":\"1\"", "\"version\":\"\"");
    world.change("\"split\":\"train\"", "\"split\":\"test\"");
    world.change("\"metrics\":[\"long\"]", "\"metrics\":[\"long\",\"\",\"long\"]");
    world.folder.write("intent.json", intent(1));
    world.change("\"threads\":1", "\"threads\":99");
    let refused = world.folder.xt("compile").args(["evaluate", "spec.json", "--intent", "intent.json"]);
    let refused = refused.input(world.bundle.clone()).run().expect(10);
    for pointer in [
        "/evaluator/program/executable",
        "/evaluator/program/arguments/1",
        "/evaluator/program/threads",
        "/evaluator/version",
        "/evaluator/metrics/1",
        "/evaluator/metrics/2",
        "/parameters",
        "/data/split",
    ] {
        assert!(refused.stderr.contains(pointer), "{pointer}: {}", refused.stderr);
    }
    assert!(refused.stdout.is_empty());
    // Nothing to measure on, and a program that is not there.
    let world = World::new(MEASURE);
    world.change("/bin/sh", "/bin/no-such-shell");
    let refused = world.compile().expect(10);
    assert!(refused.stderr.contains("/evaluator/program/executable"), "{}", refused.stderr);
    world.change("/bin/no-such-shell", "/bin/sh");
    world.change("[\"long\"]", "[]");
    let refused = world.compile().expect(10);
    assert!(refused.stderr.contains("evaluation.empty"), "{}", refused.stderr);
}

/// A place that only a program which measures has; and a program that measures has it although it trains nothing.
#[test]
fn the_folder_of_the_model_is_no_place_of_a_program_that_trains() {
    let world = World::new(MEASURE);
    let candidate = fs::read_to_string(world.folder.at("candidate.json")).unwrap();
    world.folder.write("other.json", candidate.replace("${XT_FILES}", "${XT_MODEL}"));
    let refused = world.folder.xt("compile").arg("other.json").run().expect(10);
    assert!(refused.stderr.contains("there is no place ${XT_MODEL}"), "{}", refused.stderr);
    world.change("\"${XT_FILES}/measure.sh\"", "\"${XT_FILES}/measure.sh\",\"${XT_MODEL}\"");
    world.run().expect(0);
}

fn intent(cores: u64) -> String {
    xt_core::manifest::intent::Intent::default_for(cores).encode().canonical()
}

#[test]
fn lines_that_were_trained_on_are_refused_unless_the_spec_discloses_them() {
    let world = World::new(MEASURE);
    world.folder.write("held/b.txt", "a line that was trained on\nanother that is new\n");
    let held = world.folder.xt("compile").args(["dataset", "held"]).run().expect(0).text("/id");
    let spec = parse(&fs::read(world.folder.at("spec.json")).unwrap()).unwrap();
    let before = spec.pointer("/data/dataset").and_then(Value::as_str).unwrap().to_string();
    world.change(&before, &held);
    let refused = world.compile().expect(10);
    assert!(refused.stderr.contains("evaluation.leakage"), "{}", refused.stderr);
    world.change("\"shared\":\"refuse\"", "\"shared\":\"disclose\"");
    let evaluation = Evaluation::decode(&world.run().expect(0).document()).unwrap();
    assert_eq!((evaluation.overlap.examples, evaluation.overlap.shared_examples), (2, 1));
}

/// What the host's python3 measures, with its standard library and nothing else of the host.
#[test]
fn a_program_in_python_measures_with_its_standard_library() {
    let python = "/usr/bin/python3";
    let Ok(found) = fs::canonicalize(python) else {
        println!("not run here: there is no {python}");
        return;
    };
    let script = r#"
import json, os, pathlib, statistics
length = int(pathlib.Path(os.environ["XT_MODEL"], "outputs/model").read_text())
lines = [line for file in sorted(pathlib.Path(os.environ["XT_DATA"]).iterdir()) for line in file.read_text().splitlines()]
long = [float(len(line) > length) for line in lines]
error = statistics.stdev(long) / len(long) ** 0.5
metric = {"name": "long", "slice": None, "value": statistics.mean(long), "sample_count": len(long),
          "standard_error": error, "interval": None}
evaluator = {"name": "lines", "version": "1", "determinism": "deterministic"}
pathlib.Path("evaluation").mkdir()
text = json.dumps({"schema": "xt.metrics/1", "evaluator": evaluator, "metrics": [metric]})
pathlib.Path("evaluation/metrics.json").write_text(text)
"#;
    let ask = "import os, sysconfig; print(os.path.realpath(sysconfig.get_path('stdlib')))";
    let asked = std::process::Command::new(python).args(["-I", "-c", ask]).output().unwrap();
    let library = String::from_utf8(asked.stdout).unwrap().trim().to_string();
    let world = World::new(script);
    world.change("/bin/sh", found.to_str().unwrap());
    world.change("\"-eu\"", "\"-S\",\"-B\"");
    world.change("\"roots\":[", &format!("\"roots\":[{{\"path\":\"{library}\",\"execute\":false}},"));
    let evaluation = Evaluation::decode(&world.run().expect(0).document()).unwrap();
    let metric = &evaluation.metrics[0];
    assert_eq!(metric.value.get().to_bits(), 0.5f64.to_bits());
    let error = metric.standard_error.unwrap().get();
    assert!((error - (1.0f64 / 3.0).sqrt() / 2.0).abs() < 1e-12, "{error}");
    assert!(programs().join("xt-run").is_file());
}
