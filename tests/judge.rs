//! `xt-decide compare`: what is asked, and what it exits with.
#![allow(clippy::unwrap_used)]

use xt_core::canonical::{Value, parse};
use xt_harness::Folder;

/// The scores of `examples/judgement`, with the values of the candidate moved by `shift`, and only so many seeds.
fn scores(shift: f64, seeds: usize) -> String {
    let mut document = parse(include_bytes!("../examples/judgement/scores.json")).unwrap();
    let Value::Object(members) = &mut document else { panic!() };
    let Some(Value::List(replicates)) = members.get_mut("replicates") else { panic!() };
    replicates.truncate(2 * seeds);
    for replicate in replicates {
        let Value::Object(fields) = replicate else { panic!() };
        if fields["candidate"].as_str() == Some("wider")
            && let Value::Float(value) = fields["value"]
        {
            fields.insert("value".into(), parse(format!("{:?}", value.get() + shift).as_bytes()).unwrap());
        }
    }
    document.canonical()
}

fn asked(question: &str, document: &str) -> (i32, Vec<Option<String>>) {
    let outcome = Folder::new().xt("decide").args(["compare", "--quiet", "--ask", question]).input(document).run();
    assert_eq!(outcome.stderr, "");
    let outcomes = outcome.stdout.lines().map(|line| {
        let document = parse(line.as_bytes()).unwrap();
        document.pointer("/pairs/0/outcome").and_then(Value::as_str).map(String::from)
    });
    (outcome.code.unwrap(), outcomes.collect())
}

#[test]
fn what_is_asked_decides_between_yes_and_no_and_nothing_turns_undecided_into_either() {
    // The example's difference is about -0.046 in a loss, its margin 0.02.
    let (better, alike, worse, few) = (scores(0.0, 8), scores(0.046, 8), scores(0.1, 8), scores(0.0, 2));
    let codes = |question: &str| [&better, &alike, &worse, &few].map(|document| asked(question, document).0);
    assert_eq!(codes("better"), [0, 1, 1, 3]);
    assert_eq!(codes("equivalent"), [1, 0, 1, 3]);
    assert_eq!(codes("not-worse"), [0, 0, 1, 3]);
    let word = |text: &str| Some(text.to_string());
    let stream = [better.as_str(), &alike, &worse].concat();
    assert_eq!(asked("not-worse", &stream), (1, vec![word("BETTER"), word("EQUIVALENT"), word("WORSE")]));
    assert_eq!(
        asked("better", &[better.as_str(), &few, &worse].concat()),
        (3, vec![word("BETTER"), None, word("WORSE")])
    );
}

#[test]
fn a_wrong_question_a_wrong_place_and_a_wrong_document_are_told_apart() {
    let run = |arguments: &[&str]| Folder::new().xt("decide").args(arguments).input(scores(0.0, 8)).run();
    assert_eq!(run(&["compare", "--ask", "good"]).code, Some(2));
    assert_eq!(run(&["-o", "x.json", "compare"]).code, Some(2));
    let refused = run(&["-"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(10), ""));
    assert!(refused.stderr.contains("xt.decision-context/1"), "{}", refused.stderr);
    assert_eq!(run(&["--quiet", "compare"]).code, Some(0));
}
