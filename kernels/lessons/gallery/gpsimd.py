"""Wrong GIOU in C++ for the eight cores of GpSimd: one right kernel, and five faults in its lines.

Each bug names lines of the right kernel and writes others in their place; its source has both.
"""

from kernels.giou.gpsimd import PRELUDE, SHAPE
from kernels.lessons.gallery.bug import from_table
from kernels.machines.neuron import gpsimd
from kernels.proof.backends.gpsimd import GPSIMD
from kernels.proof.workload import cases

SHARE = """\
  const size_t begin = core * share;
  if (core == cores - 1) share = samples - begin;
"""
ROOM = """\
  const size_t part = std::min<size_t>(n, 341);
  Tcm preds(4 * part), targets(4 * part);
"""
SCORES = """\
  Tcm owner(part);
  float* scores = owner.at;
"""
CHECK = """\
  if (!preds.at || !targets.at || !scores) abort();
"""
AT = """\
    const auto at = [&](size_t row) { return (begin + i) * row; };
"""
RIGHT = f"""\
torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {{
  torch::Tensor t_scores = get_dst_tensor();
  const size_t cores = get_cpu_count(), core = get_cpu_id(), n = t_preds.sizes()[1];
  const size_t samples = t_preds.sizes()[0];
  size_t share = samples / cores;
{SHARE}{ROOM}{SCORES}{CHECK}\
  auto preds_accessor = t_preds.tcm_accessor();
  auto targets_accessor = t_targets.tcm_accessor();
  auto scores_accessor = t_scores.tcm_accessor();
  for (size_t i = 0; i < share; ++i) {{
{AT}\
    for (size_t first = 0; first < n; first += part) {{
      const size_t m = std::min(part, n - first);
      preds_accessor.tensor_to_tcm<float>(preds.at, at(4 * n) + 4 * first, 4 * m);
      targets_accessor.tensor_to_tcm<float>(targets.at, at(4 * n) + 4 * first, 4 * m);
      for (size_t j = 0; j < m; ++j) scores[j] = score(preds.at + 4 * j, targets.at + 4 * j);
      scores_accessor.tcm_to_tensor<float>(scores, at(n) + first, m);
    }}
  }}
  return t_scores;
}}
"""


def _bug(name, right, wrong, **more):
    """The bug of that name: the right kernel with other lines in the place of some."""
    text = RIGHT.replace(right, f"#ifdef REPAIRED\n{right}#else\n{wrong}#endif\n")

    def kernel(preds, targets, *, interpret, repaired=False):
        """[B, N, 4], [B, N, 4] → [B, N]."""
        define = "#define REPAIRED\n" * repaired
        sources = define + PRELUDE + text, SHAPE
        return gpsimd.call(sources, "giou", preds, targets, interpret=interpret)

    return from_table(name, kernel, shown=text, backend=GPSIMD, **more)


gpsimd_wrong_offset = _bug(
    "gpsimd_wrong_offset",
    AT,
    """\
    const auto at = [&](size_t row) { return begin + i * row; };
""",
    workloads=cases("b n", whole=(16, 32)),
)

gpsimd_changed_share = _bug(
    "gpsimd_changed_share",
    SHARE,
    """\
  if (core == cores - 1) share = samples - core * share;
  const size_t begin = core * share;
""",
    workloads=cases(
        "b n", even=(16, 32, "8 cores divide it: both shares are 2"), one_more=(17, 32)
    ),
)

gpsimd_lost_tail = _bug(
    "gpsimd_lost_tail",
    SHARE,
    """\
  const size_t begin = core * share;
""",
    workloads=cases("b n", divides=(16, 32), one_more=(17, 32, "the 17th sample")),
)

gpsimd_unchecked_malloc = _bug(
    "gpsimd_unchecked_malloc",
    ROOM + SCORES + CHECK,
    """\
  const size_t part = n;
  Tcm preds(4 * part), targets(4 * part), owner(4 * part);
  float* scores = owner.at;
""",
    workloads=cases(
        "b n", fits=(8, 341, "16,368 of 16,384 bytes"), one_more=(8, 342, "16,416 bytes")
    ),
)

gpsimd_leak = _bug(
    "gpsimd_leak",
    SCORES,
    """\
  float* scores = static_cast<float*>(torch::neuron::tcm_malloc(4 * part * sizeof(float)));
""",
    workloads=cases("b n", whole=(16, 32)),
)
