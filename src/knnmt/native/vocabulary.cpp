// What a step does over the whole vocabulary: log-probabilities of the next token, and the best continuations.

#include "vocabulary.h"

#include <algorithm>
#include <cmath>
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

// The best of what was added, the earlier where two are as good.
struct Best {
    using Found = std::pair<float, int64_t>;
    size_t wanted;
    std::vector<Found> found;
    float limit = -std::numeric_limits<float>::infinity();
    bool full = false;

    static bool before(const Found& a, const Found& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; }
    void add(float score, int64_t place) {
        if (full && !(score > limit)) return;
        found.emplace_back(score == score ? score : -std::numeric_limits<float>::infinity(), place);
        if (found.size() < 4 * wanted) return;
        std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(wanted) - 1, found.end(), before);
        found.resize(wanted);
        limit = found.back().first;
        full = true;
    }
};

constexpr int64_t TOGETHER = 4 * FLOATS;  // scores that are looked at together

bool any_above(const float* row, float limit) {
    Ints above = {};
    for (int64_t i = 0; i < TOGETHER; i += FLOATS) above |= load<Floats>(row + i) > limit;
    uint64_t bits[WIDTH / 8], any = 0;
    std::memcpy(bits, &above, sizeof(bits));
    for (uint64_t some : bits) any |= some;
    return any;
}

}  // namespace

void best_of(const float* scores, const float* log_probabilities, int32_t width, int64_t vocabulary, int32_t count, float* best,
             int64_t* places) {
    Best mine{static_cast<size_t>(count)};
    for (int64_t w = 0; w < width; ++w) {
        const float score = scores[w];
        const float* row = log_probabilities + w * vocabulary;
        for (int64_t i = 0; i < vocabulary; i += TOGETHER) {
            // Rounding may not hide one that is as good: the limit is taken a little lower than it is.
            const float limit = mine.limit - score - 1e-3f * (1 + std::fabs(mine.limit) + std::fabs(score));
            if (mine.full && i + TOGETHER <= vocabulary && !any_above(row + i, limit)) continue;
            for (int64_t j = i; j < std::min(vocabulary, i + TOGETHER); ++j) mine.add(row[j] + score, w * vocabulary + j);
        }
    }
    std::sort(mine.found.begin(), mine.found.end(), Best::before);
    mine.found.resize(std::max(mine.found.size(), static_cast<size_t>(count)), {-std::numeric_limits<float>::infinity(), 0});
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        best[i] = mine.found[i].first;
        places[i] = mine.found[i].second;
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
