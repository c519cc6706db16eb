//! From a bundle to a folder of files, written beside its place and moved there when everything was right.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use xt_core::digest::{Digest, Hasher};
use xt_core::field::Field as _;
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::run::Run;
use xt_core::verb::oci;
use xt_store::Store;

use crate::archive;
use crate::error::BundleError;
use crate::layout::{self, BUNDLE, SUMS};
use crate::verify::verify_stored;

/// Where a bundle comes from.
pub enum Part<'a> {
    /// An archive.
    Archive(&'a mut dyn Read),
    /// A store that holds it, and its id.
    Stored(&'a Store, Digest),
}

/// What is written of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Every file, by its path.
    Whole,
    /// The files of its model, without the folder they stand in: the form that other libraries load.
    Model,
    /// Every file, as an image layout: by its digest.
    Layout,
}

/// A bundle in a folder that is not in its place yet. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct Exported {
    /// The bundle.
    pub bundle: Bundle,
    /// Its run record.
    pub run: Option<Run>,
    /// Every file that was written, and its digest.
    pub files: Vec<(String, Digest)>,
    folder: Folder,
}

/// Writes the bundle from `source`, called `name` in messages, for `target`, which must not exist.
pub fn export(source: Part<'_>, name: &str, target: &Path, form: Form) -> Result<Exported, BundleError> {
    let mut folder = Folder::new(target, form)?;
    let verdict = match source {
        Part::Archive(input) => archive::read(input, &mut |path, content| folder.write(path, content))?,
        Part::Stored(store, id) => {
            let verdict = verify_stored(store, id)?;
            if let Some(bundle) = verdict.bundle.as_ref().filter(|_| verdict.report.verified) {
                folder.stored(store, bundle)?;
            }
            verdict
        }
    };
    match verdict.bundle {
        Some(bundle) if verdict.report.verified => {
            let run = verdict.run;
            if form == Form::Layout {
                for (path, text) in oci::layout(&bundle, run.as_ref(), &layout::sums(&bundle)) {
                    folder.place(&path, &mut text.as_bytes())?;
                }
            }
            Ok(Exported { bundle, run, files: std::mem::take(&mut folder.files), folder })
        }
        _ => Err(BundleError::Refused { name: name.into(), faults: verdict.faults }),
    }
}

impl Exported {
    /// Adds a file that is no part of the bundle, such as a signature.
    pub fn add(&mut self, path: &str, mut content: &[u8]) -> Result<(), BundleError> {
        self.folder.place(path, &mut content).map(drop)
    }

    /// Every file that was written, its digest and its size.
    pub fn sizes(&self) -> Vec<(String, Digest, u64)> {
        let size = |path: &str| self.folder.dir.symlink_metadata(path).map_or(0, |found| found.len());
        self.files.iter().map(|(path, digest)| (path.clone(), *digest, size(path))).collect()
    }

    /// Adds a file about the bundle, which a signature of the folder covers.
    pub fn describe(&mut self, path: &str, mut content: &[u8]) -> Result<(), BundleError> {
        let digest = self.folder.place(path, &mut content)?;
        self.files.push((path.into(), digest));
        Ok(())
    }

    /// Moves the folder to its place.
    pub fn finish(self) -> Result<Bundle, BundleError> {
        self.folder.arrive()?;
        Ok(self.bundle)
    }
}

/// Name of a blob until its digest is known.
const INCOMING: &str = "incoming";

/// A folder under its temporary name.
#[derive(Debug)]
struct Folder {
    target: PathBuf,
    temporary: PathBuf,
    form: Form,
    dir: Dir,
    files: Vec<(String, Digest)>,
    moved: bool,
}

impl Folder {
    fn new(target: &Path, form: Form) -> Result<Self, BundleError> {
        let shown = target.display().to_string();
        if target.symlink_metadata().is_ok() {
            return Err(BundleError::Exists { path: shown });
        }
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = target.with_file_name(name);
        std::fs::create_dir(&temporary).map_err(BundleError::stream("create", &shown))?;
        let dir =
            Dir::open_ambient_dir(&temporary, ambient_authority()).map_err(BundleError::stream("open", &shown))?;
        Ok(Self { target: target.into(), temporary, form, dir, files: Vec::new(), moved: false })
    }

