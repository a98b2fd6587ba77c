// The end of a search on a GPU: true distances to the candidates of each row, and the k nearest in order.
//
// chosen (rows, candidates): ids of keys, -1 for none; or, with probes, places among the keys of a row's tiles, then near
// (rows, probes) are those tiles, and live (tiles, size) the id in each place. keys (count, dim), `stride` numbers apart,
// as halves or float32; distances_sq and ids (rows, k). A block is a row, with at most 1024 candidates.

constexpr int MOST = 1024;

__device__ float widened(unsigned bits) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"((unsigned short)bits));
    return number;
}

extern "C" __global__ void __launch_bounds__(1024) knnmt_measure(const float* queries, const long long* chosen,
                                                                 const long long* near, const long long* live, int probes, int size,
                                                                 const void* keys, int halves, int stride, int dim,
                                                                 int candidates, int k, float* distances_sq,
                                                                 long long* ids) {
    __shared__ float found_sq[MOST];
    __shared__ long long found[MOST];
    const int row = blockIdx.x, lane = threadIdx.x % 32;
    const float infinity = __uint_as_float(0x7f800000u);
    const float* query = queries + (long long)row * dim;
    for (int i = threadIdx.x; i < candidates; i += blockDim.x) {
        const long long place = chosen[(long long)row * candidates + i];
        found[i] = probes ? live[near[(long long)row * probes + place / size] * size + place % size] : place;
    }
    __syncthreads();
    for (int i = threadIdx.x / 32; i < candidates; i += blockDim.x / 32) {
        const long long id = found[i];
        float sum = 0.0f;
        if (id >= 0) {
#pragma unroll 4
            for (int j = lane; j < dim; j += 32) {
                const long long at = id * stride + j;
                const float key = halves ? widened(((const unsigned short*)keys)[at]) : ((const float*)keys)[at];
                sum += (key - query[j]) * (key - query[j]);
            }
        }
        for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        if (lane == 0) found_sq[i] = id >= 0 && sum < infinity ? sum : infinity;  // no number is infinitely far, too
    }
    __syncthreads();
    for (int i = threadIdx.x; i < candidates; i += blockDim.x) {
        int before = 0;
        for (int j = 0; j < candidates; ++j) before += found_sq[j] < found_sq[i] || (found_sq[j] == found_sq[i] && j < i);
        if (before < k) {
            distances_sq[(long long)row * k + before] = found_sq[i];
            ids[(long long)row * k + before] = found_sq[i] < infinity ? found[i] : -1;
        }
    }
    for (int i = candidates + threadIdx.x; i < k; i += blockDim.x) {
        distances_sq[(long long)row * k + i] = infinity;
        ids[(long long)row * k + i] = -1;
    }
}
