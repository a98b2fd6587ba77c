// Clustered search on a GPU, step 3: true distances to the best candidates of each row, and the k nearest in order.
//
// chosen (rows, candidates): places among the keys of a row's tiles; near (rows, probes): those tiles; live (tiles * 64):
// the key in each place, -1 where there is none; keys (count, dim), `stride` numbers apart, as halves or float32;
// distances_sq and ids (rows, k). A block is a row, with at most 1024 candidates.

constexpr int TILE = 64, WARPS = 8, MOST = 1024;

__device__ float widened(unsigned short bits) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(bits));
    return number;
}

extern "C" __global__ void __launch_bounds__(256) knnmt_measure(const float* queries, const long long* chosen,
                                                                const long long* near, const long long* live,
                                                                const void* keys, int halves, int stride, int dim,
                                                                int candidates, int probes, int k, float* distances_sq,
                                                                long long* ids) {
    __shared__ float found_sq[MOST];
    __shared__ long long found[MOST];
    const int row = blockIdx.x, lane = threadIdx.x % 32;
    const float infinity = __int_as_float(0x7f800000);
    const float* query = queries + (long long)row * dim;
    for (int i = threadIdx.x / 32; i < candidates; i += WARPS) {
        const long long place = chosen[(long long)row * candidates + i];
        const long long id = live[near[(long long)row * probes + place / TILE] * TILE + place % TILE];
        float sum = 0.0f;
        if (id >= 0)
            for (int j = lane; j < dim; j += 32) {
                const long long at = id * stride + j;
                const float key = halves ? widened(((const unsigned short*)keys)[at]) : ((const float*)keys)[at];
                sum += (key - query[j]) * (key - query[j]);
            }
        for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        if (lane == 0) {
            found_sq[i] = id >= 0 ? sum : infinity;
            found[i] = id;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < candidates; i += blockDim.x) {
        int before = 0;
        for (int j = 0; j < candidates; ++j) before += found_sq[j] < found_sq[i] || (found_sq[j] == found_sq[i] && j < i);
        if (before < k) {
            distances_sq[(long long)row * k + before] = found_sq[i];
            ids[(long long)row * k + before] = isinf(found_sq[i]) ? -1 : found[i];
        }
    }
    for (int i = candidates + threadIdx.x; i < k; i += blockDim.x) {
        distances_sq[(long long)row * k + i] = infinity;
        ids[(long long)row * k + i] = -1;
    }
}
