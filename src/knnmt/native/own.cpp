// Search in a sentence's own entries: exact, for a few thousand keys of each sentence of a batch.
//
// A batch's keys are read at every step, so that fewer bytes are less time: all keys are compared in int8. What that can be
// wrong by has a bound, for a product of two vectors is off by no more than the length of the one times the length of what
// the other lost. Every key that by this bound could be among the k nearest is measured in float32, from where the store has
// it: none is missed. Some 15 of 3,000 keys are measured for k = 8.

#include "own.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "product8.h"
#include "vectors.h"

namespace {

constexpr float INFINITE = std::numeric_limits<float>::infinity();
constexpr size_t AHEAD = 4;      // keys that are fetched before they are measured
constexpr int64_t LINE = 64;     // bytes that are fetched at a time
constexpr int64_t TOGETHER = 8;  // panels that a thread prepares

int64_t panels_of(const OwnEntries& own) { return (own.count + FLOATS - 1) / FLOATS; }

// The numbers of a key or a query in whole vectors: what is beyond its dimensions is 0.
int64_t stride_of(const OwnEntries& own) { return (own.dimensions + FLOATS - 1) / FLOATS * FLOATS; }

struct Scored {
    float score;
    int32_t place;
};

bool higher(const Scored& a, const Scored& b) { return a.score != b.score ? a.score > b.score : a.place < b.place; }

// A heap of the highest, the lowest of them in front.
void replace_lowest(std::vector<Scored>& heap, Scored other) {
    std::pop_heap(heap.begin(), heap.end(), higher);
    heap.back() = other;
    std::push_heap(heap.begin(), heap.end(), higher);
}

// `look` at every place from `begin` on whose score is above what `limit` says at that time.
template <typename Limit, typename Look>
void look_above(const float* scores, int64_t begin, int64_t count, Limit limit, Look look) {
    for (int64_t i = begin / FLOATS * FLOATS; i < count; i += FLOATS) {
        if (!any(load<Floats>(scores + i) > limit())) continue;
        for (int64_t place = std::max(i, begin); place < std::min(i + FLOATS, count); ++place)
            if (scores[place] > limit()) look(static_cast<int32_t>(place));
    }
}

// A key in int8, as one lane of its panel. scratch: (dimensions in whole vectors,)
void put_into_panel(const OwnEntries& own, int64_t number, float* scratch) {
    using Narrow = int8_t __attribute__((vector_size(FLOATS)));
    const int64_t dimensions = own.dimensions, stride = stride_of(own), whole = dimensions / FLOATS * FLOATS;
    const uint16_t* key = own.keys[std::min(number, own.count - 1)];
    for (int64_t i = whole; i < stride; ++i) scratch[i] = i < dimensions ? widened(key[i]) : 0;
    Floats squares = {}, most = {}, lost = {};
    for (int64_t i = 0; i < stride; i += FLOATS) {
        const Floats some = i < whole ? widened(key + i) : load<Floats>(scratch + i);
        std::memcpy(scratch + i, &some, sizeof(some));
        squares += some * some;
        most = some > most ? some : most;
        most = -some > most ? -some : most;
    }
    const float furthest = largest(most), step = furthest / 127, steps = furthest > 0 ? 127 / furthest : 0;
    int8_t* into = own.panels + number / FLOATS * FLOATS * stride + number % FLOATS * 4;
    Ints codes = {};
    for (int64_t i = 0; i < stride; i += FLOATS) {
        const Floats some = load<Floats>(scratch + i);
        const Ints code = nearest(some * steps);
        const Floats rest = some - __builtin_convertvector(code, Floats) * step;
        lost += rest * rest;
        codes += code;
        const Narrow narrow = __builtin_convertvector(code, Narrow);
        int32_t quads[FLOATS / 4];
        std::memcpy(quads, &narrow, sizeof(narrow));
        for (int64_t quad = 0; quad < FLOATS / 4; ++quad) std::memcpy(into + (i + 4 * quad) * FLOATS, quads + quad, 4);
    }
    int32_t sum_of_codes = 0;
    for (int lane = 0; lane < FLOATS; ++lane) sum_of_codes += codes[lane];
    own.bias[number] = number < own.count ? -sum(squares) / 2 : -INFINITE;
    own.scales[number] = step;
    own.starts[number] = -products::offset() * sum_of_codes;
    own.lost[number] = std::sqrt(sum(lost));
}

void expect(const OwnEntries& own, int32_t place) {
    const char* key = reinterpret_cast<const char*>(own.keys[place]);
    for (int64_t at = 0; at < own.dimensions * 2; at += LINE) __builtin_prefetch(key + at);
}

// The k nearest of a row. scores: (count,), in int8, which are changed; length: of the query; error: what they are wrong by
void find_nearest(const OwnEntries& own, const float* query, float length, float error, float* scores, int32_t k,
                  std::vector<Scored>& near, float* distances_sq, int64_t* found) {
    // A score is a key's product with the query less half of its squared length; a height is minus the squared distance.
    const auto measured = [&](int32_t place) {
        return Scored{-distance_sq(query, own.keys[place], static_cast<int>(own.dimensions)), place};
    };
    near.clear();
    int64_t first = 0;
    for (; first < own.count && first < k; ++first) near.push_back({scores[first], static_cast<int32_t>(first)});
    std::make_heap(near.begin(), near.end(), higher);
    look_above(scores, first, own.count, [&] { return near.front().score; }, [&](int32_t place) {
        replace_lowest(near, {scores[place], place});
    });
    // Keys are measured where the store has them, seldom near: all that will be needed are fetched before.
    for (const Scored& each : near) expect(own, each.place);
    for (Scored& each : near) {
        scores[each.place] = -INFINITE;  // is not looked at again
        each = measured(each.place);
    }
    std::make_heap(near.begin(), near.end(), higher);
    const auto reachable = [&] { return (near.front().score + length * length) / 2 - error; };
    thread_local std::vector<int32_t> places;
    places.clear();
    const float least = reachable();
    look_above(scores, 0, own.count, [least] { return least; }, [](int32_t place) {
        places.push_back(place);
    });
    for (size_t i = 0; i < std::min(AHEAD, places.size()); ++i) expect(own, places[i]);
    for (size_t i = 0; i < places.size(); ++i) {
        if (i + AHEAD < places.size()) expect(own, places[i + AHEAD]);
        if (!(scores[places[i]] > reachable())) continue;
        const Scored other = measured(places[i]);
        if (higher(other, near.front())) replace_lowest(near, other);
    }
    std::sort_heap(near.begin(), near.end(), higher);
    for (size_t i = 0; i < near.size(); ++i) {
        distances_sq[i] = -near[i].score;
        found[i] = near[i].place;
    }
}

// Some rows of a sentence: queries (rows, dimensions); distances_sq and places (rows, k), which of its entries are found.
void search_rows(const OwnEntries& own, int64_t rows, int32_t k, const float* queries, float* distances_sq, int64_t* places) {
    std::fill_n(distances_sq, rows * k, INFINITE);
    std::fill_n(places, rows * k, int64_t{-1});
    if (!own.count) return;
    const int64_t dimensions = own.dimensions, stride = stride_of(own), keys = panels_of(own) * FLOATS;
    const Matrix matrix{1, 1, dimensions, keys, own.panels, own.bias, own.scales, own.starts};
    thread_local std::vector<float> scores, steps, rest, numbers;
    thread_local std::vector<uint8_t> codes;
    thread_local std::vector<Scored> near;
    scores.resize(static_cast<size_t>(rows * keys));
    steps.resize(static_cast<size_t>(rows));
    rest.assign(static_cast<size_t>(stride), 0);
    numbers.resize(static_cast<size_t>(stride));
    codes.resize(static_cast<size_t>(rows * stride));
    const products::Codes coded{codes.data(), steps.data(), stride, rows};
    for (int64_t row = 0; row < rows; ++row) products::prepare(matrix, coded, row, queries + row * dimensions);
    teams::Team alone(1);
    products::multiply(alone, matrix, rows, nullptr, coded, scores.data());
    for (int64_t row = 0; row < rows; ++row) {
        const float* query = queries + row * dimensions;
        std::copy_n(query, dimensions, rest.data());
        products::read_codes(coded, row, numbers.data());
        Floats squares = {}, lost_squares = {};
        for (int64_t i = 0; i < stride; i += FLOATS) {
            const Floats some = load<Floats>(rest.data() + i);
            const Floats lost = some - load<Floats>(numbers.data() + i) * steps[static_cast<size_t>(row)];
            squares += some * some;
            lost_squares += lost * lost;
        }
        const float length = std::sqrt(sum(squares)), lost = std::sqrt(sum(lost_squares)), both = length + own.longest;
        if (!(both < INFINITE)) continue;  // a state that is no number is near nothing
        // What was lost of the keys and of the query, and what float32 can be wrong by in sums of so many.
        const float rounding = static_cast<float>(dimensions) * 0x1p-23f * both * both;
        const float error = length * own.most_lost + lost * (own.longest + own.most_lost) + rounding;
        find_nearest(own, query, length, error, &scores[static_cast<size_t>(row * keys)], k, near, distances_sq + row * k, places + row * k);
    }
}

// Some rows of a sentence, as a thread searches them.
struct Piece {
    const OwnEntries* own;
    int32_t k;
    int64_t rows;
    const float* queries;
    float* distances_sq;
    int64_t* places;
};

// Divides the rows of one of `sentences` sentences. Few sentences are shared by their rows: their keys are then read more than
// once, but near enough to be read fast.
void add_pieces(std::vector<Piece>& pieces, const teams::Team& team, int64_t sentences, const Piece& whole) {
    const int64_t shares = sentences >= team.threads() ? 1 : std::min<int64_t>(team.threads(), whole.rows);
    for (int64_t share = 0; share < shares; ++share) {
        const int64_t begin = whole.rows * share / shares, end = whole.rows * (share + 1) / shares;
        pieces.push_back({whole.own, whole.k, end - begin, whole.queries + begin * whole.own->dimensions,
                          whole.distances_sq + begin * whole.k, whole.places + begin * whole.k});
    }
}

void search(teams::Team& team, const std::vector<Piece>& pieces) {
    team.share(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
        const Piece& piece = pieces[static_cast<size_t>(i)];
        search_rows(*piece.own, piece.rows, piece.k, piece.queries, piece.distances_sq, piece.places);
    });
}

