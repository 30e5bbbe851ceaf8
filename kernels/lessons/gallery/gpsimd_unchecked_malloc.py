"""More boxes than fit, and nobody asks whether there was room."""

from kernels.giou.gpsimd import PRELUDE, SHAPE
from kernels.lessons.gallery.bug import Bug
from kernels.machines.neuron import gpsimd
from kernels.proof.backends.gpsimd import GPSIMD
from kernels.proof.workload import Workload

BUG = Bug(
    title="GpSimd: nobody asks whether tcm_malloc had room",
    operator="giou",
    caught_by="simulate",
    says="through a null pointer: tcm_malloc(5472) had returned null, as 10944 of 16384 bytes",
    cause="Three buffers of 4 N floats are 48 N bytes: 341 boxes fit into 16 KiB, and 342 do not.",
    lesson="A buffer has a size of its own, not the problem's. And ask every allocation.",
    workloads=(
        Workload("fits", {"b": 8, "n": 341}, why="16,368 of 16,384 bytes"),
        Workload("one_more", {"b": 8, "n": 342}, why="16,416 bytes"),
    ),
    needs="g++",
    backend=GPSIMD,
)

KERNEL = """\
torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {
  torch::Tensor t_scores = get_dst_tensor();
  const size_t cores = get_cpu_count(), core = get_cpu_id(), n = t_preds.sizes()[1];
  const size_t begin = t_preds.sizes()[0] * core / cores;
  const size_t end = t_preds.sizes()[0] * (core + 1) / cores;
#ifdef REPAIRED
  const size_t part = std::min<size_t>(n, 341);
#else
  const size_t part = n;
#endif
  Tcm preds(4 * part), targets(4 * part), scores(4 * part);
  auto preds_accessor = t_preds.tcm_accessor();
  auto targets_accessor = t_targets.tcm_accessor();
  auto scores_accessor = t_scores.tcm_accessor();
  for (size_t first = begin * n; first < end * n; first += part) {
    const size_t m = std::min(part, end * n - first);
    preds_accessor.tensor_to_tcm<float>(preds.at, 4 * first, 4 * m);
    targets_accessor.tensor_to_tcm<float>(targets.at, 4 * first, 4 * m);
    for (size_t j = 0; j < m; ++j) scores.at[j] = score(preds.at + 4 * j, targets.at + 4 * j);
    scores_accessor.tcm_to_tensor<float>(scores.at, first, m);
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
