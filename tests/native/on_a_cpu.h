// Runs the kernels of knnmt/native/gpu on a CPU, for tests: blocks one after the other, and a block's threads by turns.
// A thread runs until it waits for others, and who goes on is drawn anew each time: so one that reads what another has yet
// to write, because they do not meet in between, finds something else than it should.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <ucontext.h>
#include <vector>

struct Place { int x = 0, y = 0, z = 0; };
static Place threadIdx, blockIdx, blockDim;

struct Gate {  // lets as many threads through as were told to meet
    int there = 0, generation = 0;
    void meet(int count);
};
struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK]};
    const Gate* before = nullptr;  // the gate where it waits
    int generation = 0;            // of the gate when it came there
    bool ended = false;
    static constexpr int STACK = 1 << 16;
};
static std::vector<Thread> threads_of_block;
static ucontext_t switchboard;
static std::function<void()> kernel_of_block;

void Gate::meet(int count) {
    if (++there == count) {
        there = 0;
        ++generation;
        return;
    }
    Thread& own = threads_of_block[threadIdx.x];
    own.before = this;
    own.generation = generation;
    swapcontext(&own.context, &switchboard);
}
struct Warp {
    Gate all, some;  // those that not all lanes come to have a gate of their own
    unsigned long long bits[32];
    unsigned keys[32];
};
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
    if (number > *most) *most = number;
}
static unsigned atomicAdd(unsigned* sum, unsigned more) {
    const unsigned before = *sum;
    *sum += more;
    return before;
}

template <class Number> static Number of_lane(Number number, int lane) {
    std::memcpy(&warp().bits[lane_of_thread()], &number, sizeof number);
    warp().all.meet(32);
    Number other;
    std::memcpy(&other, &warp().bits[lane], sizeof other);
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
    for (int lane = 0; lane < 32; ++lane) found |= (unsigned)warp().bits[lane] << lane;
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

static void run_thread() {
    kernel_of_block();
    threads_of_block[threadIdx.x].ended = true;  // and the switchboard goes on
}

static void launch(int across, int down, int threads, std::function<void()> kernel) {
    blockDim.x = threads;
    kernel_of_block = kernel;
    if ((int)threads_of_block.size() < threads) threads_of_block.resize(threads);
    std::vector<int> turns(threads);
    std::iota(turns.begin(), turns.end(), 0);
    std::minstd_rand chance(threads);  // the same order in every run
    for (int block = 0; block < across * down; ++block) {
        blockIdx.x = block % across;
        blockIdx.y = block / across;
        for (int thread = 0; thread < threads; ++thread) {
            Thread& each = threads_of_block[thread];
            each.before = nullptr;
            each.ended = false;
            getcontext(&each.context);
            each.context.uc_stack.ss_sp = each.stack.get();
            each.context.uc_stack.ss_size = Thread::STACK;
            each.context.uc_link = &switchboard;
            makecontext(&each.context, run_thread, 0);
        }
        for (int ended = 0; ended < threads;) {
            bool stuck = true;
            std::shuffle(turns.begin(), turns.end(), chance);
            for (int thread : turns) {
                threadIdx.x = thread;
                Thread& each = threads_of_block[thread];
                if (each.ended || (each.before && each.before->generation == each.generation)) continue;
                each.before = nullptr;
                stuck = false;
                swapcontext(&switchboard, &each.context);
                ended += each.ended;
            }
            if (stuck) {
                std::fputs("threads of a block wait for others, which do not come\n", stderr);
                std::abort();
            }
        }
    }
}
