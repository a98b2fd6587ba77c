// Equations 2 and 3 on a GPU: what some sixty operations of PyTorch do, in one.
//
// A block is a sentence, a warp one of its rows. As knnmt_mix of ../step.cpp; `mixture` is that of mixture.h.
//
// The rows of a sentence are hypotheses of one step. Written: sums and steps (sentences,), and offsets (rows,): what is to be
// added to all of a row.

#include "mixture.h"

constexpr int MOST = 2048;  // neighbours of a sentence's rows

extern "C" __global__ void knnmt_mix(float* scores, int vocabulary, const float* mixture, int width, int k,
                                     const float* distances_sq, const long long* ids, int entries, const int* values,
                                     const float* counts, int use_counts, float* sums, float* steps, float* offsets) {
    __shared__ float weights[MOST];  // of all rows
    __shared__ int tokens[MOST];
    const int sentence = blockIdx.x, place = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = sentence * width + place, first = sentence * width, last = first + width - 1;
    float sum, found;
    add_nearest(distances_sq, ids, k, first, last, &sum, &found);
    const bool any = found > 0.0f;  // the step of several hypotheses counts as one
    const float all = sums[sentence] + (any ? sum / found : 0.0f);
    const float count = steps[sentence] + (any ? 1.0f : 0.0f);
    const float known = fmaxf(count, 1.0f);
    __syncthreads();  // all have read what is written over
    if (threadIdx.x == 0) {
        sums[sentence] = all;
        steps[sentence] = count;
    }
    const long long begin = (long long)row * k;
    const Near near = {distances_sq + begin, ids + begin, k, entries, values, use_counts ? counts : 0};
    float* mine = weights + place * k;
    int* of = tokens + place * k;
    float offset;
    const float log_share = weigh(mixture, near, all / known, known, mine, of, &offset);
    if (lane == 0) offsets[row] = offset;
    if (isinf(log_share)) return;
    for (int i = lane; i < k; i += 32) {
        if (of[i] < 0 || of[i] >= vocabulary) continue;
        const float weight = weight_of_token(mine, of, k, i);
        float* score = scores + (long long)row * vocabulary + of[i];
        if (weight > 0.0f) *score = log_add(*score, log_share + logf(weight));
    }
}
