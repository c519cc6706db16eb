// Modules of TorchScript, as C functions: loaded from memory, their tensors by name, and one pass forward.
//
// Errors are told as in shim.cpp. What a module computes is decided by its file alone: no executor optimises the graph
// after it has seen some inputs, since a run that was restored has seen fewer of them.

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cstdint>
#include <memory>
#include <sstream>
#include <vector>

#include "guard.h"

namespace {

// Where a tensor of a module stands: as `attribute` of `owner`, which is the module or one inside of it.
struct Place {
  std::string name;
  torch::jit::Module owner;
  std::string attribute;
  bool buffer;
};

Place place_of(torch::jit::Module owner, const std::string& name, bool buffer) {
  size_t from = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', from)) {
    owner = owner.attr(name.substr(from, dot - from)).toModule();
    from = dot + 1;
  }
  return {name, owner, name.substr(from), buffer};
}

}  // namespace

extern "C" {

struct xt_module {
  torch::jit::Module module;
  std::vector<Place> places;
};

int xt_module_load(const char* bytes, size_t length, xt_module** loaded, char* message, size_t capacity) {
  return guarded(message, capacity, [&] {
    torch::jit::setGraphExecutorOptimize(false);
    std::istringstream stream(std::string(bytes, length));
    torch::jit::ExtraFilesMap no_extra_files;
    auto found = std::make_unique<xt_module>();
    found->module = torch::jit::load(stream, at::kCPU, no_extra_files, /*load_debug_files=*/false);
    for (const auto& one : found->module.named_parameters(/*recurse=*/true))
      found->places.push_back(place_of(found->module, one.name, false));
    for (const auto& one : found->module.named_buffers(/*recurse=*/true))
      found->places.push_back(place_of(found->module, one.name, true));
    *loaded = found.release();
  });
}

void xt_module_free(xt_module* module) { delete module; }

size_t xt_module_count(const xt_module* module) { return module->places.size(); }

int xt_module_name(const xt_module* module, size_t index, bool* buffer, char* out, size_t out_capacity, char* message,
                   size_t capacity) {
  return guarded(message, capacity, [&] {
    const auto& place = module->places.at(index);
    TORCH_CHECK(place.name.size() < out_capacity, "a name of ", place.name.size(), " bytes");
    *buffer = place.buffer;
    copy_text(place.name, out, out_capacity);
  });
}

// The tensor that stands there now.
int xt_module_get(const xt_module* module, size_t index, at::Tensor* tensor, char* message, size_t capacity) {
  return guarded(message, capacity, [&] {
    const auto& place = module->places.at(index);
    *tensor = place.owner.attr(place.attribute).toTensor();
  });
}

int xt_module_set(xt_module* module, size_t index, const at::Tensor* tensor, char* message, size_t capacity) {
  return guarded(message, capacity, [&] {
    auto& place = module->places.at(index);
    place.owner.setattr(place.attribute, *tensor);
  });
}

int xt_module_forward(xt_module* module, bool training, const at::Tensor* input, at::Tensor* output, char* message,
                      size_t capacity) {
  return guarded(message, capacity, [&] {
    module->module.train(training);
    const auto given = module->module.forward({*input});
    TORCH_CHECK(given.isTensor(), "it gives a ", given.tagKind(), ", expected one tensor");
    *output = given.toTensor();
  });
}

}  // extern "C"