    /// Moves it to its place, if that is still free.
    fn arrive(mut self) -> Result<(), BundleError> {
        let shown = self.target.display().to_string();
        // A folder would move onto an empty one that somebody else made meanwhile.
        if self.target.symlink_metadata().is_ok() {
            return Err(BundleError::Exists { path: shown });
        }
        std::fs::rename(&self.temporary, &self.target).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => BundleError::Exists { path: shown },
            _ => BundleError::stream("rename", &shown)(error),
        })?;
        self.moved = true;
        Ok(())
    }

    /// Writes a file of the bundle, if it is wanted.
    fn write(&mut self, path: &str, content: &mut dyn Read) -> Result<(), BundleError> {
        if self.form == Form::Layout {
            return self.write_blob(path, content);
        }
        let wanted = if self.form == Form::Model { path.strip_prefix("model/") } else { Some(path) };
        // What stands in an archive twice is refused at its end; the first is enough until then.
        if let Some(path) = wanted.filter(|path| !self.dir.exists(path)) {
            let digest = self.place(path, content)?;
            self.files.push((path.into(), digest));
        }
        Ok(())
    }

    /// Writes a file under its digest, which is known at its end. Two files of the same bytes are one blob.
    fn write_blob(&mut self, path: &str, content: &mut dyn Read) -> Result<(), BundleError> {
        let digest = self.place(INCOMING, content)?;
        let failed = BundleError::stream("write", path);
        let blob = oci::blob(digest);
        self.dir
            .create_dir_all("blobs/sha256")
            .and_then(|()| self.dir.rename(INCOMING, &self.dir, &blob))
            .map_err(failed)?;
        self.files.push((path.into(), digest));
        Ok(())
    }

    fn stored(&mut self, store: &Store, bundle: &Bundle) -> Result<(), BundleError> {
        for (path, text) in [(BUNDLE, bundle.write().canonical()), (SUMS, layout::sums(bundle))] {
            self.write(path, &mut text.as_bytes())?;
        }
        for member in layout::order(bundle) {
            self.write(member.file.path.as_str(), &mut store.object(member.file.digest)?)?;
        }
        Ok(())
    }

    /// Creates a file and the folders above it; nothing outside of this folder can be reached, whatever the path says.
    fn place(&self, path: &str, content: &mut dyn Read) -> Result<Digest, BundleError> {
        let failed = || BundleError::stream("write", path);
        if let Some(parent) = Path::new(path).parent() {
            self.dir.create_dir_all(parent).map_err(failed())?;
        }
        let mut file =
            self.dir.open_with(path, OpenOptions::new().write(true).create_new(true)).map_err(failed())?.into_std();
        let mut hashed = Hashed { content, hasher: Hasher::new() };
        io::copy(&mut hashed, &mut file).map_err(failed())?;
        file.sync_data().map_err(failed())?;
        Ok(hashed.hasher.finish())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.moved {
            // What cannot be removed is left under a name that says what it is.
            std::fs::remove_dir_all(&self.temporary).ok();
        }
    }
}

/// Reads and hashes at the same time.
struct Hashed<'a> {
    content: &'a mut dyn Read,
    hasher: Hasher,
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_exists_is_refused_and_an_unfinished_one_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let error = Folder::new(place.path(), Form::Whole).unwrap_err();
        assert!(error.to_string().contains("exists"), "{error}");
        let folder = Folder::new(&place.path().join("new"), Form::Whole).unwrap();
        folder.place("a/b", &mut &b"c"[..]).unwrap();
        assert!(folder.place("a/b", &mut &b"c"[..]).is_err(), "no file is written twice");
        assert!(folder.place("../out", &mut &b"c"[..]).is_err(), "nothing is written outside");
        assert!(folder.place("/out", &mut &b"c"[..]).is_err());
        drop(folder);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn of_two_exports_to_one_place_the_second_to_end_is_told_so() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("new");
        let folder = Folder::new(&target, Form::Whole).unwrap();
        std::fs::create_dir(&target).unwrap();
        std::fs::write(target.join("theirs"), "x").unwrap();
        let error = folder.arrive().unwrap_err();
        assert!(matches!(&error, BundleError::Exists { .. }), "{error}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "and leaves nothing");
    }
}
