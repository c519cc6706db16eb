//! Folders: stored with their listing, listed without being stored, and written again.

use std::io::{self, Write};
use std::path::Path;

use xt_cli::{CliError, Common, Error, Progress};
use xt_core::canonical::Value;
use xt_core::digest::{Digest, Hasher};
use xt_core::fault::Exit;
use xt_core::field::object;
use xt_core::relpath::RelativePath;
use xt_store::tree::{self, Tree};
use xt_store::{Store, StoreError, Writer};

use crate::{PutArguments, file_line, name_it, print as print_lines, shown, single_name, text};

/// Stores every file of some folders, and the listing of each.
pub fn put(common: &Common, arguments: &PutArguments) -> Result<Exit, Error> {
    single_name(arguments, arguments.paths.len())?;
    let mut trees = Vec::new();
    for path in &arguments.paths {
        trees.push((path, Tree::open(Path::new(path))?));
    }
    let store = Store::open_or_create(&common.store)?;
    let _hold = store.hold()?;
    let mut writer = store.writer()?;
    if arguments.raw {
        writer.raw();
    }
    let (mut lines, mut last) = (Vec::new(), None);
    for (path, tree) in &trees {
        let listing = walk(common, "put", path, tree, &mut lines, |file| Ok(writer.put_member(tree, file)?))?;
        last = Some(put_listing(&mut writer, &listing)?);
    }
    writer.commit()?;
    name_it(&store, arguments, last)?;
    print_lines(&lines)
}

/// The listing is an object, too: its digest is that of the tree.
fn put_listing(writer: &mut Writer<'_>, listing: &str) -> Result<Digest, Error> {
    Ok(writer.put(listing.as_bytes())?)
}

/// Says what a folder holds, without storing it.
pub fn print(common: &Common, path: &Path) -> Result<Exit, Error> {
    let tree = Tree::open(path)?;
    let mut lines = Vec::new();
    walk(common, "tree", path.as_os_str(), &tree, &mut lines, |file| {
        let mut source = tree.source(file)?;
        let mut hash = Hash(Hasher::new(), 0);
        io::copy(&mut source, &mut hash)
            .map_err(|error| CliError::Read { name: source.path().display().to_string(), source: error })?;
        source.unchanged()?;
        Ok((hash.0.finish(), hash.1))
    })?;
    print_lines(&lines)
}

/// Adds a line for each file and one for the tree; gives the listing.
fn walk(
    common: &Common,
    label: &str,
    path: &std::ffi::OsStr,
    tree: &Tree,
    lines: &mut Vec<Value>,
    mut take: impl FnMut(&RelativePath) -> Result<(Digest, u64), Error>,
) -> Result<String, Error> {
    let mut progress = Progress::new(common, label, tree.files().len() as u64, "files");
    let (mut found, mut total): (Vec<(&RelativePath, Digest)>, u64) = (Vec::new(), 0);
    for file in tree.files() {
        let (digest, bytes) = take(file)?;
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

/// Writes every file of a listing into a folder that appears when all of them are verified.
pub fn get(common: &Common, tree: Digest, target: Option<&Path>) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    let Some(target) = target else { return Err(CliError::Usage("get -r needs -o DIR".into()).into()) };
    if target.symlink_metadata().is_ok() {
        return Err(CliError::Exists(target.display().to_string()).into());
    }
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = target.with_file_name(name);
    let written = store.restore(tree, &temporary).and_then(|done| {
        let moved = std::fs::rename(&temporary, target);
        moved.map(|()| done).map_err(|source| StoreError::System { action: "write", path: target.into(), source })
    });
    // What cannot be removed is left under a name that says what it is.
    let (files, bytes) = written.inspect_err(|_| drop(std::fs::remove_dir_all(&temporary)))?;
    print_lines(&[object([
        ("tree", shown(target.as_os_str()).as_str().into()),
        ("digest", text(tree)),
        ("files", files.into()),
        ("bytes", bytes.into()),
    ])])
}
