//! Modules of TorchScript: what computes is a file, which the plan pins by digest.
//!
//! The parameters are the tensors of the flat row: the module computes with those and has none of its own. Buffers change
//! while it computes forward, so the module has its own, which the row takes in at the end of each step. What the module
//! draws comes from the library's generator, which is set anew for each micro-batch: nothing of it need be remembered.

use std::rc::Rc;

use tch::{Kind, Tensor};
use xt_core::fault::Faults;
use xt_core::manifest::candidate::Model;
use xt_core::manifest::network::ModuleTensor;
use xt_core::verb::base::check_module;
use xt_torch::TorchError;
use xt_torch::memory::floats;
use xt_torch::module::{Module, Named};

use crate::dropout::Dropout;
use crate::fault::TrainError;
use crate::layout::{Declared, Span, Start};
use crate::model::{Family, Look, Network, size};
use crate::parameters::Parameters;

/// Whole numbers up to this one are numbers of binary32.
const LARGEST: f64 = 16_777_216.0;

/// What a candidate declares of a module.
#[derive(Clone, Debug, PartialEq)]
pub struct TorchScript {
    shape: Vec<i64>,
    outputs: i64,
    tensors: Vec<Declared>,
}

impl TorchScript {
    /// What a candidate declares.
    pub fn of(model: &Model) -> Result<Self, TrainError> {
        let Model::TorchScript { shape, outputs, parameters, buffers } = model else {
            return Err(TrainError::Model(format!("a {} is no torchscript", model.word())));
        };
        let sizes = |shape: &[u64]| shape.iter().map(|one| size(*one)).collect::<Result<Vec<i64>, _>>();
        let declared = |one: &ModuleTensor| {
            Ok(Declared { name: one.name.clone(), shape: sizes(&one.shape)?, start: Start::Zeros })
        };
        let tensors: Result<_, TrainError> = parameters.iter().chain(buffers).map(declared).collect();
        Ok(Self { shape: sizes(shape)?, outputs: size(*outputs)?, tensors: tensors? })
    }
}

/// The module in the bytes of a file, whose tensors are those that `model` declares. What is not so is refused with every
/// reason.
pub fn load(model: &Model, file: &[u8]) -> Result<Rc<Module>, TrainError> {
    let mut faults = Faults::new();
    check_module(model, file.len() as u64, &mut faults);
    faults.or(()).map_err(TrainError::Base)?;
    let module = Module::load(file).map_err(|error| {
        let first = error.to_string().lines().next().unwrap_or_default().to_string();
        TrainError::Base(Faults::one("/base/digest", "base.file", format!("it is no module of TorchScript: {first}")))
    })?;
    let mut faults = Faults::new();
    check(model, &module, &mut faults)?;
    faults.or(()).map_err(TrainError::Base)?;
    Ok(Rc::new(module))
}

/// Notes tensors that are not as declared, of a type that is not kept, or one under two names.
fn check(model: &Model, module: &Module, faults: &mut Faults) -> Result<(), TrainError> {
    let Model::TorchScript { parameters, buffers, .. } = model else { return Ok(()) };
    let mut places = std::collections::BTreeMap::new();
    for (index, Named { name, buffer }) in module.tensors().iter().enumerate() {
        let at = format!("module#{name}");
        let (list, what) = if *buffer { (buffers, "buffer") } else { (parameters, "parameter") };
        let tensor = module.get(index)?;
        let found: Vec<u64> = tensor.size().iter().map(|one| one.unsigned_abs()).collect();
        match list.iter().find(|one| one.name == *name) {
            None => faults.add(&at, "base.unknown", format!("the candidate declares no such {what}")),
            Some(due) if due.shape != found => {
                faults.add(&at, "base.shape", format!("declared is {:?}, found {found:?}", due.shape));
            }
            Some(_) => {}
        }
        let kept = if *buffer { kept(tensor.kind()) } else { tensor.kind() == Kind::Float };
        if !kept {
            faults.add(&at, "base.type", format!("a {what} of type {:?} is not known here", tensor.kind()));
        }
        if tensor.numel() > 0
            && let Some(other) = places.insert(tensor.data_ptr() as usize, name.clone())
        {
            let message = format!("it is the same tensor as {other}, and would part from it here");
            faults.add(&at, "base.tied", message);
        }
    }
    for (list, of_buffers) in [(parameters, false), (buffers, true)] {
        let has =
            |due: &ModuleTensor| module.tensors().iter().any(|one| one.name == due.name && one.buffer == of_buffers);
        for due in list.iter().filter(|due| !has(due)) {
            faults.add(format!("module#{}", due.name), "base.missing", "it is declared, and the module has none");
        }
    }
    Ok(())
}

/// Types of buffers whose values binary32 holds.
const fn kept(kind: Kind) -> bool {
    matches!(kind, Kind::Float | Kind::Int64 | Kind::Int | Kind::Bool)
}

