//! `xt-store`: objects by digest, in and out, and whether they are still what they were.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use nix::sys::signal::Signal;
use xt_cli::{CliError, Common, Error, Manual, Output, Progress, Tool, note, read_documents};
use xt_core::canonical::Value;
use xt_core::count::counted;
use xt_core::digest::Digest;
use xt_core::fault::Exit;
use xt_core::field::{Field, Manifest as _, object};
use xt_core::verb::settle::Machine as _;
use xt_record::Record;
use xt_runtime::worker;
use xt_store::{Collection, Reference, Report, Source, Store};

#[path = "xt-snapshot/again.rs"]
mod again;
#[path = "xt-store/folders.rs"]
mod folders;
#[path = "xt-store/replayable.rs"]
mod replayable;

/// The signal that ended the waiting.
type Left = Cell<Option<Signal>>;

/// Keep files by the SHA-256 of their bytes, and get them back verified
///
/// The store is a folder. Any number of processes may use it at once, and each may be killed at any moment. What `put`
/// has printed is on the disk; what `get` writes has been hashed again.
#[derive(Parser, Clone, Debug)]
#[command(name = "xt-store", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Store files and print the digest of each
    Put(PutArguments),
    /// Write the bytes of an object
    Get(GetArguments),
    /// List every object
    Ls,
    /// Print the digests of a folder without storing it
    Tree(TreeArguments),
    /// Read everything and report what is damaged, and which names that breaks
    Verify(VerifyArguments),
    /// Write JSON documents in their canonical form
    Canon(CanonArguments),
    /// List, set or remove names of objects
    Refs(RefsArguments),
    /// Keep an object although no name leads to it; without a digest, list what is kept
    Pin(PinArguments),
    /// Give up a pin; the object stays until it is collected
    Unpin(UnpinArguments),
    /// Say what a collection would remove, and with --apply remove it
    Gc(GcArguments),
    /// Encode anew what was stored quickly, or is close to another state of the same run; no digest changes
    Pack,
    /// Say how much space each run and each other name takes
    Du,
    /// List what is in quarantine, or remove something from it
    Quarantine(QuarantineArguments),
    /// Copy names and all that they lead to into another store
    Push(TransferArguments),
    /// Copy names and all that they lead to from another store
    Pull(TransferArguments),
}

#[derive(Args, Clone, Debug)]
struct PutArguments {
    /// Files, or - for standard input [default: standard input]
    #[arg(value_name = "FILE")]
    paths: Vec<OsString>,
    /// Take folders: store every file in them and the listing of each folder
    #[arg(long, short, requires = "paths")]
    recursive: bool,
    /// Store blocks as they are, which is quicker; `pack` encodes them later
    #[arg(long)]
    raw: bool,
    /// Also give the object this name, as `refs --set` does; only with a single FILE
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Why it is kept, in words
    #[arg(long, value_name = "TEXT", default_value = "", requires = "name")]
    reason: String,
}

#[derive(Args, Clone, Debug)]
struct GetArguments {
    /// Its digest
    #[arg(value_name = "DIGEST")]
    digest: Digest,
    /// Write to FILE, which appears when all of it is verified
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// DIGEST is what `put -r` printed of a folder: write all of its files into the new folder that -o names
    #[arg(long, short, requires = "output")]
    recursive: bool,
}

#[derive(Args, Clone, Debug)]
struct VerifyArguments {
    /// Bring damaged and missing objects back from another store (a folder) or from a bundle (an archive)
    #[arg(long, value_name = "STORE|BUNDLE")]
    repair_from: Option<PathBuf>,
    /// Compute damaged files of states again, from the nearest sound state before; what comes out otherwise is not accepted
    #[arg(long)]
    repair_by_replay: bool,
    /// The worker that trains [default: xt-train beside this program or in ../libexec/xt]
    #[arg(long, value_name = "PATH", env = worker::VARIABLE)]
    worker: Option<PathBuf>,
    /// Only hash what is stored, and read objects where that is not what it was
    #[arg(long)]
    stored: bool,
}

