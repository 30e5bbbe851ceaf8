// NEURON_LIBRARY names the operators of a library: shape function and kernel of each.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace emulated {

using Function = std::function<torch::Tensor(std::vector<torch::Tensor>&)>;

void declare(const std::string& kernel, Function shape);
void need_arguments(const char* function, size_t takes, size_t given);

template <typename... A, size_t... I>
torch::Tensor apply(torch::Tensor (*function)(A...), std::vector<torch::Tensor>& arguments,
                    std::index_sequence<I...>) {
  (void)arguments;  // of a function that takes none
  return function(arguments[I]...);
}

template <typename... A>
Function wrap(const char* name, torch::Tensor (*function)(A...)) {
  return [name, function](std::vector<torch::Tensor>& arguments) {
    need_arguments(name, sizeof...(A), arguments.size());
    return apply(function, arguments, std::index_sequence_for<A...>());
  };
}

}  // namespace emulated

namespace torch {
namespace neuron {

class Library {
 public:
  explicit Library(void (*define)(Library&)) { define(*this); }
  template <typename... A>
  void def(const char*, Tensor (*shape)(A...), const char* kernel) {
    emulated::declare(kernel, emulated::wrap("the shape function", shape));
  }
};

}  // namespace neuron
}  // namespace torch

#define NEURON_LIBRARY(name, m)                                       \
  static void neuron_library_##name(torch::neuron::Library&);         \
  static torch::neuron::Library neuron_library_##name##_is_loaded(    \
      neuron_library_##name);                                         \
  static void neuron_library_##name(torch::neuron::Library& m)
