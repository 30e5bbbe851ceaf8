// Which core asks, how many there are, and the tensor that they fill together.
#pragma once

#include <cstdint>

#include <torch/torch.h>

uint32_t get_cpu_id();
uint32_t get_cpu_count();
torch::Tensor get_dst_tensor();