#[derive(Args, Clone, Debug)]
struct PinArguments {
    /// The object
    #[arg(value_name = "DIGEST")]
    digest: Option<Digest>,
    /// Why it is kept, in words
    #[arg(long, value_name = "TEXT", default_value = "", requires = "digest")]
    reason: String,
}

#[derive(Args, Clone, Debug)]
struct UnpinArguments {
    /// The object
    #[arg(value_name = "DIGEST")]
    digest: Digest,
}

#[derive(Args, Clone, Debug)]
struct GcArguments {
    /// Remove it; without this nothing is changed
    #[arg(long)]
    apply: bool,
    /// Leave alone what was stored more recently: a number and s, m, h or d
    #[arg(long, value_name = "AGE", default_value = "1d", value_parser = age)]
    older_than: Duration,
    /// Also give up states of runs that can be computed again: their files go, what to compute them from stays
    #[arg(long, value_name = "WHICH", requires = "keep_every")]
    evict: Option<Evicted>,
    /// Keep one in K states of each run, and always the last
    #[arg(long, value_name = "K", requires = "evict", value_parser = clap::value_parser!(u64).range(1..))]
    keep_every: Option<u64>,
    /// Also print a line for each object that goes, before the report
    #[arg(long)]
    list: bool,
}

/// What may be given up.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Evicted {
    /// States of runs in the exact regime whose whole trace is there
    Replayable,
}

