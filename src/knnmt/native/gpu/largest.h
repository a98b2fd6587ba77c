// The largest keys of a block of 256 threads. A key is a number and its place; of equal numbers the one with the smaller place
// has the larger key. A key of 0 is none: -inf, and what is no number.

constexpr int THREADS = 256, MOST_KEYS = 4096, MOST_LARGEST = 32;
constexpr unsigned ALL = 0xffffffffu;

typedef unsigned long long Key;

__device__ Key key_of(float number, unsigned place) {
    if (!(number > -__uint_as_float(0x7f800000u))) return 0;
    const unsigned bits = __float_as_uint(number + 0.0f);  // -0 equals 0
    return (Key)(bits & 0x80000000u ? ~bits : bits | 0x80000000u) << 32 | ~place;
}

__device__ float number_of(Key key) {
    const unsigned bits = key >> 32;
    return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

__device__ unsigned place_of(Key key) { return ~(unsigned)key; }

struct Largest {
    Key groups[32], list[MOST_KEYS], found[MOST_LARGEST];
    unsigned listed;
};

// Writes the `count` largest keys to `found`, largest first, then 0; up to MOST_LARGEST of up to MOST_KEYS keys.
//
// mine: the largest key of this thread, which has `held`; key_at(i): key i of them. possible(key): whether a key counts; few are
// asked for.
// The `count` largest are not smaller than the count-th of the largest keys of 32 groups of threads. Few keys are not.
template <class KeyAt, class Possible>
__device__ void find_largest(Largest& shared, int count, Key mine, int held, const KeyAt& key_at, const Possible& possible) {
    const int thread = threadIdx.x, lane = thread % 32;
    Key of_group = mine;
    for (int apart = 4; apart; apart /= 2) {
        const Key other = __shfl_xor_sync(ALL, of_group, apart);
        of_group = other > of_group ? other : of_group;
    }
    if (thread % 8 == 0) shared.groups[thread / 8] = of_group;
    if (thread < MOST_LARGEST) shared.found[thread] = 0;
    if (thread == 0) shared.listed = 0;
    __syncthreads();
    const Key group = shared.groups[lane];
    int before = 0;
    for (int i = 0; i < 32; ++i) before += shared.groups[i] > group;
    const unsigned last = __ballot_sync(ALL, group && before == count - 1);
    const Key least = last ? shared.groups[__ffs(last) - 1] : 1;
    if (mine >= least) {
#pragma unroll
        for (int i = 0; i < held; ++i) {
            const Key key = key_at(i);
            if (key >= least && possible(key)) shared.list[atomicAdd(&shared.listed, 1u)] = key;
        }
    }
    __syncthreads();
    const int listed = shared.listed;
    for (int i = thread; i < listed; i += THREADS) {
        const Key key = shared.list[i];
        int larger = 0;
        for (int j = 0; j < listed; ++j) larger += shared.list[j] > key;
        if (larger < count) shared.found[larger] = key;
    }
    __syncthreads();
}
