//! Whether a bundle is whole, bound to its evidence, and all of one piece.
//!
//! The files are seen once, in order, and hashed as they pass. Then the bundle is derived again from run, plan, custody
//! and trace, by the rule that froze it, and must be the same document. So whoever changes a file must change its
//! digest in the bundle, then the record that the digest came from, then everything derived from that record; what
//! remains possible is to forge a whole run without a contradiction, and a replay finds that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use xt_core::canonical::{self, Value};
use xt_core::digest::{Digest, Hasher};
use xt_core::fault::Faults;
use xt_core::field::{Field as _, Manifest};
use xt_core::left_out::LeftOut;
use xt_core::manifest::bundle::{Bundle, BundleFault, Member, Verification};
use xt_core::manifest::custody::Custody;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::Run;
use xt_core::verb::ancestry::{Ancestor, handovers};
use xt_core::verb::bind::{self, ADAPTER, AVERAGED, Evidence, WEIGHTS};
use xt_core::verb::chain::{LINES, Tally};
use xt_core::verb::compare;
use xt_core::verb::weights::Weights;
use xt_store::Store;
use xt_store::archive::Rule;

use crate::error::BundleError;
use crate::layout::{self, BUNDLE, SUMS};
use crate::lines::Lines;

const RUN: &str = "manifests/run.json";
const PLAN: &str = "manifests/plan.json";
const CUSTODY: &str = "manifests/custody.json";
/// The papers of the runs that the run went on from.
const BEFORE: &str = "manifests/before/";

/// So many faults are listed.
const MOST: usize = 1000;
/// A file may be announced with so many bytes more than are listed of it, and is still read, so that all that is wrong
/// with a bundle can be said at once. Beyond that nobody needs to know what the bytes are.
const SLACK: u64 = 1 << 20;

/// Looks at the files of a bundle as they pass.
#[derive(Debug, Default)]
pub struct Verifier {
    bundle: Option<Bundle>,
    /// Members that are still to come.
    due: BTreeMap<String, Member>,
    /// The paths of all members in the order of archives, and how many of them have passed.
    order: Vec<String>,
    next: usize,
    seen: BTreeSet<String>,
    /// Whether the archive ended early, so that what is missing says nothing.
    cut: bool,
    documents: BTreeMap<String, Value>,
    trace: Option<Tally>,
    /// By path, since a file under the other name must not stand in.
    weights: BTreeMap<String, Result<Digest, String>>,
    averaged: Option<Result<Digest, String>>,
    members: u64,
    bytes: u64,
    faults: Faults,
}

/// Something that may read each file on the way: it is given path and content.
pub(crate) type Pass<'a> = &'a mut dyn FnMut(&str, &mut dyn Read) -> Result<(), BundleError>;

/// What a verifier found out.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The report.
    pub report: Verification,
    /// The bundle, if its document could be read.
    pub bundle: Option<Bundle>,
    /// Its run record, if it could be read.
    pub run: Option<Run>,
    /// Its custody record, if it could be read.
    pub custody: Option<Custody>,
    /// Everything that is wrong.
    pub faults: Faults,
}

impl Verdict {
    /// Notes what else is wrong.
    pub fn add(&mut self, faults: Faults) {
        let written = faults.0.iter().map(|fault| BundleFault {
            pointer: fault.pointer.clone(),
            code: fault.code.into(),
            message: fault.message.clone(),
        });
        self.report.faults.extend(written);
        self.report.verified = self.report.faults.is_empty();
        self.faults.0.extend(faults.0);
    }
}

impl Verifier {
    /// Why reading should end here: the file is much longer than the bundle says, or there is no end of files.
    pub(crate) fn excess(&self, path: &str, announced: u64) -> Option<Rule> {
        if self.faults.0.len() >= MOST {
            return Some(Rule::Entries(self.seen.len() as u64));
        }
        let listed = match path {
            BUNDLE | SUMS => canonical::MAX_BYTES as u64,
            path => self.due.get(path).map_or(0, |member| member.file.bytes),
        };
        (announced > listed.saturating_add(SLACK)).then_some(Rule::Excess { announced, listed })
    }

    /// Takes the next file. `pass` may read it on the way, for example into a store.
    pub(crate) fn file(
        &mut self,
        path: &str,
        size: u64,
        content: &mut dyn Read,
        pass: Pass<'_>,
    ) -> Result<(), BundleError> {
        let mut tap = Tap { content, probe: self.probe(path) };
        pass(path, &mut tap)?;
        io::copy(&mut tap, &mut io::sink()).map_err(BundleError::stream("read", path))?;
        let probe = tap.probe;
        self.take(path, size, probe);
        Ok(())
    }

