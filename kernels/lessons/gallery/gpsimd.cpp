torch::Tensor giou(const torch::Tensor& t_preds, const torch::Tensor& t_targets) {
  torch::Tensor t_scores = get_dst_tensor();
  const size_t cores = get_cpu_count(), core = get_cpu_id(), n = t_preds.sizes()[1];
  const size_t samples = t_preds.sizes()[0];
  size_t share = samples / cores;

  const size_t begin = core * share;
  if (core == cores - 1) share = samples - begin;

  const size_t part = std::min<size_t>(n, 341);
  Tcm preds(4 * part), targets(4 * part);

  Tcm owner(part);
  float* scores = owner.at;

  if (!preds.at || !targets.at || !scores) abort();

  auto preds_accessor = t_preds.tcm_accessor();
  auto targets_accessor = t_targets.tcm_accessor();
  auto scores_accessor = t_scores.tcm_accessor();
  for (size_t i = 0; i < share; ++i) {

    const auto at = [&](size_t row) { return (begin + i) * row; };

    for (size_t first = 0; first < n; first += part) {
      const size_t m = std::min(part, n - first);
      preds_accessor.tensor_to_tcm<float>(preds.at, at(4 * n) + 4 * first, 4 * m);
      targets_accessor.tensor_to_tcm<float>(targets.at, at(4 * n) + 4 * first, 4 * m);
      for (size_t j = 0; j < m; ++j) scores[j] = score(preds.at + 4 * j, targets.at + 4 * j);
      scores_accessor.tcm_to_tensor<float>(scores, at(n) + first, m);
    }
  }
  return t_scores;
}
