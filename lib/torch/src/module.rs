//! Modules of TorchScript: a program with its tensors in one file.

use std::ffi::{CStr, c_char};
use std::ptr;

use tch::Tensor;

use crate::shim::{
    Loaded, TorchError, call, xt_module_count, xt_module_forward, xt_module_free, xt_module_get, xt_module_load,
    xt_module_name, xt_module_set,
};

/// Longer names are refused.
const NAME: usize = 4096;

/// A loaded module.
#[derive(Debug)]
pub struct Module {
    loaded: *mut Loaded,
    tensors: Vec<Named>,
}

/// A tensor of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name: those of the modules around it and its own, with points between them.
    pub name: String,
    /// Whether it is a buffer, and no parameter.
    pub buffer: bool,
}

impl Module {
    /// The module in the bytes of a file, as `torch.jit.save` writes it.
    pub fn load(bytes: &[u8]) -> Result<Self, TorchError> {
        let mut module = Self { loaded: ptr::null_mut(), tensors: Vec::new() };
        let from = bytes.as_ptr().cast::<c_char>();
        // SAFETY: the bytes live across the call, which copies them; what it gives is freed by `drop` alone.
        call(|message, capacity| unsafe {
            xt_module_load(from, bytes.len(), &raw mut module.loaded, message, capacity)
        })?;
        // SAFETY: the module was loaded.
        let count = unsafe { xt_module_count(module.loaded) };
        module.tensors = (0..count).map(|index| module.named(index)).collect::<Result<_, _>>()?;
        Ok(module)
    }

    fn named(&self, index: usize) -> Result<Named, TorchError> {
        let (mut name, mut buffer) = (vec![0 as c_char; NAME], false);
        let out = name.as_mut_ptr();
        // SAFETY: the shim writes at most `NAME` bytes and a valid bool.
        call(|message, capacity| unsafe {
            xt_module_name(self.loaded, index, &raw mut buffer, out, NAME, message, capacity)
        })?;
        // SAFETY: the shim terminates the text within the capacity it was given.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        Ok(Named { name, buffer })
    }

    /// Every parameter, then every buffer.
    pub fn tensors(&self) -> &[Named] {
        &self.tensors
    }

    /// The tensor that stands in the place number `index` of [`Self::tensors`] now.
    pub fn get(&self, index: usize) -> Result<Tensor, TorchError> {
        let mut tensor = Tensor::new();
        let to = tensor.as_mut_ptr();
        // SAFETY: module and handle live across the call.
        call(|message, capacity| unsafe { xt_module_get(self.loaded, index, to, message, capacity) })?;
        Ok(tensor)
    }

    /// Puts `tensor` into that place: the module computes with it, and not with a copy.
    pub fn set(&self, index: usize, tensor: &Tensor) -> Result<(), TorchError> {
        let from = tensor.as_ptr();
        // SAFETY: module and handle live across the call, which takes a reference of its own.
        call(|message, capacity| unsafe { xt_module_set(self.loaded, index, from, message, capacity) })
    }

    /// What `forward` gives for one tensor, as in training or as in use.
    pub fn forward(&self, input: &Tensor, training: bool) -> Result<Tensor, TorchError> {
        let mut output = Tensor::new();
        let (from, to) = (input.as_ptr(), output.as_mut_ptr());
        // SAFETY: module and handles live across the call.
        call(|message, capacity| unsafe { xt_module_forward(self.loaded, training, from, to, message, capacity) })?;
        Ok(output)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: nothing else frees it, and C++ takes null.
        unsafe { xt_module_free(self.loaded) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_module_is_an_error_and_no_abort() {
        for bytes in [&b""[..], b"PK\x03\x04 and more", &[0x80; 4096]] {
            assert!(matches!(Module::load(bytes), Err(TorchError::Exception(_))));
        }
    }
}
