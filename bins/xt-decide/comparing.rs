//! Whether candidates differ by more than chance.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use xt_cli::{CliError, Common, Document, Error, Output, each, note};
use xt_core::canonical;
use xt_core::fault::Exit;
use xt_core::field::Manifest as _;
use xt_core::manifest::comparison::{Comparison, Resampling, Scope, Verdict};
use xt_core::manifest::decision::Direction;
use xt_core::manifest::evaluation::Evaluation;
use xt_core::number::Finite;
use xt_core::verb::scores::Samples;
use xt_core::verb::{compare_candidates, scores};
use xt_store::Store;

use crate::{name, read};

#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    /// Comparison contexts, or with --metric evaluations: files, digests or - [default: standard input]
    #[arg(value_name = "CONTEXT")]
    contexts: Vec<OsString>,
    #[command(flatten)]
    evaluations: Evaluations,
    /// What is asked of each candidate, and so what exit status 0 means: better, equivalent, or not-worse, which is either
    #[arg(long, value_name = "QUESTION", default_value = "better")]
    ask: Question,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How evaluations become one context.
#[derive(Args, Clone, Debug)]
struct Evaluations {
    /// Compare xt.evaluation/1 documents on this metric
    #[arg(long, value_name = "METRIC", requires = "direction")]
    metric: Option<String>,
    /// Which way the metric is better: minimize or maximize
    #[arg(long, value_name = "WAY", requires = "metric", value_parser = direction)]
    direction: Option<Direction>,
    /// Only over this slice of the data
    #[arg(long, value_name = "SLICE", requires = "metric")]
    slice: Option<String>,
    /// The candidate that the others are compared with [default: every pair is compared]
    #[arg(long, value_name = "CANDIDATE", requires = "metric")]
    reference: Option<String>,
    /// A difference that does not matter [default: none is stated, and nothing is called equivalent]
    #[arg(long, value_name = "DIFFERENCE", requires = "metric", value_parser = finite)]
    margin: Option<Finite>,
    /// How often chance alone may be taken for a difference [default: 0.05]
    #[arg(long, value_name = "SHARE", requires = "metric", value_parser = finite)]
    level: Option<Finite>,
    /// How likely a repeat should be to show a difference as large, when needed pairs are counted [default: 0.8]
    #[arg(long, value_name = "SHARE", requires = "metric", value_parser = finite)]
    power: Option<Finite>,
    /// Let the answer hold for other examples than those measured on; needs their samples in the store
    #[arg(long, requires = "metric")]
    other_examples: bool,
}

impl Evaluations {
    /// The context of some evaluations, as a document.
    fn context(&self, metric: &str, documents: &[Document], common: &Common) -> Result<Document, Error> {
        let evaluations = each(documents, Evaluation::decode)?;
        let evaluations: Vec<(Evaluation, Option<Samples>)> = evaluations
            .into_iter()
            .map(|evaluation| {
                let samples = samples(&evaluation, common);
                (evaluation, samples)
            })
            .collect();
        let question = scores::Question {
            experiment: None,
            metric: metric.into(),
            slice: self.slice.clone(),
            direction: self.direction.unwrap_or(Direction::Minimize),
            reference: self.reference.as_deref().map(name).transpose()?,
            level: self.level.map_or_else(|| finite("0.05"), Ok).map_err(CliError::Usage)?,
            power: self.power.map_or_else(|| finite("0.8"), Ok).map_err(CliError::Usage)?,
            margin: self.margin,
            scope: if self.other_examples { Scope::OtherExamples } else { Scope::TheseExamples },
            resampling: RESAMPLING,
        };
        let context = scores::context(&question, &evaluations)?;
        Ok(Document { value: context.encode(), origin: "evaluations".into() })
    }
}

/// How intervals are drawn where no context says otherwise.
pub(crate) const RESAMPLING: Resampling = Resampling { seed: 0, count: 10_000 };

/// The samples of an evaluation, where the store has them.
fn samples(evaluation: &Evaluation, common: &Common) -> Option<Samples> {
    let bytes = Store::open(&common.store).ok()?.get(evaluation.samples?).ok()?;
    let lines = canonical::parse_all(&bytes).ok()?;
    Samples::read(&lines)
}

fn direction(text: &str) -> Result<Direction, String> {
    Direction::parse(text).ok_or_else(|| "the ways are minimize and maximize".into())
}

/// What is asked of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Question {
    /// Is it better than its reference?
    Better,
    /// Does it differ from its reference by less than the margin?
    Equivalent,
    /// Is it better or equivalent?
    NotWorse,
}

impl Question {
    fn answered_by(self, verdict: Verdict) -> bool {
        match self {
            Self::Better => verdict == Verdict::Better,
            Self::Equivalent => verdict == Verdict::Equivalent,
            Self::NotWorse => verdict != Verdict::Worse,
        }
    }
}

fn finite(text: &str) -> Result<Finite, String> {
    text.parse().ok().and_then(Finite::new).ok_or_else(|| "expected a finite number".into())
}

pub(crate) fn compare(given: &Compare, common: &Common) -> Result<Exit, Error> {
    let mut documents = read(&given.contexts, common)?;
    if let Some(metric) = &given.evaluations.metric {
        documents = vec![given.evaluations.context(metric, &documents, common)?];
    }
    let contexts = each(&documents, compare_candidates::context)?;
    let comparisons: Vec<Comparison> = contexts.iter().map(compare_candidates::compare).collect();
    let mut output = Output::new(given.output.as_deref())?;
    for comparison in &comparisons {
        output.document(&comparison.encode())?;
        for pair in &comparison.pairs {
            let outcome = pair.outcome.map_or("UNDECIDED", Verdict::word);
            note(common, &format!("xt-decide: {outcome}: {}", pair.reason));
        }
    }
    output.finish()?;
    let outcomes: Vec<Option<Verdict>> =
        comparisons.iter().flat_map(|comparison| &comparison.pairs).map(|pair| pair.outcome).collect();
    Ok(answer(&outcomes, given.ask))
}

/// The weakest answer stands for all.
fn answer(outcomes: &[Option<Verdict>], ask: Question) -> Exit {
    if outcomes.iter().any(Option::is_none) {
        Exit::Undecided
    } else if outcomes.iter().flatten().all(|verdict| ask.answered_by(*verdict)) {
        Exit::Yes
    } else {
        Exit::No
    }
}
