// What the tests call: each kernel of knnmt/native/gpu, run on a CPU.
#include "on_a_cpu.h"

#define knnmt_attend knnmt_attend_in_halves  // a name without namespace, for a kernel with other constants
namespace attend_in_halves {
constexpr int HALF = 1, HEAD_DIM = 16, ROWS = 4;
#include "attend.cu"
}  // namespace attend_in_halves
#undef knnmt_attend
namespace attend {
constexpr int HALF = 0, HEAD_DIM = 32, ROWS = 2;
#include "attend.cu"
}  // namespace attend
#define knnmt_add_norm knnmt_add_norm_in_halves
namespace add_norm_in_halves {
constexpr int HALF = 1, DIM = 32;
#include "add_norm.cu"
}  // namespace add_norm_in_halves
#undef knnmt_add_norm
namespace add_norm {
constexpr int HALF = 0, DIM = 80;
#include "add_norm.cu"
}  // namespace add_norm
#define knnmt_candidates knnmt_candidates_in_halves
namespace candidates_in_halves {
constexpr int HALF = 1;
#include "candidates.cu"
}  // namespace candidates_in_halves
#undef knnmt_candidates
namespace candidates {
constexpr int HALF = 0;
#include "candidates.cu"
}  // namespace candidates
#define knnmt_follow knnmt_follow_in_halves
namespace follow_in_halves {
constexpr int HALF = 1;
#include "follow.cu"
}  // namespace follow_in_halves
#undef knnmt_follow
namespace follow {
constexpr int HALF = 0;
#include "follow.cu"
}  // namespace follow
namespace embed {
constexpr int HALF = 0;
#include "embed.cu"
}  // namespace embed
namespace mix {
#include "mix.cu"
}
namespace select_ {
#include "select.cu"
}
namespace tiles {
#include "tiles.cu"
}
namespace measure {
#include "measure.cu"
}

extern "C" void run_attend_in_halves(int across, int down, int threads, const unsigned short* projected, int parts, int rows,
                                     int heads, unsigned short* slots, int slots_stride, int seen, const long long* at,
                                     int at_stride, const unsigned short* mask, int mask_stride, int mask_row,
                                     unsigned short* attended) {
    launch(across, down, threads, [=] {
        attend_in_halves::knnmt_attend_in_halves(projected, parts, rows, heads, slots, slots_stride, seen, at, at_stride, mask,
                                                 mask_stride, mask_row, attended);
    });
}

extern "C" void run_attend(int across, int down, int threads, const float* projected, int parts, int rows, int heads,
                           float* slots, int slots_stride, int seen, const long long* at, int at_stride, const float* mask,
                           int mask_stride, int mask_row, float* attended) {
    launch(across, down, threads, [=] {
        attend::knnmt_attend(projected, parts, rows, heads, slots, slots_stride, seen, at, at_stride, mask, mask_stride,
                             mask_row, attended);
    });
}

extern "C" void run_add_norm_in_halves(int across, int down, int threads, const unsigned short* x, const unsigned short* other,
                                       const unsigned short* weight, const unsigned short* bias, double epsilon, int rows,
                                       unsigned short* normal) {
    launch(across, down, threads,
           [=] { add_norm_in_halves::knnmt_add_norm_in_halves(x, other, weight, bias, epsilon, rows, normal); });
}

extern "C" void run_add_norm(int across, int down, int threads, const float* x, const float* other, const float* weight,
                             const float* bias, double epsilon, int rows, float* normal) {
    launch(across, down, threads, [=] { add_norm::knnmt_add_norm(x, other, weight, bias, epsilon, rows, normal); });
}

extern "C" void run_mix(int across, int down, int threads, float* scores, int vocabulary, const float* mixture,
                        int width, int k, const float* distances_sq, const long long* ids, int entries, const int* values,
                        const float* counts, int use_counts, float* sums, float* steps, float* offsets) {
    launch(across, down, threads, [=] {
        mix::knnmt_mix(scores, vocabulary, mixture, width, k, distances_sq, ids, entries, values, counts, use_counts, sums,
                       steps, offsets);
    });
}

#define CANDIDATES(name, Number, kernel)                                                                                       \
    extern "C" void name(int across, int down, int threads, const Number* numbers, int vocabulary, const long long* forbidden, \
                         int forbidden_count, int count, int width, unsigned long long* keys, float* totals,                   \
                         long long* newest) {                                                                                  \
        launch(across, down, threads, [=] {                                                                                    \
            kernel(numbers, vocabulary, forbidden, forbidden_count, count, width, keys, totals, newest);                       \
        });                                                                                                                    \
    }
CANDIDATES(run_candidates, float, candidates::knnmt_candidates)
CANDIDATES(run_candidates_in_halves, unsigned short, candidates_in_halves::knnmt_candidates_in_halves)

#define FOLLOW(name, Number, kernel)                                                                                           \
    extern "C" void name(int across, int down, int threads, const unsigned long long* keys, const float* totals, int parts,    \
                         const Number* numbers, int vocabulary, const long long* forbidden, int forbidden_count, int end,      \
                         const long long* newest, Number* visible, int sentence_stride, int row_stride, int extent,            \
                         long long* tokens, float* scores, int* chosen, int length, int apart, const float* mixture,           \
                         int width, int k, const float* distances_sq, const long long* ids, int entries, const int* values,    \
                         const float* counts, int use_counts, float* sums, float* steps) {                                     \
        launch(across, down, threads, [=] {                                                                                    \
            kernel(keys, totals, parts, numbers, vocabulary, forbidden, forbidden_count, end, newest, visible,                 \
                   sentence_stride, row_stride, extent, tokens, scores, chosen, length, apart, mixture, width, k,              \
                   distances_sq, ids, entries, values, counts, use_counts, sums, steps);                                       \
        });                                                                                                                    \
    }
FOLLOW(run_follow, float, follow::knnmt_follow)
FOLLOW(run_follow_in_halves, unsigned short, follow_in_halves::knnmt_follow_in_halves)

extern "C" void run_embed(int across, int down, int threads, const long long* tokens, const long long* positions,
                          int position_stride, const float* table, int words, const float* of_positions, int places, int dim,
                          float* found) {
    launch(across, down, threads, [=] {
        embed::knnmt_embed(tokens, positions, position_stride, table, words, of_positions, places, dim, found);
    });
}

extern "C" void run_select(int across, int down, int threads, const float* values, int columns, int k, long long* chosen) {
    launch(across, down, threads, [=] { select_::knnmt_select(values, columns, k, chosen); });
}

extern "C" void run_tiles(int across, int down, int threads, const unsigned short* asked, int stride,
                          const unsigned short* keys, const long long* near, int probes, int width, float* scores) {
    launch(across, down, threads, [=] { tiles::knnmt_tiles(asked, stride, keys, near, probes, width, scores); });
}

extern "C" void run_measure(int across, int down, int threads, const float* queries, const long long* chosen,
                            const long long* near, const long long* live, int probes, int size, const void* keys, int halves,
                            int stride, int dim, int candidates, int k, float* distances_sq, long long* ids) {
    launch(across, down, threads, [=] {
        measure::knnmt_measure(queries, chosen, near, live, probes, size, keys, halves, stride, dim, candidates, k,
                               distances_sq, ids);
    });
}