#[derive(Args, Clone, Debug)]
struct QuarantineArguments {
    #[command(subcommand)]
    command: QuarantineCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum QuarantineCommand {
    /// Print one line for each damaged pack, and for each run that left something behind
    Ls,
    /// Remove things for good
    Rm {
        /// As `ls` prints them
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

#[derive(Args, Clone, Debug)]
struct TransferArguments {
    /// Folder of the other store; push makes it when it is not there
    #[arg(value_name = "OTHER")]
    other: PathBuf,
    /// Names, or folders of names such as `bundles` [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Args, Clone, Debug)]
struct TreeArguments {
    /// The folder; it and everything in it must be folders and regular files
    #[arg(value_name = "DIR")]
    path: PathBuf,
}

#[derive(Args, Clone, Debug)]
struct CanonArguments {
    /// Files, digests or - [default: standard input]
    #[arg(value_name = "FILE")]
    sources: Vec<OsString>,
    /// Print the digest of each document instead: that of its canonical form without the member `id`
    #[arg(long)]
    id: bool,
}

#[derive(Args, Clone, Debug)]
struct RefsArguments {
    /// Give an object a name, or move a name to it
    #[arg(long, num_args = 2, value_names = ["NAME", "DIGEST"])]
    set: Option<Vec<String>>,
    /// Why it is kept, in words
    #[arg(long, value_name = "TEXT", default_value = "", requires = "set")]
    reason: String,
    /// Remove a name; the object stays
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    remove: Option<String>,
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "put takes regular files, standard input, and with -r folders. Links, FIFOs, sockets and devices are \
                refused by name, and so are names in folders that are not UTF-8 or hold control characters, \
                backslashes or colons. canon takes any JSON.",
        output: "One JSON object a line. put: path, digest and bytes of each file. put -r and tree: the same for each \
                 file, in the order of the bytes of the whole path, then tree, digest, files and bytes of the folder; \
                 that digest is the SHA-256 of what sha256sum prints for the files in this order. ls: digest and bytes. \
                 \
                 verify: one xt.store-report/1. refs and pin: name, digest and reason. get -r: tree, digest, files and bytes. gc: one xt.gc-report/1; pack: one xt.pack-report/1; \
                 packs are removed whole, and one is written anew without what is not needed once that is an eighth of it, so \
                 unnamed objects beside needed ones can stay (spared). du: name, \
                 objects, bytes, stored (bytes in packs) and alone (bytes that nothing else leads to) of each run, \
                 snapshots included, and of each other name; then one object for the whole store. push and pull: one \
                 xt.transfer/1. A path that is not UTF-8 is written \
                 with \\xNN for its odd bytes.",
        files: &[(".xt", "the store; --store or XT_STORE names another; xt-store(5) describes it")],
        examples: &[
            ("xt-store put model.safetensors", "Store a file."),
            ("tar -c src | xt-store put --name sources/today", "Store a stream under a name."),
            ("xt-store get sha256:9f86… -o model.safetensors", "Get it back."),
            ("xt-store get -r sha256:4ca1… -o data/", "Get a folder back that put -r stored."),
            ("xt-store tree data/", "Say what a folder holds, in one digest."),
            ("xt-store verify", "Hash everything again."),
            ("xt-store verify --repair-from model.tar.zst", "Mend what is damaged from a bundle that holds it."),
            ("xt-store pack", "Store what is there in less space."),
            ("xt-store verify --repair-by-replay", "Compute damaged states of runs again."),
            ("xt-store gc", "Say what no name leads to."),
            (
                "xt-store gc --apply --evict replayable --keep-every 10",
                "Keep one state in ten; the others can be computed.",
            ),
            ("xt-store gc --apply --older-than 0s", "Remove it now, however young it is."),
            ("xt-store push /mnt/backup bundles runs", "Copy bundles and runs with all that they lead to."),
            ("xt-store canon --id plan.json", "Print the id of a document."),
        ],
        exits: &[
            Exit::Yes,
            Exit::No,
            Exit::Usage,
            Exit::Refused,
            Exit::Store,
            Exit::Conflict,
            Exit::Workload,
            Exit::System,
            Exit::NotNow,
            Exit::Bug,
        ],
        see_also: &["xt-compile(1)", "xt-freeze(1)", "xt-store(5)", "xt(7)", "sha256sum(1)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

fn main() -> ExitCode {
    if let Some(code) = xt_runtime::supervise_if_asked() {
        return code;
    }
    let left = Left::new(None);
    let code = xt_cli::main(|arguments| run(arguments, &left));
    // 128+n says that a signal ended the waiting and that nothing was settled.
    left.get().and_then(|signal| u8::try_from(signal as i32).ok()).map_or(code, |n| ExitCode::from(128 + n))
}

fn run(arguments: Arguments, left: &Left) -> Result<Exit, Error> {
    let common = &arguments.common;
    match arguments.command {
        Some(Command::Put(put)) if put.recursive => folders::put(common, &put),
        Some(Command::Put(put)) => put_files(common, &put),
        Some(Command::Get(get)) if get.recursive => folders::get(common, get.digest, get.output.as_deref()),
        Some(Command::Get(get)) => get_object(common, &get),
        Some(Command::Ls) => list(common),
        Some(Command::Tree(tree)) => folders::print(common, &tree.path),
        Some(Command::Verify(verify_arguments)) => verify(common, &verify_arguments, left),
        Some(Command::Canon(canon)) => canonical(common, &canon),
        Some(Command::Refs(refs)) => references(common, &refs),
        Some(Command::Pin(pin)) => pins(common, &pin),
        Some(Command::Unpin(unpin)) => give_up(common, unpin.digest),
        Some(Command::Gc(gc)) => collect(common, &gc),
        Some(Command::Pack) => pack(common),
        Some(Command::Du) => usage(common),
        Some(Command::Quarantine(quarantine)) => quarantined(common, &quarantine.command),
        Some(Command::Push(push)) => {
            let here = Store::open(&common.store)?;
            let names = chosen(&here, &push.names)?;
            transfer(common, "push", (&here, &Store::open_or_create(&push.other)?), &names)
        }
        Some(Command::Pull(pull)) => {
            let other = Store::open(&pull.other)?;
            let names = chosen(&other, &pull.names)?;
            transfer(common, "pull", (&other, &Store::open_or_create(&common.store)?), &names)
        }
        None => {
            Err(CliError::Usage("say what to do, such as put, get, ls, verify or gc; --help lists all".into()).into())
        }
    }
}

/// Results are written when everything is stored, so that no line claims what is not there.
fn print(lines: &[Value]) -> Result<Exit, Error> {
    let text: String = lines.iter().map(|line| line.canonical() + "\n").collect();
    Output::new(None)?.bytes(text.as_bytes())?;
    Ok(Exit::Yes)
}

fn put_files(common: &Common, arguments: &PutArguments) -> Result<Exit, Error> {
    let stdin = [OsString::from("-")];
    let paths = if arguments.paths.is_empty() { &stdin[..] } else { &arguments.paths };
    single_name(arguments, paths.len())?;
    // A wrong path is refused before a store is made or anything is read.
    let mut total = 0;
    for path in paths.iter().filter(|path| *path != "-") {
        total += Source::open(Path::new(path))?.size();
    }
    let store = Store::open_or_create(&common.store)?;
    let _hold = store.hold()?;
    let mut writer = store.writer()?;
    if arguments.raw {
        writer.raw();
    }
    let mut progress = Progress::new(common, "put", total >> 20, "MiB");
    let (mut done, mut lines, mut last) = (0, Vec::new(), None);
    for path in paths {
        let mut watch = |bytes: u64| {
            done += bytes;
            progress.update(done >> 20, "");
        };
        let (digest, bytes) = match path.to_str() {
            Some("-") => writer.put_stream(Watched(io::stdin().lock(), &mut watch), Path::new("standard input"))?,
            _ => writer.put_again(Source::open(Path::new(path))?, &mut watch)?,
        };
        lines.push(file_line(&shown(path), digest, bytes));
        last = Some(digest);
    }
    writer.commit()?;
    progress.finish();
    name_it(&store, arguments, last)?;
    print(&lines)
}

/// Tells how many bytes went through: a reader or writer, and whom to tell.
struct Watched<'a, T>(T, &'a mut dyn FnMut(u64));

impl<T: Read> Read for Watched<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read(buffer)?;
        (self.1)(length as u64);
        Ok(length)
    }
}

impl<T: Write> Write for Watched<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.0.write(bytes)?;
        (self.1)(length as u64);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn single_name(arguments: &PutArguments, count: usize) -> Result<(), Error> {
    if arguments.name.is_some() && count != 1 {
        return Err(CliError::Usage(format!("--name names one object, and {count} are given")).into());
    }
    Ok(())
}

fn name_it(store: &Store, arguments: &PutArguments, digest: Option<Digest>) -> Result<(), Error> {
    match (&arguments.name, digest) {
        (Some(name), Some(digest)) => Ok(store.set_reference(name, digest, &arguments.reason)?),
        _ => Ok(()),
    }
}

fn file_line(path: &str, digest: Digest, bytes: u64) -> Value {
    object([("path", path.into()), ("digest", text(digest)), ("bytes", bytes.into())])
}

fn text(digest: Digest) -> Value {
    digest.to_string().as_str().into()
}

/// A path as the output has it.
fn shown(path: &std::ffi::OsStr) -> String {
    path.to_str().map_or_else(|| path.as_encoded_bytes().escape_ascii().to_string(), str::to_owned)
}

fn get_object(common: &Common, arguments: &GetArguments) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    if arguments.output.is_none() {
        // What is written to a pipe cannot be taken back, so all of it is verified first.
        store.read(arguments.digest, &mut io::sink())?;
    }
    let mut sink = Sink { output: Output::new(arguments.output.as_deref())?, fault: None };
    let total = store.size(arguments.digest)?.unwrap_or_default();
    let (mut progress, mut done) = (Progress::new(common, "get", total >> 20, "MiB"), 0);
    let mut watch = |bytes: u64| {
        done += bytes;
        progress.update(done >> 20, "");
    };
    let copied = store.read(arguments.digest, &mut Watched(&mut sink, &mut watch));
    progress.finish();
    if let Some(fault) = sink.fault {
        return Err(fault);
    }
    copied?;
    sink.output.finish()?;
    Ok(Exit::Yes)
}

/// An output as something to write to; keeps the error, which says more than the one it gives.
struct Sink {
    output: Output,
    fault: Option<Error>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.output.bytes(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                self.fault = Some(error);
                Err(io::Error::other("the output cannot be written"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn list(common: &Common) -> Result<Exit, Error> {
    let objects = Store::open(&common.store)?.list()?;
    let line = |(digest, bytes): &(Digest, u64)| object([("digest", text(*digest)), ("bytes", (*bytes).into())]);
    print(&objects.iter().map(line).collect::<Vec<_>>())
}

fn verify(common: &Common, arguments: &VerifyArguments, left: &Left) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    if let Some(other) = arguments.repair_from.as_deref() {
        usable(other)?;
    }
    let mut report = verified(common, &store, arguments.stored)?;
    if let Some(other) = arguments.repair_from.as_deref() {
        let wanted = report.wanted();
        let repaired = if wanted.is_empty() { Vec::new() } else { repair(&store, other, &wanted)? };
        if wanted.is_empty() {
            note(common, &format!("xt-store: nothing is damaged, so nothing was taken from {}", other.display()));
        }
        if !repaired.is_empty() {
            report = verified(common, &store, arguments.stored)?;
        }
        report.repaired = repaired;
    }
    if arguments.repair_by_replay && !report.wanted().is_empty() {
        let repaired = replayable::repair(common, &store, &report.wanted(), arguments.worker.as_deref(), left)?;
        if !repaired.is_empty() {
            let before = std::mem::take(&mut report.repaired);
            report = verified(common, &store, arguments.stored)?;
            report.repaired = before;
            report.repaired.extend(repaired);
        }
    }
    print(&[report.encode()])?;
    Ok(if report.damaged.is_empty() { Exit::Yes } else { Exit::No })
}

fn verified(common: &Common, store: &Store, stored: bool) -> Result<Report, Error> {
    let mut progress = None;
    let watch = |done: u64, total: u64| {
        progress.get_or_insert_with(|| Progress::new(common, "verify", total >> 20, "MiB")).update(done >> 20, "");
    };
    let report = if stored { store.verify_stored(watch)? } else { store.verify_watched(watch)? };
    if let Some(progress) = progress {
        progress.finish();
    }
    Ok(report)
}

/// Fails when nothing could be brought back from there, whether it is needed or not: a word that is mistyped shows at once.
fn usable(other: &Path) -> Result<(), Error> {
    if other.is_dir() {
        return Ok(Store::open(other).map(drop)?);
    }
    let failed = |source| CliError::Read { name: other.display().to_string(), source };
    let mut start = [0; 4];
    let read = File::open(other).and_then(|mut file| file.read_exact(&mut start));
    match read {
        Ok(()) if start == ZSTD_MAGIC => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(failed(error).into()),
        _ => Err(failed(io::Error::other("it is neither a store nor an archive that xt-freeze wrote")).into()),
    }
}

/// First bytes of a zstd frame (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Brings back objects from a store or an archive; gives those that it had.
fn repair(store: &Store, other: &Path, wanted: &[Digest]) -> Result<Vec<Digest>, Error> {
    if other.is_dir() {
        return Ok(store.repair_from(&Store::open(other)?, wanted)?);
    }
    Ok(xt_bundle::repair_from(store, || File::open(other), &other.display().to_string(), wanted)?)
}

fn canonical(common: &Common, arguments: &CanonArguments) -> Result<Exit, Error> {
    let sources: Vec<xt_cli::Source> = arguments.sources.iter().map(|source| source.as_os_str().into()).collect();
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    let documents = read_documents(&sources, &lookup)?;
    let line = |value: &Value| if arguments.id { value.identity().to_string() } else { value.canonical() };
    let lines: String = documents.iter().map(|document| line(&document.value) + "\n").collect();
    Output::new(None)?.bytes(lines.as_bytes())?;
    Ok(Exit::Yes)
}

fn references(common: &Common, arguments: &RefsArguments) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    if let Some([name, digest]) = arguments.set.as_deref() {
        let digest: Digest = digest.parse().map_err(|error: xt_core::digest::NotADigest| {
            Error::from(CliError::Usage(format!("--set {name}: {error}")))
        })?;
        store.set_reference(name, digest, &arguments.reason)?;
        return Ok(Exit::Yes);
    }
    if let Some(name) = &arguments.remove {
        if store.remove_reference(name)? {
            return Ok(Exit::Yes);
        }
        return Err(CliError::NotThere(format!("there is no reference {name:?}")).into());
    }
    print(&store.references()?.iter().map(reference_line).collect::<Vec<_>>())
}

fn pins(common: &Common, arguments: &PinArguments) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    if let Some(digest) = arguments.digest {
        store.pin(digest, &arguments.reason)?;
        return Ok(Exit::Yes);
    }
    print(&store.pins()?.iter().map(reference_line).collect::<Vec<_>>())
}

fn give_up(common: &Common, digest: Digest) -> Result<Exit, Error> {
    if Store::open(&common.store)?.unpin(digest)? {
        return Ok(Exit::Yes);
    }
    Err(CliError::NotThere(format!("{digest} is not pinned")).into())
}

/// A number and a unit.
fn age(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86400)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*seconds)
    });
    parsed.map(Duration::from_secs).ok_or_else(|| format!("{text:?} is not a number and s, m, h or d, such as 12h"))
}

