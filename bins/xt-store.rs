//! `xt-store`: objects by digest, in and out, and whether they are still what they were.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use xt_cli::{CliError, Common, Error, Manual, Output, Progress, Tool, read_documents};
use xt_core::canonical::Value;
use xt_core::digest::{Digest, Hasher};
use xt_core::fault::Exit;
use xt_core::field::{Manifest as _, object};
use xt_core::relpath::RelativePath;
use xt_store::tree::{self, Tree};
use xt_store::{Reference, Source, Store, Writer};

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
    /// Read everything and report what is damaged
    Verify,
    /// Write JSON documents in their canonical form
    Canon(CanonArguments),
    /// List, set or remove names of objects
    Refs(RefsArguments),
}

#[derive(Args, Clone, Debug)]
struct PutArguments {
    /// Files, or - for standard input [default: standard input]
    #[arg(value_name = "FILE")]
    paths: Vec<OsString>,
    /// Take folders: store every file in them and the listing of each folder
    #[arg(long, short, requires = "paths")]
    recursive: bool,
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
                 verify: one xt.store-report/1. refs: name, digest and reason. A path that is not UTF-8 is written \
                 with \\xNN for its odd bytes.",
        files: &[(".xt", "the store; --store or XT_STORE names another; xt-store(5) describes it")],
        examples: &[
            ("xt-store put model.safetensors", "Store a file."),
            ("tar -c src | xt-store put --name sources/today", "Store a stream under a name."),
            ("xt-store get sha256:9f86… -o model.safetensors", "Get it back."),
            ("xt-store tree data/", "Say what a folder holds, in one digest."),
            ("xt-store verify", "Hash everything again."),
            ("xt-store canon --id plan.json", "Print the id of a document."),
        ],
        exits: &[Exit::Yes, Exit::No, Exit::Usage, Exit::Refused, Exit::Store, Exit::System, Exit::Bug],
        see_also: &["xt-compile(1)", "xt-freeze(1)", "xt-store(5)", "xt(7)", "sha256sum(1)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

fn main() -> ExitCode {
    xt_cli::main(run)
}

fn run(arguments: Arguments) -> Result<Exit, Error> {
    let common = &arguments.common;
    match arguments.command {
        Some(Command::Put(put)) if put.recursive => put_trees(common, &put),
        Some(Command::Put(put)) => put_files(common, &put),
        Some(Command::Get(get)) => get_object(common, &get),
        Some(Command::Ls) => list(common),
        Some(Command::Tree(tree)) => print_tree(common, &tree.path),
        Some(Command::Verify) => verify(common),
        Some(Command::Canon(canon)) => canonical(common, &canon),
        Some(Command::Refs(refs)) => references(common, &refs),
        None => Err(CliError::Usage("say what to do: put, get, ls, tree, verify, canon or refs".into()).into()),
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
    let mut writer = store.writer()?;
    let mut progress = Progress::new(common, "put", total >> 20, "MiB");
    let (mut done, mut lines, mut last) = (0, Vec::new(), None);
    for path in paths {
        let mut watch = |bytes: u64| {
            done += bytes;
            progress.update(done >> 20, "");
        };
        let (digest, bytes) = match path.to_str() {
            Some("-") => writer.put_stream(Watched(io::stdin().lock(), &mut watch), Path::new("standard input"))?,
            _ => put_file(&mut writer, Path::new(path), &mut watch)?,
        };
        lines.push(file_line(&shown(path), digest, bytes));
        last = Some(digest);
    }
    writer.commit()?;
    progress.finish();
    name_it(&store, arguments, last)?;
    print(&lines)
}

fn put_file(writer: &mut Writer<'_>, path: &Path, watch: &mut dyn FnMut(u64)) -> Result<(Digest, u64), Error> {
    let mut source = Source::open(path)?;
    let put = writer.put_stream(Watched(&mut source, watch), path)?;
    source.unchanged()?;
    Ok(put)
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

fn put_trees(common: &Common, arguments: &PutArguments) -> Result<Exit, Error> {
    single_name(arguments, arguments.paths.len())?;
    let mut trees = Vec::new();
    for path in &arguments.paths {
        trees.push((path, Tree::open(Path::new(path))?));
    }
    let store = Store::open_or_create(&common.store)?;
    let mut writer = store.writer()?;
    let (mut lines, mut last) = (Vec::new(), None);
    for (path, tree) in &trees {
        let listing = walk(common, "put", path, tree, &mut lines, |source| Ok(writer.put_source(source)?))?;
        last = Some(put_listing(&mut writer, &listing)?);
    }
    writer.commit()?;
    name_it(&store, arguments, last)?;
    print(&lines)
}

/// The listing is an object, too: its digest is that of the tree.
fn put_listing(writer: &mut Writer<'_>, listing: &str) -> Result<Digest, Error> {
    Ok(writer.put(listing.as_bytes())?)
}

fn print_tree(common: &Common, path: &Path) -> Result<Exit, Error> {
    let tree = Tree::open(path)?;
    let mut lines = Vec::new();
    walk(common, "tree", path.as_os_str(), &tree, &mut lines, |mut source| {
        let mut hash = Hash(Hasher::new(), 0);
        io::copy(&mut source, &mut hash)
            .map_err(|error| CliError::Read { name: source.path().display().to_string(), source: error })?;
        source.unchanged()?;
        Ok((hash.0.finish(), hash.1))
    })?;
    print(&lines)
}

/// Adds a line for each file and one for the tree; gives the listing.
fn walk(
    common: &Common,
    label: &str,
    path: &std::ffi::OsStr,
    tree: &Tree,
    lines: &mut Vec<Value>,
    mut take: impl FnMut(Source) -> Result<(Digest, u64), Error>,
) -> Result<String, Error> {
    let mut progress = Progress::new(common, label, tree.files().len() as u64, "files");
    let (mut found, mut total): (Vec<(&RelativePath, Digest)>, u64) = (Vec::new(), 0);
    for file in tree.files() {
        let (digest, bytes) = take(tree.source(file)?)?;
        lines.push(file_line(file.as_str(), digest, bytes));
        found.push((file, digest));
        total += bytes;
        progress.update(found.len() as u64, file.as_str());
    }
    progress.finish();
    let listing = tree::listing(found.iter().copied());
    lines.push(object([
        ("tree", shown(path).as_str().into()),
        ("digest", text(Digest::of(listing.as_bytes()))),
        ("files", (found.len() as u64).into()),
        ("bytes", total.into()),
    ]));
    Ok(listing)
}

struct Hash(Hasher, u64);

impl Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        self.1 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

fn verify(common: &Common) -> Result<Exit, Error> {
    let mut progress = None;
    let report = Store::open(&common.store)?.verify_watched(|done, total| {
        progress.get_or_insert_with(|| Progress::new(common, "verify", total >> 20, "MiB")).update(done >> 20, "");
    })?;
    if let Some(progress) = progress {
        progress.finish();
    }
    print(&[report.encode()])?;
    Ok(if report.damaged.is_empty() { Exit::Yes } else { Exit::No })
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
        return Err(CliError::Usage(format!("there is no reference {name:?}")).into());
    }
    print(&store.references()?.iter().map(reference_line).collect::<Vec<_>>())
}

fn reference_line(reference: &Reference) -> Value {
    object([
        ("name", reference.name.as_str().into()),
        ("digest", text(reference.digest)),
        ("reason", reference.reason.as_str().into()),
    ])
}
