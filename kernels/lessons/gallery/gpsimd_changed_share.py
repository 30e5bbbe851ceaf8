"""The last core's share changed before its offset is made of it: right for even shares."""

from kernels.giou.gpsimd import PRELUDE, SHAPE
from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import gpsimd
from kernels.proof.backends.gpsimd import GPSIMD
from kernels.proof.workload import Workload

BUG = Bug(
    title="GpSimd: the last core's share is changed before its offset is made of it",
    operator="giou",
    caught_by="simulate",
    says="core 7: tensor_to_tcm takes",
    cause="The last core takes what is left over, so its share grows; its offset is then that "
    "larger share times its number. A published relu operator has this mistake, and shows it on a "
    "tensor of shape (7, 43).",
    lesson="One variable, two meanings. Compute the offset first, and test on a number of samples "
    "that the cores do not divide.",
    workloads=(
        Workload("even", {"b": 16, "n": 32}, why="8 cores divide it: both shares are 2"),
        Workload("one_more", {"b": 17, "n": 32}),
    ),
    needs="g++",
    backend=GPSIMD,
)

KERNEL = """\
torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {
  torch::Tensor t_scores = get_dst_tensor();
  const size_t cores = get_cpu_count(), core = get_cpu_id(), n = t_preds.sizes()[1];
  const size_t samples = t_preds.sizes()[0];
  size_t share = samples / cores;
#ifdef REPAIRED
  const size_t begin = core * share;
#endif
  if (core == cores - 1) share = samples - core * share;
#ifndef REPAIRED
  const size_t begin = core * share;
#endif
  Tcm preds(4 * n), targets(4 * n), scores(n);
  if (!preds.at || !targets.at || !scores.at) abort();
  auto preds_accessor = t_preds.tcm_accessor();
  auto targets_accessor = t_targets.tcm_accessor();
  auto scores_accessor = t_scores.tcm_accessor();
  for (size_t i = 0; i < share; ++i) {
    const size_t at = begin + i;
    preds_accessor.tensor_to_tcm<float>(preds.at, at * 4 * n, 4 * n);
    targets_accessor.tensor_to_tcm<float>(targets.at, at * 4 * n, 4 * n);
    for (size_t j = 0; j < n; ++j) scores.at[j] = score(preds.at + 4 * j, targets.at + 4 * j);
    scores_accessor.tcm_to_tensor<float>(scores.at, at * n, n);
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
