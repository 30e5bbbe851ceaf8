"""Offsets that add a sample's number to a number of floats: right on one core."""

from kernels.giou.gpsimd import PRELUDE, SHAPE
from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import gpsimd
from kernels.proof.backends.gpsimd import GPSIMD
from kernels.proof.workload import Workload

BUG = Bug(
    title="GpSimd: the offset forgets to multiply the core's share",
    operator="giou",
    caught_by="simulate",
    says="of the result, which core",
    cause="A core's begin counts samples and its offset counts floats; the two are added.",
    lesson="One core starts at 0, where no unit is wrong. Test on as many as the machine has.",
    workloads=(Workload("whole", {"b": 16, "n": 32}),),
    needs="g++",
    backend=GPSIMD,
)

KERNEL = """\
torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {
  torch::Tensor t_scores = get_dst_tensor();
  const size_t cores = get_cpu_count(), core = get_cpu_id(), n = t_preds.sizes()[1];
  const size_t begin = t_preds.sizes()[0] * core / cores;
  const size_t end = t_preds.sizes()[0] * (core + 1) / cores;
  Tcm preds(4 * n), targets(4 * n), scores(n);
  if (!preds.at || !targets.at || !scores.at) abort();
  auto preds_accessor = t_preds.tcm_accessor();
  auto targets_accessor = t_targets.tcm_accessor();
  auto scores_accessor = t_scores.tcm_accessor();
  for (size_t i = 0; i < end - begin; ++i) {
#ifdef REPAIRED
    const auto at = [&](size_t row) { return (begin + i) * row; };
#else
    const auto at = [&](size_t row) { return begin + i * row; };
#endif
    preds_accessor.tensor_to_tcm<float>(preds.at, at(4 * n), 4 * n);
    targets_accessor.tensor_to_tcm<float>(targets.at, at(4 * n), 4 * n);
    for (size_t j = 0; j < n; ++j) scores.at[j] = score(preds.at + 4 * j, targets.at + 4 * j);
    scores_accessor.tcm_to_tensor<float>(scores.at, at(n), n);
  }
  return t_scores;
}
"""


def kernel(preds, targets, *, interpret, repaired=False):
    """[B, N, 4], [B, N, 4] → [B, N]."""
    define = "#define REPAIRED\n" if repaired else ""
    return gpsimd.call(
        (define + PRELUDE + KERNEL, SHAPE), "giou", preds, targets, interpret=interpret
    )
