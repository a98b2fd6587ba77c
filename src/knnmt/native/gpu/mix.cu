// Equations 2 and 3 on a GPU, with λ fixed or fading: what some sixty operations of PyTorch do, in one.
//
// A block is a sentence, a warp one of its rows. As knnmt_mix of ../step.cpp, but for the parts of `mixture`: log λ,
// whether it fades, then scale, width, sentence_scale and sentence_width of fading, then T, then the distance of the same
// state. An id of none of the entries, which only a store that changes meanwhile has, counts as none.
//
// The rows of a sentence are hypotheses of one step, or in_turn steps one after the other. sums_after and steps_after are
// written: (sentences,), which may be sums and steps, or in_turn (rows,), as they are after each row. offsets (rows,): what
// is to be added to all of a row.

constexpr int MOST = 2048;  // neighbours of a sentence's rows

__device__ float log_sigmoid(float x) { return fminf(x, 0.0f) - log1pf(expf(-fabsf(x))); }

// As in knnmt.retrieval.combiner.
constexpr float SAME_WEIGHT = 0.99f, LOG_ADVANTAGE = 9.0f;

__device__ float sameness(float distance_sq, float same_distance) {
    const float part = distance_sq / (same_distance * same_distance);
    return expf(-part * part);
}

// log(exp(a) + exp(b)), where either may be -inf
__device__ float log_add(float a, float b) {
    const float larger = fmaxf(a, b), smaller = fminf(a, b);
    return isinf(larger) ? larger : larger + log1pf(expf(smaller - larger));
}

extern "C" __global__ void knnmt_mix(const float* mixture, int width, int k, int vocabulary, const float* distances_sq,
                                     const long long* ids, int entries, const int* values, const float* counts,
                                     int use_counts, const float* sums, const float* steps, float* scores, int in_turn,
                                     float* sums_after, float* steps_after, float* offsets) {
    __shared__ float weights[MOST];  // of all rows
    __shared__ int tokens[MOST];
    const float most = 1.0f - 5.9604644775390625e-8f;  // the largest λ below 1
    const int sentence = blockIdx.x, place = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = sentence * width + place, first = sentence * width, last = in_turn ? row : first + width - 1;
    float sum = 0.0f, found = 0.0f;
    for (int each = first; each <= last; ++each) {
        const float nearest_sq = distances_sq[(long long)each * k];
        if (ids[(long long)each * k] >= 0 && !isinf(nearest_sq)) {
            sum += sqrtf(nearest_sq);
            found += 1.0f;
        }
    }
    const bool mean_counts = !in_turn && found > 0.0f;  // the step of several hypotheses counts as one
    const float all = sums[sentence] + (mean_counts ? sum / found : sum);
    const float count = steps[sentence] + (mean_counts ? 1.0f : found);
    const float known = fmaxf(count, 1.0f), mean = all / known;
    __syncthreads();  // all have read what is written over
    if (lane == 0 && (in_turn || place == 0)) {
        sums_after[in_turn ? row : sentence] = all;
        steps_after[in_turn ? row : sentence] = count;
    }
    const float* near_sq = distances_sq + (long long)row * k;
    const long long* near = ids + (long long)row * k;
    if (near[0] < 0 || isinf(near_sq[0])) {
        if (lane == 0) offsets[row] = 0.0f;
        return;
    }
    const float distance = sqrtf(near_sq[0]);
    float log_lambda = mixture[0];
    const bool fades = mixture[1] > 0.0f;
    if (fades) {
        log_lambda += log_sigmoid((mixture[2] - distance) / mixture[3]) + log_sigmoid((mixture[4] - mean) / mixture[5]) +
                      log1pf(-fminf(distance / mixture[2], 1.0f) / (known + 1.0f));
        log_lambda = log_add(log_lambda, log1pf(-expf(log_lambda)) + logf(SAME_WEIGHT * sameness(near_sq[0], mixture[7])));
    }
    const float offset = log1pf(-fminf(expf(log_lambda), most));
    if (lane == 0) offsets[row] = offset;
    if (isinf(log_lambda)) return;

    float* mine = weights + place * k;
    int* of = tokens + place * k;
    float total = 0.0f;
    for (int i = lane; i < k; i += 32) {
        const bool there = near[i] >= 0 && near[i] < entries && !isinf(near_sq[i]);
        float weight = there ? expf((near_sq[0] - near_sq[i]) / mixture[6]) : 0.0f;
        if (there && fades) weight *= expf(LOG_ADVANTAGE * sameness(near_sq[i], mixture[7]));
        if (there && use_counts) weight *= counts[near[i]];
        mine[i] = weight;
        of[i] = there ? values[near[i]] : -1;
        total += weight;
    }
    for (int apart = 16; apart; apart /= 2) total += __shfl_xor_sync(0xffffffffu, total, apart);
    __syncwarp();
    const float log_share = log_lambda - offset - logf(total);
    for (int i = lane; i < k; i += 32) {
        if (of[i] < 0 || of[i] >= vocabulary) continue;
        float weight = 0.0f;
        bool earlier = false;
        for (int j = 0; j < k; ++j)
            if (of[j] == of[i]) {
                earlier |= j < i;
                weight += mine[j];
            }
        if (earlier || !(weight > 0.0f)) continue;  // changed by the thread of that one, or not at all
        float* score = scores + (long long)row * vocabulary + of[i];
        *score = log_add(*score, log_share + logf(weight));
    }
}
