// Runs the kernels of knnmt/native/gpu on a CPU, for tests: a thread for each of a block's, blocks one after the other.
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

struct Gate {  // lets as many threads through as were told to meet
    std::mutex mutex;
    std::condition_variable all_there;
    int there = 0, generation = 0;
    void meet(int count) {
        std::unique_lock<std::mutex> lock(mutex);
        const int mine = generation;
        if (++there == count) {
            there = 0;
            ++generation;
            all_there.notify_all();
        } else {
            all_there.wait(lock, [&] { return generation != mine; });
        }
    }
};
struct Warp {
    Gate all, some;  // those that not all lanes come to have a gate of their own
    unsigned bits[32], keys[32];
};
struct Place { int x = 0, y = 0, z = 0; };
static thread_local Place threadIdx, blockIdx;
static Place blockDim;
static Gate block_gate;
static Warp warps[32];

#define __global__
#define __device__ static
#define __launch_bounds__(threads)
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
#define ON_A_CPU
#define asm(...) number = of_half(bits)  // the one instruction that kernels have
using std::isinf;
struct uint2 { unsigned x, y; };
struct float4 { float x, y, z, w; };
static float of_half(unsigned bits) {
    _Float16 number;
    std::memcpy(&number, &bits, 2);
    return (float)number;
}

static unsigned short half_of(float number) {
    const _Float16 half = (_Float16)number;
    unsigned short bits;
    std::memcpy(&bits, &half, 2);
    return bits;
}

static Warp& warp() { return warps[threadIdx.x / 32]; }
static int lane_of_thread() { return threadIdx.x % 32; }
static void __syncthreads() { block_gate.meet(blockDim.x); }
static void __syncwarp() { warp().all.meet(32); }
static unsigned __float_as_uint(float number) {
    unsigned bits;
    std::memcpy(&bits, &number, 4);
    return bits;
}
static float __uint_as_float(unsigned bits) {
    float number;
    std::memcpy(&number, &bits, 4);
    return number;
}
static int __float_as_int(float number) { return (int)__float_as_uint(number); }
static int min(int a, int b) { return a < b ? a : b; }
static int __popc(unsigned bits) { return __builtin_popcount(bits); }
static int __ffs(unsigned bits) { return __builtin_ffs(bits); }
static float rsqrtf(float number) { return 1 / std::sqrt(number); }
static void atomicMax(int* most, int number) {
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> lock(one_at_a_time);
    if (number > *most) *most = number;
}
static unsigned atomicAdd(unsigned* sum, unsigned more) { return __atomic_fetch_add(sum, more, __ATOMIC_SEQ_CST); }

template <class Number> static Number of_lane(Number number, int lane) {
    std::memcpy(&warp().bits[lane_of_thread()], &number, 4);
    warp().all.meet(32);
    Number other;
    std::memcpy(&other, &warp().bits[lane], 4);
    warp().all.meet(32);
    return other;
}
template <class Number> static Number __shfl_xor_sync(unsigned, Number number, int apart) {
    return of_lane(number, lane_of_thread() ^ apart);
}
template <class Number> static Number __shfl_sync(unsigned, Number number, int lane) { return of_lane(number, lane); }
template <class Number> static Number __shfl_up_sync(unsigned, Number number, int apart) {
    return of_lane(number, lane_of_thread() >= apart ? lane_of_thread() - apart : lane_of_thread());
}
static unsigned __ballot_sync(unsigned, bool yes) {
    warp().bits[lane_of_thread()] = yes;
    warp().all.meet(32);
    unsigned found = 0;
    for (int lane = 0; lane < 32; ++lane) found |= warp().bits[lane] << lane;
    warp().all.meet(32);
    return found;
}
static unsigned __match_any_sync(unsigned mask, unsigned key) {
    warp().keys[lane_of_thread()] = key;
    warp().some.meet(__popc(mask));
    unsigned found = 0;
    for (int lane = 0; lane < 32; ++lane) found |= (mask >> lane & 1 && warp().keys[lane] == key) << lane;
    warp().some.meet(__popc(mask));
    return found;
}

template <class Kernel> static void launch(int across, int down, int threads, Kernel kernel) {
    blockDim.x = threads;
    for (int block = 0; block < across * down; ++block) {
        std::vector<std::thread> all;
        for (int thread = 0; thread < threads; ++thread)
            all.emplace_back([=] {
                threadIdx.x = thread;
                blockIdx.x = block % across;
                blockIdx.y = block / across;
                kernel();
            });
        for (auto& each : all) each.join();
    }
}