/// Gives `parameters` the values that their module has in its file.
pub fn fill(parameters: &mut Parameters) -> Result<(), TrainError> {
    let module = module_of(parameters)?;
    for (index, Named { name, .. }) in module.tensors().iter().enumerate() {
        take(parameters, name, &module.get(index)?)?;
    }
    Ok(())
}

fn module_of(parameters: &Parameters) -> Result<Rc<Module>, TrainError> {
    parameters.module().ok_or_else(|| TrainError::Model("a torchscript without its module is none".into()))
}

/// Copies the values of `tensor` into the place of `name`.
fn take(parameters: &mut Parameters, name: &str, tensor: &Tensor) -> Result<(), TrainError> {
    if tensor.kind() != Kind::Float && tensor.numel() > 0 {
        let largest = tensor.f_to_kind(Kind::Double)?.f_abs()?.f_max()?.f_double_value(&[])?;
        if largest > LARGEST {
            return Err(TrainError::Model(format!("the buffer {name} holds {largest}, more than 2^24")));
        }
    }
    let values = tensor.f_detach()?.f_to_kind(Kind::Float)?.f_contiguous()?.f_view(-1)?;
    let Span { offset, count, .. } = span(parameters, name)?;
    parameters.values.values_mut()[offset..offset + count].copy_from_slice(floats(&values)?);
    Ok(())
}

fn span(parameters: &Parameters, name: &str) -> Result<Span, TrainError> {
    let found = parameters.layout.spans().iter().find(|span| span.declared.name == name);
    found.cloned().ok_or_else(|| TrainError::Model(format!("it has no tensor {name}")))
}

impl Family for TorchScript {
    fn parameters(&self) -> Vec<Declared> {
        self.tensors.clone()
    }

    fn dropout(&self) -> f64 {
        0.0
    }

    fn draws(&self) -> bool {
        true
    }

    fn network(&self, parameters: &Parameters) -> Result<Box<dyn Network>, TrainError> {
        let module = module_of(parameters)?;
        let mut buffers = Vec::new();
        for (index, Named { name, buffer }) in module.tensors().iter().enumerate() {
            if *buffer {
                buffers.push((index, name.clone(), module.get(index)?.kind()));
            } else {
                module.set(index, &parameters.tensor(name)?)?;
            }
        }
        let scripted = Scripted { module, shape: self.shape.clone(), outputs: self.outputs, buffers };
        scripted.recall(parameters)?;
        Ok(Box::new(scripted))
    }
}

/// The module over its parameters.
#[derive(Debug)]
struct Scripted {
    module: Rc<Module>,
    shape: Vec<i64>,
    outputs: i64,
    /// Each buffer by its place in the module, name and type.
    buffers: Vec<(usize, String, Kind)>,
}

impl Network for Scripted {
    fn forward(&self, seen: &Tensor, dropout: Option<&Dropout>, look: Look<'_>) -> Result<Tensor, TrainError> {
        let samples = seen.size().first().copied().unwrap_or(0);
        let input = seen.f_reshape([&[samples], self.shape.as_slice()].concat())?;
        tch::manual_seed(dropout.map_or(0, Dropout::start));
        let outputs = self.module.forward(&input, dropout.is_some()).map_err(|error| of_module(&error))?;
        if outputs.size() != [samples, self.outputs] || !outputs.is_floating_point() {
            return Err(TrainError::Model(format!(
                "its module gives {:?} of type {:?} for {samples} samples, declared are {} outputs of each",
                outputs.size(),
                outputs.kind(),
                self.outputs
            )));
        }
        let outputs = outputs.f_contiguous()?;
        look("outputs", &outputs)?;
        Ok(outputs)
    }

    fn remember(&self, parameters: &mut Parameters) -> Result<(), TrainError> {
        self.buffers.iter().try_for_each(|(index, name, _)| {
            let now = self.module.get(*index)?;
            let due = &span(parameters, name)?.declared.shape;
            if now.size() != *due {
                return Err(TrainError::Model(format!("the buffer {name} changed its shape to {:?}", now.size())));
            }
            take(parameters, name, &now)
        })
    }

    fn recall(&self, parameters: &Parameters) -> Result<(), TrainError> {
        for (index, name, kind) in &self.buffers {
            let span = span(parameters, name)?;
            let values =
                Tensor::f_from_slice(span.of(parameters.values.values()))?.f_view(span.declared.shape.as_slice())?;
            // An average of whole numbers, or one with noise, need not be whole.
            let values = if *kind == Kind::Float { values } else { values.f_round()? };
            self.module.set(*index, &values.f_to_kind(*kind)?)?;
        }
        Ok(())
    }
}

/// A module that cannot compute is at fault itself; the last line of what TorchScript tells says why.
fn of_module(error: &TorchError) -> TrainError {
    let text = error.to_string();
    let why = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    TrainError::Model(format!("its module cannot compute: {}", why.trim()))
}