fn collect(common: &Common, arguments: &GcArguments) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    let collection = Collection { apply: arguments.apply, older_than: arguments.older_than };
    let mut gone = Vec::new();
    let mut each = |digest, bytes: u64| {
        if arguments.list {
            gone.push(object([("digest", text(digest)), ("bytes", bytes.into())]));
        }
    };
    let evicted = match arguments.keep_every.filter(|_| arguments.evict.is_some()) {
        Some(every) => replayable::states(&store, every, &unfinished(&store)?)?,
        None => replayable::Evictable::default(),
    };
    if arguments.apply {
        // A name of a state whose files are gone would promise what is not there.
        for name in &evicted.names {
            store.remove_reference(name)?;
        }
    }
    let report = store.collect_without(&collection, &evicted.files, &mut || unfinished(&store), &mut each)?;
    if !evicted.files.is_empty() {
        let (states, bytes) = (counted(evicted.states, "state"), counted(evicted.bytes, "byte"));
        let done = if arguments.apply { "given up" } else { "can be given up" };
        note(common, &format!("xt-store: {states} {done} ({bytes}); xt-snapshot RUN --step K computes one again"));
    }
    gone.push(report.encode());
    print(&gone)?;
    if !arguments.apply {
        note(common, "xt-store: nothing was changed; --apply removes what the report calls unnamed");
    }
    if report.packs_removed > 0 {
        let (unnamed, freed) = (&report.unnamed, report.freed.saturating_sub(report.moved));
        let objects = counted(unnamed.objects, "object");
        let (bytes, freed) = (counted(unnamed.bytes, "byte"), counted(freed, "byte"));
        note(common, &format!("xt-store: removed {objects} without a name ({bytes}); {freed} of the disk free again"));
    }
    if report.spared.objects > 0 && arguments.older_than.is_zero() {
        let objects = counted(report.spared.objects, "object");
        let why = "beside what is needed, in packs of which less than an eighth would be freed";
        note(common, &format!("xt-store: {objects} without a name stay for now: {why}"));
    }
    if report.packs_waiting > 0 {
        note(common, "xt-store: writers are at work that began before; the next gc removes what waits for them");
    }
    Ok(Exit::Yes)
}

