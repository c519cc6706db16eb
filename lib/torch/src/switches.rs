//! Process-wide settings of libtorch: set, and read back as evidence.

use std::ffi::{CStr, c_char, c_int};

pub use crate::shim::Switches;
use crate::shim::{
    TorchError, call, xt_get_math_mode, xt_get_switches, xt_get_threads, xt_set_switches, xt_set_threads, xt_text,
};

/// Sets every switch.
pub fn set(to: Switches) -> Result<(), TorchError> {
    // SAFETY: `to` lives across the call and has the layout of the C struct.
    call(|message, capacity| unsafe { xt_set_switches(&raw const to, message, capacity) })
}

/// What libtorch says the switches are.
pub fn get() -> Result<Switches, TorchError> {
    let mut now = Switches::default();
    // SAFETY: the shim writes valid bools into a struct of this layout.
    call(|message, capacity| unsafe { xt_get_switches(&raw mut now, message, capacity) })?;
    Ok(now)
}

/// Sets the threads inside an operation, and those between operations; the latter can be set once only.
pub fn set_threads(intra: i32, inter: i32) -> Result<(), TorchError> {
    // SAFETY: plain numbers.
    call(|message, capacity| unsafe { xt_set_threads(intra, inter, message, capacity) })
}

/// Threads inside an operation and between operations.
pub fn threads() -> Result<(i32, i32), TorchError> {
    let (mut intra, mut inter): (c_int, c_int) = (0, 0);
    // SAFETY: both pointers lead to numbers that live across the call.
    call(|message, capacity| unsafe { xt_get_threads(&raw mut intra, &raw mut inter, message, capacity) })?;
    Ok((intra, inter))
}

/// oneMKL's branch of conditional numerical reproducibility as `mkl_cbwr_get(MKL_CBWR_ALL)` gives it; `None` without
/// oneMKL. `mkl_types.h` has the numbers: 3 compatible, 10 AVX2, 12 AVX-512, plus 0x10000 for strict.
pub fn math_mode() -> Result<Option<i32>, TorchError> {
    let mut mode: c_int = 0;
    // SAFETY: the pointer leads to a number that lives across the call.
    call(|message, capacity| unsafe { xt_get_math_mode(&raw mut mode, message, capacity) })?;
    Ok((mode >= 0).then_some(mode))
}

/// Vector instructions in use: `DEFAULT`, `AVX2` or `AVX512`.
pub fn cpu_capability() -> Result<String, TorchError> {
    text(0)
}

/// How libtorch was built.
pub fn build() -> Result<String, TorchError> {
    text(1)
}

/// How libtorch runs in parallel, with the variables it took from the environment.
pub fn parallel() -> Result<String, TorchError> {
    text(2)
}

fn text(which: c_int) -> Result<String, TorchError> {
    let mut out = vec![0 as c_char; 16384];
    // SAFETY: the shim writes at most `out.len()` bytes.
    call(|message, capacity| unsafe { xt_text(which, out.as_mut_ptr(), out.len(), message, capacity) })?;
    // SAFETY: the shim terminates the text within the capacity it was given.
    let text = unsafe { CStr::from_ptr(out.as_ptr()) };
    Ok(text.to_string_lossy().trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_read_back_as_they_were_set() {
        for on in [true, false] {
            let to = Switches {
                deterministic_algorithms: on,
                fill_uninitialized_memory: on,
                onednn: !on,
                nnpack: !on,
                sdp_flash: !on,
                sdp_mem_efficient: !on,
                sdp_math: on,
                flush_denormal: !on,
            };
            set(to).unwrap();
            assert_eq!(get().unwrap(), to);
        }
    }

    #[test]
    fn texts_name_the_capability_and_a_wrong_one_is_an_error_not_an_abort() {
        assert!(["DEFAULT", "AVX2", "AVX512"].contains(&cpu_capability().unwrap().as_str()));
        assert!(build().unwrap().contains("PyTorch built with"));
        assert!(parallel().unwrap().contains("get_num_threads"));
        assert_eq!(text(9).unwrap_err().to_string(), "libtorch: no such text");
    }

    #[test]
    fn threads_read_back_as_they_were_set() {
        set_threads(1, 1).unwrap();
        assert_eq!(threads().unwrap(), (1, 1));
    }
}
