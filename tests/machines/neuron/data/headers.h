
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <cassert>
#include <torch/torch.h>
#include <neuron/neuron-utils.hpp>
using torch::neuron::tcm_free;
using torch::neuron::tcm_malloc;
