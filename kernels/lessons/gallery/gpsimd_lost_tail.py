"""Shares that are rounded down: what is left over belongs to nobody."""

from kernels.giou.gpsimd import PRELUDE, SHAPE
from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import gpsimd
from kernels.proof.backends.gpsimd import GPSIMD
from kernels.proof.workload import Workload

BUG = Bug(
    title="GpSimd: samples that 8 does not divide",
    operator="giou",
    caught_by="simulate",
    says="no core writes element [16, 0] of the result",
    cause="B / 8 samples for each of 8 cores leave out up to seven; no one core leaves out any.",
    lesson="Say where a share begins and where it ends, and let the last one end at B.",
    workloads=(
        Workload("divides", {"b": 16, "n": 32}),
        Workload("one_more", {"b": 17, "n": 32}, why="the 17th sample"),
    ),
    needs="g++",
    backend=GPSIMD,
)

KERNEL = """\
torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {
  torch::Tensor t_scores = get_dst_tensor();
  const size_t cores = get_cpu_count(), core = get_cpu_id(), n = t_preds.sizes()[1];
  const size_t samples = t_preds.sizes()[0], share = samples / cores, begin = core * share;
#ifdef REPAIRED
  const size_t end = core + 1 < cores ? begin + share : samples;
#else
  const size_t end = begin + share;
#endif
  Tcm preds(4 * n), targets(4 * n), scores(n);
  if (!preds.at || !targets.at || !scores.at) abort();
  auto preds_accessor = t_preds.tcm_accessor();
  auto targets_accessor = t_targets.tcm_accessor();
  auto scores_accessor = t_scores.tcm_accessor();
  for (size_t i = begin; i < end; ++i) {
    preds_accessor.tensor_to_tcm<float>(preds.at, 4 * i * n, 4 * n);
    targets_accessor.tensor_to_tcm<float>(targets.at, 4 * i * n, 4 * n);
    for (size_t j = 0; j < n; ++j) scores.at[j] = score(preds.at + 4 * j, targets.at + 4 * j);
    scores_accessor.tcm_to_tensor<float>(scores.at, i * n, n);
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
