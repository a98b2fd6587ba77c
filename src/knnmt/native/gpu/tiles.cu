// Clustered search on a GPU, step 2: the scores of the keys in the tiles that each row looks into, where they lie.
//
// asked (rows, width) halves, `stride` apart; keys (tiles * 64, width) halves; near (rows, probes), tiles;
// scores (rows, probes * 64). A warp multiplies a row with a tile. width is a multiple of 64, and at most 2048.

constexpr int TILE = 64, WARPS = 8, TOGETHER = 8;  // keys whose numbers are on their way at the same time

__device__ float widened(unsigned bits) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"((unsigned short)bits));
    return number;
}

extern "C" __global__ void __launch_bounds__(256) knnmt_tiles(const unsigned short* asked, int stride,
                                                              const unsigned short* keys, const long long* near,
                                                              int probes, int width, float* scores) {
    __shared__ float2 query[1024];  // of all warps of the block
    const int row = blockIdx.y, lane = threadIdx.x % 32, probe = blockIdx.x * WARPS + threadIdx.x / 32;
    const int pairs = width / 2;  // of numbers, which are read together
    const unsigned* mine = (const unsigned*)(asked + (long long)row * stride);
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        const unsigned both = mine[i];
        query[i] = make_float2(widened(both & 0xffffu), widened(both >> 16));
    }
    __syncthreads();
    if (probe >= probes) return;
    const long long place = (long long)row * probes + probe;
    const unsigned* tile = (const unsigned*)(keys + near[place] * TILE * width);
    for (int first = 0; first < TILE; first += TOGETHER) {
        float sums[TOGETHER] = {};
        for (int i = lane; i < pairs; i += 32) {
            const float2 of = query[i];
#pragma unroll
            for (int j = 0; j < TOGETHER; ++j) {
                const unsigned both = tile[(first + j) * pairs + i];
                sums[j] += widened(both & 0xffffu) * of.x + widened(both >> 16) * of.y;
            }
        }
#pragma unroll
        for (int j = 0; j < TOGETHER; ++j) {
            for (int apart = 16; apart; apart /= 2) sums[j] += __shfl_xor_sync(0xffffffffu, sums[j], apart);
            if (lane == j) scores[place * TILE + first + j] = sums[j];
        }
    }
}