fn pack(common: &Common) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    let mut progress = None;
    let packed = store.pack(&mut || unfinished(&store), &mut |done, total| {
        progress.get_or_insert_with(|| Progress::new(common, "pack", total >> 20, "MiB")).update(done >> 20, "");
    })?;
    if let Some(progress) = progress {
        progress.finish();
    }
    print(&[packed.encode()])?;
    if packed.packs_waiting > 0 {
        note(common, "xt-store: writers are at work that began before; the next gc removes the old packs");
    }
    Ok(Exit::Yes)
}

/// What the record knows of and no reference leads to: the plans of attempts that have not ended with a run record, and
/// what was ordered for them.
fn unfinished(store: &Store) -> Result<Vec<Digest>, Error> {
    if !store.record_path().exists() {
        return Ok(Vec::new());
    }
    let mut roots = Vec::new();
    for attempt in Record::open_read_only(&store.record_path())?.attempts()? {
        if attempt.state.is_terminal() && attempt.run_record.is_some() {
            continue;
        }
        roots.push(attempt.plan);
        let order = store.runs().join(attempt.id.as_str()).join("order.json");
        match std::fs::read(&order) {
            Ok(bytes) => roots.extend(xt_store::digests_in(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(CliError::Read { name: order.display().to_string(), source }.into()),
        }
    }
    Ok(roots)
}

fn usage(common: &Common) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    let mut groups: BTreeMap<String, Vec<Digest>> = BTreeMap::new();
    for reference in store.references()? {
        // The states of a run are part of it.
        let parts: Vec<&str> = reference.name.as_str().splitn(3, '/').collect();
        let group = match parts[..] {
            ["snapshots", attempt, _] => format!("runs/{attempt}"),
            _ => reference.name.to_string(),
        };
        groups.entry(group).or_default().push(reference.digest);
    }
    for pin in store.pins()? {
        groups.entry(format!("pins/{}", pin.name)).or_default().push(pin.digest);
    }
    let (found, total) = store.usage(&groups)?;
    print(&found.iter().map(Field::write).chain([total.write()]).collect::<Vec<_>>())
}

fn quarantined(common: &Common, command: &QuarantineCommand) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    let QuarantineCommand::Rm { names } = command else {
        return print(&store.quarantined()?.iter().map(Field::write).collect::<Vec<_>>());
    };
    let there: Vec<String> = store.quarantined()?.into_iter().map(|found| found.name).collect();
    if let Some(wrong) = names.iter().find(|name| !there.contains(name)) {
        return Err(CliError::NotThere(format!("there is no {wrong:?} in quarantine; nothing was removed")).into());
    }
    for name in names {
        store.remove_quarantined(name)?;
    }
    Ok(Exit::Yes)
}

