//! Tables: what they give, and every fault with its line and column. Rows D-… are those of the failures people reported.
#![allow(clippy::unwrap_used, clippy::float_cmp)]

use xt_core::fault::Faults;
use xt_core::manifest::candidate::Tokenizer;
use xt_core::manifest::encoding::{Column, Holds, Missing, NonFiniteCells, Scaling};
use xt_data::rows::read;
use xt_data::table::check;
use xt_data::{Raw, Targets};

fn number(missing: Missing, non_finite: NonFiniteCells) -> Holds {
    Holds::Number { missing, non_finite }
}

fn levels(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// Columns a (number), b (category), id, note (ignored), t (target with two levels).
fn columns(missing: Missing, non_finite: NonFiniteCells) -> Tokenizer {
    let column = |name: &str, holds| Column { name: name.into(), holds };
    Tokenizer::Table {
        columns: vec![
            column("a", number(missing, non_finite)),
            column("b", Holds::Category { levels: levels(&["red", "Red", "blue"]), missing }),
            column("id", Holds::Id {}),
            column("note", Holds::Ignored {}),
            column("t", Holds::TargetCategory { levels: levels(&["no", "yes"]) }),
        ],
        scaling: Scaling::None,
    }
}

fn strict() -> Tokenizer {
    columns(Missing::Refuse, NonFiniteCells::Refuse)
}

fn of(tokenizer: &Tokenizer, text: &str) -> Result<Raw, Faults> {
    read(tokenizer, &[("x.csv", text.as_bytes().to_vec())])
}

/// Places and codes of all faults.
fn faults(result: Result<Raw, Faults>) -> Vec<(String, &'static str)> {
    result.unwrap_err().0.into_iter().map(|fault| (fault.pointer, fault.code)).collect()
}

#[test]
fn cells_become_numbers_in_the_declared_order_whatever_the_order_in_the_file() {
    let text = "t,note,b,id,a\nyes,\"x, \"\"y\"\"\nz\",Red,1,-1.5e1\n\nno,,blue,2,+.25\r\n";
    let raw = of(&strict(), text).unwrap();
    assert_eq!(raw.values, [-15.0, 0.0, 1.0, 0.0, 0.25, 0.0, 0.0, 1.0]);
    assert_eq!((raw.targets, raw.counts), (Targets::Classes(vec![1, 0]), vec![2]));
}

#[test]
fn every_fault_is_told_at_once_with_line_and_column() {
    let text = "a,b,id,note,t\n1,red,7,,yes\nx,green,7,,maybe\n1,2\nnan,red,,,no\n,,9,,\n1e39,blue,10,,no\n0x1,red,11,,no\n 1,red,12,,no\n";
    let found = faults(of(&strict(), text));
    let expected = [
        ("x.csv:4:3", "row.cells"),
        ("x.csv:3:1", "row.cell"),
        ("x.csv:3:2", "row.cell"),
        ("x.csv:3:3", "row.cell"),
        ("x.csv:3:5", "row.cell"),
        ("x.csv:5:1", "row.cell"),
        ("x.csv:5:3", "row.cell"),
        ("x.csv:6:1", "row.cell"),
        ("x.csv:6:2", "row.cell"),
        ("x.csv:6:5", "row.cell"),
        ("x.csv:7:1", "row.cell"),
        ("x.csv:8:1", "row.cell"),
        ("x.csv:9:1", "row.cell"),
    ];
    assert_eq!(found, expected.map(|(at, code)| (at.to_string(), code)));
    let names = faults(of(&strict(), "a,b,id,extra,a\n"));
    assert_eq!(
        names.iter().map(|(at, code)| (at.as_str(), *code)).collect::<Vec<_>>(),
        [
            ("x.csv:1:5", "column.twice"),
            ("x.csv:1:4", "column.undeclared"),
            ("x.csv", "column.missing"),
            ("x.csv", "column.missing"),
        ]
    );
}

#[test]
fn a_file_with_a_thousand_faults_tells_two_hundred_and_counts_the_rest() {
    let rows: Vec<String> = (0..1000).map(|row| format!("x,red,{row},,no\n")).collect();
    let rows = rows.concat();
    let found = of(&strict(), &format!("a,b,id,note,t\n{rows}")).unwrap_err();
    assert_eq!(found.0.len(), 201);
    assert!(found.0[200].message.contains("800 more"), "{found}");
}

/// Missing, nan and zero are different things.
#[test]
fn what_is_missing_is_filled_and_what_is_not_finite_is_kept_only_where_declared() {
    let text = "a,b,id,note,t\n,red,1,,yes\nNaN,,2,,no\n-inf,red,3,,no\n3,red,4,,no\n5,red,5,,no\n";
    let raw = of(&columns(Missing::Fill, NonFiniteCells::Keep), text).unwrap();
    assert!(raw.values[4].is_nan() && raw.values[8] == f32::NEG_INFINITY);
    assert_eq!(raw.values[5..8], [0.0; 3], "no level");
    let fitted = raw.fit(Scaling::None).unwrap();
    assert_eq!((fitted[0].count, fitted[0].mean.get()), (2, 4.0));
    assert_eq!(raw.scale(&fitted, Scaling::None).values[0], 4.0);
    assert_eq!(faults(of(&columns(Missing::Fill, NonFiniteCells::Refuse), text)).len(), 2);
    assert_eq!(faults(of(&columns(Missing::Refuse, NonFiniteCells::Keep), text)).len(), 2);
}

/// Row D-01: only a line feed ends a row; separators of Unicode stay in their cell.
#[test]
fn d_01_line_separators_of_unicode_end_no_row() {
    let text = "a,b,id,note,t\n1,red,1,x\u{2028}y\u{c}z\u{85},yes\n2,red,2,,no\n";
    assert_eq!(of(&strict(), text).unwrap().counts, [2]);
    assert!(check("x.csv", text.as_bytes()).is_empty());
}

/// Row D-02: a carriage return alone is a question to the person, not a row or a part of a cell.
#[test]
fn d_02_a_lone_carriage_return_is_refused_with_its_line_unless_it_is_quoted() {
    let bad = "a,b,id,note,t\n1,red,1,x\ry,yes\r\n";
    let found = check("x.csv", bad.as_bytes());
    assert!(found.0.iter().any(|f| f.code == "row.carriage-return" && f.message.contains("line 2")), "{found}");
    let good = "a,b,id,note,t\r\n1,red,1,\"x\ry\",yes\r\n";
    assert!(check("x.csv", good.as_bytes()).is_empty());
    assert_eq!(of(&strict(), good).unwrap().counts, [1]);
}

/// Row D-04: an id that stands twice in a split, also in two files of it, is refused and nothing is removed.
#[test]
fn d_04_a_repeated_id_is_refused_across_files_and_names_that_differ_in_case_are_two() {
    let file = |id: &str| format!("a,b,id,note,t\n1,red,{id},,no\n").into_bytes();
    let two = |one: &str, other: &str| read(&strict(), &[("x.csv", file(one)), ("y.csv", file(other))]);
    let found = two("7", "7").unwrap_err();
    assert_eq!((found.0[0].pointer.as_str(), found.0.len()), ("y.csv:2:3", 1));
    assert!(found.0[0].message.contains("x.csv:2"), "{found}");
    assert_eq!(two("win", "Win").unwrap().counts, [1, 1]);
}

/// Row D-09: a table without rows is refused, as is one of blank lines.
#[test]
fn d_09_a_table_without_rows_is_refused() {
    for empty in ["", "\n\n\n\n\n", "a,b,id,note,t\n", "a,b,id,note,t\n\n\r\n"] {
        assert!(!check("x.csv", empty.as_bytes()).is_empty(), "{empty:?}");
        assert!(of(&strict(), empty).is_err(), "{empty:?}");
    }
}

/// Row D-10: bytes that are no UTF-8 are refused with their offset; nothing is replaced. A NUL is a character.
#[test]
fn d_10_other_encodings_are_refused_with_line_and_offset() {
    let with = |bytes: &[u8]| [b"a,b,id,note,t\n1,red,1,".as_slice(), bytes, b",no\n"].concat();
    for bad in [&b"\xff"[..], b"\xc0\xaf", b"\xed\xa0\x80"] {
        let found = check("x.csv", &with(bad));
        assert!(found.0[0].message.contains("line 2: byte 22"), "{found}");
        assert!(read(&strict(), &[("x.csv", with(bad))]).is_err());
    }
    assert!(check("x.csv", &with(b"\0")).is_empty());
    assert!(!check("x.csv", b"\xef\xbb\xbfa,b\n1,2\n").is_empty());
    assert_eq!(check("x.csv", &with(b"\"")).0[0].code, "row.quote");
}

#[test]
fn what_is_no_quoted_cell_is_refused_and_never_another_number() {
    for (text, says) in [
        ("a\n\"1\"2\n", "behind a closing quote"),
        ("a\n1\"2\"\n", "does not begin with one"),
        ("a,b\n1,x\" say\r2,y\" b\n", "does not begin with one"),
        ("a\n\"1\n", "never closed"),
        ("a\n1\r2\n", "carriage return"),
    ] {
        let found = check("x.csv", text.as_bytes());
        assert!(found.0.iter().any(|fault| fault.message.contains(says)), "{text:?}: {found}");
    }
    for text in ["a\n\"1\"\n", "a,b\r\n\"x \"\"y\"\"\",\"\"\r\n\"1\n2\",3", "a\n\"1\"\r\n"] {
        let found = check("x.csv", text.as_bytes());
        assert!(found.0.is_empty(), "{text:?}: {found}");
    }
}

/// Both quotes of a cell, and the number of cells that follows from a quote, are one mistake.
#[test]
fn what_is_wrong_with_a_row_is_told_once_and_what_is_wrong_with_another_all_the_same() {
    for (text, due) in [
        ("a,b\nthe 5\" and 7\" ones,2\n", &["row.quote"][..]),
        ("a,b\n\"x\"y\"z\",2\n", &["row.quote"]),
        ("a,b\n3,4\n\"1,2\n3,4\n", &["row.quote"]),
        ("a,b\n1\r2,3\n", &["row.carriage-return"]),
        ("a,b\nx\" y\",2\n1,2,3\n", &["row.quote", "row.cells"]),
        ("a,b\n1,2,3\n4\n", &["row.cells", "row.cells"]),
    ] {
        let found = check("x.csv", text.as_bytes());
        let codes: Vec<&str> = found.0.iter().map(|fault| fault.code).collect();
        assert_eq!(codes, due, "{text:?}: {found}");
    }
    let found = check("x.csv", b"a,b\n3,4\n\"1,2\n3,4\n");
    assert!(found.0[0].message.starts_with("line 3:"), "{found}");
}
