// The k nearest of a sentence's own entries for each row, in order: of equal distances, the entry that comes first.
//
// A block is a row. spans (sentences, 2) and distances are those of own_distances.cu, ids (keys) the entry of each key.
// Distances, which are not negative, are in the order of their bits. These are counted in 2048 steps between the smallest
// and the largest, then again within the step of the k-th, until what is left besides fits a list. The list is ranked.

constexpr int THREADS = 256, STEPS = 2048, EACH = STEPS / THREADS, LISTED = 1024;
constexpr unsigned ALL = 0xffffffffu, INFINITE = 0x7f800000u;

struct Shared {
    unsigned counts[STEPS];
    unsigned sums[THREADS / 32], largest[THREADS / 32];
    unsigned long long listed[LISTED];
    unsigned step, before, of_step, count;
};

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

extern "C" __global__ void __launch_bounds__(256) knnmt_own_nearest(const long long* spans, const long long* ids,
                                                                    const float* distances, int width, int k,
                                                                    float* nearest_sq, long long* nearest) {
    __shared__ Shared shared;
    const int row = blockIdx.x, sentence = row / width, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long begin = spans[2 * sentence];
    const int count = (int)(spans[2 * sentence + 1] - begin), wanted = min(k, count);
    const unsigned* values = (const unsigned*)distances + begin * width + (long long)(row % width) * count;
    float* found_sq = nearest_sq + (long long)row * k;
    long long* found = nearest + (long long)row * k;
    for (int i = wanted + threadIdx.x; i < k; i += THREADS) {
        found_sq[i] = __uint_as_float(INFINITE);
        found[i] = -1;
    }
    if (!wanted) return;

    unsigned low = ALL, high = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        low = min(low, values[i]);
        high = max(high, values[i]);
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
        const unsigned range = high - low;
        const int shift = max(0, 21 - __clz(range | 1));
        __syncthreads();
        for (int i = threadIdx.x; i < STEPS; i += THREADS) shared.counts[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += THREADS)
            if (values[i] >= low && values[i] <= high) atomicAdd(&shared.counts[(values[i] - low) >> shift], 1u);
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
    for (int i = threadIdx.x; i < count; i += THREADS)
        if (values[i] < last || (values[i] == last && !many))
            shared.listed[atomicAdd(&shared.count, 1u)] = (unsigned long long)values[i] << 32 | i;
    __syncthreads();
    if (many && threadIdx.x == 0) {
        int listed = shared.count;
        for (int i = 0; listed < wanted; ++i)
            if (values[i] == last) shared.listed[listed++] = (unsigned long long)last << 32 | i;
        shared.count = listed;
    }
    __syncthreads();
    const int listed = shared.count;
    for (int i = threadIdx.x; i < listed; i += THREADS) {
        const unsigned long long mine = shared.listed[i];
        int before = 0;
        for (int j = 0; j < listed; ++j) before += shared.listed[j] < mine;
        if (before < wanted) {
            const unsigned bits = (unsigned)(mine >> 32);
            const bool there = bits < INFINITE;  // what is no number is infinitely far, too
            found_sq[before] = __uint_as_float(there ? bits : INFINITE);
            found[before] = there ? ids[begin + (long long)(mine & 0xffffffffu)] : -1;
        }
    }
}