    /// What is to be done with the bytes of a file.
    pub(crate) fn probe(&self, path: &str) -> Probe {
        let keep = match path {
            LINES => {
                let id = self.bundle.as_ref().map_or_else(|| Digest::of(b""), |bundle| bundle.plan);
                // An unsound plan is noted elsewhere; the chain of the trace can be followed without it.
                let plan = self.document::<Plan>(PLAN).ok();
                let run = self.document::<Run>(RUN).ok();
                let wanted = run.map(|run| handovers(&run, &self.ancestors())).unwrap_or_default();
                Keep::Lines(Box::new(Lines::new(id, plan.as_ref()).marking(wanted)))
            }
            WEIGHTS | ADAPTER | AVERAGED => Keep::Weights(Box::default()),
            BUNDLE | SUMS | RUN | PLAN | CUSTODY => Keep::Text(Vec::new()),
            before if before.starts_with(BEFORE) => Keep::Text(Vec::new()),
            _ => Keep::Nothing,
        };
        Probe { hasher: Hasher::new(), bytes: 0, keep }
    }

    /// Enters a file that has passed.
    pub(crate) fn take(&mut self, path: &str, size: u64, probe: Probe) {
        let (digest, bytes) = (probe.hasher.finish(), probe.bytes);
        if bytes != size {
            self.fault(path, "member.size", format!("announced with {size} bytes, has {bytes}"));
        }
        let first = self.seen.is_empty();
        if !self.seen.insert(path.into()) {
            self.fault(path, "member.twice", "stands here a second time".into());
            return;
        }
        match (probe.keep, path) {
            (Keep::Text(text), BUNDLE) if first => self.begin(&text),
            _ if self.bundle.is_none() => {
                if first || self.seen.len() > MOST {
                    self.fault(path, "bundle.first", format!("the first file of a bundle is {BUNDLE}"));
                }
            }
            (Keep::Text(text), SUMS) => self.sums(&text),
            (keep, path) => {
                if self.member(path, bytes, digest) {
                    self.keep(path, keep);
                }
            }
        }
    }

    fn fault(&mut self, pointer: &str, code: &'static str, message: String) {
        // A hostile archive can hold a million wrong files; what comes after this many helps nobody.
        if self.faults.0.len() < MOST {
            self.faults.add(pointer, code, message);
        }
    }

    /// Reads the bundle's document.
    fn begin(&mut self, text: &[u8]) {
        match document::<Bundle>(text) {
            Ok(bundle) => {
                let order = layout::order(&bundle);
                self.order = order.iter().map(|member| member.file.path.to_string()).collect();
                self.due = order.into_iter().map(|member| (member.file.path.to_string(), member.clone())).collect();
                self.bundle = Some(bundle);
            }
            Err(faults) => self.faults.0.extend(faults.within(BUNDLE).0),
        }
    }

    /// `SHA256SUMS` follows from the bundle, byte for byte.
    fn sums(&mut self, text: &[u8]) {
        if self.seen.len() != 2 {
            self.fault(SUMS, "member.order", format!("the file behind {BUNDLE} is {SUMS}"));
        }
        let Some(right) = self.bundle.as_ref().map(layout::sums) else { return };
        if right.as_bytes() == text {
            return;
        }
        let found = String::from_utf8_lossy(text).into_owned();
        let (found, right): (BTreeSet<&str>, BTreeSet<&str>) = (found.lines().collect(), right.lines().collect());
        let (more, less): (Vec<_>, Vec<_>) = (found.difference(&right).collect(), right.difference(&found).collect());
        let mut messages: Vec<String> = more.iter().map(|line| format!("a line that is not right: {line}")).collect();
        messages.extend(less.iter().map(|line| format!("a line is missing: {line}")));
        if messages.is_empty() {
            messages.push("the lines are right, but not in order or not each once".into());
        }
        for message in messages {
            self.fault(SUMS, "bundle.sums", message);
        }
    }

    /// Holds a file against the list; true when it is on it.
    fn member(&mut self, path: &str, bytes: u64, digest: Digest) -> bool {
        let Some(Member { file, .. }) = self.due.remove(path) else {
            self.fault(path, "member.unlisted", "the bundle lists no such file".into());
            return false;
        };
        match self.order.get(self.next).cloned() {
            Some(due) if due != path => self.fault(path, "member.order", format!("stands where {due} is due")),
            _ => {}
        }
        while self.order.get(self.next).is_some_and(|path| !self.due.contains_key(path)) {
            self.next += 1;
        }
        if file.bytes != bytes {
            self.fault(path, "member.size", format!("the bundle lists {} bytes, there are {bytes}", file.bytes));
        }
        if file.digest != digest {
            self.fault(path, "member.digest", format!("the bundle lists {}, the bytes give {digest}", file.digest));
        }
        self.members += 1;
        self.bytes += bytes;
        true
    }

