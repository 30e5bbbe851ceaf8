// What stands for CUDA: see threads.py.
#include <barrier>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

struct Place { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned all() const { return x * y * z; }
};
static thread_local Place threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static std::barrier<>* block_barrier;

#define __global__ static
#define __device__ static
#define __shared__ static
#define __restrict__
#define __launch_bounds__(...)
#define __syncthreads() block_barrier->arrive_and_wait()

static void launch(dim3 grid, dim3 block, std::function<void()> kernel) {
  gridDim = grid;
  blockDim = block;
  for (unsigned b = 0; b < grid.all(); ++b) {  // one block after another
    std::barrier<> barrier(block.all());
    block_barrier = &barrier;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < block.all(); ++t)
      threads.emplace_back([=] {
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        threadIdx = {t % block.x, t / block.x % block.y, t / block.x / block.y};
        kernel();
      });
    for (auto& thread : threads) thread.join();
  }
}
