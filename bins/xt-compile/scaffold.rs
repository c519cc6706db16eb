//! A candidate to start from, for a dataset and, where there is one, on a base.

use std::ffi::OsString;
use std::path::Path;

use xt_bundle::Given;
use xt_bundle::base::{Offered, of_bundle, of_folder};
use xt_cli::{CliError, Common, Error, Output, Source, read_one};
use xt_core::canonical::parse;
use xt_core::fault::{Exit, Faults};
use xt_core::field::{Field as _, Manifest};
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::dataset::Dataset;
use xt_core::manifest::intent::Intent;
use xt_core::manifest::network::ModuleTensors;
use xt_core::verb::scaffold::Content;
use xt_core::verb::{compile, scaffold};
use xt_data::Text;
use xt_store::Store;

use crate::ScaffoldArguments;
use crate::measuring::given_of;

/// Writes a candidate that compiles as it is.
pub fn write_scaffold(arguments: &ScaffoldArguments, common: &Common) -> Result<Exit, Error> {
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    let document = read_one(&Source::from(arguments.dataset.as_os_str()), &lookup)?;
    let dataset = Dataset::decode(&document.value)?;
    let ScaffoldArguments { family, optimizer, schedule, .. } = arguments;
    let content = content(arguments, &dataset, common)?;
    let learned = scaffold::Learned { dataset: dataset.id(), format: dataset.format, content };
    let text = scaffold::scaffold(family, optimizer, schedule, &learned)
        .ok_or_else(|| CliError::Usage(format!("there is no scaffold for {family}, {optimizer}, {schedule}")))?;
    let text = if family == "torchscript" { with_module(&text, arguments, common)? } else { text };
    let text = match &arguments.base {
        Some(base) => scaffold_on(&text, arguments, base, common)?,
        None => text,
    };
    // The text is read as any candidate is, so that what is written is one that compiles.
    let lines = scaffold::describe(&text)?;
    let candidate = candidate_of(&text)?;
    let mut faults = Faults::new();
    compile::check(&candidate, &dataset, &Intent::default_for(candidate.execution.threads), &mut faults);
    faults.or(())?;
    let mut output = Output::new(arguments.output.as_deref())?;
    if arguments.explain {
        for line in lines {
            output.line(&line)?;
        }
    } else {
        output.bytes(text.as_bytes())?;
    }
    output.finish()?;
    Ok(Exit::Yes)
}

fn candidate_of(text: &str) -> Result<Candidate, Error> {
    let value = parse(text.as_bytes()).map_err(|error| Faults::one("", "syntax", error.to_string()))?;
    Ok(Candidate::decode(&value)?)
}

/// The candidate in `text` with the module that is named, which the store then has.
fn with_module(text: &str, arguments: &ScaffoldArguments, common: &Common) -> Result<String, Error> {
    let (Some(module), Some(tensors)) = (&arguments.module, &arguments.tensors) else {
        let message = "a torchscript needs --module and --tensors: what computes, and what it is made of";
        return Err(CliError::Usage(message.into()).into());
    };
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    let document = read_one(&Source::from(tensors.as_os_str()), &lookup)?;
    let mut faults = Faults::new();
    let tensors = ModuleTensors::read(&document.value, "", &mut faults);
    let Some(ModuleTensors { parameters, buffers }) = tensors.filter(|_| faults.is_empty()) else {
        return Err(faults.within(&document.origin).into());
    };
    let store = Store::open_or_create(&common.store)?;
    let mut writer = store.writer()?;
    let (digest, _) = writer.put_file(module)?;
    writer.commit()?;
    Ok(scaffold::on_module(text, digest, &parameters, &buffers))
}

/// What the family must know of the files in the split `train`, which the store must hold.
fn content(arguments: &ScaffoldArguments, dataset: &Dataset, common: &Common) -> Result<Content, Error> {
    let (family, target) = (arguments.family.as_str(), arguments.target.as_deref());
    if ["mlp", "cnn", "torchscript"].contains(&family) {
        return Ok(Content::Rows(xt_data::suggest::suggest(dataset.format, &train(dataset, common)?, target)?));
    }
    if target.is_some() {
        let message = format!("--target names what is predicted of rows, and {family} reads text");
        return Err(CliError::Usage(message).into());
    }
    if family == "encoder" { Ok(Content::Labelled(labels(dataset, common)?)) } else { Ok(Content::Text) }
}

/// The files in the split `train`.
fn train<'a>(dataset: &'a Dataset, common: &Common) -> Result<Vec<(&'a str, Vec<u8>)>, Error> {
    let store = Store::open(&common.store)?;
    let train = dataset.members.iter().filter(|member| member.split.as_str() == "train");
    train.map(|member| Ok((member.path.as_str(), store.get(member.digest)?))).collect()
}

/// The labels of the texts there.
fn labels(dataset: &Dataset, common: &Common) -> Result<Vec<String>, Error> {
    let files = train(dataset, common)?;
    let labels: Vec<String> =
        xt_data::labelled::labels(files.iter().map(|(_, bytes)| bytes.as_slice())).into_iter().collect();
    if labels.is_empty() {
        let message = "the dataset holds no text with a label: records of jsonl with the members `text` and `label`, or csv \
                       with these columns";
        return Err(Faults::one("/tokenizer/levels", "tokenizer.format", message).into());
    }
    Ok(labels)
}

/// The candidate in `text` with the model of a base, beginning from it.
fn scaffold_on(text: &str, arguments: &ScaffoldArguments, base: &OsString, common: &Common) -> Result<String, Error> {
    let Offered { model, base, tokenizer } = offered(base, common)?;
    let (family, found) = (&arguments.family, model.word());
    if found != family {
        let message = format!("it holds a model `{found}`, the scaffold is for `{family}`");
        return Err(Faults::one("/base", "base.form", message).into());
    }
    let candidate = candidate_of(text)?;
    let model = scaffold::model_on(&candidate, model);
    let base = if arguments.lora { scaffold::with_lora(base, &model) } else { base };
    let tokenizer = match tokenizer {
        None => None,
        Some(offered) => {
            let file = offered.digest().map(|digest| Store::open(&common.store)?.get(digest)).transpose()?;
            let text = Text::load(&offered, file.as_deref())?;
            let ends = ["[CLS]", "[SEP]"].map(|token| text.token(token));
            Some(scaffold::tokenizer_on(&candidate, &model, offered, ends))
        }
    };
    Ok(scaffold::on(text, &model, &base, tokenizer.as_ref()))
}

/// What is named as a base.
fn offered(base: &OsString, common: &Common) -> Result<Offered, Error> {
    let source = Source::from(base.as_os_str());
    let bundle = match &source {
        Source::Digest(digest) => *digest,
        Source::File(path) if path.is_file() => match given_of(&source, common)? {
            Given::Archive(archive) => {
                xt_bundle::import(&Store::open_or_create(&common.store)?, archive, &source.name())?.id()
            }
            Given::Text(_) => return Ok(of_folder(&Store::open_or_create(&common.store)?, path)?),
        },
        _ => return Ok(of_folder(&Store::open_or_create(&common.store)?, Path::new(base))?),
    };
    Ok(of_bundle(&Store::open(&common.store)?, bundle)?)
}
