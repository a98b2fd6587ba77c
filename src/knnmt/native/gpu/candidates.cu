// The best tokens of each part of each row, for follow.cu, and what the softmax of the row needs.
//
// A block is a part of a row: 4096 numbers, of which a thread holds 16. HALF is put before this text. numbers (rows, vocabulary):
// scores before the softmax. forbidden: tokens that are not chosen.
// Written: keys (rows, parts, count), the part's best tokens as keys of largest.h; totals (rows, parts, 2), the largest number of
// the part and the sum of the exponentials of all less the largest; and newest (1 + width,), which goes on to the next step.

#include "stored.h"
#include "largest.h"

constexpr int PART = 4096, HELD = PART / THREADS;

extern "C" __global__ void __launch_bounds__(256) knnmt_candidates(const Number* numbers, int vocabulary,
                                                                   const long long* forbidden, int forbidden_count, int count,
                                                                   int width, Key* keys, float* totals, long long* newest) {
    __shared__ Largest largest;
    __shared__ float most_of_warp[THREADS / 32], total_of_warp[THREADS / 32];
    const int row = blockIdx.x, first = blockIdx.y * PART, thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const long long part = (long long)row * ((vocabulary + PART - 1) / PART) + blockIdx.y;
    const float infinity = __uint_as_float(0x7f800000u);
    const Number* mine = numbers + (long long)row * vocabulary;
    const bool aligned = vocabulary % CHUNK == 0;
    if (row == 0 && first == 0 && thread <= width) newest[thread] += thread ? width : 1;
    // Some numbers side by side, then those after all other threads' numbers, and so on.
    const auto token_of = [=](int i) { return first + (i / CHUNK * THREADS + thread) * CHUNK + i % CHUNK; };
    float held[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i += CHUNK) {
        const int token = token_of(i);
        if (aligned && token < vocabulary) {
            const Chunk some = *(const Chunk*)(mine + token);
#pragma unroll
            for (int j = 0; j < CHUNK; ++j) held[i + j] = read(some.numbers[j]);
        } else {
#pragma unroll
            for (int j = 0; j < CHUNK; ++j) held[i + j] = token + j < vocabulary ? read(mine[token + j]) : -infinity;
        }
    }
    const auto allowed = [=](int token) {
        for (int i = 0; i < forbidden_count; ++i)
            if (forbidden[i] == token) return false;
        return true;
    };
    float most = -infinity, best = -infinity, total = 0.0f;
    int best_token = 0;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        most = fmaxf(most, held[i]);
        if (held[i] > best && allowed(token_of(i))) {
            best = held[i];
            best_token = token_of(i);
        }
    }
    for (int apart = 16; apart; apart /= 2) most = fmaxf(most, __shfl_xor_sync(ALL, most, apart));
    const float of_warp = most > -infinity ? most : 0.0f;  // where all is -inf, the sum is 0
#pragma unroll
    for (int i = 0; i < HELD; ++i) total += expf(held[i] - of_warp);
    for (int apart = 16; apart; apart /= 2) total += __shfl_xor_sync(ALL, total, apart);
    if (lane == 0) {
        most_of_warp[warp] = most;
        total_of_warp[warp] = total;
    }
    find_largest(
        largest, count, key_of(best, best_token), HELD, [&](int i) { return key_of(held[i], token_of(i)); },
        [=](Key key) { return allowed(place_of(key)); });
    if (thread < count) keys[part * count + thread] = largest.found[thread];
    if (thread) return;
    for (int i = 0; i < THREADS / 32; ++i) most = fmaxf(most, most_of_warp[i]);
    const float of_part = most > -infinity ? most : 0.0f;
    total = 0.0f;
    for (int i = 0; i < THREADS / 32; ++i) total += total_of_warp[i] * expf(most_of_warp[i] - of_part);
    totals[2 * part] = most;
    totals[2 * part + 1] = total;
}
