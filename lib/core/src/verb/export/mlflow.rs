//! The files of MLflow's tracking store in a folder: <https://mlflow.org/docs/latest/self-hosting/architecture/backend-store>.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Curves, File, csv, number};
use crate::digest::Digest;
use crate::fault::Faults;
use crate::instant::Instant;

/// A folder for the experiment and in it one for the run, with metadata, tags, parameters and one file of
/// `TIME VALUE STEP` a metric; times are milliseconds since 1970. `folder` is where it will lie, as an absolute path. The
/// ids follow from the names, so an export that is made again takes the place of the earlier one.
pub fn mlflow(curves: &Curves, folder: &str) -> Result<Vec<File>, Faults> {
    curves.check_names()?;
    let experiment = experiment_id(curves.experiment.as_str());
    let run: String = Digest::of(curves.attempt.as_str().as_bytes()).hex().chars().take(32).collect();
    let mut files = Vec::from([
        File::text(format!("{experiment}/meta.yaml"), &about_experiment(curves, folder, &experiment)),
        File::text(format!("{experiment}/{run}/meta.yaml"), &about_run(curves, folder, &experiment, &run)),
    ]);
    let tags = [
        ("mlflow.runName", curves.attempt.as_str()),
        ("mlflow.source.name", "xt-run"),
        ("mlflow.source.type", "LOCAL"),
    ];
    for (name, value) in tags {
        files.push(File::text(format!("{experiment}/{run}/tags/{name}"), value));
    }
    for (name, value) in &curves.parameters {
        files.push(File::text(format!("{experiment}/{run}/params/{name}"), value));
    }
    // MLflow takes a folder without artifacts for no run.
    files.push(File::text(format!("{experiment}/{run}/artifacts/steps.csv"), &csv(curves)));
    for name in curves.names() {
        let line = |(point, value)| format!("{} {} {}\n", curves.milliseconds(point), number(value), point.step);
        let lines: String = curves.curve(name).map(line).collect();
        files.push(File::text(format!("{experiment}/{run}/metrics/{name}"), &lines));
    }
    Ok(files)
}

/// Eighteen digits, as MLflow makes them, from the name.
fn experiment_id(name: &str) -> String {
    let digest = Digest::of(name.as_bytes());
    let word = digest.bytes().iter().take(8).fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    (100_000_000_000_000_000 + word % 900_000_000_000_000_000).to_string()
}

/// A text as YAML takes it literally.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn about_experiment(curves: &Curves, folder: &str, experiment: &str) -> String {
    let created = curves.started.unix() * 1000;
    format!(
        "artifact_location: {}\ncreation_time: {created}\nexperiment_id: '{experiment}'\nlast_update_time: {created}\n\
         lifecycle_stage: active\nname: {}\n",
        quoted(&format!("{folder}/{experiment}")),
        quoted(curves.experiment.as_str()),
    )
}

/// Status 1 is running, 3 finished, 4 failed; source type 4 is a program on this machine.
fn about_run(curves: &Curves, folder: &str, experiment: &str, run: &str) -> String {
    let ended = |(at, _): (Instant, bool)| (at.unix() * 1000).to_string();
    let status = match curves.ended {
        None => 1,
        Some((_, true)) => 3,
        Some((_, false)) => 4,
    };
    format!(
        "artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '{experiment}'\nlifecycle_stage: active\n\
         run_id: {run}\nrun_name: {}\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: {}\nstatus: {status}\n\
         tags: []\nuser_id: xt\n",
        quoted(&format!("{folder}/{experiment}/{run}/artifacts")),
        curves.ended.map_or_else(|| "null".into(), ended),
        quoted(curves.attempt.as_str()),
        curves.started.unix() * 1000,
    )
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn a_run_lies_in_its_experiment_with_times_in_milliseconds() {
        let files = mlflow(&example(), "/tmp/it's").unwrap();
        let read = |end: &str| {
            let file = files.iter().find(|file| file.path.ends_with(end)).unwrap();
            String::from_utf8(file.bytes.clone()).unwrap()
        };
        assert_eq!(read("metrics/loss"), "1700000001500 2.5 1\n1700000004500 0.1 3\n");
        assert_eq!((read("params/seed"), read("tags/mlflow.runName")), ("1".into(), "att-1".into()));
        let run = files.iter().find(|file| file.path.matches('/').count() == 2 && file.path.ends_with("meta.yaml"));
        let run = String::from_utf8(run.unwrap().bytes.clone()).unwrap();
        assert!(run.contains("end_time: 1700000060000\n") && run.contains("status: 3\n"), "{run}");
        assert!(run.contains("artifact_uri: '/tmp/it''s/"), "{run}");
        let again = mlflow(&example(), "/tmp/it's").unwrap();
        assert_eq!(files, again);
        let mut other = example();
        other.attempt = crate::name::Name::new("att-2").unwrap();
        assert_ne!(mlflow(&other, "/tmp/it's").unwrap()[1].path, files[1].path);
    }
}
