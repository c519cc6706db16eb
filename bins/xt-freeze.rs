//! `xt-freeze`: is this run complete, bound to its inputs, and verifiable by a stranger offline?

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use xt_bundle::Verdict;
use xt_cli::{CliError, Common, Error, Manual, Output, Progress, Source, Tool, each, note, read_documents};
use xt_core::canonical::Value;
use xt_core::fault::Exit;
use xt_core::field::{Field as _, Manifest as _, object};
use xt_core::manifest::bundle::{Bundle, Size};
use xt_core::manifest::run::Run;
use xt_store::{Store, StoreError};

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
    /// What the bundle holds: with the data (sealed), or with the digests of the data only (thin)
    #[arg(long, value_name = "SIZE", default_value = "sealed", value_parser = ["sealed", "thin"])]
    size: String,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Check structure, digests and agreement of all that a bundle holds; needs no store for an archive
    Verify(BundleArguments),
    /// List the files of an archive: digest, size and path
    Ls(BundleArguments),
    /// Take an archive into the store, once it is verified
    Import(BundleArguments),
}

#[derive(Args, Clone, Debug)]
struct BundleArguments {
    /// An archive, - for one on standard input, or for `verify` the digest of a bundle in the store
    #[arg(value_name = "BUNDLE", default_value = "-")]
    bundle: OsString,
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "Run records are xt.run/1 documents, as xt-run writes them; the store must hold what they name. Archives \
                are tar.zst files of the one form that xt-store(5) describes; anything else is refused.",
        output: "One xt.bundle/1 a line for each run; `verify` writes one xt.verification/1, `ls` one JSON object a \
                 file, `import` the xt.bundle/1.",
        files: &[
            (".xt", "the store; --store or XT_STORE names another"),
            (".xt/refs/bundles/", "one name for each bundle, the 64 digits of its id"),
        ],
        examples: &[
            ("xt-compile candidate.json | xt-run | xt-freeze -o model.tar.zst", "Train, freeze, and write an archive."),
            ("xt-freeze verify model.tar.zst", "Check an archive from anywhere, offline."),
            ("zstd -dc model.tar.zst | tar x && sha256sum -c SHA256SUMS", "Check the digests without this toolkit."),
            ("xt-freeze import model.tar.zst", "Take a verified bundle into the store."),
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
            let message = "runs, --output and --size belong to freezing, not to a subcommand; a run record that is called \
                           like one is written ./verify";
            return Err(CliError::Usage(message.into()).into());
        }
        match &arguments.command {
            Some(Command::Verify(target)) => verify(&Source::from(target.bundle.as_os_str()), common),
            Some(Command::Ls(target)) => list(&Source::from(target.bundle.as_os_str()), common),
            Some(Command::Import(target)) => import(&Source::from(target.bundle.as_os_str()), common),
            None => freeze(&arguments.freeze, common),
        }
    })
}

impl FreezeArguments {
    /// Whether nothing was given.
    fn is_default(&self) -> bool {
        self.runs.is_empty() && self.output.is_none() && self.size == Size::Sealed.word()
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
    let store = Store::open(&common.store)?;
    let mut progress = Bytes::new(common, "freezing");
    let mut bundles = Vec::new();
    for run in &runs {
        known(&store, run)?;
        bundles.push(xt_bundle::freeze(&store, run, size, &mut |done, total| progress.update(done, total))?);
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
    // The archive appears last: when anything before has failed, there is none.
    archive.map_or(Ok(()), Output::finish)?;
    Ok(Exit::Yes)
}

/// A record counts only if the store holds it: a file can say anything.
fn known(store: &Store, run: &Run) -> Result<(), Error> {
    let digest = run.id();
    if store.contains(digest)? { Ok(()) } else { Err(StoreError::Missing { digest }.into()) }
}

fn write_archive(store: &Store, bundle: &Bundle, path: &std::path::Path, common: &Common) -> Result<Output, Error> {
    let mut progress = Bytes::new(common, "writing");
    let mut sink = Sink(Output::new(Some(path))?);
    xt_bundle::write(store, bundle, &mut sink, &mut |done, total| progress.update(done, total))?;
    progress.finish();
    Ok(sink.0)
}

fn verify(source: &Source, common: &Common) -> Result<Exit, Error> {
    let verdict = match source {
        Source::Digest(digest) => xt_bundle::verify_stored(&Store::open(&common.store)?, *digest)?,
        other => xt_bundle::verify_archive(open(other, common, "verifying")?)?,
    };
    let Verdict { report, faults, .. } = verdict;
    // The answer is no, not a failure of this tool, so the faults go to standard error here.
    for fault in &faults.0 {
        note(common, &format!("xt-freeze: {fault}"));
    }
    Output::new(None)?.document(&report.encode())?;
    Ok(if report.verified { Exit::Yes } else { Exit::No })
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
    let bundle = xt_bundle::import(&store, input, &source.name())?;
    Output::new(None)?.document(&bundle.encode())?;
    Ok(Exit::Yes)
}

/// The bytes of an archive, with progress when it is a file, whose length is known.
fn open<'a>(source: &Source, common: &'a Common, label: &'static str) -> Result<Box<dyn Read + 'a>, Error> {
    let failed = |error| Error::from(CliError::Read { name: source.name(), source: error });
    if let Source::File(path) = source {
        let file = File::open(path).map_err(failed)?;
        let total = file.metadata().map_err(failed)?.len();
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
