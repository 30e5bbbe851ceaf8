// The main program of a launch, as kernels/machines/gpu/launched.py fills it in.
std::FILE* file = std::fopen("{folder}/in", "rb");
auto take = [&](std::size_t n) {{
  std::vector<float> values(n);
  if (std::fread(values.data(), 4, n, file) != n) std::abort();
  return values;
}};
{launch}
file = std::fopen("{folder}/out", "wb");
for (auto* values : {{{results}}}) std::fwrite(values->data(), 4, values->size(), file);
std::fclose(file);
