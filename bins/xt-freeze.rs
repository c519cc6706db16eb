//! `xt-freeze`: is this run complete, bound to its inputs, and verifiable by a stranger offline?

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, Read, Seek as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use xt_bundle::{BundleError, Exported, Form, Part, Verdict};
use xt_cli::{
    CliError, Common, Declaration, Error, Manual, Output, Progress, Source, Tool, each, note, read_documents,
};
use xt_core::canonical::Value;
use xt_core::count::counted;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Faults};
use xt_core::field::{Field as _, Manifest as _, object};
use xt_core::manifest::bundle::{Bundle, Declared, Size};
use xt_core::manifest::custody::Custody;
use xt_core::manifest::run::Run;
use xt_core::manifest::terms::Terms;
use xt_core::verb::{mlbom, rocrate, statement};
use xt_runtime::worker;
use xt_signing::{Algorithm, Envelope, PrivateKey, PublicKey};
use xt_store::{Store, StoreError};

#[path = "xt-freeze/inside.rs"]
mod inside;
#[path = "xt-freeze/known.rs"]
mod known;

/// Freeze finished runs into bundles, and verify bundles
///
/// A bundle binds model, plan, data, custody and trace of one succeeded run by digest. A run that failed, was
/// cancelled or is incomplete is refused with every reason. Verifying needs no store and no network.
#[derive(Parser, Clone, Debug)]
#[command(name = "xt-freeze", version, subcommand_precedence_over_arg = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    freeze: FreezeArguments,
    #[command(flatten)]
    common: Common,
}

#[derive(Args, Clone, Debug)]
struct FreezeArguments {
    /// Run records: files, digests or - [default: standard input]
    #[arg(value_name = "RUN")]
    runs: Vec<OsString>,
    /// Also write the one bundle as an archive to FILE, which appears when it is whole
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What the bundle holds: with the data (sealed), with the digests of the data only (thin), or with the data and the worker with all that it loads (full)
    #[arg(long, value_name = "SIZE", default_value = "sealed", value_parser = ["sealed", "thin", "full"])]
    size: String,
    /// Sign each bundle with the private key in FILE; beside an archive the signatures lie as ARCHIVE.intoto.jsonl
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    #[command(flatten)]
    declared: Declaration,
    /// For --size full, the worker that trained [default: xt-train beside this program or in ../libexec/xt]
    #[arg(long, value_name = "PATH", env = worker::VARIABLE)]
    worker: Option<PathBuf>,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Check structure, digests and agreement of all that a bundle holds; needs no store for an archive
    Verify(VerifyArguments),
    /// List the files of an archive: digest, size and path
    Ls(BundleArguments),
    /// Write one file of a bundle, verified against the list at its beginning; nothing behind it is read
    Cat(CatArguments),
    /// Take an archive into the store, once it is verified, with the signatures that lie beside it
    Import(BundleArguments),
    /// Write the files of a verified bundle into a new folder
    Export(ExportArguments),
    /// Sign a verified bundle, and print the signatures
    Sign(SignArguments),
    /// Make a pair of keys for signing
    Keygen(KeygenArguments),
}

#[derive(Args, Clone, Debug)]
struct BundleArguments {
    /// An archive, - for one on standard input, or for `verify` the digest of a bundle in the store
    #[arg(value_name = "BUNDLE", default_value = "-")]
    bundle: OsString,
}

