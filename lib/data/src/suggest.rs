//! A declaration to start from, for files of rows: what each column of a table holds, the shape and the classes of images, the
//! names of tensors. It says what the files at hand are; a person decides whether that is what is meant.

use std::collections::{BTreeMap, BTreeSet};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use xt_core::fault::Faults;
use xt_core::manifest::candidate::Tokenizer;
use xt_core::manifest::dataset::Format;
use xt_core::manifest::encoding::{Augmentation, Column, Holds, Missing, NonFiniteCells, Scaling};

use crate::image::{self, Survey};
use crate::rows::shorten;
use crate::{table, tensors};

/// A text with more distinct values than this is no category.
const LEVELS: usize = 256;

/// What files (path and bytes) of this form would be declared as; `target` names the column or tensor that is predicted.
/// Every reason why they cannot be is told.
pub fn suggest(format: Format, files: &[(&str, Vec<u8>)], target: Option<&str>) -> Result<Tokenizer, Faults> {
    let mut faults = Faults::new();
    let found = match format {
        Format::Csv => of_tables(files, target, &mut faults),
        Format::Safetensors => of_tensors(files, target, &mut faults),
        Format::Idx | Format::Npy | Format::Png => {
            if let Some(target) = target {
                let message =
                    format!("images have classes and no target {target:?}: only tables and tensors have names");
                faults.add("/tokenizer", "column.target", message);
            }
            of_images(format, files, &mut faults)
        }
        Format::Text | Format::Bytes | Format::Jsonl => {
            let message = format!("the dataset holds {format}, which has no rows of numbers");
            faults.add("/tokenizer", "tokenizer.format", message);
            None
        }
    };
    shorten(&mut faults);
    match found {
        Some(found) if faults.is_empty() => Ok(found),
        _ => Err(faults),
    }
}

/// What was seen of a column.
#[derive(Debug, Default)]
struct Cells {
    rows: usize,
    /// Distinct cells that are not empty.
    distinct: BTreeSet<String>,
    text: bool,
    empty: bool,
    non_finite: bool,
}

impl Cells {
    fn see(&mut self, cell: &str) {
        self.rows += 1;
        if cell.is_empty() {
            self.empty = true;
            return;
        }
        match table::number(cell, NonFiniteCells::Keep) {
            Ok(value) => self.non_finite |= !value.is_finite(),
            Err(_) => self.text = true,
        }
        self.distinct.insert(cell.into());
    }

    const fn non_finite(&self) -> NonFiniteCells {
        if self.non_finite { NonFiniteCells::Keep } else { NonFiniteCells::Refuse }
    }

    fn levels(self) -> Vec<String> {
        self.distinct.into_iter().collect()
    }

    /// What it holds beside the target; `named` tells whether another column names the rows already.
    fn holds(self, named: bool) -> Holds {
        let missing = if self.empty { Missing::Fill } else { Missing::Refuse };
        match self.distinct.len() {
            0 => Holds::Ignored {},
            _ if !self.text => Holds::Number { missing, non_finite: self.non_finite() },
            all if all > 1 && all == self.rows => {
                if named {
                    Holds::Ignored {}
                } else {
                    Holds::Id {}
                }
            }
            2..=LEVELS => Holds::Category { levels: self.levels(), missing },
            _ => Holds::Ignored {},
        }
    }
}

fn of_tables(files: &[(&str, Vec<u8>)], target: Option<&str>, faults: &mut Faults) -> Option<Tokenizer> {
    let mut order: Vec<String> = Vec::new();
    let mut cells: BTreeMap<String, Cells> = BTreeMap::new();
    for (path, bytes) in files {
        let Some((names, rows)) = table::rows(path, bytes, faults) else { continue };
        order.extend(names.iter().filter(|name| !cells.contains_key(*name)).cloned());
        for (place, name) in names.iter().enumerate() {
            let column = cells.entry(name.clone()).or_default();
            for (_, row) in &rows {
                column.see(row.get(place).unwrap_or_default());
            }
        }
    }
    let wanted = target.or_else(|| order.last().map(String::as_str))?.to_string();
    if !order.contains(&wanted) {
        let message = format!("there is no column {wanted:?}; there are {}", order.join(", "));
        faults.add("/tokenizer/columns", "column.target", message);
        return None;
    }
    let (mut columns, mut named, mut scaling) = (Vec::new(), false, Scaling::Inputs);
    for name in order {
        let seen = cells.remove(&name)?;
        let holds = if name != wanted {
            seen.holds(named)
        } else if seen.empty || seen.distinct.len() < 2 {
            let message =
                format!("the target {name:?} has empty cells or less than two values; --target names another");
            faults.add("/tokenizer/columns", "column.target", message);
            return None;
        } else if seen.text {
            Holds::TargetCategory { levels: seen.levels() }
        } else {
            scaling = Scaling::InputsAndTarget;
            Holds::TargetNumber { non_finite: seen.non_finite() }
        };
        named |= matches!(holds, Holds::Id {});
        columns.push(Column { name, holds });
    }
    Some(Tokenizer::Table { columns, scaling })
}

