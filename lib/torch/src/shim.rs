//! The C functions of `csrc/shim.cpp`, and what all their callers share.

use std::ffi::{CStr, c_char, c_int};

use tch::TchError;
use torch_sys::C_tensor;

/// What libtorch, or the shim before it, refused.
#[derive(Debug, thiserror::Error)]
pub enum TorchError {
    /// An exception of libtorch, caught in the shim.
    #[error("libtorch: {0}")]
    Exception(String),
    /// An error that tch reports.
    #[error("libtorch: {0}")]
    Tch(#[from] TchError),
    /// A tensor whose bytes cannot be looked at where they lie.
    #[error("the bytes of this tensor cannot be read in place: {0}")]
    NotPlain(String),
}

/// As `struct xt_switches`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Only operations that give the same bits each time.
    pub deterministic_algorithms: bool,
    /// Fresh memory is filled with NaN, so that reading it before writing shows.
    pub fill_uninitialized_memory: bool,
    /// oneDNN kernels may be used.
    pub onednn: bool,
    /// NNPACK kernels may be used.
    pub nnpack: bool,
    /// The fused attention kernel may be used.
    pub sdp_flash: bool,
    /// The memory-saving attention kernel may be used.
    pub sdp_mem_efficient: bool,
    /// Attention by plain matrix products may be used.
    pub sdp_math: bool,
    /// Denormal numbers count as zero.
    pub flush_denormal: bool,
}

unsafe extern "C" {
    pub fn xt_set_switches(to: *const Switches, message: *mut c_char, capacity: usize) -> c_int;
    pub fn xt_get_switches(now: *mut Switches, message: *mut c_char, capacity: usize) -> c_int;
    pub fn xt_set_threads(intra: c_int, inter: c_int, message: *mut c_char, capacity: usize) -> c_int;
    pub fn xt_get_threads(intra: *mut c_int, inter: *mut c_int, message: *mut c_char, capacity: usize) -> c_int;
    pub fn xt_get_math_mode(mode: *mut c_int, message: *mut c_char, capacity: usize) -> c_int;
    pub fn xt_text(which: c_int, out: *mut c_char, out_capacity: usize, message: *mut c_char, capacity: usize)
    -> c_int;
    pub fn xt_set_autocast(on: c_int, message: *mut c_char, capacity: usize) -> c_int;
    pub fn xt_take_gradient(
        parameter: *mut C_tensor,
        gradient: *mut C_tensor,
        message: *mut c_char,
        capacity: usize,
    ) -> c_int;
    pub fn xt_module_load(
        bytes: *const c_char,
        length: usize,
        loaded: *mut *mut Loaded,
        message: *mut c_char,
        capacity: usize,
    ) -> c_int;
    pub fn xt_module_free(module: *mut Loaded);
    pub fn xt_module_count(module: *const Loaded) -> usize;
    pub fn xt_module_name(
        module: *const Loaded,
        index: usize,
        buffer: *mut bool,
        out: *mut c_char,
        out_capacity: usize,
        message: *mut c_char,
        capacity: usize,
    ) -> c_int;
    pub fn xt_module_get(
        module: *const Loaded,
        index: usize,
        tensor: *mut C_tensor,
        message: *mut c_char,
        capacity: usize,
    ) -> c_int;
    pub fn xt_module_set(
        module: *mut Loaded,
        index: usize,
        tensor: *const C_tensor,
        message: *mut c_char,
        capacity: usize,
    ) -> c_int;
    pub fn xt_module_forward(
        module: *mut Loaded,
        training: bool,
        input: *const C_tensor,
        output: *mut C_tensor,
        message: *mut c_char,
        capacity: usize,
    ) -> c_int;
}

/// `struct xt_module`, of which nothing is known here.
#[repr(C)]
pub struct Loaded {
    _opaque: [u8; 0],
}

/// Calls a shim function with room for a message and turns its answer into a result.
pub fn call(function: impl FnOnce(*mut c_char, usize) -> c_int) -> Result<(), TorchError> {
    let mut message = [0 as c_char; 1024];
    if function(message.as_mut_ptr(), message.len()) == 0 {
        return Ok(());
    }
    // SAFETY: the shim always terminates the message within the capacity it was given.
    let text = unsafe { CStr::from_ptr(message.as_ptr()) };
    Err(TorchError::Exception(text.to_string_lossy().into_owned()))
}
