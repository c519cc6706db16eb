// What tch does not expose, as C functions.
//
// Every function that can throw returns 0, or 1 with the exception's text in `message` (cut to `capacity`, always
// terminated). A tensor crosses as the pointer that torch-sys holds: an at::Tensor*, borrowed for the call.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <stdexcept>

#include "guard.h"

// oneMKL sits inside libtorch_cpu.so; a libtorch built on another matrix library has no such symbol.
extern "C" int mkl_serv_cbwr_get(int option) __attribute__((weak));

extern "C" {

// The process-wide switches, all set at once: no combination is reached by accident.
struct xt_switches {
  bool deterministic_algorithms;
  bool fill_uninitialized_memory;
  bool onednn;
  bool nnpack;
  bool sdp_flash;
  bool sdp_mem_efficient;
  bool sdp_math;
  bool flush_denormal;
};

int xt_set_switches(const xt_switches* to, char* message, size_t capacity) {
  return guarded(message, capacity, [&] {
    auto& context = at::globalContext();
    context.setDeterministicAlgorithms(to->deterministic_algorithms, /*warn_only=*/false);
    context.setDeterministicFillUninitializedMemory(to->fill_uninitialized_memory);
    context.setDeterministicMkldnn(to->deterministic_algorithms);
    context.setUserEnabledMkldnn(to->onednn);
    context.setUserEnabledNNPACK(to->nnpack);
    context.setSDPUseFlash(to->sdp_flash);
    context.setSDPUseMemEfficient(to->sdp_mem_efficient);
    context.setSDPUseMath(to->sdp_math);
    if (!context.setFlushDenormal(to->flush_denormal) && to->flush_denormal)
      throw std::runtime_error("this processor cannot flush denormals");
  });
}

// What libtorch says the switches are now: evidence, not an echo of what was asked.
int xt_get_switches(xt_switches* now, char* message, size_t capacity) {
  return guarded(message, capacity, [&] {
    const auto& context = at::globalContext();
    now->deterministic_algorithms = context.deterministicAlgorithms();
    now->fill_uninitialized_memory = context.deterministicFillUninitializedMemory();
    now->onednn = context.userEnabledMkldnn();
    now->nnpack = context.userEnabledNNPACK();
    now->sdp_flash = context.userEnabledFlashSDP();
    now->sdp_mem_efficient = context.userEnabledMemEfficientSDP();
    now->sdp_math = context.userEnabledMathSDP();
    const volatile float tiny = 1.17549435e-38f;  // smallest normal; half of it is a denormal
    const volatile float half = tiny * 0.5f;
    now->flush_denormal = half == 0.0f;
  });
}

// The inter-operation pool can be sized once, before first use: a second call is an error with a message.
int xt_set_threads(int intra, int inter, char* message, size_t capacity) {
  return guarded(message, capacity, [&] {
    at::set_num_threads(intra);
    if (static_cast<int>(at::get_num_interop_threads()) != inter) at::set_num_interop_threads(inter);
  });
}

int xt_get_threads(int* intra, int* inter, char* message, size_t capacity) {
  return guarded(message, capacity, [&] {
    *intra = at::get_num_threads();
    *inter = static_cast<int>(at::get_num_interop_threads());
  });
}

// oneMKL's branch of conditional numerical reproducibility, as mkl_cbwr_get(MKL_CBWR_ALL); -1 without oneMKL.
int xt_get_math_mode(int* mode, char* message, size_t capacity) {
  return guarded(message, capacity, [&] { *mode = mkl_serv_cbwr_get == nullptr ? -1 : mkl_serv_cbwr_get(~0); });
}

// which: 0 CPU capability, 1 build configuration, 2 parallel settings.
int xt_text(int which, char* out, size_t out_capacity, char* message, size_t capacity) {
  return guarded(message, capacity, [&] {
    switch (which) {
      case 0: return copy_text(at::get_cpu_capability(), out, out_capacity);
      case 1: return copy_text(at::show_config(), out, out_capacity);
      case 2: return copy_text(at::get_parallel_info(), out, out_capacity);
      default: throw std::invalid_argument("no such text");
    }
  });
}

// Products of this thread in binary16 (1) or bfloat16 (2) on the processor, or as their operands are (0). Casts of weights are not kept: the
// weights change in place.
int xt_set_autocast(int on, char* message, size_t capacity) {
  return guarded(message, capacity, [&] {
    at::autocast::set_autocast_cache_enabled(false);
    if (on != 0) at::autocast::set_autocast_dtype(at::kCPU, on == 2 ? at::kBFloat16 : at::kHalf);
    at::autocast::set_autocast_enabled(at::kCPU, on != 0);
  });
}

// Moves the gradient that backward passes have added up in `parameter` into `gradient`, which stays undefined if there is none.
int xt_take_gradient(at::Tensor* parameter, at::Tensor* gradient, char* message, size_t capacity) {
  return guarded(message, capacity, [&] {
    TORCH_CHECK(parameter->is_leaf() && parameter->requires_grad(), "the parameter is no leaf that requires a gradient");
    *gradient = std::move(parameter->mutable_grad());
    parameter->mutable_grad() = at::Tensor();
  });
}

}  // extern "C"
