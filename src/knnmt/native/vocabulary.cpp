// What a step does over the whole vocabulary: log-probabilities of the next token, and the best continuations.

#include "vocabulary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "vectors.h"

namespace {

// Whatever is beyond the last is read as `beyond`.
Floats load_some(const float* from, int64_t count, float beyond) {
    if (count >= FLOATS) return load<Floats>(from);
    Floats some = Floats{} + beyond;
    std::memcpy(&some, from, static_cast<size_t>(count) * sizeof(float));
    return some;
}

void log_softmax(float* row, int64_t count) {
    constexpr float NOTHING = -std::numeric_limits<float>::infinity();
    Floats most = Floats{} + NOTHING;
    for (int64_t i = 0; i < count; i += FLOATS) {
        const Floats some = load_some(row + i, count - i, NOTHING);
        most = some > most ? some : most;
    }
    const float best = largest(most);
    double total = 0;
    constexpr int64_t SHORT = 64 * FLOATS;  // added up in float32
    for (int64_t first = 0; first < count; first += SHORT) {
        Floats sums = {};
        for (int64_t i = first; i < std::min(count, first + SHORT); i += FLOATS)
            sums += exponential(load_some(row + i, count - i, NOTHING) - best);
        total += sum(sums);
    }
    const float offset = best + static_cast<float>(std::log(total));
    for (int64_t i = 0; i < count; ++i) row[i] -= offset;
}

constexpr int64_t TOGETHER = 4 * FLOATS;  // scores that are looked at together
constexpr float NEVER = -std::numeric_limits<float>::infinity();

// The largest of some scores, at most TOGETHER; no NaN.
float highest(const float* scores, int64_t count) {
    Floats most = Floats{} + NEVER;
    for (int64_t i = 0; i < count; i += FLOATS) {
        const Floats some = load_some(scores + i, count - i, NEVER);
        most = some > most ? some : most;
    }
    return largest(most);
}

}  // namespace

void best_of(const float* scores, const float* log_probabilities, int32_t width, int64_t vocabulary, int32_t count, float* best,
             int64_t* places) {
    using Found = std::pair<float, int64_t>;
    thread_local std::vector<float> maxima, sorted;
    thread_local std::vector<Found> found;
    maxima.clear();
    for (int64_t w = 0; w < width; ++w)
        for (int64_t i = 0; i < vocabulary; i += TOGETHER) {
            const float most = highest(log_probabilities + w * vocabulary + i, std::min(TOGETHER, vocabulary - i)) + scores[w];
            maxima.push_back(most == most ? most : NEVER);
        }
    // At least `count` sums are as good as `least`: those of the best parts.
    float least = NEVER;
    if (maxima.size() > static_cast<size_t>(count)) {
        sorted = maxima;
        std::nth_element(sorted.begin(), sorted.begin() + count - 1, sorted.end(), std::greater<float>());
        least = sorted[static_cast<size_t>(count) - 1];
    }
    found.clear();
    const float* most = maxima.data();
    for (int64_t w = 0; w < width; ++w)
        for (int64_t i = 0; i < vocabulary; i += TOGETHER, ++most) {
            if (*most < least || *most == NEVER) continue;
            for (int64_t j = w * vocabulary + i; j < w * vocabulary + std::min(vocabulary, i + TOGETHER); ++j) {
                const float sum = log_probabilities[j] + scores[w];
                if (sum >= least && sum > NEVER) found.emplace_back(sum, j);
            }
        }
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
    found.resize(static_cast<size_t>(count), {NEVER, 0});
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        best[i] = found[i].first;
        places[i] = found[i].second;
    }
}

extern "C" {

void knnmt_log_probabilities(const Matrix* matrix, const float* x, float* y, uint8_t* scratch, int32_t rows, int32_t threads) {
    teams::Team team(threads);
    products::multiply(team, *matrix, x, y, scratch, rows);
    team.each(rows, [&](int64_t row) { log_softmax(y + row * matrix->outputs, matrix->outputs); });
}

void knnmt_best(const float* scores, const float* log_probabilities, float* best, int64_t* places, int32_t sentences,
                int32_t width, int64_t vocabulary, int32_t count, int32_t threads) {
    teams::Team team(threads);
    team.each(sentences, [&](int64_t sentence) {
        const int64_t first = sentence * width, found = sentence * count;
        best_of(scores + first, log_probabilities + first * vocabulary, width, vocabulary, count, best + found, places + found);
    });
}
}
