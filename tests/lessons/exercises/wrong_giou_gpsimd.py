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


def giou_smoothed(before="const size_t ahead = first > 0;", back="", score="score(pred, target)"):
    return f"""
torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {{
  constexpr size_t part = 400;
  torch::Tensor t_scores = get_dst_tensor();
  const size_t pairs = t_preds.sizes()[0] * t_preds.sizes()[1];
  const size_t cores = get_cpu_count(), core = get_cpu_id();
  const size_t begin = pairs * core / cores, end = pairs * (core + 1) / cores;
  Tcm preds(4 * part + 4), targets(4 * part + 4), scores(part);
  if (!preds.at || !targets.at || !scores.at) abort();
  auto preds_accessor = t_preds.tcm_accessor();
  auto targets_accessor = t_targets.tcm_accessor();
  auto scores_accessor = t_scores.tcm_accessor();
  for (size_t first = begin; first < end; first += part) {{
    const size_t n = std::min(part, end - first);
    {before}
    preds_accessor.tensor_to_tcm<float>(preds.at, 4 * (first - ahead), 4 * (n + ahead));
    targets_accessor.tensor_to_tcm<float>(targets.at, 4 * (first - ahead), 4 * (n + ahead));
    const float* pred = preds.at;
    const float* target = targets.at;
    float last = {score};
    {back}
    if (ahead) pred += 4, target += 4;
    for (size_t i = 0; i < n; ++i, pred += 4, target += 4) {{
      const float mine = {score};
      scores.at[i] = (last + mine) / 2;
      last = mine;
    }}
    scores_accessor.tcm_to_tensor<float>(scores.at, first, n);
  }}
  return t_scores;
}}
"""


def reads_the_neighbour():
    read = "scores_accessor.tensor_to_tcm<float>(scores.at, first - 1, 1);"
    return giou_smoothed(back=f"if (first) {{ {read} }}")


def zeros():
    return giou_smoothed(score="0 * *pred * *target")


def share_starts_anew():
    return giou_smoothed(before="const size_t ahead = first > begin;")


def in_parts(part, where="preds.at", more=""):
    return f"""
torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {{
  constexpr size_t part = {part};
  torch::Tensor t_scores = get_dst_tensor();
  const size_t pairs = t_preds.sizes()[0] * t_preds.sizes()[1];
  const size_t cores = get_cpu_count(), core = get_cpu_id();
  const size_t begin = pairs * core / cores, end = pairs * (core + 1) / cores;
  Tcm preds(4 * part), targets(4 * part){more};
  if (!preds.at || !targets.at) abort();
  for (size_t first = begin; first < end; first += part) {{
    const size_t n = std::min(part, end - first);
    t_preds.tcm_accessor().tensor_to_tcm<float>(preds.at, 4 * first, 4 * n);
    t_targets.tcm_accessor().tensor_to_tcm<float>(targets.at, 4 * first, 4 * n);
    for (size_t i = 0; i < n; ++i)
      {where}[i] = score(preds.at + 4 * i, targets.at + 4 * i);
    t_scores.tcm_accessor().tcm_to_tensor<float>({where}, first, n);
  }}
  return t_scores;
}}
"""


def with_room_for_scores():
    return in_parts(448, "scores.at", ", scores(part)")


def larger_parts_than_fit():
    return in_parts(513)


def scores_where_boxes_are():
    return in_parts(512, "(preds.at + 4 * n - n)")


def anchored(first="sample * boxes", fetch="4 * n", step=0):
    return f"""
torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {{
  constexpr size_t part = 400;
  torch::Tensor t_scores = get_dst_tensor();
  const size_t boxes = t_preds.sizes()[1], samples = t_preds.sizes()[0];
  Tcm preds(4 * part), targets(4 * part), scores(part);
  if (!preds.at || !targets.at || !scores.at) abort();
  for (size_t sample = get_cpu_id(); sample < samples; sample += get_cpu_count())
    for (size_t at = 0; at < boxes; at += part) {{
      const size_t n = std::min(part, boxes - at), first = sample * boxes + at;
      t_preds.tcm_accessor().tensor_to_tcm<float>(preds.at, 4 * first, 4 * n);
      t_targets.tcm_accessor().tensor_to_tcm<float>(targets.at, 4 * ({first}), {fetch});
      for (size_t i = 0; i < n; ++i)
        scores.at[i] = score(preds.at + 4 * i, targets.at + {step} * i);
      t_scores.tcm_accessor().tcm_to_tensor<float>(scores.at, first, n);
    }}
  return t_scores;
}}
"""


def against_its_own():
    return anchored(first="first", step=4)


WRONG = (
    ("giou_loss", all_cores_do_everything, "simulate", "Two cores met at one place"),
    ("giou_loss", cores_count_pairs, "simulate", "on prime"),
    ("giou_smoothed", zeros, "interpret", "every element is zero"),
    ("giou_smoothed", reads_the_neighbour, "simulate", "which it has not written"),
    ("giou_smoothed", share_starts_anew, "simulate", "on prime"),
    (
        "gpsimd_in_place",
        with_room_for_scores,
        "speed",
        "30 copies of the busiest core; the bar",
    ),
    ("gpsimd_in_place", larger_parts_than_fit, "simulate", "abort"),
    ("gpsimd_in_place", scores_where_boxes_are, "interpret", "allowed"),
    ("gpsimd_anchor", anchored, "speed", "512,000 bytes to TCM; the bar is 260,000, 97% away"),
    ("gpsimd_anchor", against_its_own, "interpret", "on prime"),
)