/// The references that were named, each or by its folder; all of them when none was. A wrong name is refused before the
/// store that they go to is made.
fn chosen(store: &Store, wanted: &[String]) -> Result<Vec<Reference>, Error> {
    let mut all = store.references()?;
    let meant = |wanted: &str, name: &str| {
        let below = name.strip_prefix(wanted.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'));
        name == wanted || below
    };
    if let Some(wrong) = wanted.iter().find(|wanted| !all.iter().any(|found| meant(wanted, found.name.as_str()))) {
        return Err(CliError::NotThere(format!("there is no reference {wrong:?}")).into());
    }
    all.retain(|found| wanted.is_empty() || wanted.iter().any(|wanted| meant(wanted, found.name.as_str())));
    Ok(all)
}

fn transfer(common: &Common, label: &str, stores: (&Store, &Store), names: &[Reference]) -> Result<Exit, Error> {
    let mut progress = None;
    let moved = stores.0.copy_to(stores.1, names, &mut |done, total| {
        progress.get_or_insert_with(|| Progress::new(common, label, total >> 20, "MiB")).update(done >> 20, "");
    })?;
    if let Some(progress) = progress {
        progress.finish();
    }
    print(&[moved.encode()])
}

fn reference_line(reference: &Reference) -> Value {
    object([
        ("name", reference.name.as_str().into()),
        ("digest", text(reference.digest)),
        ("reason", reference.reason.as_str().into()),
    ])
}
