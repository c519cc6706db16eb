//! What training begins from, as a store has it.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::candidate::{Adapter, Base, Candidate, Model, Tokenizer};
use xt_core::manifest::plan::{Input, Plan, Role};
use xt_core::verb::base::{self, START, Tensor};
use xt_core::verb::bind::WEIGHTS;
use xt_core::verb::configuration;
use xt_core::verb::parameters::parameters;
use xt_store::{Source, Store};

use crate::error::BundleError;
use crate::verify::verify_stored;

/// The files of the candidate's base as inputs of a plan; nothing when it begins from random parameters. Notes everything
/// that does not fit. A bundle is verified whole: what is frozen and broken is no base.
pub fn look(store: &Store, candidate: &Candidate, faults: &mut Faults) -> Result<Vec<Input>, BundleError> {
    let Some([document, weights]) = candidate.base.files() else { return Ok(Vec::new()) };
    if let Base::Module { digest } = candidate.base {
        let bytes = store.object(digest)?.size();
        base::check_module(&candidate.model, bytes, faults);
        return Ok(vec![Input { digest, bytes, role: Role::Base }]);
    }
    if let Base::Bundle { digest, .. } = &candidate.base {
        let verdict = verify_stored(store, *digest)?;
        if !verdict.report.verified {
            return Err(BundleError::Refused { name: digest.to_string(), faults: verdict.faults });
        }
    }
    let text = store.get(document)?;
    let object = store.object(weights)?;
    let size = object.size();
    match tensors(object, size)? {
        Ok(tensors) => base::check(&candidate.model, &candidate.base, &text, &tensors, faults),
        Err(found) => faults.0.extend(found.0),
    }
    let input = |digest| -> Result<Input, BundleError> {
        Ok(Input { digest, bytes: store.object(digest)?.size(), role: Role::Base })
    };
    [document, weights].into_iter().map(input).collect()
}

/// The tensors of a file of `size` bytes, from its header; or what is wrong with it.
fn tensors(mut file: impl Read, size: u64) -> Result<Result<Vec<Tensor>, Faults>, BundleError> {
    let failed = || BundleError::stream("read", "the base");
    let wrong = |why: String| Faults::one("/base/digest", "base.file", why);
    let cut = || Ok(Err(wrong("this is no safetensors file: it ends inside its header".into())));
    let mut start = [0; START];
    if size < START as u64 {
        return cut();
    }
    file.read_exact(&mut start).map_err(failed())?;
    let length = match base::header_length(&start) {
        Ok(length) => length,
        Err(why) => return Ok(Err(wrong(why))),
    };
    let Some(body) = size.checked_sub((length + START) as u64) else { return cut() };
    let mut header = vec![0; length];
    file.read_exact(&mut header).map_err(failed())?;
    Ok(base::tensors(&header, body))
}

/// A base with what a candidate that begins from it declares.
#[derive(Clone, Debug, PartialEq)]
pub struct Offered {
    /// The model that it holds.
    pub model: Model,
    /// How the candidate names it.
    pub base: Base,
    /// Its tokenizer, where it has a file of one.
    pub tokenizer: Option<Tokenizer>,
}

/// What a candidate declares to begin from the trained parameters of a stored bundle.
pub fn of_bundle(store: &Store, id: Digest) -> Result<Offered, BundleError> {
    let bundle: Bundle = store.manifest(id)?;
    let plan: Plan = store.manifest(bundle.plan)?;
    let weights = bundle.members.iter().find(|member| member.file.path.as_str() == WEIGHTS);
    match (plan.native(), weights) {
        (Some(candidate), Some(weights)) => Ok(Offered {
            model: candidate.model.clone(),
            base: Base::Bundle { digest: id, weights: weights.file.digest, adapter: Box::new(Adapter::None {}) },
            tokenizer: Some(candidate.tokenizer.clone()),
        }),
        _ => Err(refused(&id.to_string(), "base.bundle", "it holds no model of the trainer of this toolkit".into())),
    }
}

