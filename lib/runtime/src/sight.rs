//! What a worker has mapped to execute while it works: code that crept in by some search path shows here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use xt_core::manifest::run::Mapped;
use xt_sandbox::Running;

/// How long after the first look the second one comes; each later one takes twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// Everything seen so far.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    files: BTreeMap<String, xt_sandbox::Mapped>,
    looks: u32,
    next: Option<Instant>,
}

impl Sight {
    /// Looks if it is time to: once the worker has said something, which it does when everything is loaded, or a while
    /// after it was started; and again later.
    pub(crate) fn look(&mut self, running: &Running, spoke: bool) {
        let next = *self.next.get_or_insert_with(|| Instant::now() + PAUSE);
        let first = self.looks == 0 && spoke;
        if !first && Instant::now() < next {
            return;
        }
        // One that has ended just now shows nothing any more.
        let Ok(mapped) = running.mapped() else { return };
        self.files.extend(mapped.into_iter().map(|file| (file.path.clone(), file)));
        self.next = Some(Instant::now() + PAUSE * 2_u32.saturating_pow(self.looks.min(16)));
        self.looks += 1;
    }

    /// The files, for the record; none before the first look.
    pub(crate) fn mapped(&self) -> Option<Vec<Mapped>> {
        let file = |file: &xt_sandbox::Mapped| Mapped { path: file.path.clone(), digest: file.digest };
        (self.looks > 0).then(|| self.files.values().map(file).collect())
    }

    /// A file that nobody admitted.
    pub(crate) fn stranger(&self) -> Option<&str> {
        self.files.values().find(|file| !file.admitted).map(|file| file.path.as_str())
    }
}
