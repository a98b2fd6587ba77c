// The k smallest numbers of each row on a GPU: their columns, in no order. A block is a row.
//
// Numbers are counted in 2048 steps between the smallest and the largest of the row. All below the step of the k-th
// smallest are taken; those of that step, mostly few, are put into order. Where they are many, they are counted again by
// 11, 11 and 10 bits of whole numbers of the same order. PyTorch's own top-k of a row takes several times as long where
// there are few rows.

constexpr int THREADS = 1024, HELD = 20;  // numbers that a thread holds; those of longer rows are read again
constexpr int STEPS = 2048, FEW = 1024;
constexpr unsigned ALL = 0xffffffffu;

__device__ unsigned in_order(float number) {
    const unsigned bits = __float_as_uint(number);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Numbers {
    const float* row;
    int columns;
    float held[HELD];
};

struct Shared {
    unsigned counts[STEPS];
    unsigned sums[THREADS / 32];
    float smallest[THREADS / 32], largest[THREADS / 32];
    unsigned members[FEW];
    int columns[FEW];
    unsigned step, missing, of_step, taken, listed;
};

// Which step has the number that completes those that are missing? What remains missing then is to come from it.
__device__ void find_step(Shared& shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned* mine = shared.counts + 2 * threadIdx.x;
    const unsigned wanted = shared.missing, first = mine[0], both = first + mine[1];
    unsigned before = both;  // and this one, then this one not
    for (int apart = 1; apart < 32; apart *= 2) {
        const unsigned other = __shfl_up_sync(ALL, before, apart);
        if (lane >= apart) before += other;
    }
    if (lane == 31) shared.sums[warp] = before;
    before -= both;
    __syncthreads();
    for (int i = 0; i < warp; ++i) before += shared.sums[i];
    if (before < wanted && wanted <= before + both) {
        const bool second = before + first < wanted;
        shared.step = 2 * threadIdx.x + second;
        shared.missing = wanted - before - (second ? first : 0);
        shared.of_step = second ? both - first : first;
    }
    __syncthreads();
}

// Does something with every number of the row that is this thread's, and its column.
template <class Something> __device__ void each(const Numbers& mine, const Something& something) {
#pragma unroll
    for (int j = 0; j < HELD; ++j) {
        const int column = j * THREADS + threadIdx.x;
        if (column < mine.columns) something(mine.held[j], column);
    }
    for (int column = HELD * THREADS + threadIdx.x; column < mine.columns; column += THREADS)
        something(mine.row[column], column);
}

extern "C" __global__ void __launch_bounds__(1024) knnmt_select(const float* values, int columns, int k,
                                                                long long* chosen) {
    __shared__ Shared shared;
    Numbers mine = {values + (long long)blockIdx.x * columns, columns};
    long long* places = chosen + (long long)blockIdx.x * k;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float infinity = __uint_as_float(0x7f800000u);
#pragma unroll
    for (int j = 0; j < HELD; ++j) {
        const int column = j * THREADS + threadIdx.x;
        mine.held[j] = column < columns ? mine.row[column] : infinity;
    }
    const auto clear = [&] {
        for (int i = threadIdx.x; i < STEPS; i += THREADS) shared.counts[i] = 0;
    };

    float smallest = infinity, largest = -infinity;
    each(mine, [&](float number, int) {
        smallest = fminf(smallest, number);
        if (number < infinity) largest = fmaxf(largest, number);
    });
    for (int apart = 16; apart; apart /= 2) {
        smallest = fminf(smallest, __shfl_xor_sync(ALL, smallest, apart));
        largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, apart));
    }
    if (lane == 0) {
        shared.smallest[warp] = smallest;
        shared.largest[warp] = largest;
    }
    if (threadIdx.x == 0) {
        shared.missing = k;
        shared.taken = shared.listed = 0;
    }
    clear();
    __syncthreads();
    for (int i = 0; i < THREADS / 32; ++i) {
        smallest = fminf(smallest, shared.smallest[i]);
        largest = fmaxf(largest, shared.largest[i]);
    }
    const float scale = (STEPS - 1) / (largest - smallest);
    const auto step_of = [&](float number) {  // what is no number, from no scale, is in the last step
        return (int)fmaxf(fminf((number - smallest) * scale, STEPS - 1.0f), 0.0f);
    };
    each(mine, [&](float number, int) { atomicAdd(&shared.counts[step_of(number)], 1u); });
    __syncthreads();
    find_step(shared);
    const int last = shared.step;
    const bool few = shared.of_step <= FEW;
    each(mine, [&](float number, int column) {
        const int step = step_of(number);
        if (step < last) {
            places[atomicAdd(&shared.taken, 1u)] = column;
        } else if (few && step == last) {
            const unsigned i = atomicAdd(&shared.listed, 1u);
            shared.members[i] = in_order(number);
            shared.columns[i] = column;
        }
    });
    __syncthreads();
    if (few) {
        const int sure = shared.taken, missing = shared.missing, members = shared.listed;
        for (int i = threadIdx.x; i < members; i += THREADS) {
            const unsigned key = shared.members[i];
            int before = 0;
            for (int j = 0; j < members; ++j) before += shared.members[j] < key || (shared.members[j] == key && j < i);
            if (before < missing) places[sure + before] = shared.columns[i];
        }
        return;
    }
    unsigned known = 0, mask = 0;
    const int shifts[3] = {21, 10, 0};
    for (const int shift : shifts) {
        clear();
        __syncthreads();
        const unsigned digits = shift ? STEPS - 1 : STEPS / 2 - 1;
        each(mine, [&](float number, int) {
            const unsigned key = in_order(number);
            if (step_of(number) == last && (key & mask) == known) atomicAdd(&shared.counts[key >> shift & digits], 1u);
        });
        __syncthreads();
        find_step(shared);
        known |= shared.step << shift;
        mask |= digits << shift;
        __syncthreads();
    }
    const unsigned end = k - shared.missing;  // before it those that are smaller than the k-th, from it on its equals
    each(mine, [&](float number, int column) {
        if (step_of(number) != last) return;
        const unsigned key = in_order(number);
        if (key < known) {
            places[atomicAdd(&shared.taken, 1u)] = column;
        } else if (key == known) {
            const unsigned place = atomicAdd(&shared.listed, 1u);
            if (place < shared.missing) places[end + place] = column;
        }
    });
}
