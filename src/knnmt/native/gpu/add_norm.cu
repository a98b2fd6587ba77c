// A sum and its layer normalisation, in one kernel. A warp is a row. HALF and DIM, the numbers of a row, are put before this
// text; DIM is even. x, other, normal (rows, DIM), weight and bias (DIM,). All is computed in float32.

#include "stored.h"

constexpr int PAIRS = DIM / 2, EACH = (PAIRS + 31) / 32, WARPS = 4;

struct __align__(2 * sizeof(Number)) Pair {
    Number first, second;
};

__device__ float of_warp(float sum) {
    for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return sum;
}

extern "C" __global__ void __launch_bounds__(128) knnmt_add_norm(const void* x, const void* other,
                                                                 const void* weight, const void* bias, double epsilon,
                                                                 int rows, Number* normal) {
    const int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const long long begin = (long long)row * PAIRS;
    float first[EACH], second[EACH];
    Pair weights[EACH], biases[EACH];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int place = lane + 32 * i;
        first[i] = second[i] = 0.0f;
        if (place < PAIRS) {
            const Pair one = ((const Pair*)x)[begin + place], two = ((const Pair*)other)[begin + place];
            weights[i] = ((const Pair*)weight)[place];
            biases[i] = ((const Pair*)bias)[place];
            first[i] = read(one.first) + read(two.first);
            second[i] = read(one.second) + read(two.second);
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) sum += first[i] + second[i];
    const float mean = of_warp(sum) * (1.0f / DIM);
#pragma unroll
    for (int i = 0; i < EACH; ++i)
        if (lane + 32 * i < PAIRS) {
            first[i] -= mean;
            second[i] -= mean;
            squares += first[i] * first[i] + second[i] * second[i];
        }
    const float scale = rsqrtf(of_warp(squares) * (1.0f / DIM) + (float)epsilon);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int place = lane + 32 * i;
        if (place < PAIRS) {
            write(normal + 2 * (begin + place), first[i] * scale * read(weights[i].first) + read(biases[i].first));
            write(normal + 2 * (begin + place) + 1, second[i] * scale * read(weights[i].second) + read(biases[i].second));
        }
    }
}
