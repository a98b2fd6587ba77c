// Clustered search on a GPU: the scores of the keys in the tiles that each row looks into, where they lie.
//
// asked (rows, width) halves, `stride` apart; keys (tiles * 64, width) halves; near (rows, probes), tiles;
// scores (rows, probes * 64). width is a multiple of 4. A warp multiplies a row with a quarter of a tile.

constexpr int TILE = 64, TOGETHER = 16;  // keys of a warp

__device__ float widened(unsigned bits) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"((unsigned short)bits));
    return number;
}

__device__ float4 four(uint2 bits) {
    return {widened(bits.x & 0xffffu), widened(bits.x >> 16), widened(bits.y & 0xffffu), widened(bits.y >> 16)};
}

extern "C" __global__ void __launch_bounds__(256) knnmt_tiles(const unsigned short* asked, int stride,
                                                              const unsigned short* keys, const long long* near,
                                                              int probes, int width, float* scores) {
    const int row = blockIdx.y, lane = threadIdx.x % 32, quarter = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (quarter >= probes * (TILE / TOGETHER)) return;
    const long long tile = near[(long long)row * probes + quarter / (TILE / TOGETHER)];
    const int fours = width / 4;  // of numbers, which are read together
    const uint2* query = (const uint2*)(asked + (long long)row * stride);
    const uint2* mine = (const uint2*)(keys + (tile * TILE + quarter % (TILE / TOGETHER) * TOGETHER) * width);
    float sums[TOGETHER] = {};
    for (int i = lane; i < fours; i += 32) {
        const float4 of = four(query[i]);
        uint2 numbers[TOGETHER];  // all on their way at the same time
#pragma unroll
        for (int j = 0; j < TOGETHER; ++j) numbers[j] = mine[j * fours + i];
#pragma unroll
        for (int j = 0; j < TOGETHER; ++j) {
            const float4 key = four(numbers[j]);
            sums[j] += key.x * of.x + key.y * of.y + key.z * of.z + key.w * of.w;
        }
    }
    // Lanes exchange halves of what they hold, until each has the sum of one key: lanes 2j and 2j + 1 that of key j.
#pragma unroll
    for (int held = TOGETHER / 2; held; held /= 2) {
        const bool upper = lane & (2 * held);
#pragma unroll
        for (int j = 0; j < held; ++j) {
            const float given = upper ? sums[j] : sums[j + held], kept = upper ? sums[j + held] : sums[j];
            sums[j] = kept + __shfl_xor_sync(0xffffffffu, given, 2 * held);
        }
    }
    sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], 1);
    if (lane % 2 == 0) scores[((long long)row * probes * (TILE / TOGETHER) + quarter) * TOGETHER + lane / 2] = sums[0];
}