/// Puts `model.safetensors`, `config.json` and, where there is one, `tokenizer.json` of a folder as Hugging Face has it into
/// the store; gives what a candidate declares to begin from them. A folder or file of pickles is refused.
pub fn of_folder(store: &Store, folder: &Path) -> Result<Offered, BundleError> {
    let name = folder.display().to_string();
    let weights = folder.join("model.safetensors");
    if !weights.exists() {
        let why = match pickle_in(folder) {
            Some(path) => format!("{}: {}", path.display(), base::PICKLE),
            None => "there is no model.safetensors in it; larger models in several files are not known here".into(),
        };
        return Err(refused(&name, "base.file", why));
    }
    let config = std::fs::read(folder.join("config.json")).map_err(BundleError::stream("read", "config.json"))?;
    let mut faults = Faults::new();
    let model = match parse(&config) {
        Ok(value) => configuration::model(&value, &mut faults),
        Err(error) => {
            faults.add("config.json", "base.configuration", error.to_string());
            None
        }
    };
    let Some(model) = model else { return Err(BundleError::NoBase { name, faults }) };
    // What is refused leaves nothing in the store.
    let file = Source::open(&weights)?;
    let size = file.size();
    let found = tensors(file, size)?.map_err(|faults| BundleError::NoBase { name: name.clone(), faults })?;
    let mut writer = store.writer()?;
    let configuration = writer.put(&config)?;
    let (digest, _) = writer.put_file(&weights)?;
    let tokenizer = folder.join("tokenizer.json");
    let tokenizer = tokenizer.exists().then(|| writer.put_file(&tokenizer)).transpose()?;
    writer.commit()?;
    let (prefix, fresh, unused) = naming(&model, &found);
    let adapter = Box::new(Adapter::None {});
    let base = Base::Safetensors { digest, configuration, prefix, fresh, unused, adapter };
    let tokenizer = tokenizer.map(|(digest, _)| Tokenizer::HuggingFace { digest });
    Ok(Offered { model, base, tokenizer })
}

/// What the names in a file lack in front, the modules of the model that it does not have, and the tensors that the model does
/// not have: files of a model without its head are saved without the name of their part.
fn naming(model: &Model, found: &[Tensor]) -> (String, Vec<String>, Vec<String>) {
    let all = parameters(model);
    let names: BTreeSet<&str> = found.iter().map(|tensor| tensor.name.as_str()).collect();
    let has = |name: &str| names.contains(name);
    let held = |prefix: &str| all.iter().filter(|one| one.name.strip_prefix(prefix).is_some_and(has)).count();
    let mut prefix = "";
    for other in ["bert.", "transformer.", "model."] {
        prefix = if held(other) > held(prefix) { other } else { prefix };
    }
    let kept: BTreeSet<&str> =
        all.iter().filter_map(|one| one.name.strip_prefix(prefix)).filter(|name| has(name)).collect();
    let missing = |name: &str| name.strip_prefix(prefix).is_none_or(|name| !kept.contains(name));
    let module = |name: &str| name.rsplit_once('.').map_or(name, |(module, _)| module).to_string();
    let begun: BTreeSet<String> = all.iter().filter(|one| !missing(&one.name)).map(|one| module(&one.name)).collect();
    let lacking = all.iter().filter(|one| missing(&one.name)).map(|one| {
        let module = module(&one.name);
        if begun.contains(&module) { one.name.clone() } else { format!("{module}.*") }
    });
    let fresh: BTreeSet<String> = lacking.collect();
    let unused = found.iter().filter(|tensor| !kept.contains(tensor.name.as_str())).map(|tensor| tensor.name.clone());
    (prefix.into(), fresh.into_iter().collect(), unused.collect())
}

/// A file in the folder, or the given path itself, whose name says that it is a pickle.
fn pickle_in(folder: &Path) -> Option<PathBuf> {
    let pickled = |path: &PathBuf| {
        path.extension().and_then(|end| end.to_str()).is_some_and(|end| ["pt", "pth", "bin", "ckpt"].contains(&end))
    };
    let inside = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    [folder.to_path_buf()].into_iter().chain(inside).find(pickled)
}

fn refused(name: &str, code: &'static str, why: String) -> BundleError {
    BundleError::NoBase { name: name.into(), faults: Faults::one("/base", code, why) }
}
