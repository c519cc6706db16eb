//! How a worker is started: its inputs laid out, its stack identified, its job written, its sandbox asked for.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{geteuid, pipe2};
use xt_core::field::Field as _;
use xt_core::manifest::intent::{Intent, Profile};
use xt_core::manifest::job::Job;
use xt_core::manifest::plan::{Input, Mode, Plan};
use xt_core::manifest::run::Stack;
use xt_sandbox::{Limits, Policy, Running, SandboxError};
use xt_store::Store;

use crate::command;
use crate::conclude::Findings;
use crate::digests::Digests;
use crate::error::{RuntimeError, file, system};
use crate::program::Brought;
use crate::resume::Before;
use crate::run_documents::Order;
use crate::scope::Scope;
use crate::supervise::Supervisor;
use crate::watch::Pipes;
use crate::worker::Worker;

/// The number of the descriptor with the job.
const JOB: i32 = 3;
/// The number of the descriptor for messages.
const MESSAGES: i32 = 4;
/// The number of the descriptor with words to a worker at work.
const WORDS: i32 = 5;

/// A worker that was started.
pub(crate) struct Launch {
    pub(crate) running: Running,
    pub(crate) pipes: Pipes,
    pub(crate) limits: Limits,
}

/// A training run under way, with the files that it runs held open.
pub(crate) struct Training {
    pub(crate) launch: Launch,
    pub(crate) held: Held,
}

/// What runs: the worker of this toolkit, or the program of a command.
pub(crate) enum Held {
    /// The worker, and how many of its files were not read again.
    Worker(Worker, u64),
    /// The program.
    Program(Box<Brought>),
}

impl Held {
    /// A file that holds something else than was hashed. Asked at the end of a run.
    pub(crate) fn altered(&mut self) -> Result<Option<PathBuf>, RuntimeError> {
        match self {
            Self::Worker(worker, _) => worker.altered(),
            Self::Program(brought) => brought.altered(),
        }
    }

    /// Files that were not read again, because their digest was known.
    pub(crate) fn cached(&self) -> u64 {
        match self {
            Self::Worker(_, cached) => *cached,
            Self::Program(brought) => brought.cached,
        }
    }

    /// The stack that it makes with this machine.
    pub(crate) fn stack(&self) -> Stack {
        match self {
            Self::Worker(worker, _) => worker.stack(),
            Self::Program(brought) => brought.worker.stack(),
        }
    }

    fn moved(&self) -> Option<&Path> {
        match self {
            Self::Worker(worker, _) => worker.moved(),
            Self::Program(brought) => brought.worker.moved(),
        }
    }
}

/// Starts the worker of a run. What is found out on the way goes into `findings`, also when it fails.
pub(crate) fn launch(
    supervisor: &Supervisor,
    (plan, scope): (&Plan, &Scope),
    order: &Order,
    before: Option<&Before>,
    findings: &mut Findings,
) -> Result<Training, RuntimeError> {
    let (inputs, outputs) = (supervisor.folder.inputs(), supervisor.folder.workspace());
    let places = Places { inputs: &inputs, outputs: &outputs, mark: Some(&supervisor.lock) };
    if plan.intent.isolation.profile != Profile::Full && geteuid().is_root() {
        let_through(supervisor.folder.root())?;
    }
    let (held, started) = if let (Some(command), Some(program)) = (plan.command(), &plan.program) {
        let brought = Brought::open(program, supervisor.place.store.path())?;
        findings.stack = Some(brought.worker.stack());
        command::lay_out(&supervisor.place.store, plan, command, &inputs)?;
        let started = command::start(&brought, plan, &supervisor.secrets, &places);
        (Held::Program(Box::new(brought)), started)
    } else {
        let library_path = plan.environment.get("LD_LIBRARY_PATH").map(String::as_str);
        let mut digests = Digests::open(supervisor.place.store.path());
        let worker = Worker::inspect(Path::new(&order.worker), library_path, &mut digests)?;
        digests.keep();
        findings.stack = Some(worker.stack());
        lay_out(&supervisor.place.store, &plan.inputs, &inputs)?;
        if let Some(before) = before {
            lay_out(&supervisor.place.store, &before.inputs(), &inputs)?;
        }
        let job = match plan.evaluation {
            None => Job::Train {
                plan: Box::new(plan.clone()),
                to_step: scope.to_step,
                cadence: scope.cadence.clone(),
                from: before.map(|before| Box::new(before.snapshot.clone())),
                locate: scope.mode == Mode::Localization,
            },
            Some(_) => Job::Evaluate { plan: Box::new(plan.clone()) },
        };
        let started = start(&worker, &job, &places, &plan.intent, &plan.environment);
        (Held::Worker(worker, digests.cached()), started)
    };
    if let Err(RuntimeError::Sandbox(SandboxError::Unenforced { custody, .. })) = &started {
        findings.custody = Some((**custody).clone());
    }
    let launch = started?;
    findings.custody = Some(launch.running.custody().clone());
    findings.environment = launch.running.environment().clone();
    match held.moved() {
        // Dropped, the launch takes the worker with it.
        Some(path) => Err(RuntimeError::Altered(path.into())),
        None => Ok(Training { launch, held }),
    }
}