    fn keep(&mut self, path: &str, keep: Keep) {
        match keep {
            Keep::Nothing => {}
            Keep::Lines(lines) => {
                let (tally, faults, _) = lines.finish();
                self.faults.0.extend(faults.0);
                self.trace = Some(tally);
            }
            Keep::Weights(weights) if path == AVERAGED => self.averaged = Some(weights.finish()),
            Keep::Weights(weights) => {
                self.weights.insert(path.into(), weights.finish());
            }
            Keep::Text(text) => match canonical::parse(&text) {
                Ok(value) if value.canonical().as_bytes() == text => {
                    self.documents.insert(path.into(), value);
                }
                Ok(_) => self.fault(path, "member.form", "the text is not canonical".into()),
                Err(error) => self.fault(path, "member.syntax", error.to_string()),
            },
        }
    }

    /// A document that has passed.
    fn document<M: Manifest>(&self, path: &str) -> Result<M, Faults> {
        match self.documents.get(path) {
            Some(value) => M::decode(value).map_err(|faults| faults.within(path)),
            // Whatever keeps it from being there was noted as it passed, or is noted at the end.
            None => Err(Faults::new()),
        }
    }

    /// The runs that the run went on from, the nearest first, as far as their papers have passed and are sound. One that
    /// is missing is missed when the bundle is derived.
    fn ancestors(&self) -> Vec<Ancestor> {
        let ancestor = |number: usize| {
            let path = |what: &str| format!("{BEFORE}{number}/{what}.json");
            Some(Ancestor {
                run: self.document(&path("run")).ok()?,
                plan: self.document(&path("plan")).ok(),
                custody: self.document(&path("custody")).ok(),
                snapshot: self.document(&path("snapshot")).ok()?,
            })
        };
        (1..).map_while(ancestor).collect()
    }

    /// Notes what only the archive can say, such as that it is cut.
    pub fn broken(&mut self, code: &'static str, message: String) {
        self.cut = true;
        // Said also when there is too much else to say.
        self.faults.0.truncate(MOST - 1);
        self.faults.add("(archive)", code, message);
    }

    /// Ends it: what is missing, and whether everything is of one piece.
    pub fn finish(mut self) -> Verdict {
        if !self.cut {
            self.missing();
            self.derive();
        }
        let (run, custody) = (self.document(RUN).ok(), self.document(CUSTODY).ok());
        let bound = self.bundle.as_ref();
        let report = Verification {
            verified: true,
            bundle: bound.map(Manifest::id),
            run: bound.map(|bundle| bundle.run),
            members: self.members,
            bytes: self.bytes,
            signatures: Vec::new(),
            terms: bound.map_or(LeftOut(None), |bundle| bundle.terms.clone()),
            data_terms: bound.map_or(LeftOut(None), |bundle| bundle.data_terms.clone()),
            faults: Vec::new(),
        };
        let mut verdict = Verdict { report, bundle: self.bundle, run, custody, faults: Faults::new() };
        verdict.add(self.faults);
        verdict
    }

    fn missing(&mut self) {
        if self.bundle.is_none() && self.faults.is_empty() {
            self.fault(BUNDLE, "member.missing", "there is no such file, so this is no bundle".into());
        }
        if self.bundle.is_some() && !self.seen.contains(SUMS) {
            self.fault(SUMS, "member.missing", "there is no such file".into());
        }
        for path in std::mem::take(&mut self.due).into_keys() {
            self.fault(&path, "member.missing", "the bundle lists this file, and it is not there".into());
        }
    }

    /// Derives the bundle again from its evidence.
    fn derive(&mut self) {
        let papers = (self.document::<Run>(RUN), self.document::<Plan>(PLAN), self.document::<Custody>(CUSTODY));
        let (run, plan, custody) = match papers {
            (Ok(run), Ok(plan), Ok(custody)) => (run, plan, custody),
            (run, plan, custody) => {
                let all = [run.err(), plan.err(), custody.err()];
                self.faults.0.extend(all.into_iter().flatten().flat_map(|faults| faults.0));
                return;
            }
        };
        let (Some(bundle), Some(trace)) = (self.bundle.clone(), self.trace.clone()) else { return };
        let (custody, trace, ancestors) = (Some(&custody), Some(&trace), self.ancestors());
        let path = plan.native().map_or(WEIGHTS, |candidate| bind::trained(candidate)[0]);
        let (weights, averaged) = (self.weights.get(path), self.averaged.as_ref());
        let evidence = Evidence { run: &run, plan: &plan, custody, trace, weights, averaged, ancestors: &ancestors };
        bind::check(&evidence, &mut self.faults);
        if let Some(derived) = bind::derive(&evidence, &bundle.declared(), &mut self.faults) {
            disagreements(&bundle, &derived, &mut self.faults);
        }
    }
}

