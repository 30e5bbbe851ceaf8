// GIOU of pairs of boxes, on every core of a GpSimd engine.
//
// preds, targets: [B, N, 4] float, each box left, top, right, bottom. The result is [B, N] float.
// A pair knows nothing of its neighbours, so the cores share out the B * N pairs of all samples,
// and each takes what it has to do in parts that its TCM can hold.
#include <stdint.h>
#include <stdlib.h>

#include <algorithm>

#include <neuron/neuron-utils.hpp>
#include <torch/torch.h>

namespace {

constexpr float kEpsilon = 1e-5f;  // area below which nothing counts

// The two boxes' generalised intersection over union.
float score(const float* pred, const float* target) {
  const float pred_area = (pred[2] - pred[0]) * (pred[3] - pred[1]);
  const float target_area = (target[2] - target[0]) * (target[3] - target[1]);

  const float inter_width = std::min(pred[2], target[2]) - std::max(pred[0], target[0]);
  const float inter_height = std::min(pred[3], target[3]) - std::max(pred[1], target[1]);
  const float inter = std::max(inter_width, 0.f) * std::max(inter_height, 0.f);

  const float outer_width = std::max(pred[2], target[2]) - std::min(pred[0], target[0]);
  const float outer_height = std::max(pred[3], target[3]) - std::min(pred[1], target[1]);
  const float outer = std::max(outer_width, 0.f) * std::max(outer_height, 0.f);

  const float both = std::max(pred_area + target_area - inter, kEpsilon);
  const float enclosing = std::max(outer, kEpsilon);
  return inter / both - (enclosing - both) / enclosing;
}

// A buffer in TCM, given back when it goes out of scope; `at` is null where there was no room.
struct Tcm {
  explicit Tcm(size_t floats)
      : at(static_cast<float*>(torch::neuron::tcm_malloc(floats * sizeof(float)))) {}
  ~Tcm() {
    if (at) torch::neuron::tcm_free(at);
  }
  Tcm(const Tcm&) = delete;
  Tcm& operator=(const Tcm&) = delete;
  float* const at;
};

}  // namespace

torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {
  constexpr size_t part = 448;  // pairs: 9 floats each, 15.75 of the 16 KiB

  torch::Tensor t_scores = get_dst_tensor();
  const size_t pairs = t_preds.sizes()[0] * t_preds.sizes()[1];
  const size_t cores = get_cpu_count(), core = get_cpu_id();
  const size_t share = pairs / cores, left_over = pairs % cores;
  const size_t begin = core * share + std::min(core, left_over);
  const size_t end = begin + share + (core < left_over);

  Tcm preds(4 * part), targets(4 * part), scores(part);
  if (!preds.at || !targets.at || !scores.at) abort();  // better no result than a wrong one

  auto preds_accessor = t_preds.tcm_accessor();
  auto targets_accessor = t_targets.tcm_accessor();
  auto scores_accessor = t_scores.tcm_accessor();
  for (size_t first = begin; first < end; first += part) {
    const size_t n = std::min(part, end - first);
    preds_accessor.tensor_to_tcm<float>(preds.at, 4 * first, 4 * n);
    targets_accessor.tensor_to_tcm<float>(targets.at, 4 * first, 4 * n);
    for (size_t i = 0; i < n; ++i) scores.at[i] = score(preds.at + 4 * i, targets.at + 4 * i);
    scores_accessor.tcm_to_tensor<float>(scores.at, first, n);
  }
  return t_scores;
}
