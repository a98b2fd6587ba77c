// The k nearest of a sentence's own entries for each row, in order: of equal distances, the entry that comes first.
//
// A block is a row. spans and scores are those of own_scores.cu, keys (keys, stride) halves, ids (keys) the entry of each.
// The k + EXTRA best scores are found; these keys are measured by true differences, and the nearest come out.
// Scores are in the order of whole numbers made of their bits. These are counted in 2048 steps between the smallest and the
// largest, then again within the step of the last that is wanted, until what is left besides fits a list.

constexpr int THREADS = 256, STEPS = 2048, EACH = STEPS / THREADS, LISTED = 1024, EXTRA = 8;
constexpr unsigned ALL = 0xffffffffu;

struct Shared {
    unsigned counts[STEPS];
    unsigned sums[THREADS / 32], largest[THREADS / 32];
    unsigned long long listed[LISTED];
    int chosen[LISTED];
    float measured[LISTED];
    unsigned step, before, of_step, count;
};

__device__ unsigned in_order(float number) {
    const unsigned bits = __float_as_uint(number);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ float widened(unsigned bits) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"((unsigned short)bits));
    return number;
}

// The step with which the steps up to it have at least `wanted` numbers.
__device__ void find_step(Shared& shared, unsigned wanted) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned mine = 0;
    for (int i = 0; i < EACH; ++i) mine += shared.counts[EACH * threadIdx.x + i];
    unsigned before = mine;  // and this one's, then this one's not
    for (int apart = 1; apart < 32; apart *= 2) {
        const unsigned other = __shfl_up_sync(ALL, before, apart);
        if (lane >= apart) before += other;
    }
    if (lane == 31) shared.sums[warp] = before;
    before -= mine;
    __syncthreads();
    for (int i = 0; i < warp; ++i) before += shared.sums[i];
    if (before < wanted && wanted <= before + mine) {
        int step = EACH * threadIdx.x;
        while (before + shared.counts[step] < wanted) before += shared.counts[step++];
        shared.step = step;
        shared.before = before;
        shared.of_step = shared.counts[step];
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(256) knnmt_own_nearest(const unsigned short* keys, int stride,
                                                                    const long long* spans, const long long* ids,
                                                                    const float* scores, const float* queries, int dim,
                                                                    int width, int k, float* nearest_sq,
                                                                    long long* nearest) {
    __shared__ Shared shared;
    const int row = blockIdx.x, sentence = row / width, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long begin = spans[2 * sentence];
    const int count = (int)(spans[2 * sentence + 1] - begin), wanted = min(k + EXTRA, count);
    const float* mine = scores + begin * width + (long long)(row % width) * count;
    const float* query = queries + (long long)row * dim;
    const float infinity = __uint_as_float(0x7f800000u);
    for (int i = min(k, wanted) + threadIdx.x; i < k; i += THREADS) {
        nearest_sq[(long long)row * k + i] = infinity;
        nearest[(long long)row * k + i] = -1;
    }
    if (!wanted) return;

    unsigned low = ALL, high = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        low = min(low, in_order(mine[i]));
        high = max(high, in_order(mine[i]));
    }
    for (int apart = 16; apart; apart /= 2) {
        low = min(low, __shfl_xor_sync(ALL, low, apart));
        high = max(high, __shfl_xor_sync(ALL, high, apart));
    }
    if (lane == 0) {
        shared.sums[warp] = low;
        shared.largest[warp] = high;
    }
    if (threadIdx.x == 0) shared.count = 0;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; ++i) {
        low = min(low, shared.sums[i]);
        high = max(high, shared.largest[i]);
    }
    unsigned below = 0;  // numbers below `low`
    unsigned last;       // the largest that is listed
    bool many = false;   // of the last there are more than the list holds
    for (;;) {
        const int shift = max(0, 21 - __clz((high - low) | 1));
        __syncthreads();
        for (int i = threadIdx.x; i < STEPS; i += THREADS) shared.counts[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += THREADS) {
            const unsigned bits = in_order(mine[i]);
            if (bits >= low && bits <= high) atomicAdd(&shared.counts[(bits - low) >> shift], 1u);
        }
        __syncthreads();
        find_step(shared, wanted - below);
        const unsigned first = low + (shared.step << shift);
        last = first + ((1u << shift) - 1);
        many = below + shared.before + shared.of_step > LISTED;
        if (!many || !shift) break;
        below += shared.before;
        low = first;
        high = min(high, last);
    }
    for (int i = threadIdx.x; i < count; i += THREADS) {
        const unsigned bits = in_order(mine[i]);
        if (bits < last || (bits == last && !many))
            shared.listed[atomicAdd(&shared.count, 1u)] = (unsigned long long)bits << 32 | i;
    }
    __syncthreads();
    if (many && threadIdx.x == 0) {
        int listed = shared.count;
        for (int i = 0; listed < wanted; ++i)
            if (in_order(mine[i]) == last) shared.listed[listed++] = (unsigned long long)last << 32 | i;
        shared.count = listed;
    }
    __syncthreads();
    const int listed = shared.count;
    for (int i = threadIdx.x; i < listed; i += THREADS) {
        int before = 0;
        for (int j = 0; j < listed; ++j) before += shared.listed[j] < shared.listed[i];
        if (before < wanted) shared.chosen[before] = (int)(shared.listed[i] & 0xffffffffu);
    }
    __syncthreads();
    for (int i = warp; i < wanted; i += THREADS / 32) {
        const unsigned short* key = keys + (begin + shared.chosen[i]) * stride;
        float sum = 0.0f;
#pragma unroll 4
        for (int j = lane; j < dim; j += 32) {
            const float difference = widened(key[j]) - query[j];
            sum += difference * difference;
        }
        for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(ALL, sum, apart);
        if (lane == 0) shared.measured[i] = sum < infinity ? sum : infinity;  // no number is infinitely far, too
    }
    __syncthreads();
    for (int i = threadIdx.x; i < wanted; i += THREADS) {
        const float distance_sq = shared.measured[i];
        int before = 0;
        for (int j = 0; j < wanted; ++j) {
            const float other = shared.measured[j];
            before += other < distance_sq || (other == distance_sq && shared.chosen[j] < shared.chosen[i]);
        }
        if (before < k) {
            nearest_sq[(long long)row * k + before] = distance_sq;
            nearest[(long long)row * k + before] = distance_sq < infinity ? ids[begin + shared.chosen[i]] : -1;
        }
    }
}
