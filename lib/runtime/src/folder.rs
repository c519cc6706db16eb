//! The folder of one run, `runs/<attempt>/` in the store: what goes in, what comes out, and what the supervisor writes
//! while it works. Small files are replaced whole, so that a reader never sees half of one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use xt_core::canonical;
use xt_core::fault::Faults;
use xt_core::field::Manifest;
use xt_core::name::Name;

use crate::error::{RuntimeError, file};

/// The folder of one run.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// The folder of `attempt` in the store at `store`; it need not exist.
    pub fn of(store: &Path, attempt: &Name) -> Self {
        Self { root: store.join("runs").join(attempt.as_str()) }
    }

    /// Makes it and what is in it, as far as they are not there.
    pub fn create(&self) -> Result<(), RuntimeError> {
        for path in [self.inputs(), self.outputs(), self.workspace(), self.logs()] {
            fs::create_dir_all(&path).map_err(file("create", &path))?;
        }
        Ok(())
    }

    /// Empties what a worker reads and writes, for a run that is begun anew.
    pub(crate) fn renew(&self) -> Result<(), RuntimeError> {
        for path in [self.inputs(), self.outputs(), self.workspace()] {
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(file("empty", &path)(error)),
                _ => {}
            }
        }
        self.create()
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Copies of the inputs, each named by the 64 digits of its digest.
    pub fn inputs(&self) -> PathBuf {
        self.root.join("in")
    }

    /// The outputs as they were collected.
    pub fn outputs(&self) -> PathBuf {
        self.root.join("out")
    }

    /// Where a worker without a file system of its own writes; its outputs are collected from here.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("work")
    }

    /// The captured streams.
    pub fn logs(&self) -> PathBuf {
        self.root.join("log")
    }

    /// Every message of the worker, one canonical line each.
    pub fn telemetry(&self) -> PathBuf {
        self.root.join("telemetry.jsonl")
    }

    /// How the supervisor is to do what the record asks for.
    pub fn order(&self) -> PathBuf {
        self.root.join("order.json")
    }

    /// Who supervises, from when on.
    pub fn started(&self) -> PathBuf {
        self.root.join("started.json")
    }

    /// What the worker was started on and in.
    pub fn launched(&self) -> PathBuf {
        self.root.join("launched.json")
    }

    /// The lines of the trace.
    pub fn steps(&self) -> PathBuf {
        self.root.join("steps.jsonl")
    }

    /// Standard output of the worker.
    pub fn stdout(&self) -> PathBuf {
        self.logs().join("stdout")
    }

    /// Standard error of the worker.
    pub fn stderr(&self) -> PathBuf {
        self.logs().join("stderr")
    }

    /// What the supervisor has to say.
    pub fn supervisor_log(&self) -> PathBuf {
        self.logs().join("supervisor")
    }

    /// How it ended; written last.
    pub fn finished(&self) -> PathBuf {
        self.root.join("finished.json")
    }

    /// Someone asks to cancel.
    pub fn cancel(&self) -> PathBuf {
        self.root.join("cancel.json")
    }

    /// Someone asks to stop at the next step boundary.
    pub fn drain(&self) -> PathBuf {
        self.root.join("drain.json")
    }

    /// What the supervisor knows of the end before it is recorded. Its room is taken at the start, so that a full disk
    /// cannot lose it.
    pub fn ended(&self) -> PathBuf {
        self.root.join("ended.json")
    }

    /// Where snapshots lie on their way into the store.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// Held by the supervisor as long as it lives, and by the process that is to become the worker until it does. There
    /// is a byte in it from the moment on from which a worker may have run.
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
}

/// Takes the lock of a run, which its supervisor holds as long as it lives; `None` when someone has it.
///
/// It is a lock of the open file (flock(2)): a process that was forked off holds it too, until it lets go of the file.
pub(crate) fn try_lock(folder: &Folder) -> Result<Option<File>, RuntimeError> {
    let path = folder.lock();
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(file("open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(file("lock", &path)(error)),
    }
}

/// Writes `document` to `path` unless something is there already; says whether it did.
pub(crate) fn write_once<M: Manifest>(path: &Path, document: &M) -> Result<bool, RuntimeError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.once", std::process::id()));
    let temporary = path.with_file_name(name);
    write_document(&temporary, document)?;
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary).map_err(file("remove", &temporary))?;
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(file("write", path)(error)),
    }
}

/// Takes the room that [`fill`] will write in.
pub(crate) fn reserve(path: &Path) -> Result<(), RuntimeError> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(&vec![b'\n'; RESERVE])?;
        file.sync_all()
    };
    write().map_err(file("reserve room in", path))
}

/// So many bytes are kept free for what a supervisor knows of an end; it is seldom more than a third of that.
const RESERVE: usize = 64 << 10;

/// Writes `document` into the room at `path`, in place: that works on a full disk. A crash can leave it torn, which
/// [`filled`] sees.
pub(crate) fn fill<M: Manifest>(path: &Path, document: &M) -> Result<(), RuntimeError> {
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        file.write_all(document.encode().canonical().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_data()
    };
    write().map_err(file("write", path))
}

/// The document in the room at `path`; `None` when there is none, or none that is whole.
pub(crate) fn filled<M: Manifest>(path: &Path) -> Result<Option<M>, RuntimeError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file("read", path)(error)),
    };
    let value = canonical::parse(bytes.trim_ascii_end()).ok();
    // Its id is the digest of what was written: a torn one does not decode.
    Ok(value.filter(|value| value.get("id").is_some()).and_then(|value| M::decode(&value).ok()))
}

/// Writes `document` to `path`, whole and durable.
pub(crate) fn write_document<M: Manifest>(path: &Path, document: &M) -> Result<(), RuntimeError> {
    write_whole(path, format!("{}\n", document.encode().canonical()).as_bytes())
}

/// Writes `bytes` to `path`, whole and durable: temporary file, flush, rename, flush of the folder.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), RuntimeError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(file("write", path))
}

/// The document at `path`; `None` when there is no such file.
pub(crate) fn read_document<M: Manifest>(path: &Path) -> Result<Option<M>, RuntimeError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file("read", path)(error)),
    };
    let value = canonical::parse(&bytes).map_err(|error| Faults::one("", "json", error.to_string()));
    let document = value.and_then(|value| M::decode(&value));
    document.map(Some).map_err(|faults| RuntimeError::Damaged { path: path.into(), faults })
}
