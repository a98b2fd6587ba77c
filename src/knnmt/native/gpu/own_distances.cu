// Squared distances between the rows of each sentence and the keys of its own entries: true ones, of float32 sums.
//
// DIM, STRIDE, ROWS and HALVES are put before this text: numbers of a query, numbers from key to key (a multiple of 8,
// zeros from DIM on), rows that a block looks at, and whether keys are halves or float32. spans (sentences, 2): from where
// to where the keys of each sentence lie. Distances of a sentence lie row after row, where all before it take `width`
// numbers for each of their keys. Eight lanes measure a key, and blocks (splits, sentences, width / ROWS) share the work.

constexpr int LANES = 8, PART = 8, CHUNK = LANES * PART, CHUNKS = (STRIDE + CHUNK - 1) / CHUNK, THREADS = 256;

struct __align__(16) Four {
    unsigned a, b, c, d;
};

__device__ float widened(unsigned bits) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"((unsigned short)bits));
    return number;
}

extern "C" __global__ void __launch_bounds__(256) knnmt_own_distances(const void* keys, const long long* spans,
                                                                      const float* queries, int width, float* distances) {
    __shared__ __align__(16) float asked[ROWS][CHUNKS][2][LANES][4];
    const int sentence = blockIdx.y, first_row = blockIdx.z * ROWS;
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES % 4, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < ROWS * CHUNKS * CHUNK; i += THREADS) {
        const int row = i / (CHUNKS * CHUNK), j = i % (CHUNKS * CHUNK), part = j % PART;
        const bool there = first_row + row < width && j < DIM;
        asked[row][j / CHUNK][part / 4][j % CHUNK / PART][part % 4] =
            there ? queries[(long long)(sentence * width + first_row + row) * DIM + j] : 0.0f;
    }
    __syncthreads();
    const long long begin = spans[2 * sentence], count = spans[2 * sentence + 1] - begin;
    float* mine = distances + begin * width;
    for (long long base = 4 * (blockIdx.x * (THREADS / 32) + warp); base < count; base += gridDim.x * (THREADS / LANES)) {
        const long long number = min(base + group, count - 1);
        const char* key = (const char*)keys + (begin + number) * STRIDE * (HALVES ? 2 : 4);
        Four loaded[CHUNKS][HALVES ? 1 : 2];
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            const int at = chunk * CHUNK + lane * PART;
#pragma unroll
            for (int half = 0; half < (HALVES ? 1 : 2); ++half)
                loaded[chunk][half] = at < STRIDE ? *(const Four*)(key + (HALVES ? 2 * at : 4 * at + 16 * half)) : Four{};
        }
        float sums[ROWS] = {};
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            float numbers[PART];
            if (HALVES) {
                const unsigned words[4] = {loaded[chunk][0].a, loaded[chunk][0].b, loaded[chunk][0].c, loaded[chunk][0].d};
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    numbers[2 * i] = widened(words[i] & 0xffffu);
                    numbers[2 * i + 1] = widened(words[i] >> 16);
                }
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const Four& words = loaded[chunk][HALVES ? 0 : half];
                    numbers[4 * half] = __uint_as_float(words.a);
                    numbers[4 * half + 1] = __uint_as_float(words.b);
                    numbers[4 * half + 2] = __uint_as_float(words.c);
                    numbers[4 * half + 3] = __uint_as_float(words.d);
                }
            }
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float4 query = *(const float4*)asked[row][chunk][half][lane];
                    const float a = numbers[4 * half] - query.x, b = numbers[4 * half + 1] - query.y;
                    const float c = numbers[4 * half + 2] - query.z, d = numbers[4 * half + 3] - query.w;
                    sums[row] += a * a + b * b + c * c + d * d;
                }
        }
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            for (int apart = LANES / 2; apart; apart /= 2) sums[row] += __shfl_xor_sync(0xffffffffu, sums[row], apart);
            if (lane == row % LANES && base + group < count && first_row + row < width)
                mine[(first_row + row) * count + base + group] = sums[row];
        }
    }
}
