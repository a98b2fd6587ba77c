// What the tests call: each kernel of knnmt/native/gpu, run on a CPU.
#include "on_a_cpu.h"

namespace mix {
#include "mix.cu"
}
namespace select_ {
#include "select.cu"
}
namespace take {
#include "take.cu"
}
namespace tiles {
#include "tiles.cu"
}
namespace measure {
#include "measure.cu"
}

extern "C" void run_mix(int across, int down, int threads, const float* mixture, int width, int k, int vocabulary,
                        const float* distances_sq, const long long* ids, int entries, const int* values, const float* counts,
                        int use_counts, const float* sums, const float* steps, float* scores, int in_turn,
                        float* sums_after, float* steps_after, float* offsets) {
    launch(across, down, threads, [=] {
        mix::knnmt_mix(mixture, width, k, vocabulary, distances_sq, ids, entries, values, counts, use_counts, sums, steps,
                       scores, in_turn, sums_after, steps_after, offsets);
    });
}

extern "C" void run_select(int across, int down, int threads, const float* values, int columns, int k, long long* chosen) {
    launch(across, down, threads, [=] { select_::knnmt_select(values, columns, k, chosen); });
}

extern "C" void run_take(int across, int down, int threads, const int* numbers, const float* best, const long long* tokens,
                         const float* offsets, const float* sums_after, const float* steps_after, const long long* ids,
                         int entries, const int* values, long long* draft, long long* last, long long* generated, int* ended,
                         float* sums, float* steps, int* chosen) {
    launch(across, down, threads, [=] {
        take::knnmt_take(numbers, best, tokens, offsets, sums_after, steps_after, ids, entries, values, draft, last, generated,
                         ended, sums, steps, chosen);
    });
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
