#define KERNEL extern "C" __global__ void
struct Sums {  // of four neighbours, and the last factors
  float s[4] = {}, last[3] = {};
};
__device__ void add(Sums& sums, float x, float y) {  // y goes on to the next sum
  float *s = sums.s, *last = sums.last;
  s[0] += x * y, s[1] += x * last[0], s[2] += x * last[1], s[3] += x * last[2];
  last[2] = last[1], last[1] = last[0], last[0] = y;
}

KERNEL plain(float* out, const float* w, const float* k, float eps, int C) {
  int row = blockIdx.x, t = threadIdx.x;
  const float *weight = w + row % C * T + T - 1 - t, *past = k + row * T;
  float s = eps;
  for (int u = 0; u <= t; ++u) s += weight[u] * past[u];
  out[row * T + t] = s;
}

KERNEL shared(float* out, const float* w, const float* k, float eps, int C) {
  __shared__ float weight[T], past[T];
  int row = blockIdx.x, t = threadIdx.x;
  weight[t] = w[row % C * T + t];
  past[t] = k[row * T + t];
  __syncthreads();
  float s = eps;
  for (int u = 0; u <= t; ++u) s += weight[T - 1 - t + u] * past[u];
  out[row * T + t] = s;
}

KERNEL four(float* out, const float* w, const float* k, float eps, int C) {
  __shared__ float weight[T], past[T];
  int row = blockIdx.x, last = 4 * threadIdx.x + 3;  // of this thread's steps
  for (int t = threadIdx.x; t < T; t += T / 4) {
    weight[t] = w[row % C * T + t];
    past[t] = k[row * T + t];
  }
  __syncthreads();
  Sums sums;
  for (int u = last; u >= 0; --u) add(sums, past[u], weight[T - 1 - last + u]);
  for (int i = 0; i < 4; ++i) out[row * T + last - i] = eps + sums.s[i];
}

KERNEL rows(float* out, const float* w, const float* k, float eps, int C) {
  __shared__ float weight[T], past[ROWS][T];
  int c = blockIdx.x % C, first = blockIdx.x / C * ROWS * C + c, last = 4 * threadIdx.x + 3;
  for (int t = threadIdx.x; t < T; t += T / 4) {
    weight[t] = w[c * T + t];
    for (int r = 0; r < ROWS; ++r) past[r][t] = k[(first + r * C) * T + t];
  }
  __syncthreads();
  Sums sums[ROWS];
  for (int u = last; u >= 0; --u) {
    float y = weight[T - 1 - last + u];
    for (int r = 0; r < ROWS; ++r) add(sums[r], past[r][u], y);
  }
  for (int r = 0; r < ROWS; ++r)
    for (int i = 0; i < 4; ++i) out[(first + r * C) * T + last - i] = eps + sums[r].s[i];
}

KERNEL gradient(float* gw, float* gk, const float* w, const float* k, const float* g, int B) {
  __shared__ float weight[T], past[T], back[T];
  int c = blockIdx.x, C = gridDim.x, first = 4 * threadIdx.x;  // of this thread's lags and steps
  for (int t = threadIdx.x; t < T; t += T / 4) weight[t] = w[c * T + t];
  Sums of_w;
  for (int b = 0; b < B; ++b) {
    int row = (b * C + c) * T;
    __syncthreads();  // before the next row overwrites this one
    for (int t = threadIdx.x; t < T; t += T / 4) past[t] = k[row + t], back[t] = g[row + t];
    __syncthreads();
    Sums of_k;
    for (int i = 0; i < 3; ++i) of_w.last[i] = 0;
    for (int t = first; t < T; ++t) {
      add(of_k, back[t], weight[T - 1 - t + first]);
      add(of_w, back[t], past[t - first]);
    }
    for (int i = 0; i < 4; ++i) gk[row + first + i] = of_k.s[i];
  }
  for (int i = 0; i < 4; ++i) gw[c * T + T - 1 - first - i] = of_w.s[i];
}
