
  torch::Tensor out = torch::zeros(x.sizes(), torch::kFloat);
  auto from = x.accessor<float, 2>();
  auto to = out.accessor<float, 2>();
  for (int64_t i = 0; i < x.sizes()[0]; ++i)
    for (int64_t j = 0; j < x.sizes()[1]{more}; ++j) to[i][j] = 2 * from[i][j];
  return out;