/// Reads a document in the one form that bundles hold.
pub(crate) fn document<M: Manifest>(text: &[u8]) -> Result<M, Faults> {
    let value = canonical::parse(text).map_err(|error| Faults::one("", "member.syntax", error.to_string()))?;
    let manifest = M::decode(&value)?;
    if manifest.write().canonical().as_bytes() != text {
        return Err(Faults::one("", "member.form", "the text is not canonical, or carries an id"));
    }
    Ok(manifest)
}

/// Notes where a bundle says something else than what follows from its evidence. Members are told apart by path.
fn disagreements(bundle: &Bundle, derived: &Bundle, faults: &mut Faults) {
    let (mut first, mut second) = (bundle.write(), derived.write());
    for value in [&mut first, &mut second] {
        if let Value::Object(members) = value {
            members.remove("members");
        }
    }
    for difference in compare::documents(&first, &second) {
        let message = format!("the bundle says {}, its evidence gives {}", difference.first, difference.second);
        faults.add(format!("{BUNDLE}#{}", difference.pointer), "bundle.derived", message);
    }
    let by_path = |bundle: &Bundle| -> BTreeMap<String, String> {
        let shown = |member: &Member| format!("{} {} of {} bytes", member.role, member.file.digest, member.file.bytes);
        bundle.members.iter().map(|member| (member.file.path.to_string(), shown(member))).collect()
    };
    let (listed, right) = (by_path(bundle), by_path(derived));
    let paths: BTreeSet<&String> = listed.keys().chain(right.keys()).collect();
    for path in paths.into_iter().filter(|path| listed.get(*path) != right.get(*path)) {
        let text = |side: &BTreeMap<String, String>| side.get(path).cloned().unwrap_or_else(|| "no such file".into());
        let message = format!("the bundle lists {}, its evidence gives {}", text(&listed), text(&right));
        faults.add(path.as_str(), "bundle.derived", message);
    }
    let sorted = bundle.members.windows(2).all(|pair| pair[0].file.path < pair[1].file.path);
    if !sorted {
        faults.add(format!("{BUNDLE}#/members"), "bundle.order", "the files are not sorted by path, each once");
    }
}

/// Verifies a bundle of a store; every object it names is read again.
pub fn verify_stored(store: &Store, id: Digest) -> Result<Verdict, BundleError> {
    let bundle: Bundle = store.manifest(id)?;
    let mut verifier = Verifier::default();
    let text = bundle.write().canonical();
    for (path, text) in [(BUNDLE, text), (SUMS, layout::sums(&bundle))] {
        let mut probe = verifier.probe(path);
        probe.push(text.as_bytes());
        verifier.take(path, text.len() as u64, probe);
    }
    for member in layout::order(&bundle) {
        let path = member.file.path.as_str();
        let mut probe = verifier.probe(path);
        let size = store.read(member.file.digest, &mut probe)?;
        verifier.take(path, size, probe);
    }
    Ok(verifier.finish())
}

/// What is learned from the bytes of a file.
#[derive(Debug)]
pub(crate) struct Probe {
    hasher: Hasher,
    bytes: u64,
    keep: Keep,
}

/// What is kept of a file.
#[derive(Debug)]
enum Keep {
    Nothing,
    Text(Vec<u8>),
    Lines(Box<Lines>),
    Weights(Box<Weights>),
}

impl Probe {
    fn push(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        match &mut self.keep {
            Keep::Nothing => {}
            // One byte more than a document may have, so that the reader refuses it by its length.
            Keep::Text(text) => {
                let room = (canonical::MAX_BYTES + 1).saturating_sub(text.len());
                text.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Keep::Lines(lines) => lines.push(bytes),
            Keep::Weights(weights) => weights.push(bytes),
        }
    }
}

impl Write for Probe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads and looks at the same time.
struct Tap<'a> {
    content: &'a mut dyn Read,
    probe: Probe,
}

impl Read for Tap<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        self.probe.push(&buffer[..count]);
        Ok(count)
    }
}
