// The k smallest numbers of each row on a GPU: their columns, in no order. A block is a row.
//
// The numbers, as whole ones of the same order, are counted by their upper 11 bits, then those with the k-th smallest's
// upper bits by the next 11, then by the last 10; then all below that number are taken, and as many equal to it as are
// missing. PyTorch's own top-k of a row takes several times as long where there are few rows.

constexpr int THREADS = 1024, HELD = 20;  // numbers that a thread holds; those of longer rows are read again
constexpr unsigned ALL = 0xffffffffu;

__device__ unsigned in_order(float number) {
    const unsigned bits = __float_as_uint(number);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

extern "C" __global__ void __launch_bounds__(1024) knnmt_select(const float* values, int columns, int k,
                                                                long long* chosen) {
    __shared__ unsigned counts[2048];
    __shared__ unsigned digit, missing, below, equal;
    const float* row = values + (long long)blockIdx.x * columns;
    long long* places = chosen + (long long)blockIdx.x * k;
    const int lane = threadIdx.x % 32;
    unsigned held[HELD];
#pragma unroll
    for (int j = 0; j < HELD; ++j) {
        const int column = j * THREADS + threadIdx.x;
        held[j] = column < columns ? in_order(row[column]) : ALL;
    }
    const int rounds = (columns + THREADS - 1) / THREADS;
    if (threadIdx.x == 0) {
        missing = k;
        below = equal = 0;
    }
    unsigned known = 0, mask = 0;
    const int shifts[3] = {21, 10, 0}, widths[3] = {2048, 2048, 1024};
    for (int turn = 0; turn < 3; ++turn) {
        const int shift = shifts[turn], width = widths[turn];
        for (int i = threadIdx.x; i < width; i += THREADS) counts[i] = 0;
        __syncthreads();
        const auto count = [&](unsigned key, bool there) {
            const bool mine = there && (key & mask) == known;
            const unsigned active = __ballot_sync(ALL, mine);
            if (mine) {
                const unsigned bin = (key >> shift) & (width - 1);
                const unsigned peers = __match_any_sync(active, bin);  // one of those with the same digit adds for all
                if (lane == __ffs(peers) - 1) atomicAdd(&counts[bin], __popc(peers));
            }
        };
#pragma unroll
        for (int j = 0; j < HELD; ++j) count(held[j], j * THREADS + (int)threadIdx.x < columns);
        for (int j = HELD; j < rounds; ++j) {
            const int column = j * THREADS + threadIdx.x;
            count(column < columns ? in_order(row[column]) : ALL, column < columns);
        }
        __syncthreads();
        if (threadIdx.x < 32) {  // in which digit is the number that completes the k?
            const int each = width / 32;
            const unsigned wanted = missing;
            unsigned sum = 0;
            for (int i = 0; i < each; ++i) sum += counts[lane * each + i];
            unsigned before = sum;
            for (int apart = 1; apart < 32; apart *= 2) {
                const unsigned other = __shfl_up_sync(ALL, before, apart);
                if (lane >= apart) before += other;
            }
            before -= sum;
            __syncwarp();
            if (before < wanted && wanted <= before + sum) {
                int i = lane * each;
                while (before + counts[i] < wanted) before += counts[i++];
                digit = i;
                missing = wanted - before;
            }
        }
        __syncthreads();
        known |= digit << shift;
        mask |= (unsigned)(width - 1) << shift;
        __syncthreads();
    }
    const int sure = k - missing;
    const auto take = [&](unsigned key, int column) {
        if (key < known) {
            places[atomicAdd(&below, 1u)] = column;
        } else if (key == known) {
            const unsigned place = atomicAdd(&equal, 1u);
            if (place < missing) places[sure + place] = column;
        }
    };
#pragma unroll
    for (int j = 0; j < HELD; ++j) {
        const int column = j * THREADS + threadIdx.x;
        if (column < columns) take(held[j], column);
    }
    for (int j = HELD; j < rounds; ++j) {
        const int column = j * THREADS + threadIdx.x;
        if (column < columns) take(in_order(row[column]), column);
    }
}
