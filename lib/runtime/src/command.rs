//! How the program of a command is started: what it finds in its input folder, and what it is told.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::command::{Command, Trainer};
use xt_core::manifest::plan::Plan;
use xt_core::verb::command::{self as verb, DATA, FILES, MODEL, MODEL_PLACE, PARAMETERS, PLAN};
use xt_sandbox::Policy;
use xt_store::Store;

use crate::error::{RuntimeError, file};
use crate::launch::{self, Launch, Places};
use crate::program::{Brought, with_targets};
use crate::secrets::Secrets;

/// The folder for states that a program saves on the way, among its outputs.
const SNAPSHOTS: &str = "snapshots";

/// Lays out the inputs: each by the digits of its digest, as for every run, and again by the name that the program knows
/// it by; and beside them plan and parameters.
pub(crate) fn lay_out(store: &Store, plan: &Plan, command: &Command, folder: &Path) -> Result<(), RuntimeError> {
    launch::lay_out(store, &plan.inputs, folder)?;
    let files = command.trainer.files().iter().map(|(path, digest)| (FILES, path.as_str(), *digest));
    let members = verb::members(command, plan.dataset.as_ref());
    let data = members.into_iter().map(|member| (DATA, member.path.as_str(), member.digest));
    let measured = plan.evaluation.iter().flat_map(|evaluating| &evaluating.files);
    let model = measured.map(|file| (MODEL, file.path.as_str(), file.digest));
    let folder_of_model = plan.evaluation.as_ref().map(|_| MODEL);
    for name in [FILES, DATA].into_iter().chain(folder_of_model) {
        folders(folder, name)?;
    }
    for (place, path, digest) in files.chain(data).chain(model) {
        let to = Path::new(place).join(path);
        folders(folder, &to.parent().unwrap_or(Path::new(place)).to_string_lossy())?;
        let to = folder.join(to);
        fs::hard_link(folder.join(digest.hex()), &to).map_err(file("link", &to))?;
    }
    let parameters = command.parameters.write().canonical();
    for (name, text) in [(PLAN, plan.encode().canonical()), (PARAMETERS, parameters)] {
        let path = folder.join(name);
        fs::write(&path, text + "\n").map_err(file("write", &path))?;
        fs::set_permissions(&path, Permissions::from_mode(0o444)).map_err(file("seal", &path))?;
    }
    Ok(())
}

/// Makes the folders of `path` below `root`, readable for the program's user whatever this process masks.
fn folders(root: &Path, path: &str) -> Result<(), RuntimeError> {
    let mut at = root.to_path_buf();
    for part in path.split('/') {
        at.push(part);
        match fs::create_dir(&at) {
            Ok(()) => fs::set_permissions(&at, Permissions::from_mode(0o755)).map_err(file("open up", &at))?,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(file("create", &at)(error)),
        }
    }
    Ok(())
}

/// Starts the program.
pub(crate) fn start(
    brought: &Brought,
    plan: &Plan,
    secrets: &Secrets,
    places: &Places<'_>,
) -> Result<Launch, RuntimeError> {
    let arguments = plan.command().map(|command| {
        let Trainer::Command { arguments, .. } = &command.trainer;
        arguments.as_slice()
    });
    let mut policy = launch::policy(&brought.worker, places, &plan.intent, &plan.environment);
    policy.brought = brought.brought();
    policy.digests = with_targets(&policy.digests);
    let mut named = named_places(&policy);
    if plan.evaluation.is_some() {
        named.insert(MODEL_PLACE, policy.inputs_inside().join(MODEL).to_string_lossy().into_owned());
    }
    policy.arguments =
        arguments.unwrap_or_default().iter().map(|argument| OsString::from(verb::expand(argument, &named))).collect();
    policy.environment.extend(named.into_iter().map(|(name, place)| (name.to_string(), place)));
    for (descriptor, number, variable) in secrets.descriptors()? {
        policy.descriptors.push((descriptor, number));
        policy.environment.insert(variable, number.to_string());
    }
    launch::start_with(policy, places, None)
}

/// Where everything lies, as the program sees it.
fn named_places(policy: &Policy) -> BTreeMap<&'static str, String> {
    let (inputs, outputs) = (policy.inputs_inside(), policy.outputs_inside());
    let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
    BTreeMap::from([
        ("XT_INPUTS", text(inputs.into())),
        ("XT_OUTPUTS", text(outputs.into())),
        ("XT_PLAN", text(inputs.join(PLAN))),
        ("XT_PARAMETERS", text(inputs.join(PARAMETERS))),
        ("XT_FILES", text(inputs.join(FILES))),
        ("XT_DATA", text(inputs.join(DATA))),
        ("XT_SNAPSHOTS", text(outputs.join(SNAPSHOTS))),
    ])
}