// Entry ids in the places of what was found of a sentence, (count,), -1 for none.
void put_ids(const OwnEntries& own, int64_t count, int64_t* places) {
    for (int64_t* place = places; place < places + count; ++place)
        if (*place >= 0) *place = own.ids[*place];
}

}  // namespace

extern "C" {

// The keys of sentences in int8.
void knnmt_own_prepare(OwnEntries* sentences, int32_t count, int32_t threads) {
    std::vector<std::pair<int32_t, int64_t>> work;  // a sentence, and the first of some panels
    for (int32_t number = 0; number < count; ++number)
        for (int64_t panel = 0; panel < panels_of(sentences[number]); panel += TOGETHER) work.emplace_back(number, panel);
    teams::Team team(threads);
    team.share(static_cast<int64_t>(work.size()), [&](int64_t i) {
        thread_local std::vector<float> scratch;
        const auto [sentence, first] = work[static_cast<size_t>(i)];
        const OwnEntries& own = sentences[sentence];
        scratch.resize(static_cast<size_t>(stride_of(own)));
        const int64_t last = std::min(first + TOGETHER, panels_of(own));
        for (int64_t key = first * FLOATS; key < last * FLOATS; ++key) put_into_panel(own, key, scratch.data());
    });
    for (OwnEntries* own = sentences; own < sentences + count; ++own) {
        const auto lowest = std::min_element(own->bias, own->bias + own->count);
        own->longest = own->count ? std::sqrt(-2 * *lowest) : 0;
        own->most_lost = own->count ? *std::max_element(own->lost, own->lost + own->count) : 0;
    }
}

// For the rows of each sentence, `width` of them, queries (sentences * width, dimensions), the k nearest of its entries:
// distances_sq and ids (sentences * width, k), nearest first, infinite and -1 where there are no more.
void knnmt_own_search(const OwnEntries* sentences, int32_t count, int32_t width, int32_t k, int32_t threads,
                      const float* queries, float* distances_sq, int64_t* ids) {
    teams::Team team(threads);
    std::vector<Piece> pieces;
    for (int64_t number = 0, row = 0; number < count; ++number, row += width)
        add_pieces(pieces, team, count,
                   {sentences + number, k, width, queries + row * sentences->dimensions, distances_sq + row * k, ids + row * k});
    search(team, pieces);
    for (int64_t number = 0; number < count; ++number)
        put_ids(sentences[number], static_cast<int64_t>(width) * k, ids + number * width * k);
}

bool knnmt_own_mix(const OwnMixing* mixing, const OwnEntries* sentences, int32_t count, int32_t width, int32_t threads,
                   int64_t stride, const float* queries, float* sums, float* steps, float* scores, float* offsets) {
    std::vector<OwnRows> rows;
    for (int64_t number = 0, row = 0; number < count; ++number, row += width)
        rows.push_back({mixing, sentences + number, width, queries + row * sentences->dimensions, sums + number, steps + number,
                        scores + row * stride, offsets + row});
    return mix_own(rows, stride, threads) < 0;
}
}

