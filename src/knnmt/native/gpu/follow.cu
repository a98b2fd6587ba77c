// What beam search continues with, from the candidates of candidates.cu: what `_in_pytorch` of knnmt.decoding.recorded_choice
// does in some fifteen operations.
//
// A block is a sentence with `width` rows. HALF is put before this text. before (rows,): the scores so far, to which those of the
// candidates are added. The 2 * width best of all rows count; of equal ones first those of the first row, then those of the first
// token. The best of them that do not end go on.
// Written: tokens and scores (rows,); visible (sentences, width, extent), each row that of its parent, and its own slot of the
// next step; chosen, on the host: scores, parents and tokens of the best, and which of them go on. There are two results, for
// steps in turn, `apart` numbers from one to the other. newest: position and slots of the next step.

#include "stored.h"
#include "largest.h"

constexpr int MOST_ROWS = MOST_LARGEST / 2;

extern "C" __global__ void __launch_bounds__(256) knnmt_follow(const Key* keys, const float* totals, int normalised, int parts,
                                                               int width, int vocabulary, int end, const float* before,
                                                               const long long* newest, Number* visible, int sentence_stride,
                                                               int row_stride, int extent, long long* tokens, float* scores,
                                                               int* chosen, int length, int apart) {
    __shared__ Largest largest;
    __shared__ float most_of_row[MOST_ROWS], log_total_of_row[MOST_ROWS];
    __shared__ int parents[MOST_ROWS];
    const int sentence = blockIdx.x, first = sentence * width, thread = threadIdx.x, lane = thread % 32;
    const int count = 2 * width, of_row = parts * count;
    const float infinity = __uint_as_float(0x7f800000u);
    for (int row = thread / 32; row < width; row += THREADS / 32) {
        const float* mine = totals + (long long)(first + row) * parts * 2;
        float most = -infinity, total = 0.0f;
        for (int i = lane; i < parts; i += 32) most = fmaxf(most, mine[2 * i]);
        for (int other = 16; other; other /= 2) most = fmaxf(most, __shfl_xor_sync(ALL, most, other));
        for (int i = lane; i < parts; i += 32) total += mine[2 * i + 1] * expf(mine[2 * i] - most);
        for (int other = 16; other; other /= 2) total += __shfl_xor_sync(ALL, total, other);
        if (lane == 0) {
            most_of_row[row] = normalised ? 0.0f : most;
            log_total_of_row[row] = normalised ? 0.0f : logf(total);
        }
    }
    __syncthreads();
    find_largest(
        largest, count, (width * of_row - thread + THREADS - 1) / THREADS,
        [&](int i) {
            const int at = i * THREADS + thread, row = at / of_row;
            const Key key = keys[(long long)first * of_row + at];
            const float gain = number_of(key) - most_of_row[row] - log_total_of_row[row];
            return key ? key_of(gain + before[first + row], row * vocabulary + place_of(key)) : 0;
        },
        [](Key) { return true; });
    if (thread < 32) {
        const Key key = largest.found[lane];  // of an impossible one nothing counts but that it is
        const float score = key ? number_of(key) : -infinity;
        const int place = key ? place_of(key) : end, parent = place / vocabulary, token = place % vocabulary;
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
            parents[rank] = parent;
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
            if (row < width) moved[row] = seen[parents[row] * row_stride + slot];
#pragma unroll
        for (int row = 0; row < MOST_ROWS; ++row)
            if (row < width) seen[row * row_stride + slot] = slot == next + row ? (Number)0 : moved[row];
    }
}
