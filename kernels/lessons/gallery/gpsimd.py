"""Wrong GIOU in C++ for the eight cores of GpSimd: one right kernel, and five faults in its lines.

Each bug names lines of the right kernel and writes others in their place; its source has both.
"""

from kernels.giou.gpsimd import PRELUDE, SHAPE
from kernels.lessons.gallery.bug import Bug
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


def _bug(right, wrong, **facts):
    """The right kernel with other lines in the place of some."""
    text = RIGHT.replace(right, f"#ifdef REPAIRED\n{right}#else\n{wrong}#endif\n")

    def kernel(preds, targets, *, interpret, repaired=False):
        """[B, N, 4], [B, N, 4] → [B, N]."""
        define = "#define REPAIRED\n" * repaired
        sources = define + PRELUDE + text, SHAPE
        return gpsimd.call(sources, "giou", preds, targets, interpret=interpret)

    facts |= {"operator": "giou", "caught_by": "simulate", "needs": "g++", "backend": GPSIMD}
    return Bug(kernel, shown=text, **facts)


gpsimd_wrong_offset = _bug(
    AT,
    """\
    const auto at = [&](size_t row) { return begin + i * row; };
""",
    title="GpSimd: the offset forgets to multiply the core's share",
    says="of the result, which core",
    cause="A core's begin counts samples and its offset counts floats; the two are added.",
    lesson="One core starts at 0, where no unit is wrong. Test on as many as the machine has.",
    workloads=cases("b n", whole=(16, 32)),
)

gpsimd_changed_share = _bug(
    SHARE,
    """\
  if (core == cores - 1) share = samples - core * share;
  const size_t begin = core * share;
""",
    title="GpSimd: the last core's share is changed before its offset is made of it",
    says="core 7: tensor_to_tcm takes",
    cause="The last core takes what is left over, so its share grows; its offset is then that "
    "larger share times its number. A published relu operator has this mistake, and shows it on a "
    "tensor of shape (7, 43).",
    lesson="One variable, two meanings. Compute the offset first, and test on a number of samples "
    "that the cores do not divide.",
    workloads=cases(
        "b n", even=(16, 32, "8 cores divide it: both shares are 2"), one_more=(17, 32)
    ),
)

gpsimd_lost_tail = _bug(
    SHARE,
    """\
  const size_t begin = core * share;
""",
    title="GpSimd: samples that 8 does not divide",
    says="no core writes element [16, 0] of the result",
    cause="B / 8 samples for each of 8 cores leave out up to seven; no one core leaves out any.",
    lesson="Say where a share begins and where it ends, and let the last one end at B.",
    workloads=cases("b n", divides=(16, 32), one_more=(17, 32, "the 17th sample")),
)

gpsimd_unchecked_malloc = _bug(
    ROOM + SCORES + CHECK,
    """\
  const size_t part = n;
  Tcm preds(4 * part), targets(4 * part), owner(4 * part);
  float* scores = owner.at;
""",
    title="GpSimd: nobody asks whether tcm_malloc had room",
    says="through a null pointer: tcm_malloc(5472) had returned null, as 10944 of 16384 bytes",
    cause="Three buffers of 4 N floats are 48 N bytes: 341 boxes fit into 16 KiB, and 342 do not.",
    lesson="A buffer has a size of its own, not the problem's. And ask every allocation.",
    workloads=cases(
        "b n", fits=(8, 341, "16,368 of 16,384 bytes"), one_more=(8, 342, "16,416 bytes")
    ),
)

gpsimd_leak = _bug(
    SCORES,
    """\
  float* scores = static_cast<float*>(torch::neuron::tcm_malloc(4 * part * sizeof(float)));
""",
    title="GpSimd: memory that is never given back",
    says="was never freed",
    cause="Two of three buffers are freed. The pool outlives the call, and the third stays taken.",
    lesson="The first call is right, and a later one finds no room. Free by leaving a scope.",
    workloads=cases("b n", whole=(16, 32)),
)
