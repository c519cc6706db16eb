//! Bundles of runs that never were: an archive is taken apart, its evidence changed, and everything that follows from it
//! made to fit again, as somebody would do who knows all the rules. What such a bundle says contradicts nothing.

use std::collections::BTreeMap;

use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::{Field as _, Manifest};
use xt_core::manifest::bundle::{Bundle, MemberRole, Size};
use xt_core::manifest::custody::Custody;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, TraceReference};
use xt_core::manifest::trace::{Step, read_steps};
use xt_core::relpath::RelativePath;
use xt_core::verb::bind::{Evidence, derive};
use xt_core::verb::chain::Chain;
use xt_store::archive::{self, ArchiveError, Limits};

/// The files of an archive, in order.
pub type Files = Vec<(String, Vec<u8>)>;

pub fn unpack(bytes: &[u8]) -> Files {
    let mut files = Vec::new();
    archive::read(bytes, &Limits::default(), |path, _, content| {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).unwrap();
        files.push((path.to_string(), bytes));
        Ok::<(), ArchiveError>(())
    })
    .unwrap();
    files
}

pub fn pack(files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    let member = |(path, bytes): &(String, Vec<u8>)| (RelativePath::new(path).unwrap(), bytes.clone());
    let members: Vec<(RelativePath, Vec<u8>)> = files.iter().map(member).collect();
    let members = members.iter().map(|(path, bytes)| (path.clone(), bytes.len() as u64, bytes.as_slice()));
    archive::write(&mut out, members).unwrap();
    out
}

/// The evidence of a run, to be changed.
pub struct Forgery {
    pub plan: Plan,
    pub custody: Custody,
    pub run: Run,
    pub steps: Vec<Step>,
    /// Logs, and what the trainer wrote, by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Input files by digest.
    pub data: BTreeMap<Digest, Vec<u8>>,
}

#[allow(dead_code, reason = "each test program uses its part")]
impl Forgery {
    /// The evidence in an archive.
    pub fn of(archive: &[u8]) -> Self {
        let all: BTreeMap<String, Vec<u8>> = unpack(archive).into_iter().collect();
        let plan: Plan = document(&all, "plan");
        let (steps, bad) = read_steps(plan.id(), &all["trace/steps.jsonl"]);
        assert_eq!(bad, None);
        let below = |folder: &'static str| {
            all.iter().filter(move |(path, _)| path.starts_with(folder)).map(|(p, b)| (p.clone(), b.clone()))
        };
        Self {
            custody: document(&all, "custody"),
            run: document(&all, "run"),
            steps,
            files: below("model/").chain(below("log/")).collect(),
            data: below("data/").map(|(_, bytes)| (Digest::of(&bytes), bytes)).collect(),
            plan,
        }
    }

    /// The archive, with everything made to fit.
    pub fn seal(mut self) -> Vec<u8> {
        let lines = self.fit();
        let (mut chain, mut faults) = (Chain::new(self.plan.id(), None), Faults::new());
        lines.split_inclusive(|byte| *byte == b'\n').for_each(|line| drop(chain.line(line).cloned()));
        let (tally, wrong) = chain.finish();
        assert_eq!(wrong, Faults::new());
        let Self { plan, custody, run, files, data, .. } = &self;
        let evidence = Evidence {
            run,
            plan,
            custody: Some(custody),
            trace: Some(&tally),
            weights: None,
            averaged: None,
            ancestors: &[],
        };
        let bundle = derive(&evidence, &Size::Sealed.into(), &mut faults).unwrap();
        let documents = BTreeMap::from([
            ("candidate", plan.candidate.write()),
            ("custody", custody.write()),
            ("dataset", plan.dataset.as_ref().unwrap().write()),
            ("plan", plan.write()),
            ("run", run.write()),
            ("trace", tally.head.write()),
        ]);
        let content = |path: &str, digest: Digest| match path.split_once('/').unwrap() {
            ("manifests", name) => documents[name.trim_end_matches(".json")].canonical().into_bytes(),
            ("trace", _) => lines.clone(),
            ("data", _) => data[&digest].clone(),
            _ => files[path].clone(),
        };
        let mut all = vec![("bundle.json".into(), bundle.write().canonical().into_bytes())];
        all.push(("SHA256SUMS".into(), Vec::new()));
        for member in in_order(&bundle) {
            let path = member.file.path.to_string();
            let bytes = content(&path, member.file.digest);
            assert_eq!(Digest::of(&bytes), member.file.digest, "{path}");
            all.push((path, bytes));
        }
        fix_sums(&mut all);
        pack(&all)
    }

    /// Makes every record fit the others; gives the lines of the trace.
    fn fit(&mut self) -> Vec<u8> {
        let Self { plan, custody, run, steps, files, .. } = self;
        let mut names: Vec<String> = plan.inputs.iter().map(|input| input.digest.hex() + "\n").collect();
        names.sort();
        let inputs = custody.mounts.iter_mut().find(|mount| mount.at == "/xt/in").unwrap();
        inputs.digest = Some(Digest::of(names.concat().as_bytes()));
        (run.plan, run.request, run.fingerprint) = (plan.id(), plan.request, plan.fingerprint);
        (run.dataset, run.inputs, run.seed) = (plan.dataset_id(), plan.inputs.clone(), plan.seed);
        run.custody = Some(custody.id());
        let (mut chain, mut lines) = (plan.id(), String::new());
        for step in steps.iter_mut() {
            *step = step.clone().chain_to(chain);
            chain = step.chain;
            lines += &(step.write().canonical() + "\n");
        }
        let digest = Digest::of(lines.as_bytes());
        run.trace = Some(TraceReference { digest, steps: steps.len() as u64, chain });
        for file in &mut run.artifacts {
            let bytes = &files[file.path.as_str()];
            (file.digest, file.bytes) = (Digest::of(bytes), bytes.len() as u64);
        }
        lines.into_bytes()
    }
}

fn document<M: Manifest>(files: &BTreeMap<String, Vec<u8>>, name: &str) -> M {
    M::decode(&parse(&files[&format!("manifests/{name}.json")]).unwrap()).unwrap()
}

/// The members as archives have them: manifests, model, trace, logs, data.
fn in_order(bundle: &Bundle) -> Vec<&xt_core::manifest::bundle::Member> {
    let rank = |role| match role {
        MemberRole::Manifest => 0,
        MemberRole::Model | MemberRole::Configuration | MemberRole::Tokenizer | MemberRole::Output => 1,
        MemberRole::Trace => 2,
        MemberRole::Log => 3,
        MemberRole::File => 4,
        MemberRole::Base | MemberRole::Data => 5,
        MemberRole::Worker => 6,
    };
    let mut members: Vec<_> = bundle.members.iter().collect();
    members.sort_by_key(|member| rank(member.role));
    members
}

/// Makes `SHA256SUMS` fit the files.
pub fn fix_sums(files: &mut Files) {
    let mut sums: Vec<(String, String)> = files
        .iter()
        .filter(|(path, _)| path != "SHA256SUMS")
        .map(|(path, bytes)| (path.clone(), format!("{}  {path}\n", Digest::of(bytes).hex())))
        .collect();
    sums.sort();
    let text: String = sums.into_iter().map(|(_, line)| line).collect();
    files.iter_mut().filter(|(path, _)| path == "SHA256SUMS").for_each(|(_, bytes)| *bytes = text.clone().into_bytes());
}
