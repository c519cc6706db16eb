//! `xt.bundle/1`: a frozen candidate with everything that binds it (L52–L61, L66).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::left_out::LeftOut;
use crate::manifest::Artifact;
use crate::manifest::run::Stack;
use crate::manifest::terms::Terms;
use crate::tag;

crate::record! {
    /// A frozen candidate with everything that binds it.
    pub struct Bundle as tag::BUNDLE {
        /// What travels inside.
        size: Size,
        /// Fingerprint of the candidate.
        fingerprint: Digest,
        /// Id of the plan.
        plan: Digest,
        /// Id of the run record.
        run: Digest,
        /// Id of the dataset; `null` for a command that reads none.
        dataset: Option<Digest>,
        /// Id of the custody record.
        custody: Digest,
        /// Id of the trace's head.
        trace: Digest,
        /// What training began from: the id of a bundle, or the digest of a file of parameters; `null` for random initialisation.
        base: Option<Digest>,
        /// Every file of the bundle but this document and `SHA256SUMS`, sorted by path.
        members: Vec<Member>,
        /// What it runs with.
        compatibility: Compatibility,
        /// Licence and classes of the bundle itself, as whoever froze it declared them; left out when nothing was declared. A bundle that holds its data names every class of it but `public`.
        terms: LeftOut<Terms>,
        /// What was declared of the data when it was admitted; left out when nothing was.
        data_terms: LeftOut<Terms>,
    }
}

/// What whoever freezes says of a bundle; all else follows from the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// What travels inside.
    pub size: Size,
    /// Licence and classes.
    pub terms: LeftOut<Terms>,
    /// How long each file of the worker is, for a bundle that holds them; their digests are in the run record.
    pub worker_bytes: BTreeMap<Digest, u64>,
}

/// Of a size, and of nothing else.
impl From<Size> for Declared {
    fn from(size: Size) -> Self {
        Self { size, terms: LeftOut(None), worker_bytes: BTreeMap::new() }
    }
}

impl Bundle {
    /// What whoever froze it said.
    pub fn declared(&self) -> Declared {
        let files = self.worker_files().map(|member| (member.file.digest, member.file.bytes));
        Declared { size: self.size, terms: self.terms.clone(), worker_bytes: files.collect() }
    }

    /// The worker and what it loads, if they are inside.
    pub fn worker_files(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.role == MemberRole::Worker)
    }
}

crate::words! {
    /// What travels inside.
    pub enum Size {
        /// Model, lineage and evidence; data by digest only.
        Thin "thin",
        /// The data, too: it replays anywhere.
        Sealed "sealed",
        /// The worker and its libraries, too: it replays where there is none.
        Full "full",
    }
}

crate::record! {
    /// A file of the bundle.
    pub struct Member {
        /// The file.
        file: Artifact,
        /// What it is.
        role: MemberRole,
    }
}

crate::words! {
    /// What a file of a bundle is.
    pub enum MemberRole {
        /// Trained parameters.
        Model "model",
        /// How the model is built.
        Configuration "configuration",
        /// How text becomes tokens.
        Tokenizer "tokenizer",
        /// A document of this toolkit.
        Manifest "manifest",
        /// The trace's lines.
        Trace "trace",
        /// What training began from.
        Base "base",
        /// A member of the dataset.
        Data "data",
        /// A log.
        Log "log",
        /// A file of a command, such as a script.
        File "file",
        /// What a command wrote.
        Output "output",
        /// The worker, a library that it loads, or its loader, by where it lay for the worker.
        Worker "worker",
    }
}

crate::record! {
    /// What the bundle claims to run with.
    pub struct Compatibility {
        /// Form of the model files, such as `huggingface/gpt2`; `command` for those of a command, whose form is its own.
        form: String,
        /// Numbers of the parameters; `undeclared` for a command.
        precision: String,
        /// The stack that trained it; exact replay is claimed on this one.
        stack: Stack,
    }
}

impl Compatibility {
    /// The family of a model whose files have a form that others know; `None` for that of a command.
    pub fn family(&self) -> Option<&str> {
        self.form.strip_prefix("huggingface/")
    }
}

crate::record! {
    /// Whether a bundle verifies, and everything that is wrong with it.
    pub struct Verification as tag::VERIFICATION {
        /// The answer.
        verified: bool,
        /// Id of the bundle; `null` when its document could not be read.
        bundle: Option<Digest>,
        /// Id of the run it binds.
        run: Option<Digest>,
        /// Files that were there and are listed.
        members: u64,
        /// Their bytes.
        bytes: u64,
        /// The signatures that hold, by the keys that were given; empty when none was given, and then nobody vouches for it.
        signatures: Vec<Signature>,
        /// What was declared of the bundle; left out when nothing was.
        terms: LeftOut<Terms>,
        /// What was declared of the data that it learned from; left out when nothing was.
        data_terms: LeftOut<Terms>,
        /// Everything that is wrong; empty when it verifies.
        faults: Vec<BundleFault>,
    }
}

crate::record! {
    /// A signature that holds.
    pub struct Signature {
        /// Id of the key: SHA-256 of its public part in PEM, 64 hexadecimal digits.
        key: String,
        /// `p256` or `ed25519`.
        algorithm: String,
        /// What was signed about the bundle: the type of the statement's predicate.
        predicate: String,
    }
}

crate::record! {
    /// One thing wrong with a bundle.
    pub struct BundleFault {
        /// Which file of the bundle, and where in it.
        pointer: String,
        /// Stable code word, such as `member.digest`.
        code: String,
        /// What was found and what is right.
        message: String,
    }
}
