// The best token of each row after equation 3, from the scores before the softmax: softmax, mixture and choice in one kernel.
//
// A block is a row: of `turns` steps of a sentence, one after the other. HALF is put before this text. scores (rows, vocabulary).
// forbidden: tokens that are not chosen; `end` is not chosen before min_tokens tokens. The rest is that of mix.cu, in_turn.
// best (rows,): the log-probability of the token, without the offset; of equal ones the first token is chosen. NaN among the
// scores makes it NaN.

#include "stored.h"
#include "mixture.h"

constexpr int THREADS = 256, MOST = 1024;  // neighbours of a row

struct Choice {
    float score;
    int token;
};

__device__ Choice better(Choice one, Choice other) {
    return other.score > one.score || (other.score == one.score && other.token < one.token) ? other : one;
}

__device__ Choice best_of_warp(Choice mine) {
    for (int apart = 16; apart; apart /= 2) {
        Choice other;
        other.score = __shfl_xor_sync(WARP, mine.score, apart);
        other.token = __shfl_xor_sync(WARP, mine.token, apart);
        mine = better(mine, other);
    }
    return mine;
}

extern "C" __global__ void __launch_bounds__(256) knnmt_best(
    const Number* scores, int vocabulary, const long long* forbidden, int forbidden_count, int end, int min_tokens,
    const long long* generated, const float* mixture, int turns, int k, const float* distances_sq, const long long* ids,
    int entries, const int* values, const float* counts, int use_counts, const float* sums, const float* steps,
    float* sums_after, float* steps_after, float* offsets, float* best, long long* tokens) {
    __shared__ float weights[MOST];
    __shared__ int of[MOST];
    __shared__ Choice bests[THREADS / 32];
    __shared__ float largest[THREADS / 32], totals[THREADS / 32];
    const int row = blockIdx.x, sentence = row / turns, thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const float infinity = __uint_as_float(0x7f800000u);
    const Number* mine = scores + (long long)row * vocabulary;
    const bool early = generated[sentence] + row % turns < min_tokens;
    const auto allowed = [=](int token) {
        for (int each = 0; each < forbidden_count; ++each)
            if (forbidden[each] == token) return false;
        return !(early && token == end);
    };
    // Twice over all scores: the largest, then the sum. Chunks are read if rows begin where chunks do.
    const int whole = vocabulary % CHUNK ? 0 : vocabulary / CHUNK;
    Choice choice = {-infinity, vocabulary};
    float most = -infinity;
    for (int i = thread; i < whole; i += THREADS) {
        const Chunk some = ((const Chunk*)mine)[i];
#pragma unroll
        for (int j = 0; j < CHUNK; ++j) {
            const Choice other = {read(some.numbers[j]), i * CHUNK + j};
            most = fmaxf(most, other.score);
            if (other.score > choice.score && allowed(other.token)) choice = other;
        }
    }
    for (int i = whole * CHUNK + thread; i < vocabulary; i += THREADS) {
        const Choice other = {read(mine[i]), i};
        most = fmaxf(most, other.score);
        if (other.score > choice.score && allowed(other.token)) choice = other;
    }
    choice = best_of_warp(choice);
    for (int apart = 16; apart; apart /= 2) most = fmaxf(most, __shfl_xor_sync(WARP, most, apart));
    if (lane == 0) {
        bests[warp] = choice;
        largest[warp] = most;
    }
    __syncthreads();
    for (int i = 0; i < THREADS / 32; ++i) {
        choice = better(choice, bests[i]);
        most = fmaxf(most, largest[i]);
    }
    float total = 0.0f;
    for (int i = thread; i < whole; i += THREADS) {
        const Chunk some = ((const Chunk*)mine)[i];
#pragma unroll
        for (int j = 0; j < CHUNK; ++j) total += expf(read(some.numbers[j]) - most);
    }
    for (int i = whole * CHUNK + thread; i < vocabulary; i += THREADS) total += expf(read(mine[i]) - most);
    for (int apart = 16; apart; apart /= 2) total += __shfl_xor_sync(WARP, total, apart);
    if (lane == 0) totals[warp] = total;
    __syncthreads();
    if (warp) return;
    total = 0.0f;
    for (int i = 0; i < THREADS / 32; ++i) total += totals[i];
    const float log_total = logf(total);

    float sum = sums[sentence], count = steps[sentence];
    for (int each = sentence * turns; each <= row; ++each) {
        const float nearest_sq = distances_sq[(long long)each * k];
        if (ids[(long long)each * k] >= 0 && !isinf(nearest_sq)) {
            sum += sqrtf(nearest_sq);
            count += 1.0f;
        }
    }
    const float known = fmaxf(count, 1.0f);
    const long long begin = (long long)row * k;
    const Near near = {distances_sq + begin, ids + begin, k, entries, values, use_counts ? counts : 0};
    float offset;
    const float log_share = weigh(mixture, near, sum / known, known, weights, of, &offset);
    choice.score = choice.token < vocabulary ? choice.score - most - log_total : -infinity;
    if (!isinf(log_share))
        for (int i = lane; i < k; i += 32) {
            const bool possible = of[i] >= 0 && of[i] < vocabulary && allowed(of[i]);
            const float weight = possible ? weight_of_token(weights, of, k, i) : 0.0f;
            if (!(weight > 0.0f)) continue;
            const Choice other = {log_add(read(mine[of[i]]) - most - log_total, log_share + logf(weight)), of[i]};
            choice = better(choice, other);
        }
    choice = best_of_warp(choice);
    if (lane) return;
    sums_after[row] = sum;
    steps_after[row] = count;
    offsets[row] = offset;
    best[row] = total == total ? choice.score : total;  // not a number, as a softmax would be
    tokens[row] = choice.token < vocabulary ? choice.token : 0;
}