#[derive(Args, Clone, Debug)]
struct CatArguments {
    /// An archive, - for one on standard input, or the digest of a bundle in the store
    #[arg(value_name = "BUNDLE")]
    bundle: OsString,
    /// The file, as `ls` prints it
    #[arg(value_name = "PATH")]
    path: String,
    /// Write to FILE, which appears when all of it is verified
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct VerifyArguments {
    #[command(flatten)]
    target: BundleArguments,
    /// Demand a signature by the public key in FILE; may be given several times, and then all must have signed
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    /// Take the signatures from FILE [default: BUNDLE.intoto.jsonl; for a stored bundle, those in the store]
    #[arg(long, value_name = "FILE", requires = "key")]
    signatures: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct ExportArguments {
    /// An archive, - for one on standard input, or the digest of a bundle in the store
    #[arg(value_name = "BUNDLE")]
    bundle: OsString,
    /// The folder to write; it must not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Write the files of the model alone, as libraries of Hugging Face load them
    #[arg(long)]
    hf: bool,
    /// How to write it: every file by its path (files), or an image layout of OCI with ModelPack's media types (oci)
    #[arg(long, value_name = "FORM", default_value = "files", value_parser = ["files", "oci"], conflicts_with = "hf")]
    format: String,
    /// Also write ro-crate-metadata.json, which archives of research read (RO-Crate 1.1)
    #[arg(long)]
    rocrate: bool,
    /// Also write bom.cdx.json, a bill of materials (CycloneDX 1.6)
    #[arg(long)]
    mlbom: bool,
    /// Sign the folder with the private key in FILE: model.sig in the form of OpenSSF model signing
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct SignArguments {
    #[command(flatten)]
    target: BundleArguments,
    /// The private key, in PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct KeygenArguments {
    /// Where the private key is to stand; the public one goes to FILE.pub. Neither may exist
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// p256, which model.sig needs, or ed25519
    #[arg(long, value_name = "NAME", default_value = "p256", value_parser = ["p256", "ed25519"])]
    algorithm: String,
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "Run records are xt.run/1 documents, as xt-run writes them; the store must hold what they name. Archives \
                are tar.zst files of the one form that xt-store(5) describes; anything else is refused. Keys are PEM \
                files, ECDSA P-256 or Ed25519, as openssl(1) writes them; a private one must not be encrypted. \
                Signatures are DSSE envelopes, one a line, over in-toto statements: how the model came to be (SLSA \
                provenance v1), and the custody record. Both name every file of the bundle by its digest.",
        output: "One xt.bundle/1 a line for each run; `verify` writes one xt.verification/1, `ls` one JSON object a \
                 file, `cat` the bytes of one, `import` and `export` the xt.bundle/1, `sign` one envelope a line, `keygen` one JSON object. A \
                 bundle without a signature is as valid as one with; `verify` says that nobody vouches for it. With --key, \
                 a signature that bears the name of the key and does not hold makes the answer no, also beside one that does.",
        files: &[
            (".xt", "the store; --store or XT_STORE names another"),
            (".xt/refs/bundles/", "one name for each bundle, the 64 digits of its id"),
            (".xt/refs/signatures/", "the signatures of each bundle, by the id of the key"),
        ],
        examples: &[
            ("xt-compile candidate.json | xt-run | xt-freeze -o model.tar.zst", "Train, freeze, and write an archive."),
            (
                "xt-freeze --size full -o full.tar.zst run.json",
                "The same with the worker inside: it replays without an installation.",
            ),
            (
                "xt-freeze --class personal --licence LicenseRef-ours run.json",
                "Say what may be done with the bundle; data that is personal or confidential demands it.",
            ),
            ("xt-freeze verify model.tar.zst", "Check an archive from anywhere, offline."),
            ("zstd -dc model.tar.zst | tar x && sha256sum -c SHA256SUMS", "Check the digests without this toolkit."),
            ("xt-freeze cat model.tar.zst model/config.json", "Look at one file of an archive."),
            ("xt-freeze import model.tar.zst", "Take a verified bundle into the store."),
            ("xt-freeze export --hf model.tar.zst gpt/", "Write the model as transformers loads it."),
            ("xt-freeze export --format oci model.tar.zst image/", "Write an image layout for a registry."),
            (
                "xt-freeze export --rocrate --mlbom model.tar.zst deposit/",
                "Write a folder for an archive or an auditor.",
            ),
            ("xt-freeze keygen key.pem", "Make a pair of keys: key.pem, which stays here, and key.pem.pub."),
            ("xt-freeze -o model.tar.zst --sign key.pem run.json", "Freeze and sign."),
            ("xt-freeze verify --key key.pem.pub model.tar.zst", "Check that the owner of a key vouches for a bundle."),
        ],
        exits: &[
            Exit::Yes,
            Exit::No,
            Exit::Usage,
            Exit::Refused,
            Exit::Store,
            Exit::Quarantined,
            Exit::System,
            Exit::Bug,
        ],
        see_also: &["xt-run(1)", "xt-replay(1)", "xt-store(1)", "xt-store(5)", "xt-manifest(5)", "xt(7)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

fn main() -> ExitCode {
    xt_cli::main(|arguments: Arguments| {
        let common = &arguments.common;
        // A flag that all tools share may stand before a subcommand, so the two are told apart here and not by clap.
        if arguments.command.is_some() && !arguments.freeze.is_default() {
            let message = "runs, --output, --size, --sign, --licence and --class belong to freezing, not to a subcommand; a run record that is called \
                           like one is written ./verify";
            return Err(CliError::Usage(message.into()).into());
        }
        match &arguments.command {
            Some(Command::Verify(arguments)) => verify(arguments, common),
            Some(Command::Ls(target)) => list(&Source::from(target.bundle.as_os_str()), common),
            Some(Command::Cat(arguments)) => cat(arguments, common),
            Some(Command::Import(target)) => import(&Source::from(target.bundle.as_os_str()), common),
            Some(Command::Export(arguments)) => export(arguments, common),
            Some(Command::Sign(arguments)) => sign(arguments, common),
            Some(Command::Keygen(arguments)) => keygen(arguments),
            None => freeze(&arguments.freeze, common),
        }
    })
}

impl FreezeArguments {
    /// Whether nothing was given.
    fn is_default(&self) -> bool {
        self.runs.is_empty()
            && self.output.is_none()
            && self.sign.is_none()
            && self.size == Size::Sealed.word()
            && self.declared.is_empty()
    }
}

fn freeze(arguments: &FreezeArguments, common: &Common) -> Result<Exit, Error> {
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    let sources: Vec<Source> = arguments.runs.iter().map(|run| Source::from(run.as_os_str())).collect();
    let runs: Vec<Run> = each(&read_documents(&sources, &lookup)?, Run::decode)?;
    if arguments.output.is_some() && runs.len() > 1 {
        let message = format!("-o holds one bundle, and there are {} run records", runs.len());
        return Err(CliError::Usage(message).into());
    }
    let size = Size::parse(&arguments.size).unwrap_or(Size::Sealed);
    let declared = Declared { terms: arguments.declared.terms()?, ..size.into() };
    let key = arguments.sign.as_deref().map(private_key).transpose()?;
    let store = Store::open(&common.store)?;
    let mut progress = Bytes::new(common, "freezing");
    let (mut bundles, mut signatures) = (Vec::new(), None);
    for run in &runs {
        known::known(&store, run)?;
        // The files of a worker have no name before the bundle has one.
        let _hold = (size == Size::Full).then(|| store.hold()).transpose()?;
        let mut declared = declared.clone();
        if size == Size::Full {
            declared.worker_bytes = inside::take(&store, run, arguments.worker.as_deref())?;
        }
        let bundle = xt_bundle::freeze(&store, run, &declared, &mut |done, total| progress.update(done, total))?;
        if let Some(key) = &key {
            let custody = run.custody.map(|digest| store.manifest::<Custody>(digest)).transpose()?;
            let lines = signed(&bundle, run, custody.as_ref(), key);
            keep(&store, &bundle, key, &lines)?;
            signatures = arguments.output.as_deref().map(|path| (beside(path), lines));
        }
        for (digest, why) in reached(&store, &bundle, Some(run))? {
            let said = format!("it came from {digest}, which was withdrawn: {why}");
            note(common, &format!("xt-freeze: bundle {} is frozen and does not verify here: {said}", bundle.id()));
        }
        bundles.push(bundle);
    }
    progress.finish();
    let archive = match (&arguments.output, bundles.first()) {
        (Some(path), Some(bundle)) => Some(write_archive(&store, bundle, path, common)?),
        _ => None,
    };
    let mut output = Output::new(None)?;
    for bundle in &bundles {
        output.document(&bundle.encode())?;
    }
    if let Some((path, lines)) = signatures {
        let mut output = Output::new(Some(&path))?;
        output.bytes(lines.as_bytes())?;
        output.finish()?;
    }
    // The archive appears last: when anything before has failed, there is none.
    archive.map_or(Ok(()), Output::finish)?;
    Ok(Exit::Yes)
}

fn write_archive(store: &Store, bundle: &Bundle, path: &Path, common: &Common) -> Result<Output, Error> {
    let mut progress = Bytes::new(common, "writing");
    let mut sink = Sink(Output::new(Some(path))?);
    xt_bundle::write(store, bundle, &mut sink, &mut |done, total| progress.update(done, total))?;
    progress.finish();
    Ok(sink.0)
}

fn verify(arguments: &VerifyArguments, common: &Common) -> Result<Exit, Error> {
    let source = Source::from(arguments.target.bundle.as_os_str());
    let keys = arguments.key.iter().map(|path| public_key(path)).collect::<Result<Vec<_>, _>>()?;
    let mut verdict = verified(&source, common, "verifying")?;
    if let Some(bundle) = verdict.bundle.as_ref().filter(|_| !keys.is_empty()) {
        let (name, text) = signatures(&source, arguments.signatures.as_deref(), bundle, common)?;
        let envelopes = Envelope::read_lines(&text, &name)?;
        let said =
            verdict.run.as_ref().map(|run| statements(bundle, run, verdict.custody.as_ref())).unwrap_or_default();
        let (found, faults) = xt_signing::signatures((bundle, &said), &envelopes, &keys, &name);
        let strangers = xt_signing::strangers(&envelopes, &keys);
        if strangers > 0 {
            let strangers = counted(strangers, "signature");
            note(common, &format!("xt-freeze: not looked at, since not by a given key: {strangers} in {name}"));
        }
        verdict.report.signatures = found;
        verdict.add(faults);
    }
    let withdrawn = withdrawn(&verdict, common)?;
    verdict.add(withdrawn);
    let Verdict { report, faults, .. } = verdict;
    // The answer is no, not a failure of this tool, so the faults go to standard error here.
    for fault in &faults.0 {
        note(common, &format!("xt-freeze: {fault}"));
    }
    for (what, terms) in [("the bundle", &report.terms), ("its data", &report.data_terms)] {
        if let Some(sentence) = terms.0.as_ref().and_then(Terms::sentence) {
            note(common, &format!("xt-freeze: declared of {what}: {sentence}"));
        }
    }
    for signature in &report.signatures {
        note(common, &format!("xt-freeze: signed by key {}: {}", signature.key, signature.predicate));
    }
    if keys.is_empty() && report.verified {
        note(
            common,
            "xt-freeze: all of it is there and agrees with itself; nobody vouches for who made it, since no --key was given",
        );
    }
    Output::new(None)?.document(&report.encode())?;
    Ok(if report.verified { Exit::Yes } else { Exit::No })
}

/// What a look at every file of a bundle says.
fn verified(source: &Source, common: &Common, label: &'static str) -> Result<Verdict, Error> {
    Ok(match source {
        Source::Digest(digest) => xt_bundle::verify_stored(&Store::open(&common.store)?, *digest)?,
        other => xt_bundle::verify_archive(open(other, common, label)?)?,
    })
}

/// Says whether the bundle came from something that the store at hand knows to be withdrawn. Verifying needs no store, so
/// none is needed here, and one that knows of no withdrawal is not searched.
fn withdrawn(verdict: &Verdict, common: &Common) -> Result<Faults, Error> {
    let mut faults = Faults::new();
    let (Ok(store), Some(bundle)) = (Store::open(&common.store), &verdict.bundle) else { return Ok(faults) };
    for (digest, why) in reached(&store, bundle, verdict.run.as_ref())? {
        faults.add("bundle.json", "bundle.withdrawn", format!("it came from {digest}, which was withdrawn: {why}"));
    }
    Ok(faults)
}

/// What was withdrawn of all that a bundle came from. The store need not hold the papers of an archive; the run record names
/// what went in.
fn reached(store: &Store, bundle: &Bundle, run: Option<&Run>) -> Result<BTreeMap<Digest, String>, StoreError> {
    let run_paper = run.map(|run| (run.id(), run.encode()));
    let papers: Vec<(Digest, Value)> = [(bundle.id(), bundle.encode())].into_iter().chain(run_paper).collect();
    let direct = run
        .into_iter()
        .flat_map(|run| run.inputs.iter().map(|input| input.digest).chain(run.dataset).chain([run.plan]));
    xt_bundle::withdrawn(store, &papers, direct.chain([bundle.id()]))
}

/// The signatures that belong to a bundle, and where they were found.
fn signatures(
    source: &Source,
    given: Option<&Path>,
    bundle: &Bundle,
    common: &Common,
) -> Result<(String, Vec<u8>), Error> {
    let path = match (given, source) {
        (Some(path), _) => path.to_path_buf(),
        (None, Source::File(path)) => beside(path),
        (None, Source::Digest(_)) => {
            let store = Store::open(&common.store)?;
            let folder = format!("signatures/{}/", bundle.id().hex());
            let mut text = Vec::new();
            for reference in store.references()?.iter().filter(|reference| reference.name.as_str().starts_with(&folder))
            {
                text.extend(store.get(reference.digest)?);
            }
            return Ok((format!("the store, {folder}"), text));
        }
        (None, _) => {
            let message = "--key needs --signatures FILE when the archive comes on standard input";
            return Err(CliError::Usage(message.into()).into());
        }
    };
    let name = path.display().to_string();
    match fs::read(&path) {
        Ok(text) => Ok((name, text)),
        // No signatures are not a failure but the answer no.
        Err(error) if given.is_none() && error.kind() == io::ErrorKind::NotFound => Ok((name, Vec::new())),
        Err(source) => Err(CliError::Read { name, source }.into()),
    }
}

/// Where the signatures of an archive lie.
fn beside(archive: &Path) -> PathBuf {
    let mut name = archive.as_os_str().to_owned();
    name.push(".intoto.jsonl");
    name.into()
}

fn sign(arguments: &SignArguments, common: &Common) -> Result<Exit, Error> {
    let source = Source::from(arguments.target.bundle.as_os_str());
    let key = private_key(&arguments.key)?;
    let verdict = verified(&source, common, "verifying")?;
    let (bundle, run) = match (verdict.bundle, verdict.run) {
        (Some(bundle), Some(run)) if verdict.report.verified => (bundle, run),
        _ => return Err(BundleError::Refused { name: source.name(), faults: verdict.faults }.into()),
    };
    let lines = signed(&bundle, &run, verdict.custody.as_ref(), &key);
    if let Source::Digest(_) = source {
        keep(&Store::open(&common.store)?, &bundle, &key, &lines)?;
    }
    let mut output = Output::new(arguments.output.as_deref())?;
    output.bytes(lines.as_bytes())?;
    output.finish()?;
    Ok(Exit::Yes)
}

/// Everything that is signed about a bundle, one envelope a line.
fn signed(bundle: &Bundle, run: &Run, custody: Option<&Custody>, key: &PrivateKey) -> String {
    let line = |statement| Envelope::sign(statement, key).write().canonical() + "\n";
    statements(bundle, run, custody).iter().map(line).collect()
}

/// What there is to be said about a bundle, from its own evidence.
fn statements(bundle: &Bundle, run: &Run, custody: Option<&Custody>) -> Vec<Value> {
    let custody = custody.map(|custody| statement::custody(bundle, custody));
    std::iter::once(statement::provenance(bundle, run)).chain(custody).collect()
}

/// Keeps signatures in the store, under the bundle and the key.
fn keep(store: &Store, bundle: &Bundle, key: &PrivateKey, lines: &str) -> Result<(), Error> {
    let (bundle, key) = (bundle.id(), key.public().id());
    let _hold = store.hold()?;
    let digest = store.put(lines.as_bytes())?;
    Ok(store.set_reference(
        &format!("signatures/{}/{key}", bundle.hex()),
        digest,
        &format!("signatures of {bundle}"),
    )?)
}

fn keygen(arguments: &KeygenArguments) -> Result<Exit, Error> {
    let algorithm = Algorithm::parse(&arguments.algorithm).unwrap_or(Algorithm::P256);
    let key = PrivateKey::generate(algorithm)?;
    let mut public = arguments.path.as_os_str().to_owned();
    public.push(".pub");
    let public = PathBuf::from(public);
    let create = |path: &Path, mode: u32, text: &str| {
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        let name = path.display().to_string();
        written.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => CliError::Exists(name),
            _ => CliError::Write { name, source },
        })
    };
    create(&arguments.path, 0o600, &key.to_pem(&arguments.path.display().to_string())?)?;
    if let Err(error) = create(&public, 0o644, &key.public().to_pem()) {
        // A half of a pair is of no use to anybody; it was made just now, by this call.
        fs::remove_file(&arguments.path).ok();
        return Err(error.into());
    }
    let shown = |path: &Path| Value::from(path.display().to_string().as_str());
    Output::new(None)?.document(&object([
        ("algorithm", algorithm.word().into()),
        ("key", key.public().id().as_str().into()),
        ("private", shown(&arguments.path)),
        ("public", shown(&public)),
    ]))?;
    Ok(Exit::Yes)
}

fn private_key(path: &Path) -> Result<PrivateKey, Error> {
    Ok(PrivateKey::from_pem(&text(path)?, &path.display().to_string())?)
}

fn public_key(path: &Path) -> Result<PublicKey, Error> {
    Ok(PublicKey::from_pem(&text(path)?, &path.display().to_string())?)
}

fn text(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| CliError::Read { name: path.display().to_string(), source }.into())
}

fn list(source: &Source, common: &Common) -> Result<Exit, Error> {
    if let Source::Digest(digest) = source {
        return Err(CliError::Usage(format!("`ls` lists archives; `xt-store get {digest}` prints a bundle")).into());
    }
    let mut output = Output::new(None)?;
    for entry in xt_bundle::list(open(source, common, "listing")?)? {
        let line: Value =
            object([("path", entry.path.write()), ("bytes", entry.bytes.write()), ("digest", entry.digest.write())]);
        output.document(&line)?;
    }
    Ok(Exit::Yes)
}

fn import(source: &Source, common: &Common) -> Result<Exit, Error> {
    if let Source::Digest(digest) = source {
        return Err(CliError::Usage(format!("{digest} is in a store already; give an archive")).into());
    }
    let input = open(source, common, "importing")?;
    let store = Store::open_or_create(&common.store)?;
    // Signatures that cannot be read are refused before anything is taken in.
    let signatures = match source {
        Source::File(path) => envelopes_beside(path)?,
        _ => Vec::new(),
    };
    let bundle = xt_bundle::import(&store, input, &source.name())?;
    keep_claimed(&store, &bundle, &signatures)?;
    let came = match signatures.len() {
        0 => "no signatures lie beside it, so none came along".to_owned(),
        count => format!("{} came along; `verify --key` checks them", counted(count, "signature")),
    };
    note(common, &format!("xt-freeze: {came}"));
    Output::new(None)?.document(&bundle.encode())?;
    Ok(Exit::Yes)
}

/// The signatures that lie beside an archive; none when there is no such file.
fn envelopes_beside(archive: &Path) -> Result<Vec<Envelope>, Error> {
    let path = beside(archive);
    let name = path.display().to_string();
    match fs::read(&path) {
        Ok(text) => Ok(Envelope::read_lines(&text, &name)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(CliError::Read { name, source }.into()),
    }
}

/// Keeps signatures in the store by the keys that they claim to be by. Whether they are is seen when somebody verifies.
fn keep_claimed(store: &Store, bundle: &Bundle, signatures: &[Envelope]) -> Result<(), Error> {
    let _hold = store.hold()?;
    let mut by_key: BTreeMap<String, String> = BTreeMap::new();
    for envelope in signatures {
        let line = envelope.write().canonical() + "\n";
        let key = envelope.claimed().find(|key| Digest::from_hex(key).is_ok());
        let key = key.map_or_else(|| Digest::of(line.as_bytes()).hex(), str::to_owned);
        by_key.entry(key).or_default().push_str(&line);
    }
    for (key, lines) in &by_key {
        let digest = store.put(lines.as_bytes())?;
        let name = format!("signatures/{}/{key}", bundle.id().hex());
        store.set_reference(&name, digest, &format!("signatures of {}", bundle.id()))?;
    }
    Ok(())
}

/// Writes one file of a bundle. What goes to a pipe cannot be taken back, so it is verified before: an archive in a file is
/// read twice.
fn cat(arguments: &CatArguments, common: &Common) -> Result<Exit, Error> {
    let source = Source::from(arguments.bundle.as_os_str());
    let wanted = arguments.path.as_str();
    let bundle = if let Source::Digest(digest) = source {
        cat_stored(&Store::open(&common.store)?, digest, arguments)?
    } else {
        if arguments.output.is_none() {
            if !matches!(source, Source::File(_)) {
                let message = "an archive on standard input is read once, so `cat` needs -o FILE, which appears when the \
                               file is verified";
                return Err(CliError::Usage(message.into()).into());
            }
            xt_bundle::cat(open(&source, common, "looking")?, &source.name(), wanted, &mut io::sink())?;
        }
        let mut sink = Sink(Output::new(arguments.output.as_deref())?);
        let bundle = xt_bundle::cat(open(&source, common, "reading")?, &source.name(), wanted, &mut sink)?;
        sink.0.finish()?;
        bundle
    };
    note(common, &format!("xt-freeze: {wanted} of bundle {bundle}; what else it holds was not verified"));
    Ok(Exit::Yes)
}

fn cat_stored(store: &Store, id: Digest, arguments: &CatArguments) -> Result<Digest, Error> {
    let bundle: Bundle = store.manifest(id)?;
    let wanted = arguments.path.as_str();
    let file = bundle.members.iter().find(|member| member.file.path.as_str() == wanted);
    let Some(digest) = file.map(|member| member.file.digest).or((wanted == "bundle.json").then_some(id)) else {
        let faults = Faults::one(wanted, "member.unlisted", "the bundle lists no such file");
        return Err(BundleError::Refused { name: id.to_string(), faults }.into());
    };
    if arguments.output.is_none() {
        store.read(digest, &mut io::sink())?;
    }
    let mut sink = Sink(Output::new(arguments.output.as_deref())?);
    store.read(digest, &mut sink)?;
    sink.0.finish()?;
    Ok(id)
}

/// The file that OpenSSF model signing looks for, and what it does not look at.
const MODEL_SIGNATURE: &str = "model.sig";

fn export(arguments: &ExportArguments, common: &Common) -> Result<Exit, Error> {
    let source = Source::from(arguments.bundle.as_os_str());
    let key = arguments.sign.as_deref().map(private_key).transpose()?;
    let form = match (arguments.hf, arguments.format.as_str()) {
        (true, _) => Form::Model,
        (false, "oci") => Form::Layout,
        (false, _) => Form::Whole,
    };
    if form == Form::Layout && (arguments.rocrate || arguments.mlbom || key.is_some()) {
        let message =
            "an image layout holds nothing but blobs; --rocrate, --mlbom and --sign describe folders of files";
        return Err(CliError::Usage(message.into()).into());
    }
    let exported = if let Source::Digest(digest) = source {
        let store = Store::open(&common.store)?;
        xt_bundle::export(Part::Stored(&store, digest), &source.name(), &arguments.folder, form)?
    } else {
        let mut input = open(&source, common, "exporting")?;
        xt_bundle::export(Part::Archive(&mut input), &source.name(), &arguments.folder, form)?
    };
    let mut exported = exported;
    let form = exported.bundle.compatibility.form.clone();
    if arguments.hf && !form.starts_with("huggingface/") {
        let message = format!("its files have the form {form}; export it without --hf");
        let faults = Faults::one("bundle.json#/compatibility/form", "export.form", message);
        return Err(faults.into());
    }
    describe(&mut exported, arguments)?;
    if let (Some(key), Some(path)) = (&key, &arguments.sign) {
        let name = arguments.folder.file_name().unwrap_or_default().to_string_lossy();
        let statement = statement::model(&name, &exported.files, &[MODEL_SIGNATURE]);
        let signature = xt_signing::sigstore_bundle(&statement, key, &path.display().to_string())?;
        exported.add(MODEL_SIGNATURE, signature.canonical().as_bytes())?;
    }
    let bundle = exported.finish()?;
    Output::new(None)?.document(&bundle.encode())?;
    Ok(Exit::Yes)
}

/// Adds what other standards say of a bundle; a signature covers it, too.
fn describe(exported: &mut Exported, arguments: &ExportArguments) -> Result<(), Error> {
    let Some(run) = exported.run.clone() else { return Ok(()) };
    let version = env!("CARGO_PKG_VERSION");
    if arguments.mlbom {
        let text = mlbom::bill(&exported.bundle, &run, version).canonical();
        exported.describe("bom.cdx.json", text.as_bytes())?;
    }
    if arguments.rocrate {
        let files = exported.sizes();
        let text = rocrate::metadata(&exported.bundle, &run, &files, version).canonical();
        exported.describe(rocrate::FILE, text.as_bytes())?;
    }
    Ok(())
}

/// The bytes of an archive, with progress when it is a file, whose length is known.
fn open<'a>(source: &Source, common: &'a Common, label: &'static str) -> Result<Box<dyn Read + 'a>, Error> {
    let failed = |error| Error::from(source.unreadable(error));
    if let Source::File(path) = source {
        let mut file = File::open(path).map_err(failed)?;
        let total = file.metadata().map_err(failed)?.len();
        let mut first = [0];
        if file.read(&mut first).map_err(failed)? == 1 && first == *b"{" {
            return Err(CliError::Document(source.name()).into());
        }
        file.rewind().map_err(failed)?;
        return Ok(Box::new(Watched { file, done: 0, total, progress: Bytes::new(common, label) }));
    }
    let mut stdin = io::BufReader::new(io::stdin());
    if stdin.fill_buf().map_err(failed)?.is_empty() {
        return Err(CliError::NoDocument(source.name()).into());
    }
    Ok(Box::new(stdin))
}

/// A file that is read with progress.
struct Watched<'a> {
    file: File,
    done: u64,
    total: u64,
    progress: Bytes<'a>,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        if count > 0 {
            self.done += count as u64;
            self.progress.update(self.done, self.total);
        }
        Ok(count)
    }
}

/// An output as a sink of bytes.
struct Sink(Output);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.bytes(bytes).map(|()| bytes.len()).map_err(|error| io::Error::other(error.0.to_string()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Progress through bytes, whose number is known only once work has begun.
struct Bytes<'a> {
    common: &'a Common,
    label: &'static str,
    bar: Option<Progress>,
}

impl<'a> Bytes<'a> {
    fn new(common: &'a Common, label: &'static str) -> Self {
        Self { common, label, bar: None }
    }

    fn update(&mut self, done: u64, total: u64) {
        let bar = self.bar.get_or_insert_with(|| Progress::new(self.common, self.label, total, "bytes"));
        bar.update(done, "");
    }

    /// Removes the bar.
    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }
}

impl Drop for Bytes<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}
