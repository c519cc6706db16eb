//! Which pins give one trace on every x86-64 processor. qemu-user plays the processors, which is slow, so these tests are
//! run by hand: `cargo test -p xt-train -- --ignored` with the Debian package qemu-user.

use xt_core::manifest::dataset::Format;
use xt_core::manifest::plan::Plan;

use crate::desk::{Desk, LLAMA, Left, plan};
use crate::encoder;

const AVX2: (&str, &str) = ("\"cpu_capability\":\"default\"", "\"cpu_capability\":\"avx2\"");
const STRICT: (&str, &str) = ("\"math_mode\":\"compatible\"", "\"math_mode\":\"avx2-strict\"");

fn on(processor: &str, plan: &Plan) -> Left {
    Desk::new(plan).on_processor(processor).train(plan, Some(3))
}

/// The trace of `plan` here, and on each of these processors.
fn assert_same(plan: &Plan, processors: &[&str]) {
    let here = Desk::new(plan).train(plan, Some(3));
    assert_eq!(here.code, Some(0), "{}", here.stderr);
    for processor in processors {
        let there = on(processor, plan);
        assert_eq!(there.code, Some(0), "{processor}: {}", there.stderr);
        assert_eq!(there.steps(plan), here.steps(plan), "{processor}");
    }
}

#[test]
#[ignore = "needs qemu-user, and minutes"]
fn without_vector_extensions_and_with_compatible_sums_every_processor_gives_one_trace() {
    assert_same(&plan(&[], 1), &["Nehalem", "Haswell", "EPYC", "Opteron_G3", "max"]);
}

#[test]
#[ignore = "needs qemu-user, and minutes"]
fn a_llama_gives_one_trace_on_every_processor_too() {
    assert_same(&plan(&[LLAMA], 1), &["Nehalem", "Haswell", "EPYC"]);
}

#[test]
#[ignore = "needs qemu-user, and minutes"]
fn an_encoder_gives_one_trace_on_every_processor_too() {
    let plan = encoder::plan(Format::Jsonl, &[]);
    let desk = || {
        let desk = Desk::new(&plan);
        desk.give(encoder::file(Format::Jsonl).as_bytes());
        desk
    };
    let here = desk().train(&plan, Some(3));
    assert_eq!(here.code, Some(0), "{}", here.stderr);
    for processor in ["Nehalem", "Haswell"] {
        let there = desk().on_processor(processor).train(&plan, Some(3));
        assert_eq!(there.code, Some(0), "{processor}: {}", there.stderr);
        assert_eq!(there.steps(&plan), here.steps(&plan), "{processor}");
    }
}

#[test]
#[ignore = "needs qemu-user, and minutes"]
fn with_avx2_and_compatible_sums_every_processor_that_has_avx2_gives_one_trace() {
    assert_same(&plan(&[AVX2], 1), &["Haswell", "EPYC", "max"]);
    let left = on("Nehalem", &plan(&[AVX2], 1));
    assert!(left.failure().contains("processor: it has no avx2, fma, the plan demands avx2"), "{}", left.failure());
}

#[test]
#[ignore = "needs qemu-user, and minutes"]
fn bfloat16_is_refused_by_a_processor_without_its_instructions() {
    let bf16 = ("\"cpu_capability\":\"default\"", "\"cpu_capability\":\"avx512-bf16\"");
    let left = on("Haswell", &plan(&[bf16], 1));
    assert!(left.failure().contains("avx512_bf16, the plan demands avx512-bf16"), "{}", left.failure());
}

/// oneMKL honours its AVX2 branch on processors of its maker only.
#[test]
#[ignore = "needs qemu-user, and minutes"]
fn strict_avx2_sums_are_the_same_on_intel_and_refused_on_amd() {
    let plan = plan(&[AVX2, STRICT], 1);
    let left = on("EPYC", &plan);
    assert!(left.failure().contains("math mode: found 0x10002, the plan demands 0x1000a"), "{}", left.failure());
    let (haswell, skylake) = (on("Haswell", &plan), on("Skylake-Client", &plan));
    assert_eq!(haswell.code, Some(0), "{}", haswell.stderr);
    assert_eq!(haswell.steps(&plan), skylake.steps(&plan));
}