fn of_images(format: Format, files: &[(&str, Vec<u8>)], faults: &mut Faults) -> Option<Tokenizer> {
    let Survey { shape: [channels, height, width], classes, levels } = image::survey(format, files, faults)?;
    let (scaling, augmentation) = (Scaling::Inputs, Augmentation::NONE);
    Some(Tokenizer::Image { channels, height, width, classes, levels, scaling, augmentation })
}

fn of_tensors(files: &[(&str, Vec<u8>)], target: Option<&str>, faults: &mut Faults) -> Option<Tokenizer> {
    let (path, bytes) = files.first()?;
    faults.0.extend(tensors::check(path, bytes).0);
    let file = SafeTensors::deserialize(bytes).ok()?;
    let mut all = file.tensors();
    all.sort_by(|left, right| left.0.cmp(&right.0));
    let mut one = |what: &str, fits: &dyn Fn(&str, &TensorView<'_>) -> bool| {
        let found: Vec<_> = all.iter().filter(|(name, tensor)| fits(name, tensor)).collect();
        if let [(name, tensor)] = found.as_slice() {
            return Some((name.clone(), tensor.dtype(), tensor.shape().to_vec()));
        }
        let message = format!("expected one tensor with {what}, found {}", found.len());
        faults.add(*path, "tensor.name", message);
        None
    };
    let is_target = |name: &str, tensor: &TensorView<'_>| {
        tensor.shape().len() == 1
            && [Dtype::I64, Dtype::F32].contains(&tensor.dtype())
            && target.is_none_or(|target| target == name)
    };
    let (targets, kind, _) =
        one("targets: numbers (F32) or classes (I64), of one dimension; --target names it", &is_target)?;
    let is_input = |_: &str, tensor: &TensorView<'_>| tensor.shape().len() > 1 && tensor.dtype() == Dtype::F32;
    let (inputs, _, shape) = one("inputs: numbers (F32) of two dimensions or more", &is_input)?;
    let shape = shape[1..].iter().map(|size| *size as u64).collect();
    let classes = (kind == Dtype::I64).then(|| {
        let last = files.iter().filter_map(|(_, bytes)| tensors::largest(bytes, &targets)).max().unwrap_or(0);
        (last + 1).max(2)
    });
    let scaling = if classes.is_some() { Scaling::Inputs } else { Scaling::InputsAndTarget };
    Some(Tokenizer::Tensors { inputs, shape, targets, classes, scaling })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str, target: Option<&str>) -> Result<Vec<(String, Holds)>, Faults> {
        match suggest(Format::Csv, &[("a.csv", text.as_bytes().to_vec())], target)? {
            Tokenizer::Table { columns, .. } => {
                Ok(columns.into_iter().map(|Column { name, holds }| (name, holds)).collect())
            }
            other => panic!("{}", other.word()),
        }
    }

    #[test]
    fn columns_are_what_their_cells_say_and_the_target_is_the_last_or_the_one_that_is_named() {
        let text = "who,age,colour,note,empty,gain\nann,31,red,a,,1.5\nbob,,blue,a,,nan\ncy,7,red,a,,2\n";
        let levels = ["blue", "red"].map(String::from).to_vec();
        let (refuse, fill) = (Missing::Refuse, Missing::Fill);
        let due = [
            ("who", Holds::Id {}),
            ("age", Holds::Number { missing: fill, non_finite: NonFiniteCells::Refuse }),
            ("colour", Holds::Category { levels: levels.clone(), missing: refuse }),
            ("note", Holds::Ignored {}),
            ("empty", Holds::Ignored {}),
            ("gain", Holds::TargetNumber { non_finite: NonFiniteCells::Keep }),
        ]
        .map(|(name, holds)| (name.to_string(), holds));
        assert_eq!(table(text, None).unwrap(), due);
        let named = table(text, Some("colour")).unwrap();
        assert_eq!(named[2].1, Holds::TargetCategory { levels });
        assert_eq!(named[5].1, Holds::Number { missing: refuse, non_finite: NonFiniteCells::Keep });
        for wrong in ["age", "note", "empty", "colours"] {
            assert_eq!(table(text, Some(wrong)).unwrap_err().0[0].code, "column.target", "{wrong}");
        }
    }

    #[test]
    fn text_has_no_rows_and_a_broken_table_is_told() {
        assert_eq!(suggest(Format::Text, &[], None).unwrap_err().0[0].code, "tokenizer.format");
        assert_eq!(table("a,a\n1,2\n", None).unwrap_err().0[0].code, "column.twice");
    }
}
