"""Wrong answers to the exercises of this chapter, and what is said of each."""


def giou_loss(first="core * part", step="cores * part"):
    return f"""
torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {{
  constexpr size_t part = 400;
  torch::Tensor t_losses = get_dst_tensor();
  const size_t pairs = t_preds.sizes()[0] * t_preds.sizes()[1];
  const size_t core = get_cpu_id(), cores = get_cpu_count();
  Tcm preds(4 * part), targets(4 * part), losses(part);
  if (!preds.at || !targets.at || !losses.at || core >= cores) abort();
  auto losses_accessor = t_losses.tcm_accessor();
  for (size_t first = {first}; first < pairs; first += {step}) {{
    const size_t n = std::min(part, pairs - first);
    t_preds.tcm_accessor().tensor_to_tcm<float>(preds.at, 4 * first, 4 * n);
    t_targets.tcm_accessor().tensor_to_tcm<float>(targets.at, 4 * first, 4 * n);
    for (size_t i = 0; i < n; ++i) losses.at[i] = 1 - score(preds.at + 4 * i, targets.at + 4 * i);
    losses_accessor.tcm_to_tensor<float>(losses.at, first, n);
  }}
  return t_losses;
}}
"""


def all_cores_do_everything():
    return giou_loss(first="0", step="part")


def cores_count_pairs():
    return giou_loss(first="core")


WRONG = (
    ("giou_loss", all_cores_do_everything, "simulate", "Two cores met at one place"),
    ("giou_loss", cores_count_pairs, "simulate", "on prime"),
)
