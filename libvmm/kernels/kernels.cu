// The GPU-side test kernels: queued work that takes time, writes and checks patterns, and can end a context. What each
// computes is said at vmm_raw_kernel_* in vmm/driver.h; the simulator computes the same on the host.

typedef unsigned long long u64;

// As vmm_pattern_word.
static __device__ unsigned pattern_word(u64 seed, u64 index) {
  u64 mixed = seed + (index + 1) * 0x9E3779B97F4A7C15ull;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
  return (unsigned)((mixed ^ (mixed >> 31)) >> 32);
}

static __device__ u64 first_word() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ u64 stride() { return (u64)gridDim.x * blockDim.x; }

static __device__ u64 timer() {
  u64 ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// One atomic per warp instead of one per thread.
static __device__ void add_to(u64 *total, u64 value) {
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_down_sync(0xffffffffu, value, lane);
  if (threadIdx.x % 32 == 0 && value != 0) atomicAdd(total, value);
}

extern "C" __global__ void vmm_kernel_spin(u64 ns) {
  u64 start = timer();
  while (timer() - start < ns) __nanosleep(200);
}

extern "C" __global__ void vmm_kernel_fill(unsigned *words, u64 count, u64 seed) {
  for (u64 i = first_word(); i < count; i += stride()) words[i] = pattern_word(seed, i);
}

extern "C" __global__ void vmm_kernel_verify(const volatile unsigned *words, u64 count, u64 seed, u64 *mismatches) {
  u64 wrong = 0;
  for (u64 i = first_word(); i < count; i += stride()) wrong += words[i] != pattern_word(seed, i);
  add_to(mismatches, wrong);
}

extern "C" __global__ void vmm_kernel_sum(const volatile unsigned *words, u64 count, u64 *sum) {
  u64 total = 0;
  for (u64 i = first_word(); i < count; i += stride()) total += ((u64)words[i] + 1) * (2 * i + 1);
  add_to(sum, total);
}

extern "C" __global__ void vmm_kernel_trap() { asm volatile("trap;"); }
