// Search in a sentence's own entries: exact, for a few thousand keys of each sentence of a batch.
//
// Every key is compared by a product with a panel of 16, in float16 or in int8; the best candidates are measured again by
// their true distances. A batch's keys are read at every step, so that fewer bytes are less time.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "products.h"
#include "vectors.h"

extern "C" {

struct OwnEntries {
    Matrix matrix;        // (dimensions, keys in whole panels); its bias is minus half of each key's squared length
    const uint16_t* keys; // (count, dimensions), in float16
    const int64_t* ids;   // (count,), ascending
    int64_t count;
};
}

namespace {

struct Scored {
    float score;
    int32_t place;
};

bool higher(const Scored& a, const Scored& b) { return a.score != b.score ? a.score > b.score : a.place < b.place; }

// The `most` highest of `count` scores, in no order.
void highest(const float* scores, int64_t count, size_t most, std::vector<Scored>& found) {
    found.clear();
    int64_t i = 0;
    for (; i < count && found.size() < most; ++i) found.push_back({scores[i], static_cast<int32_t>(i)});
    std::make_heap(found.begin(), found.end(), higher);
    const auto look = [&](int64_t place) {
        if (!(scores[place] > found.front().score)) return;
        std::pop_heap(found.begin(), found.end(), higher);
        found.back() = {scores[place], static_cast<int32_t>(place)};
        std::push_heap(found.begin(), found.end(), higher);
    };
    for (; i < count && i % FLOATS; ++i) look(i);
    for (; i + FLOATS <= count; i += FLOATS) {
        const Ints above = load<Floats>(scores + i) > found.front().score;
        int32_t any = 0;
        for (int lane = 0; lane < FLOATS; ++lane) any |= above[lane];
        if (any)
            for (int64_t place = i; place < i + FLOATS; ++place) look(place);
    }
    for (; i < count; ++i) look(i);
}

}  // namespace

extern "C" {

// The keys of a sentence, (count, dimensions) in float16, as a product wants them: panels (count in whole panels of
// knnmt_panel(), dimensions) and bias (count in whole panels,).
void knnmt_own_prepare(const uint16_t* keys, int64_t count, int64_t dimensions, uint16_t* panels, float* bias) {
    const int64_t whole = (count + FLOATS - 1) / FLOATS;
    for (int64_t panel = 0; panel < whole; ++panel) {
        uint16_t* into = panels + panel * dimensions * FLOATS;
        for (int64_t lane = 0; lane < FLOATS; ++lane) {
            const int64_t key = panel * FLOATS + lane;
            const uint16_t* from = keys + std::min(key, count - 1) * dimensions;
            for (int64_t i = 0; i < dimensions; ++i) into[i * FLOATS + lane] = from[i];
            Floats squares = {};
            int64_t i = 0;
            for (; i + FLOATS <= dimensions; i += FLOATS) {
                const Floats some = widened(from + i);
                squares += some * some;
            }
            float length_sq = sum(squares);
            for (; i < dimensions; ++i) length_sq += widened(from[i]) * widened(from[i]);
            bias[key] = key < count ? -length_sq / 2 : -std::numeric_limits<float>::infinity();
        }
    }
}

// For the rows of each sentence, `width` of them, queries (sentences * width, dimensions), the k nearest of its entries:
// distances_sq and ids (sentences * width, k), nearest first, infinite and -1 where there are no more.
void knnmt_own_search(const OwnEntries* sentences, int32_t count, int32_t width, int32_t k, int32_t threads,
                      const float* queries, float* distances_sq, int64_t* ids) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (threads > 1 && count > 1)
    for (int32_t number = 0; number < count; ++number) {
        const OwnEntries& own = sentences[number];
        const int64_t dimensions = own.matrix.inputs, first = static_cast<int64_t>(number) * width;
        std::fill_n(distances_sq + first * k, static_cast<int64_t>(width) * k, std::numeric_limits<float>::infinity());
        std::fill_n(ids + first * k, static_cast<int64_t>(width) * k, int64_t{-1});
        if (!own.count) continue;
        thread_local std::vector<float> scores;
        thread_local std::vector<Scored> near;
        scores.resize(static_cast<size_t>(width * own.matrix.outputs));
        const float* asked = queries + first * dimensions;
        products::multiply_share(own.matrix, width, asked, {nullptr, nullptr, 0}, scores.data(), 0, 1);
        for (int32_t row = 0; row < width; ++row) {
            const float* query = asked + row * dimensions;
            highest(scores.data() + row * own.matrix.outputs, own.count, static_cast<size_t>(k) + 4, near);
            for (Scored& each : near) each.score = -distance_sq(query, own.keys + each.place * dimensions, static_cast<int>(dimensions));
            std::sort(near.begin(), near.end(), higher);
            const int64_t at = (first + row) * k;
            for (size_t i = 0; i < near.size() && i < static_cast<size_t>(k); ++i) {
                if (!(near[i].score > -std::numeric_limits<float>::infinity())) break;  // a state that is no number
                distances_sq[at + static_cast<int64_t>(i)] = -near[i].score;
                ids[at + static_cast<int64_t>(i)] = own.ids[near[i].place];
            }
        }
    }
}
}
