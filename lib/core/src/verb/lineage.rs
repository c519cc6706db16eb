//! What came from what (rows L52–L58, X99): every document names what it was made from, and what was made with it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::Manifest;
use crate::manifest::Artifact;
use crate::manifest::branch::{Branch, Future};
use crate::manifest::bundle::Bundle;
use crate::manifest::calibration::Calibration;
use crate::manifest::comparison::Comparison;
use crate::manifest::dataset::Dataset;
use crate::manifest::evaluation::Evaluation;
use crate::manifest::plan::{Ground, Plan};
use crate::manifest::promotion::Promotion;
use crate::manifest::replay::Replay;
use crate::manifest::run::Run;
use crate::manifest::snapshot::Snapshot;
use crate::manifest::trace::Trace;
use crate::manifest::withdrawal::Withdrawal;
use crate::tag;

/// One thing came from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// What came.
    pub to: Digest,
    /// From what.
    pub from: Digest,
    /// As what the earlier one served, or what the later one is to it: `plan`, `dataset`, `model/model.safetensors`.
    pub role: String,
}

/// Everything that is known of how objects came to be.
#[derive(Clone, Debug, Default)]
pub struct Lineage {
    kinds: BTreeMap<Digest, String>,
    /// By what came, and by what it came from.
    sources: BTreeMap<Digest, BTreeSet<Link>>,
    products: BTreeMap<Digest, BTreeSet<Link>>,
    /// Why something was withdrawn.
    withdrawals: BTreeMap<Digest, String>,
}

/// Which way to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What a thing came from.
    Up,
    /// What came from it.
    Down,
}

/// A step of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Steps from the beginning.
    pub depth: u64,
    /// The link that was followed.
    pub link: Link,
    /// Whether what it leads to was shown before, and is not followed a second time.
    pub again: bool,
}

impl Lineage {
    /// Takes in a document of the store; one of a kind that tells nothing of origins adds nothing but its kind.
    pub fn add(&mut self, id: Digest, document: &Value) {
        let Some(kind) = document.get("schema").and_then(Value::as_str) else { return };
        self.kinds.insert(id, kind.to_string());
        if kind == tag::WITHDRAWAL {
            read(document, |withdrawal: Withdrawal| drop(self.withdrawals.insert(withdrawal.digest, withdrawal.why)));
        }
        for link in links(id, kind, document) {
            self.sources.entry(link.to).or_default().insert(link.clone());
            self.products.entry(link.from).or_default().insert(link);
        }
    }

    /// The kind of a document; `file` for everything else.
    pub fn kind(&self, digest: Digest) -> &str {
        self.kinds.get(&digest).map_or("file", String::as_str)
    }

    /// Whether anything is known of it.
    pub fn knows(&self, digest: Digest) -> bool {
        self.kinds.contains_key(&digest) || self.sources.contains_key(&digest) || self.products.contains_key(&digest)
    }

    /// What was withdrawn among `start` and all that it came from, with the reasons.
    pub fn withdrawn(&self, start: Digest) -> Vec<(Digest, String)> {
        let sources = self.walk(start, Direction::Up).into_iter().map(|step| step.link.from);
        let all: BTreeSet<Digest> = sources.chain([start]).collect();
        all.into_iter().filter_map(|digest| Some((digest, self.withdrawals.get(&digest)?.clone()))).collect()
    }

    /// Everything that can be reached from `start`, depth first, each thing followed once.
    pub fn walk(&self, start: Digest, direction: Direction) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut seen = BTreeSet::from([start]);
        let mut next = self.onward(start, direction, 1);
        while let Some((depth, link)) = next.pop() {
            let end = direction.end(&link);
            let again = !seen.insert(end);
            if !again {
                next.extend(self.onward(end, direction, depth + 1));
            }
            steps.push(Step { depth, link, again });
        }
        steps
    }

    /// The links from here, the last first.
    fn onward(&self, from: Digest, direction: Direction, depth: u64) -> Vec<(u64, Link)> {
        let links = match direction {
            Direction::Up => self.sources.get(&from),
            Direction::Down => self.products.get(&from),
        };
        links.into_iter().flatten().rev().map(|link| (depth, link.clone())).collect()
    }
}

impl Direction {
    /// Where a link leads.
    pub const fn end(self, link: &Link) -> Digest {
        match self {
            Self::Up => link.from,
            Self::Down => link.to,
        }
    }
}

/// A walk as a graph in the language of Graphviz (DOT); arrows point to what came.
pub fn dot(lineage: &Lineage, start: Digest, steps: &[Step]) -> String {
    let shown = |digest: Digest| format!("{}\\n{}", lineage.kind(digest), &digest.hex()[..12]);
    let mut nodes = BTreeSet::from([start]);
    let mut text = String::from("digraph lineage {\n  node [shape=box];\n");
    for Step { link, .. } in steps {
        nodes.extend([link.from, link.to]);
    }
    for node in nodes {
        text.extend(["  \"", &node.hex(), "\" [label=\"", &shown(node), "\"];\n"]);
    }
    let links: BTreeSet<&Link> = steps.iter().map(|step| &step.link).collect();
    for Link { to, from, role } in links {
        // A role may be a path; quotes and backslashes are all that DOT minds.
        let role = role.replace('\\', "\\\\").replace('"', "\\\"");
        text.extend(["  \"", &from.hex(), "\" -> \"", &to.hex(), "\" [label=\"", &role, "\"];\n"]);
    }
    text + "}\n"
}

