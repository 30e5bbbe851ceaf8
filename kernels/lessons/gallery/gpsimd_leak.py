"""A buffer that is four times too large and never freed."""

from kernels.giou.gpsimd import PRELUDE, SHAPE
from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import gpsimd
from kernels.proof.backends.gpsimd import GPSIMD
from kernels.proof.workload import Workload

BUG = Bug(
    title="GpSimd: memory that is never given back",
    operator="giou",
    caught_by="simulate",
    says="was never freed",
    cause="Two of three buffers are freed. The pool outlives the call, and the third stays taken.",
    lesson="The first call is right, and a later one finds no room. Free by leaving a scope.",
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
  Tcm preds(4 * n), targets(4 * n);
#ifdef REPAIRED
  Tcm owner(n);
  float* scores = owner.at;
#else
  float* scores = static_cast<float*>(torch::neuron::tcm_malloc(4 * n * sizeof(float)));
#endif
  if (!preds.at || !targets.at || !scores) abort();
  auto preds_accessor = t_preds.tcm_accessor();
  auto targets_accessor = t_targets.tcm_accessor();
  auto scores_accessor = t_scores.tcm_accessor();
  for (size_t i = begin; i < end; ++i) {
    preds_accessor.tensor_to_tcm<float>(preds.at, 4 * i * n, 4 * n);
    targets_accessor.tensor_to_tcm<float>(targets.at, 4 * i * n, 4 * n);
    for (size_t j = 0; j < n; ++j) scores[j] = score(preds.at + 4 * j, targets.at + 4 * j);
    scores_accessor.tcm_to_tensor<float>(scores, i * n, n);
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
