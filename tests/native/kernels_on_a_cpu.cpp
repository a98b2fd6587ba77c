// What the tests call: each kernel of knnmt/native/gpu, run on a CPU.
#include "on_a_cpu.h"

namespace mix {
#include "mix.cu"
}
namespace select_ {
#include "select.cu"
}

extern "C" void run_mix(int blocks, int threads, const float* mixture, int width, int k, int vocabulary,
                        const float* distances_sq, const long long* ids, int entries, const int* values, const float* counts,
                        int use_counts, float* sums, float* steps, float* scores, const float* before, float* after) {
    launch(blocks, threads, [=] {
        mix::knnmt_mix(mixture, width, k, vocabulary, distances_sq, ids, entries, values, counts, use_counts, sums, steps,
                       scores, before, after);
    });
}

extern "C" void run_select(int blocks, int threads, const float* values, int columns, int k, long long* chosen) {
    launch(blocks, threads, [=] { select_::knnmt_select(values, columns, k, chosen); });
}
