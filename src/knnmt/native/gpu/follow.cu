// What beam search continues with, from the candidates of candidates.cu: what `choose_in_pytorch` of
// knnmt.decoding.graph_choice does after softmax and mixture.
//
// A block is a sentence with `width` rows. HALF is put before this text. numbers and forbidden: as in candidates.cu. The
// 2 * width best of all rows count; of equal ones first those of the first row, then those of the first token. The best of them
// that do not end go on. If there are k > 0 neighbours, their tokens are candidates, too, by equation 3: `mixture` and so on are
// those of mix.cu.
// Written: tokens and scores (rows,), to which the log-probabilities are added; sums and steps (sentences,); visible (sentences,
// width, extent), each row that of its parent, and its own slot of the next step; chosen, on the host: scores, parents and tokens
// of the best, and which of them go on. There are two results, for steps in turn, `apart` numbers from one to the other. newest:
// position and slots of the next step.

#include "stored.h"
#include "largest.h"
#include "mixture.h"

constexpr int MOST_ROWS = MOST_LARGEST / 2, MOST_NEAR = 1024;  // neighbours of all rows

struct Rows {
    float most[MOST_ROWS], log_total[MOST_ROWS], before[MOST_ROWS];
    int parents[MOST_ROWS];
    float weights[MOST_NEAR], mixed[MOST_NEAR];  // mixed: the log-probability of a neighbour's token, -inf if it is none
    int of[MOST_NEAR];
};

extern "C" __global__ void __launch_bounds__(256) knnmt_follow(
    const Key* keys, const float* totals, int parts, const Number* numbers, int vocabulary, const long long* forbidden,
    int forbidden_count, int end, const long long* newest, Number* visible, int sentence_stride, int row_stride, int extent,
    long long* tokens, float* scores, int* chosen, int length, int apart, const float* mixture, int width, int k,
    const float* distances_sq, const long long* ids, int entries, const int* values, const float* counts, int use_counts,
    float* sums, float* steps) {
    __shared__ Largest largest;
    __shared__ Rows rows;
    const int sentence = blockIdx.x, first = sentence * width, thread = threadIdx.x, lane = thread % 32;
    const int count = 2 * width, of_row = parts * count;
    const float infinity = __uint_as_float(0x7f800000u);
    float sum, found, all = 0.0f, known = 0.0f;
    if (k) {
        add_nearest(distances_sq, ids, k, first, first + width - 1, &sum, &found);
        const bool any = found > 0.0f;  // the step of several hypotheses counts as one
        all = sums[sentence] + (any ? sum / found : 0.0f);
        known = steps[sentence] + (any ? 1.0f : 0.0f);
    }
    const float mean = all / fmaxf(known, 1.0f);
    for (int row = thread / 32; row < width; row += THREADS / 32) {
        const float* mine = totals + (long long)(first + row) * parts * 2;
        float most = -infinity, total = 0.0f, offset = 0.0f;
        for (int i = lane; i < parts; i += 32) most = fmaxf(most, mine[2 * i]);
        for (int other = 16; other; other /= 2) most = fmaxf(most, __shfl_xor_sync(ALL, most, other));
        for (int i = lane; i < parts; i += 32) total += mine[2 * i + 1] * expf(mine[2 * i] - most);
        for (int other = 16; other; other /= 2) total += __shfl_xor_sync(ALL, total, other);
        const float log_total = logf(total);
        if (k) {
            const long long begin = (long long)(first + row) * k;
            const Near near = {distances_sq + begin, ids + begin, k, entries, values, use_counts ? counts : 0};
            const int* of = rows.of + row * k;
            float* weights = rows.weights + row * k;
            const float log_share = weigh(mixture, near, mean, fmaxf(known, 1.0f), weights, rows.of + row * k, &offset);
            for (int i = lane; i < k; i += 32) {
                bool possible = !isinf(log_share) && total == total && of[i] >= 0 && of[i] < vocabulary;
                for (int j = 0; possible && j < forbidden_count; ++j) possible = forbidden[j] != of[i];
                const float weight = possible ? weight_of_token(weights, of, k, i) : 0.0f;
                float mixed = -infinity;
                if (weight > 0.0f) {
                    const float own = read(numbers[(long long)(first + row) * vocabulary + of[i]]) - most - log_total;
                    mixed = log_add(own, log_share + logf(weight));
                }
                rows.mixed[row * k + i] = mixed;
            }
        }
        if (lane == 0) {
            rows.most[row] = most;
            rows.log_total[row] = log_total;
            rows.before[row] = scores[first + row] + offset;
        }
    }
    __syncthreads();
    if (k && thread == 0) {
        sums[sentence] = all;
        steps[sentence] = known;
    }
    const int candidates = width * of_row, held = (candidates + width * k - thread + THREADS - 1) / THREADS;
    const auto key_at = [&](int i) -> Key {
        const int at = i * THREADS + thread, near = at - candidates;
        if (near >= 0) {
            const int row = near / k;
            return key_of(rows.mixed[near] + rows.before[row], row * vocabulary + rows.of[near]);
        }
        const int row = at / of_row;
        const Key key = keys[(long long)first * of_row + at];
        if (!key) return 0;
        for (int j = row * k; j < row * k + k; ++j)
            if (rows.of[j] == place_of(key) && rows.mixed[j] > -infinity) return 0;
        const float gain = number_of(key) - rows.most[row] - rows.log_total[row];
        return key_of(gain + rows.before[row], row * vocabulary + place_of(key));
    };
    Key best = 0;
    for (int i = 0; i < held; ++i) {
        const Key key = key_at(i);
        best = key > best ? key : best;
    }
    find_largest(largest, count, best, held, key_at, [](Key) { return true; });
    if (thread < 32) {
        const Key key = largest.found[lane];  // of an impossible one nothing counts but that it is
        const float score = key ? number_of(key) : -infinity;
        const int place = key ? place_of(key) : 0, parent = place / vocabulary, token = key ? place % vocabulary : end;
        const bool goes = lane < count && (token != end || !key);
        const unsigned going = __ballot_sync(ALL, goes);
        const int rank = __popc(going & ((1u << lane) - 1));
        int* mine = chosen + (newest[0] & 1) * apart + (long long)sentence * length;
        if (lane < count) {
            mine[lane] = __float_as_int(score);
            mine[count + lane] = parent;
            mine[2 * count + lane] = token;
        }
        if (goes && rank < width) {
            mine[3 * count + rank] = lane;
            rows.parents[rank] = parent;
            tokens[first + rank] = token;
            scores[first + rank] = score;
        }
    }
    __syncthreads();
    Number* seen = visible + (long long)sentence * sentence_stride;
    const long long next = newest[1];
    for (int slot = thread; slot < extent; slot += THREADS) {
        Number moved[MOST_ROWS];
#pragma unroll
        for (int row = 0; row < MOST_ROWS; ++row)
            if (row < width) moved[row] = seen[rows.parents[row] * row_stride + slot];
#pragma unroll
        for (int row = 0; row < MOST_ROWS; ++row)
            if (row < width) seen[row * row_stride + slot] = slot == next + row ? (Number)0 : moved[row];
    }
}