/// Lets the trainer's user, which is another one when root starts it, come through to its inputs and outputs where it sees
/// the host's paths. Nobody can list the folder or read what the umask hides.
fn let_through(folder: &Path) -> Result<(), RuntimeError> {
    let open = || {
        let mode = fs::metadata(folder)?.permissions().mode();
        fs::set_permissions(folder, Permissions::from_mode(mode | 0o011))
    };
    open().map_err(file("open up", folder))
}

/// Where a worker reads and writes, on the host.
pub(crate) struct Places<'a> {
    pub(crate) inputs: &'a Path,
    pub(crate) outputs: &'a Path,
    /// The lock of the run, in which the worker's process leaves its mark right before it becomes the worker.
    pub(crate) mark: Option<&'a File>,
}

/// Starts `worker` on `job` in the sandbox that `intent` asks for.
pub(crate) fn start(
    worker: &Worker,
    job: &Job,
    places: &Places<'_>,
    intent: &Intent,
    environment: &BTreeMap<String, String>,
) -> Result<Launch, RuntimeError> {
    let (words, control) = pipe2(OFlag::O_CLOEXEC).map_err(system("pipe2"))?;
    // A worker that does not listen must not hold up its supervisor.
    fcntl(&control, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(system("fcntl"))?;
    let descriptors = vec![(job_descriptor(job)?, JOB), (words, WORDS)];
    start_with(Policy { descriptors, ..policy(worker, places, intent, environment) }, places, Some(control))
}

/// What every run asks of the sandbox.
pub(crate) fn policy(
    worker: &Worker,
    places: &Places<'_>,
    intent: &Intent,
    environment: &BTreeMap<String, String>,
) -> Policy {
    let resources = &intent.resources;
    Policy {
        profile: intent.isolation.profile,
        floor: intent.isolation.floor.clone(),
        program: worker.program.clone(),
        arguments: Vec::new(),
        libraries: worker.libraries.clone(),
        root: worker.root.clone(),
        digests: worker.digests.clone(),
        inputs: places.inputs.into(),
        outputs: places.outputs.into(),
        environment: environment.clone(),
        descriptors: Vec::new(),
        brought: xt_sandbox::Brought::default(),
        limits: Limits::of(resources.cores, resources.memory_bytes, resources.storage_bytes),
        network: intent.network,
    }
}

/// Starts what `policy` describes, with a descriptor for its messages. `control` is the way to speak to it, if it listens.
pub(crate) fn start_with(
    mut policy: Policy,
    places: &Places<'_>,
    control: Option<OwnedFd>,
) -> Result<Launch, RuntimeError> {
    sayable(places, policy.profile)?;
    let (telemetry, messages) = pipe2(OFlag::O_CLOEXEC).map_err(system("pipe2"))?;
    policy.descriptors.push((messages, MESSAGES));
    let limits = policy.limits;
    let mut running = xt_sandbox::start_marking(policy, places.mark.map(File::as_fd))?;
    let (stdout, stderr) = running.take_streams().ok_or(RuntimeError::NoStreams)?;
    Ok(Launch { running, pipes: Pipes { telemetry, stdout, stderr, control }, limits })
}

/// A worker without a file system of its own is told the host's paths, and records hold text alone.
fn sayable(places: &Places<'_>, profile: Profile) -> Result<(), RuntimeError> {
    let odd = [places.inputs, places.outputs].into_iter().find(|path| path.to_str().is_none());
    match odd.filter(|_| profile != Profile::Full) {
        None => Ok(()),
        Some(path) => {
            let why = "the name is not UTF-8, so the worker cannot be told; put the store elsewhere, or ask for the profile full";
            Err(file("use", path)(io::Error::other(why)))
        }
    }
}

/// Copies the inputs out of the store, each verified while it is read, and for reading only. The folder is opened up for
/// the trainer's user; who else comes to it is up to the folders above.
pub(crate) fn lay_out(store: &Store, inputs: &[Input], folder: &Path) -> Result<(), RuntimeError> {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).map_err(file("open up", folder))?;
    for input in inputs {
        let path = folder.join(input.digest.hex());
        store.extract(input.digest, &path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o444)).map_err(file("seal", &path))?;
    }
    Ok(())
}

/// The job in memory, sealed: whoever reads it cannot change it.
fn job_descriptor(job: &Job) -> Result<OwnedFd, RuntimeError> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let memory = memfd_create("job", flags).map_err(system("memfd_create"))?;
    let mut file_of = File::from(memory);
    file_of.write_all(job.write().canonical().as_bytes()).map_err(file("write", Path::new("the job")))?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(file_of.as_fd(), FcntlArg::F_ADD_SEALS(seals)).map_err(system("seal the job"))?;
    file_of.rewind().map_err(file("rewind", Path::new("the job")))?;
    Ok(file_of.into())
}
