// Equations 2 and 3 for a row, which a warp computes: as in knnmt.retrieval.combiner, with λ fixed or fading.

constexpr unsigned WARP = 0xffffffffu;
constexpr float SAME_WEIGHT = 0.99f, LOG_ADVANTAGE = 9.0f;

__device__ float log_sigmoid(float x) { return fminf(x, 0.0f) - log1pf(expf(-fabsf(x))); }

__device__ float sameness(float distance_sq, float same_distance) {
    const float part = distance_sq / (same_distance * same_distance);
    return expf(-part * part);
}

// log(exp(a) + exp(b)), where either may be -inf
__device__ float log_add(float a, float b) {
    const float larger = fmaxf(a, b), smaller = fminf(a, b);
    return isinf(larger) ? larger : larger + log1pf(expf(smaller - larger));
}

// The neighbours of a row, nearest first. An id of none of the entries, which only a store that changes meanwhile has, counts
// as none.
struct Near {
    const float* distances_sq;
    const long long* ids;
    int k, entries;
    const int* values;
    const float* counts;  // none if 0
};

// The sum of the distances of the nearest neighbours of rows first to last, and the number of rows that have one.
__device__ void add_nearest(const float* distances_sq, const long long* ids, int k, int first, int last, float* sum,
                            float* found) {
    *sum = *found = 0.0f;
    for (int row = first; row <= last; ++row) {
        const float nearest_sq = distances_sq[(long long)row * k];
        if (ids[(long long)row * k] >= 0 && !isinf(nearest_sq)) {
            *sum += sqrtf(nearest_sq);
            *found += 1.0f;
        }
    }
}

// Weighs the neighbours: writes the weight and the token of each, -1 if there is none, and returns the log-probability that is
// divided among these weights, less the row's offset; -inf if nothing is mixed.
//
// mixture: log λ, whether it fades, then scale, width, sentence_scale and sentence_width of fading, then T, then the distance
// of the same state. mean: of the sentence's distances so far, of which there are `known`. offset: what is to be added to all
// of the row.
__device__ float weigh(const float* mixture, const Near& near, float mean, float known, float* weights, int* tokens,
                       float* offset) {
    const float most = 1.0f - 5.9604644775390625e-8f;  // the largest λ below 1
    const float infinity = __uint_as_float(0x7f800000u);
    *offset = 0.0f;
    if (near.ids[0] < 0 || isinf(near.distances_sq[0])) return -infinity;
    const float distance = sqrtf(near.distances_sq[0]);
    float log_lambda = mixture[0];
    const bool fades = mixture[1] > 0.0f;
    if (fades) {
        log_lambda += log_sigmoid((mixture[2] - distance) / mixture[3]) + log_sigmoid((mixture[4] - mean) / mixture[5]) +
                      log1pf(-fminf(distance / mixture[2], 1.0f) / (known + 1.0f));
        const float same = logf(SAME_WEIGHT * sameness(near.distances_sq[0], mixture[7]));
        log_lambda = log_add(log_lambda, log1pf(-expf(log_lambda)) + same);
    }
    *offset = log1pf(-fminf(expf(log_lambda), most));
    if (isinf(log_lambda)) return -infinity;
    float total = 0.0f;
    for (int i = threadIdx.x % 32; i < near.k; i += 32) {
        const float distance_sq = near.distances_sq[i];
        const bool there = near.ids[i] >= 0 && near.ids[i] < near.entries && !isinf(distance_sq);
        float weight = there ? expf((near.distances_sq[0] - distance_sq) / mixture[6]) : 0.0f;
        if (there && fades) weight *= expf(LOG_ADVANTAGE * sameness(distance_sq, mixture[7]));
        if (there && near.counts) weight *= near.counts[near.ids[i]];
        weights[i] = weight;
        tokens[i] = there ? near.values[near.ids[i]] : -1;
        total += weight;
    }
    for (int apart = 16; apart; apart /= 2) total += __shfl_xor_sync(WARP, total, apart);
    __syncwarp();
    return log_lambda - *offset - logf(total);
}

// The weight of neighbour i's token, of all neighbours that have it; 0 if an earlier one has it.
__device__ float weight_of_token(const float* weights, const int* tokens, int k, int i) {
    float weight = 0.0f;
    for (int j = 0; j < k; ++j)
        if (tokens[j] == tokens[i]) {
            if (j < i) return 0.0f;
            weight += weights[j];
        }
    return weight;
}
