//! The files of DVCLive 3: <https://doc.dvc.org/dvclive>.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Curves, File, number};
use crate::fault::Faults;

/// One `plots/metrics/NAME.tsv` a name, with the columns `step` and the last part of the name, and `metrics.json` with the
/// last value of each.
pub fn dvclive(curves: &Curves) -> Result<Vec<File>, Faults> {
    curves.check_names()?;
    let mut files = Vec::new();
    let mut last = Tree::default();
    for name in curves.names() {
        let head = format!("step\t{}\n", name.rsplit('/').next().unwrap_or(name));
        let rows = curves.curve(name).map(|(point, value)| format!("{}\t{}\n", point.step, number(value)));
        let table: String = [head].into_iter().chain(rows).collect();
        if let Some((_, value)) = curves.curve(name).last() {
            last.put(name, number(value));
        }
        files.push(File::text(format!("plots/metrics/{name}.tsv"), &table));
    }
    if let Some(point) = curves.points.last() {
        last.put("step", point.step.to_string());
    }
    files.push(File::text("metrics.json", &(last.json(1) + "\n")));
    Ok(files)
}

/// Numbers by the parts of their names.
#[derive(Debug, Default)]
struct Tree {
    value: Option<String>,
    below: BTreeMap<String, Tree>,
}

impl Tree {
    fn put(&mut self, name: &str, value: String) {
        let place = name.split('/').fold(self, |tree, part| tree.below.entry(part.into()).or_default());
        place.value = Some(value);
    }

    fn json(&self, depth: usize) -> String {
        if let Some(value) = &self.value {
            return value.clone();
        }
        let indent = "    ".repeat(depth);
        // The names are plain: nothing in them needs to be escaped.
        let fields: Vec<String> =
            self.below.iter().map(|(part, tree)| format!("{indent}\"{part}\": {}", tree.json(depth + 1))).collect();
        format!("{{\n{}\n{}}}", fields.join(",\n"), "    ".repeat(depth - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn each_curve_is_a_table_and_the_last_values_are_one_document() {
        let files = dvclive(&example()).unwrap();
        let read = |path: &str| {
            let file = files.iter().find(|file| file.path == path).unwrap();
            String::from_utf8(file.bytes.clone()).unwrap()
        };
        assert_eq!(files.len(), 3);
        assert_eq!(read("plots/metrics/loss.tsv"), "step\tloss\n1\t2.5\n3\t0.1\n");
        assert_eq!(read("plots/metrics/train/rate.tsv"), "step\trate\n1\t1e-7\n2\t1e-7\n3\t3e16\n");
        let expected = "{\n    \"loss\": 0.1,\n    \"step\": 3,\n    \"train\": {\n        \"rate\": 3e16\n    }\n}\n";
        assert_eq!(read("metrics.json"), expected);
    }
}
