// Scores of the keys of each sentence's own entries for its rows, by the GPU's matrix units: |k|² - 2 q·k, which orders keys
// as their distances do, up to rounding. own_nearest.cu measures the best by true differences.
//
// STRIDE is put before this text: numbers from key to key, a multiple of 32, zeros from `dim` on. keys (keys, STRIDE) halves;
// norms_sq (keys); spans (sentences, 2): from where to where the keys of each sentence lie; queries (rows, dim). A query is
// a sum of two halves, so that next to nothing of it is lost. Scores of a sentence lie row after row, where all before it
// take `width` numbers for each of their keys. A warp scores 16 keys for 8 rows; blocks are (splits, sentences, width / 8).
//
// A product adds up over pairs of numbers in any order, so lanes take what lies side by side in memory: lane t of the four
// that share a key takes 8 numbers of every 32, and queries are put where they meet them.

constexpr int ROWS = 8, KEYS = 16, CHUNK = 32, CHUNKS = STRIDE / CHUNK, WARPS = 8;

struct __align__(16) Four {
    unsigned words[4];
};

__device__ unsigned halves_of(float a, float b) {
    unsigned both;
    asm("{ .reg .f16 x, y; cvt.rn.f16.f32 x, %1; cvt.rn.f16.f32 y, %2; mov.b32 %0, {x, y}; }" : "=r"(both) : "f"(a), "f"(b));
    return both;
}

__device__ float widened(unsigned bits) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"((unsigned short)bits));
    return number;
}

__device__ void multiply(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(256) knnmt_own_scores(const unsigned short* keys, const float* norms_sq,
                                                                   const long long* spans, const float* queries, int dim,
                                                                   int width, float* scores) {
    // Of every 32 numbers of a row the 8 of each lane, as words of two: first their halves, then what these leave.
    __shared__ __align__(16) unsigned asked[2][CHUNKS][ROWS][4][4];
    const int sentence = blockIdx.y, first_row = blockIdx.z * ROWS, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long begin = spans[2 * sentence], count = spans[2 * sentence + 1] - begin;
    if (KEYS * (long long)(blockIdx.x * WARPS) >= count) return;
    for (int i = threadIdx.x; i < ROWS * STRIDE / 2; i += 32 * WARPS) {
        const int row = i / (STRIDE / 2), at = 2 * (i % (STRIDE / 2));
        const float* query = queries + (long long)(sentence * width + first_row + row) * dim;
        const bool there = first_row + row < width;
        const float a = there && at < dim ? query[at] : 0.0f, b = there && at + 1 < dim ? query[at + 1] : 0.0f;
        const unsigned both = halves_of(a, b);
        const int chunk = at / CHUNK, part = at % CHUNK / 8, word = at % 8 / 2;
        asked[0][chunk][row][part][word] = both;
        asked[1][chunk][row][part][word] = halves_of(a - widened(both & 0xffffu), b - widened(both >> 16));
    }
    __syncthreads();
    const int group = lane / 4, part = lane % 4;
    float* mine = scores + begin * width;
    for (long long base = KEYS * (long long)(blockIdx.x * WARPS + warp); base < count; base += KEYS * WARPS * gridDim.x) {
        const long long upper = min(base + group, count - 1), lower = min(base + group + 8, count - 1);
        const Four* above = (const Four*)(keys + (begin + upper) * STRIDE) + part;
        const Four* below = (const Four*)(keys + (begin + lower) * STRIDE) + part;
        float sums[4] = {}, rests[4] = {};
#pragma unroll 5
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            const Four a = above[4 * chunk], b = below[4 * chunk];
            const Four high = *(const Four*)asked[0][chunk][group][part], low = *(const Four*)asked[1][chunk][group][part];
            multiply(sums, a.words[0], b.words[0], a.words[1], b.words[1], high.words[0], high.words[1]);
            multiply(sums, a.words[2], b.words[2], a.words[3], b.words[3], high.words[2], high.words[3]);
            multiply(rests, a.words[0], b.words[0], a.words[1], b.words[1], low.words[0], low.words[1]);
            multiply(rests, a.words[2], b.words[2], a.words[3], b.words[3], low.words[2], low.words[3]);
        }
        // Of 16 keys and 8 rows a lane has two keys and two rows.
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const long long number = base + group + (i < 2 ? 0 : 8);
            const int row = first_row + 2 * part + i % 2;
            if (number < count && row < width)
                mine[row * count + number] = norms_sq[begin + number] - 2.0f * (sums[i] + rests[i]);
        }
    }
}
