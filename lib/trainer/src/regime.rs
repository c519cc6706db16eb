//! The pins of a run: set what can be set, then compare what the libraries report with what the candidate demands.

use std::collections::BTreeMap;

use xt_core::manifest::candidate::{CpuCapability, Execution, MathMode};
use xt_torch::switches::{self, Switches};

use crate::fault::TrainError;

/// What the libraries report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Vector instructions, as libtorch names them.
    pub cpu_capability: String,
    /// Threads inside an operation.
    pub threads: u64,
    threads_between: u64,
    math_mode: Option<i32>,
    switches: Switches,
}

/// The switches of the exact regime.
fn demanded(execution: &Execution) -> Switches {
    Switches {
        deterministic_algorithms: true,
        // Nothing here reads memory before writing it, and filling it costs a pass over every result.
        fill_uninitialized_memory: false,
        onednn: execution.onednn,
        nnpack: false,
        // Of the base of x86-64 that kernel calls the C library, which is not the same everywhere.
        sdp_flash: execution.cpu_capability != CpuCapability::Default,
        sdp_mem_efficient: false,
        sdp_math: true,
        flush_denormal: false,
    }
}

/// Sets the switches and threads of this process and fails with every difference that is left. Call it once, before any
/// other operation.
pub fn pin(execution: &Execution) -> Result<Report, TrainError> {
    // libtorch believes ATEN_CPU_CAPABILITY, and dies of an illegal instruction where the processor does not have it.
    let missing = missing_features(execution.cpu_capability);
    if !missing.is_empty() {
        let message =
            format!("processor: it has no {}, the plan demands {}", missing.join(", "), execution.cpu_capability);
        return Err(TrainError::Pins(vec![message]));
    }
    let threads = i32::try_from(execution.threads).unwrap_or(i32::MAX);
    let before = switches::threads()?.0;
    let mut differences = Vec::new();
    if before != threads {
        // OMP_NUM_THREADS was not what the plan says: other libraries of the process have read it, too.
        differences.push(format!("threads: the process started with {before}, the plan demands {threads}"));
    }
    switches::set(demanded(execution))?;
    switches::set_threads(threads, 1)?;
    let report = report()?;
    differences.extend(compare(&report, execution));
    if differences.is_empty() { Ok(report) } else { Err(TrainError::Pins(differences)) }
}

/// Instructions that the kernels of a capability use and this processor has not: those that libtorch asks for when it
/// chooses by itself.
fn missing_features(wanted: CpuCapability) -> Vec<&'static str> {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = [("avx2", has!("avx2")), ("fma", has!("fma"))];
    let avx512 = [
        ("avx512f", has!("avx512f")),
        ("avx512vl", has!("avx512vl")),
        ("avx512bw", has!("avx512bw")),
        ("avx512dq", has!("avx512dq")),
        ("fma", has!("fma")),
        // Only of the last capability.
        ("avx512_bf16", has!("avx512bf16")),
    ];
    let needed: &[(&str, bool)] = match wanted {
        CpuCapability::Default => &[],
        CpuCapability::Avx2 => &avx2,
        CpuCapability::Avx512 => &avx512[..5],
        CpuCapability::Avx512Bf16 => &avx512,
    };
    needed.iter().filter(|(_, has)| !has).map(|(name, _)| *name).collect()
}

/// What the libraries report now.
pub fn report() -> Result<Report, TrainError> {
    let (threads, between) = switches::threads()?;
    Ok(Report {
        cpu_capability: switches::cpu_capability()?,
        threads: u64::try_from(threads).unwrap_or(0),
        threads_between: u64::try_from(between).unwrap_or(0),
        math_mode: switches::math_mode()?,
        switches: switches::get()?,
    })
}

/// Every difference between what is reported and what is demanded.
pub fn compare(report: &Report, execution: &Execution) -> Vec<String> {
    let mut differences = Vec::new();
    let mut check = |what: &str, found: String, demanded: String| {
        if found != demanded {
            differences.push(format!("{what}: found {found}, the plan demands {demanded}"));
        }
    };
    check("threads", report.threads.to_string(), execution.threads.to_string());
    check("threads between operations", report.threads_between.to_string(), "1".into());
    check("cpu capability", report.cpu_capability.clone(), capability(execution.cpu_capability).into());
    let math = report.math_mode.map_or_else(|| "no oneMKL".into(), |mode| format!("{mode:#x}"));
    check("math mode", math, format!("{:#x}", math_mode(execution.math_mode)));
    check("switches", format!("{:?}", report.switches), format!("{:?}", demanded(execution)));
    differences
}

/// Every variable that the plan sets and this process has not, or has otherwise.
pub fn environment(plan: &BTreeMap<String, String>, of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let differs = |(name, demanded): (&String, &String)| match of(name) {
        Some(found) if found == *demanded => None,
        Some(found) => Some(format!("{name}: found {found:?}, the plan demands {demanded:?}")),
        None => Some(format!("{name}: not set, the plan demands {demanded:?}")),
    };
    plan.iter().filter_map(differs).collect()
}

const fn capability(wanted: CpuCapability) -> &'static str {
    match wanted {
        CpuCapability::Default => "DEFAULT",
        CpuCapability::Avx2 => "AVX2",
        // libtorch itself knows no more of it: the instructions are those of oneDNN.
        CpuCapability::Avx512 | CpuCapability::Avx512Bf16 => "AVX512",
    }
}

/// Branches of oneMKL's conditional numerical reproducibility, from `mkl_types.h`.
const fn math_mode(wanted: MathMode) -> i32 {
    const STRICT: i32 = 0x1_0000;
    match wanted {
        MathMode::Compatible => 3,
        MathMode::Avx2Strict => STRICT + 10,
        MathMode::Avx512Strict => STRICT + 12,
        MathMode::Avx2 => 10,
        MathMode::Avx512 => 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xt_core::manifest::candidate::Device;

    fn execution() -> Execution {
        Execution {
            device: Device::Cpu,
            threads: 1,
            cpu_capability: CpuCapability::Avx2,
            math_mode: MathMode::Compatible,
            onednn: false,
        }
    }

    fn report() -> Report {
        Report {
            cpu_capability: "AVX2".into(),
            threads: 1,
            threads_between: 1,
            math_mode: Some(3),
            switches: demanded(&execution()),
        }
    }

    /// Row N-01: a process with other pins is refused with every difference, before it computes.
    #[test]
    fn every_pin_that_differs_is_named() {
        assert!(compare(&report(), &execution()).is_empty());
        let all = Execution {
            threads: 2,
            cpu_capability: CpuCapability::Avx512,
            math_mode: MathMode::Avx2Strict,
            onednn: true,
            ..execution()
        };
        let names: Vec<String> = compare(&report(), &all)
            .iter()
            .map(|line| line.split(':').next().unwrap_or_default().to_string())
            .collect();
        assert_eq!(names, ["threads", "cpu capability", "math mode", "switches"]);
    }

    #[test]
    fn variables_that_are_missing_or_other_are_named() {
        let plan = BTreeMap::from([("A".to_string(), "1".to_string()), ("B".to_string(), "2".to_string())]);
        let with = |b: Option<&'static str>| {
            environment(&plan, move |name| if name == "A" { Some("1".into()) } else { b.map(String::from) })
        };
        assert!(with(Some("2")).is_empty());
        assert_eq!(with(Some("3")), ["B: found \"3\", the plan demands \"2\""]);
        assert_eq!(with(None), ["B: not set, the plan demands \"2\""]);
    }
}
