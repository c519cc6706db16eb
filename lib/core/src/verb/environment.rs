//! The environment that a worker needs so that its libraries compute as the candidate says.
//!
//! Every variable here is read once, when a library loads: the launcher sets them before the process starts, and the
//! worker checks afterwards that the libraries took them.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use crate::manifest::candidate::{CpuCapability, Execution, MathMode};

/// The variables for `execution`, and no others: a worker inherits nothing.
pub fn environment(execution: &Execution) -> BTreeMap<String, String> {
    let threads = execution.threads.to_string();
    let (capability, onednn) = match execution.cpu_capability {
        CpuCapability::Default => ("default", "SSE41"),
        CpuCapability::Avx2 => ("avx2", "AVX2"),
        CpuCapability::Avx512 => ("avx512", "AVX512_CORE"),
        CpuCapability::Avx512Bf16 => ("avx512", "AVX512_CORE_BF16"),
    };
    let math_mode = match execution.math_mode {
        MathMode::Compatible => "COMPATIBLE",
        MathMode::Avx2Strict => "AVX2,STRICT",
        MathMode::Avx512Strict => "AVX512,STRICT",
        MathMode::Avx2 => "AVX2",
        MathMode::Avx512 => "AVX512",
    };
    let variables = [
        // Texts and times of the C library.
        ("LC_ALL", "C"),
        ("TZ", "UTC"),
        // Threads of libgomp and oneMKL: a fixed number, never fewer because the machine is busy.
        ("OMP_NUM_THREADS", threads.as_str()),
        ("OMP_DYNAMIC", "FALSE"),
        ("MKL_NUM_THREADS", threads.as_str()),
        ("MKL_DYNAMIC", "FALSE"),
        // Vector instructions of libtorch and oneDNN, and the summation order of oneMKL.
        ("ATEN_CPU_CAPABILITY", capability),
        ("ONEDNN_MAX_CPU_ISA", onednn),
        ("ONEDNN_DEFAULT_FPMATH_MODE", "STRICT"),
        ("MKL_CBWR", math_mode),
    ];
    variables.map(|(name, value)| (name.to_string(), value.to_string())).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    use crate::manifest::candidate::Device;

    #[test]
    fn every_choice_of_the_candidate_reaches_a_variable() {
        let with = |threads, cpu_capability, math_mode| {
            environment(&Execution { device: Device::Cpu, threads, cpu_capability, math_mode, onednn: false })
        };
        let base = with(1, CpuCapability::Default, MathMode::Compatible);
        let differs = |other: BTreeMap<String, String>| -> Vec<String> {
            base.iter().filter(|(name, value)| other.get(*name) != Some(value)).map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(
            differs(with(2, CpuCapability::Default, MathMode::Compatible)),
            ["MKL_NUM_THREADS", "OMP_NUM_THREADS"]
        );
        let capability = differs(with(1, CpuCapability::Avx2, MathMode::Compatible));
        assert_eq!(capability, ["ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"]);
        let wide = |capability| with(1, capability, MathMode::Compatible);
        assert_ne!(wide(CpuCapability::Avx512), wide(CpuCapability::Avx512Bf16));
        for mode in [MathMode::Avx2Strict, MathMode::Avx512Strict, MathMode::Avx2, MathMode::Avx512] {
            assert_eq!(differs(with(1, CpuCapability::Default, mode)), ["MKL_CBWR"]);
        }
    }
}