/// The links that a document states. One that cannot be read states none.
fn links(id: Digest, kind: &str, document: &Value) -> Vec<Link> {
    let mut all = Links { id, links: Vec::new() };
    match kind {
        tag::DATASET => read(document, |dataset: Dataset| {
            dataset.members.iter().for_each(|member| all.from(member.digest, member.path.as_str()));
        }),
        tag::PLAN => read(document, |plan: Plan| all.plan(&plan)),
        tag::RUN => read(document, |run: Run| all.run(&run)),
        tag::SNAPSHOT => read(document, |snapshot: Snapshot| {
            all.to(snapshot.parameters.file, "parameters");
            all.to(snapshot.optimizer.file, "optimizer");
        }),
        tag::TRACE => read(document, |trace: Trace| all.from(trace.lines, "lines")),
        tag::FUTURE => read(document, |future: Future| all.from(future.dataset, "dataset")),
        tag::CALIBRATION => read(document, |calibration: Calibration| {
            all.from(calibration.gates, "gates");
            calibration.exact.iter().for_each(|branch| all.from(*branch, "exact"));
            calibration.other.iter().for_each(|branch| all.from(*branch, "evidence"));
        }),
        tag::BRANCH => read(document, |branch: Branch| {
            all.from(branch.snapshot, "snapshot");
            branch.replicates.iter().for_each(|one| all.from(one.run, "run"));
        }),
        tag::BUNDLE => read(document, |bundle: Bundle| {
            all.from(bundle.run, "run");
            bundle.base.iter().for_each(|base| all.from(*base, "base"));
        }),
        tag::REPLAY => read(document, |replay: Replay| {
            all.from(replay.run, "recorded");
            all.from(replay.replayed, "replayed");
        }),
        tag::EVALUATION => read(document, |evaluation: Evaluation| {
            all.from(evaluation.run, "run");
            all.from(evaluation.subject.bundle, "subject");
            all.from(evaluation.measured, "measured");
        }),
        tag::COMPARISON => read(document, |comparison: Comparison| {
            let subjects = comparison.candidates.iter().flat_map(|candidate| &candidate.subjects);
            subjects.for_each(|subject| all.from(*subject, "subject"));
        }),
        tag::PROMOTION => read(document, |promotion: Promotion| all.promotion(&promotion)),
        _ => {}
    }
    all.links
}

fn read<M: Manifest>(document: &Value, with: impl FnOnce(M)) {
    let mut faults = Faults::new();
    if let Some(manifest) = M::read(document, "", &mut faults).filter(|_| faults.is_empty()) {
        with(manifest);
    }
}

/// The links of one document.
struct Links {
    id: Digest,
    links: Vec<Link>,
}

impl Links {
    /// The document came from this.
    fn from(&mut self, from: Digest, role: &str) {
        self.links.push(Link { to: self.id, from, role: role.into() });
    }

    /// This came from the document.
    fn to(&mut self, to: Digest, role: &str) {
        self.links.push(Link { to, from: self.id, role: role.into() });
    }

    fn files(&mut self, files: &[Artifact]) {
        for file in files {
            self.to(file.digest, file.path.as_str());
        }
    }

    fn plan(&mut self, plan: &Plan) {
        self.from(plan.candidate.id(), "candidate");
        plan.dataset_id().iter().for_each(|dataset| self.from(*dataset, "dataset"));
        if let Some(departure) = &plan.departure {
            self.from(departure.run, departure.purpose.word());
            self.from(departure.snapshot, "snapshot");
            departure.future.iter().for_each(|future| self.from(*future, "future"));
        }
        if let Ground::Calibration { digest, .. } = &plan.ground {
            self.from(*digest, "calibration");
        }
        if let Some(evaluating) = &plan.evaluation {
            self.from(evaluating.subject.bundle, "subject");
        }
        // Data comes by way of the dataset.
        let members: BTreeSet<Digest> =
            plan.dataset.iter().flat_map(|dataset| &dataset.members).map(|member| member.digest).collect();
        for input in plan.inputs.iter().filter(|input| !members.contains(&input.digest)) {
            self.from(input.digest, input.role.word());
        }
    }

    fn run(&mut self, run: &Run) {
        self.from(run.plan, "plan");
        if let Some(start) = &run.start {
            self.from(start.run, "continued");
            self.from(start.snapshot, "snapshot");
        }
        self.files(&run.artifacts);
        self.files(&run.quarantined);
        run.trace.iter().for_each(|trace| self.to(trace.digest, "trace"));
        run.custody.iter().for_each(|custody| self.to(*custody, "custody"));
        run.snapshots.iter().for_each(|taken| self.to(taken.snapshot, "snapshot"));
    }

    fn promotion(&mut self, promotion: &Promotion) {
        promotion.comparison.iter().for_each(|comparison| self.from(*comparison, "comparison"));
        for eligible in &promotion.eligible {
            self.from(eligible.decision, "decision");
            eligible.bundles.iter().for_each(|scored| self.from(scored.evaluation, "evaluation"));
        }
        promotion.chosen.iter().for_each(|chosen| self.from(chosen.bundle, "chosen"));
    }
}
