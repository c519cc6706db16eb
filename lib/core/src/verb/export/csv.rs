//! A table, one row a step.

use alloc::string::{String, ToString};

use super::{Curves, number};

/// A table in the form of RFC 4180, with lines that end in a line feed: step, seconds since the run began, and a column for
/// each name. A cell of a value that was not measured or not finite is empty.
pub fn csv(curves: &Curves) -> String {
    let names = curves.names();
    let mut table = String::from("step,seconds");
    for name in &names {
        table.push(',');
        table.push_str(&cell(name));
    }
    table.push('\n');
    for point in &curves.points {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let seconds = point.elapsed as f64 / 1e9;
        table.push_str(&point.step.to_string());
        table.push(',');
        table.push_str(&number(seconds));
        for name in &names {
            table.push(',');
            let value = point.values.iter().find(|(found, _)| found == name);
            table.push_str(&value.map(|(_, value)| number(*value)).unwrap_or_default());
        }
        table.push('\n');
    }
    table
}

fn cell(text: &str) -> String {
    if !text.contains([',', '"', '\n', '\r']) {
        return text.into();
    }
    let mut quoted = String::from("\"");
    quoted.push_str(&text.replace('"', "\"\""));
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn a_table_has_a_row_a_step_and_an_empty_cell_for_what_was_not_measured() {
        let mut curves = example();
        let expected = "step,seconds,loss,train/rate\n1,1.5,2.5,1e-7\n2,3.0,,1e-7\n3,4.5,0.1,3e16\n";
        assert_eq!(csv(&curves), expected);
        curves.points.truncate(1);
        curves.points[0].values = alloc::vec![("a,\"b\"".into(), 1.0)];
        assert_eq!(csv(&curves), "step,seconds,\"a,\"\"b\"\"\"\n1,1.5,1.0\n");
    }
}
