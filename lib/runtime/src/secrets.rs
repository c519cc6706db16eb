//! Secrets: bytes that a program needs and that no record may hold. They come from files named on the command line, go to
//! the supervisor in sealed memory, and reach the program as descriptors. What the program writes is searched for them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::dup2_stdin;
use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::plan::Plan;
use xt_core::name::Name;
use xt_core::verb::envelope::secret_variable;

use crate::error::{RuntimeError, file, system};

/// The number of the descriptor with the first secret, in the order of their names. Shells know numbers of one digit only.
const FIRST: RawFd = 5;
/// A shorter secret could not be told from text that happens to be alike.
const SHORTEST: usize = 8;
/// A longer one is no secret but data.
const LONGEST: usize = 1 << 16;

/// Where the bytes of a secret are read from, as a command line says it: `NAME=FILE`. A descriptor is given as `/dev/fd/N`.
#[derive(Clone, Debug)]
pub struct SecretFile {
    name: String,
    path: PathBuf,
}

impl FromStr for SecretFile {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty());
        let (name, path) = parts.ok_or("expected NAME=FILE")?;
        Ok(Self { name: name.into(), path: path.into() })
    }
}

/// Secrets by name. Their bytes are shown to nobody, not even in debugging output.
#[derive(Clone, Default)]
pub struct Secrets(Vec<(String, Vec<u8>)>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Secrets {
    /// Reads the secrets that a command line names.
    pub fn given(files: &[SecretFile]) -> Result<Self, RuntimeError> {
        let (mut all, mut faults) = (Vec::new(), Faults::new());
        for SecretFile { name, path } in files {
            let mut bytes = Vec::new();
            let read = File::open(path).and_then(|opened| opened.take(LONGEST as u64 + 1).read_to_end(&mut bytes));
            read.map_err(file("read", path))?;
            if needle(&bytes).len() < SHORTEST || bytes.len() > LONGEST {
                let message =
                    format!("{name}: a secret has {SHORTEST} to {LONGEST} bytes, a line feed at its end not counted");
                faults.add("--secret", "secret.length", message);
            }
            all.push((name.clone(), bytes));
        }
        all.sort();
        if faults.is_empty() { Ok(Self(all)) } else { Err(RuntimeError::Refused(faults)) }
    }

    /// Notes every secret that is declared and not given, given and not declared, or given twice.
    pub(crate) fn check(&self, declared: &[Name], faults: &mut Faults) {
        for (index, name) in declared.iter().enumerate() {
            if !self.0.iter().any(|(given, _)| given == name.as_str()) {
                let message = format!("the secret {name} is declared and not given; --secret {name}=FILE gives it");
                faults.add(format!("/intent/secrets/{index}"), "secret.missing", message);
            }
        }
        for (index, (name, _)) in self.0.iter().enumerate() {
            if !declared.iter().any(|declared| declared.as_str() == name) {
                let message = format!("the secret {name} is given, and the intent of the plan does not declare it");
                faults.add("--secret", "secret.undeclared", message);
            }
            if self.0[..index].iter().any(|(other, _)| other == name) {
                faults.add("--secret", "secret.twice", format!("the secret {name} is given twice"));
            }
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them in sealed memory, for the supervisor: it has no name, and nothing of it reaches a disk by our doing.
    pub(crate) fn pack(&self) -> Result<OwnedFd, RuntimeError> {
        let mut packed = Vec::new();
        for (name, bytes) in &self.0 {
            packed.extend_from_slice(format!("{name} {}\n", bytes.len()).as_bytes());
            packed.extend_from_slice(bytes);
        }
        sealed(&packed)
    }

    /// Takes what was packed from standard input, and lets go of that.
    pub(crate) fn unpack() -> Result<Self, RuntimeError> {
        let mut packed = Vec::new();
        let stdin = Path::new("standard input");
        io::stdin().lock().read_to_end(&mut packed).map_err(file("read", stdin))?;
        let null = Path::new("/dev/null");
        dup2_stdin(File::open(null).map_err(file("open", null))?).map_err(system("dup2"))?;
        let (mut rest, mut all) = (packed.as_slice(), Vec::new());
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            let Some((name, length)) =
                head.split_once(' ').and_then(|(name, n)| Some((name, n.parse::<usize>().ok()?)))
            else {
                break;
            };
            let Some(bytes) = rest.get(end + 1..end + 1 + length) else { break };
            all.push((name.to_string(), bytes.to_vec()));
            rest = &rest[end + 1 + length..];
        }
        Ok(Self(all))
    }

    /// A descriptor for each, its number in the program, and the variable that holds the number.
    pub(crate) fn descriptors(&self) -> Result<Vec<(OwnedFd, RawFd, String)>, RuntimeError> {
        let numbered = (FIRST..).zip(&self.0);
        numbered.map(|(number, (name, bytes))| Ok((sealed(bytes)?, number, secret_variable(name)))).collect()
    }

    /// Name of a secret that `bytes` hold.
    pub(crate) fn in_bytes(&self, bytes: &[u8]) -> Option<&str> {
        self.0.iter().find(|(_, secret)| find(bytes, needle(secret)).is_some()).map(|(name, _)| name.as_str())
    }

    /// The text without secrets, as they stand there or as a text escapes them.
    pub(crate) fn taken_out_of(&self, text: &str) -> String {
        self.0.iter().fold(text.to_string(), |text, (name, secret)| {
            let note = format!("[secret {name} taken out]");
            let forms =
                [String::from_utf8_lossy(needle(secret)).into_owned(), needle(secret).escape_ascii().to_string()];
            forms.iter().fold(text, |text, form| text.replace(form.as_str(), &note))
        })
    }

    /// Notes every secret whose bytes the plan itself holds, which every record of the run would show.
    pub(crate) fn check_plan(&self, plan: &Plan, faults: &mut Faults) {
        if self.is_empty() {
            return;
        }
        let text = plan.encode().canonical();
        for (name, secret) in &self.0 {
            if find(text.as_bytes(), needle(secret)).is_some() {
                let message = format!("the plan holds the bytes of the secret {name}, and everybody may read a plan");
                faults.add("--secret", "secret.in-plan", message);
            }
        }
    }

    /// Name of a secret that the file at `path` holds.
    pub(crate) fn in_file(&self, path: &Path) -> Result<Option<&str>, RuntimeError> {
        let mut opened = File::open(path).map_err(file("open", path))?;
        let (mut window, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
        loop {
            let count = opened.read(&mut buffer).map_err(file("read", path))?;
            window.extend_from_slice(&buffer[..count]);
            if let Some(name) = self.in_bytes(&window) {
                return Ok(Some(name));
            }
            if count == 0 {
                return Ok(None);
            }
            window.drain(..window.len().saturating_sub(LONGEST));
        }
    }
}

/// What is looked for: the bytes without a line feed at their end, which files have and programs leave out.
fn needle(secret: &[u8]) -> &[u8] {
    secret.strip_suffix(b"\n").unwrap_or(secret)
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == first) {
        let at = from + at;
        if bytes[at..].starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Memory that can be read and no longer changed.
fn sealed(bytes: &[u8]) -> Result<OwnedFd, RuntimeError> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut memory = File::from(memfd_create("secret", flags).map_err(system("memfd_create"))?);
    let place = Path::new("a secret");
    memory.write_all(bytes).map_err(file("write", place))?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(memory.as_fd(), FcntlArg::F_ADD_SEALS(seals)).map_err(system("seal a secret"))?;
    memory.rewind().map_err(file("rewind", place))?;
    Ok(memory.into())
}

/// Takes secrets out of a stream, wherever the stream is cut.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    secrets: Secrets,
    held: Vec<u8>,
}

impl Redactor {
    /// Takes out `secrets`.
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self { secrets, held: Vec::new() }
    }

    /// Takes more of the stream and gives what can be let go of.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.secrets.is_empty() {
            return bytes.to_vec();
        }
        self.held.extend_from_slice(bytes);
        self.take_out();
        let longest = self.secrets.0.iter().map(|(_, secret)| needle(secret).len()).max().unwrap_or(0);
        let safe = self.held.len().saturating_sub(longest.saturating_sub(1));
        self.held.drain(..safe).collect()
    }

    /// What was held back, at the end of the stream.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    fn take_out(&mut self) {
        for (name, secret) in &self.secrets.0 {
            let (needle, note) = (needle(secret), format!("[secret {name} taken out]"));
            let mut from = 0;
            while let Some(at) = find(&self.held[from..], needle).map(|at| from + at) {
                self.held.splice(at..at + needle.len(), note.bytes());
                // The note itself may look like a secret.
                from = at + note.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        Secrets(vec![("key".into(), b"0123456789\n".to_vec())])
    }

    #[test]
    fn a_secret_is_taken_out_of_a_stream_however_it_is_cut() {
        let text = b"before 0123456789 between 0123456789after 012345678 9";
        for size in 1..=text.len() {
            let mut redactor = Redactor::new(secrets());
            let mut out: Vec<u8> = text.chunks(size).flat_map(|chunk| redactor.push(chunk)).collect();
            out.extend(redactor.finish());
            let expected = "before [secret key taken out] between [secret key taken out]after 012345678 9";
            assert_eq!(String::from_utf8(out).unwrap(), expected, "chunks of {size}");
        }
    }

    #[test]
    fn a_secret_that_looks_like_the_note_is_taken_out_once() {
        let mut redactor = Redactor::new(Secrets(vec![("key".into(), b"taken out".to_vec())]));
        let mut out = redactor.push(b"a taken out b");
        out.extend(redactor.finish());
        assert_eq!(String::from_utf8(out).unwrap(), "a [secret key taken out] b");
        assert_eq!(secrets().taken_out_of("x 0123456789 y"), "x [secret key taken out] y");
    }

    #[test]
    fn a_secret_is_found_in_a_file_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [vec![b'0'; (1 << 20) - 5], b"0123456789".to_vec()].concat()).unwrap();
        assert_eq!(secrets().in_file(&path).unwrap(), Some("key"));
        std::fs::write(&path, "012345678").unwrap();
        assert_eq!(secrets().in_file(&path).unwrap(), None);
        assert!(!format!("{:?}", secrets()).contains("0123"));
    }
}