int64_t mix_own(const std::vector<OwnRows>& sentences, int64_t stride, int32_t threads) {
    int64_t found = 0;
    for (const OwnRows& each : sentences) found += static_cast<int64_t>(each.width) * each.mixing->k;
    std::vector<float> distances_sq(static_cast<size_t>(found));
    std::vector<int64_t> places(static_cast<size_t>(found)), firsts;
    std::vector<Piece> pieces;
    teams::Team team(threads);
    int64_t first = 0;
    for (const OwnRows& each : sentences) {
        firsts.push_back(first);
        add_pieces(pieces, team, static_cast<int64_t>(sentences.size()),
                   {each.own, each.mixing->k, each.width, each.queries, distances_sq.data() + first, places.data() + first});
        first += static_cast<int64_t>(each.width) * each.mixing->k;
    }
    search(team, pieces);
    std::atomic<int64_t> refused{-1};
    team.each(static_cast<int64_t>(sentences.size()), [&](int64_t i) {
        const OwnRows& each = sentences[static_cast<size_t>(i)];
        const OwnEntries& own = *each.own;
        const int64_t at = firsts[static_cast<size_t>(i)];
        if (!knnmt_mix(&each.mixing->mixture, 1, each.width, each.mixing->k, own.count, each.mixing->vocabulary, stride,
                       distances_sq.data() + at, places.data() + at, own.values, own.counts, own.said, each.sum, each.steps, each.scores,
                       each.offsets))
            refused = i;
    });
    return refused;
}
