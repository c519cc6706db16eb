//! What the tests share: a folder with a record in it, and things to put there.

use std::path::PathBuf;

use tempfile::TempDir;
use xt_core::digest::Digest;
use xt_core::instant::Instant;
use xt_core::name::Name;
use xt_record::{FILE_NAME, Process, Record, Submission};

/// A fresh folder.
pub struct Bench(TempDir);

impl Bench {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join(FILE_NAME)
    }

    pub fn record(&self) -> Record {
        Record::open(&self.path()).unwrap()
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn at(seconds: u64) -> Instant {
    Instant::from_unix(1_800_000_000 + seconds).unwrap()
}

/// A submission of a request made of `text`, under the operation id given.
pub fn submission(text: &str, operation: Option<&str>) -> Submission {
    Submission {
        experiment: name("default"),
        fingerprint: Digest::of(b"candidate"),
        seed: 7,
        plan: Digest::of(format!("plan {text}").as_bytes()),
        request: Digest::of(format!("request {text}").as_bytes()),
        operation: operation.map(name),
        now: at(0),
    }
}

/// A supervisor that is nobody.
pub fn nobody() -> Process {
    Process { pid: 4_000_000, start_time: u64::MAX, boot_id: "none".to_string(), namespace: 1 }
}
