// Attention of a step's new tokens, in one kernel: their keys and values are stored, and all heads attend.
//
// A block is a head of a sentence, for at most ROWS of its rows: block (sentence, head + heads * group), group by group of
// ROWS rows. HALF, HEAD_DIM and ROWS are put before this text.
// projected (sentences * rows, parts * heads * HEAD_DIM): the queries; with parts = 3 also the keys and values of the new
// tokens, which are stored in the slots `at` (sentences, rows), at_stride numbers from one sentence to the next. No row sees
// slots beyond those. slots (sentences, seen, 2, heads, HEAD_DIM), slots_stride numbers from one sentence to the next.
// mask: is added to the scores, -inf hides a slot; mask_stride and mask_row numbers from one sentence and row to the next.
// attended (sentences * rows, heads * HEAD_DIM).
//
// Slots are looked at in tiles of one for each thread, so there may be any number of them. For the values, a few lanes read a
// slot together, and all lanes that have the same numbers of different slots add them up at the end.

#include "stored.h"

constexpr int THREADS = 128, WARPS = THREADS / 32, LANES = HEAD_DIM / CHUNK, AT_ONCE = THREADS / LANES;
constexpr unsigned ALL = 0xffffffffu;

extern "C" __global__ void __launch_bounds__(128) knnmt_attend(const Number* projected, int parts, int rows, int heads,
                                                               Number* slots, int slots_stride, int seen,
                                                               const long long* at, int at_stride, const Number* mask,
                                                               int mask_stride, int mask_row, Number* attended) {
    __shared__ __align__(16) float queries[ROWS][HEAD_DIM];
    __shared__ float weights[ROWS][THREADS];  // of a tile
    __shared__ float parts_of_sum[WARPS][ROWS][HEAD_DIM];
    __shared__ float largest[ROWS], sums[ROWS], shrinks[ROWS];
    const int sentence = blockIdx.x, head = blockIdx.y % heads, first = ROWS * (blockIdx.y / heads), thread = threadIdx.x;
    const int here = min(ROWS, rows - first), lane = thread % 32, warp = thread / 32;  // rows of this block
    const int dim = heads * HEAD_DIM, of_head = head * HEAD_DIM;
    const float infinity = __uint_as_float(0x7f800000u);
    Number* mine = slots + (long long)sentence * slots_stride + of_head;
    const Number* new_rows = projected + (long long)sentence * rows * parts * dim + of_head;
    for (int i = thread; i < ROWS * HEAD_DIM; i += THREADS) {
        const int row = i / HEAD_DIM, place = i % HEAD_DIM;
        const float number = row < here ? read(new_rows[(first + row) * parts * dim + place]) : 0.0f;
        queries[row][place] = number * rsqrtf((float)HEAD_DIM);
    }
    if (parts == 3) {  // each block stores all rows, so that none waits for another
        const long long* places = at + (long long)sentence * at_stride;
        int last = 0;
        for (int row = 0; row < rows; ++row)
            if (places[row] < seen && places[row] >= last) last = (int)places[row] + 1;
        for (int i = thread; i < rows * 2 * HEAD_DIM; i += THREADS) {
            const int row = i / (2 * HEAD_DIM), part = i / HEAD_DIM % 2, place = i % HEAD_DIM;
            if (places[row] >= 0 && places[row] < seen)
                mine[places[row] * 2 * dim + part * dim + place] = new_rows[(row * 3 + 1 + part) * dim + place];
        }
        seen = last;
    }
    for (int i = thread; i < ROWS; i += THREADS) {
        largest[i] = -infinity;
        sums[i] = 0.0f;
    }
    const int group = thread / LANES, chunk = thread % LANES;
    float found[ROWS][CHUNK];
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
#pragma unroll
        for (int i = 0; i < CHUNK; ++i) found[row][i] = 0.0f;
    __syncthreads();
    for (int base = 0; base < seen; base += THREADS) {
        const int slot = base + thread;
        float scores[ROWS];
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            const long long place = (long long)sentence * mask_stride + (first + row) * mask_row + slot;
            scores[row] = row < here && slot < seen ? read(mask[place]) : -infinity;
        }
        if (slot < seen) {
            const Chunk* key = (const Chunk*)(mine + (long long)slot * 2 * dim);
#pragma unroll
            for (int place = 0; place < HEAD_DIM; place += CHUNK) {
                const Chunk some = key[place / CHUNK];
#pragma unroll
                for (int i = 0; i < CHUNK; ++i) {
                    const float number = read(some.numbers[i]);
#pragma unroll
                    for (int row = 0; row < ROWS; ++row) scores[row] += queries[row][place + i] * number;
                }
            }
        }
#pragma unroll
        for (int row = 0; row < ROWS; ++row) weights[row][thread] = scores[row];
        __syncthreads();
        for (int row = warp; row < here; row += WARPS) {
            float mine_of_row[THREADS / 32], most = largest[row], sum = 0.0f;
#pragma unroll
            for (int i = 0; i < THREADS / 32; ++i) most = fmaxf(most, mine_of_row[i] = weights[row][lane + 32 * i]);
            for (int apart = 16; apart; apart /= 2) most = fmaxf(most, __shfl_xor_sync(ALL, most, apart));
            const bool some = most > -infinity;
#pragma unroll
            for (int i = 0; i < THREADS / 32; ++i) {
                const float weight = some ? expf(mine_of_row[i] - most) : 0.0f;
                weights[row][lane + 32 * i] = weight;
                sum += weight;
            }
            for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(ALL, sum, apart);
            if (lane == 0) {
                const float shrink = some ? expf(largest[row] - most) : 1.0f;
                shrinks[row] = shrink;
                sums[row] = sums[row] * shrink + sum;
                largest[row] = most;
            }
        }
        __syncthreads();
        const Chunk* values = (const Chunk*)(mine + (long long)base * 2 * dim + dim) + chunk;
        const int count = seen - base < THREADS ? seen - base : THREADS;
        if (base) {
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
#pragma unroll
                for (int i = 0; i < CHUNK; ++i) found[row][i] *= row < here ? shrinks[row] : 0.0f;
        }
#pragma unroll 4
        for (int each = group; each < count; each += AT_ONCE) {
            const Chunk some = values[(long long)each * 2 * dim / CHUNK];
#pragma unroll
            for (int i = 0; i < CHUNK; ++i) {
                const float value = read(some.numbers[i]);
#pragma unroll
                for (int row = 0; row < ROWS; ++row)
                    if (row < here) found[row][i] += weights[row][each] * value;
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
#pragma unroll
        for (int i = 0; i < CHUNK; ++i) {
            float sum = found[row][i];
#pragma unroll
            for (int apart = 16; apart >= LANES; apart /= 2) sum += __shfl_xor_sync(ALL, sum, apart);
            if (lane < LANES) parts_of_sum[warp][row][chunk * CHUNK + i] = sum;
        }
    __syncthreads();
    for (int i = thread; i < here * HEAD_DIM; i += THREADS) {
        const int row = i / HEAD_DIM, place = i % HEAD_DIM;
        float sum = 0.0f;
#pragma unroll
        for (int each = 0; each < WARPS; ++each) sum += parts_of_sum[each][row][place];
        sum = sums[row] > 0.0f ? sum / sums[row] : 0.0f;
        write(attended + ((long long)sentence * rows + first + row) * dim + of_head + place, sum);
    }
}
