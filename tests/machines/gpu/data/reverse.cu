
extern "C" __global__ void reverse(float* o, const float* x) {
  __shared__ float s[64];
  int i = threadIdx.x, b = blockIdx.x * 64;
  s[i] = x[b + i];
  __syncthreads();
  o[b + i] = s[63 - i];
}
extern "C" __global__ void one(float* o) { o[threadIdx.x] = 1.f; }
