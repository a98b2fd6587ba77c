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

// For the rows of each sentence, `width` of them, the k nearest of its entries, as search_rows has it.
void search(teams::Team& team, const OwnEntries* sentences, int32_t count, int32_t width, int32_t k, const float* queries,
            float* distances_sq, int64_t* places) {
    // Few sentences are shared by their rows: their keys are then read more than once, but near enough to be read fast.
    const int64_t shares = count >= team.threads() ? 1 : std::min<int64_t>(team.threads(), width);
    team.share(static_cast<int64_t>(count) * shares, [&](int64_t piece) {
        const OwnEntries& own = sentences[piece / shares];
        const int64_t share = piece % shares, begin = width * share / shares, end = width * (share + 1) / shares;
        const int64_t first = piece / shares * width + begin;
        search_rows(own, end - begin, k, queries + first * own.dimensions, distances_sq + first * k, places + first * k);
    });
}

// An entry that votes on what comes next.
struct Voter {
    double weight;
    int64_t place;
};

// The token that comes so many after an entry's own, or `end` where its sentence is over.
int64_t following(const OwnEntries& own, int64_t place, int64_t ahead, int64_t end) {
    const int64_t there = place + ahead;
    return there < own.count && own.ids[there] == own.ids[place] + ahead ? own.values[there] : end;
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
    search(team, sentences, count, width, k, queries, distances_sq, ids);
    for (int64_t number = 0; number < count; ++number)
        put_ids(sentences[number], static_cast<int64_t>(width) * k, ids + number * width * k);
}

// Both in one call: the search, and what knnmt_mix does with what it finds.
bool knnmt_own_mix(const OwnMixing* mixing, const OwnEntries* sentences, int32_t count, int32_t width, int32_t threads,
                   int64_t stride, const float* queries, float* sums, float* steps, float* scores, float* offsets) {
    thread_local std::vector<float> distances_sq;
    thread_local std::vector<int64_t> places;
    const int64_t rows = static_cast<int64_t>(count) * width, k = mixing->k;
    distances_sq.resize(static_cast<size_t>(rows * k));
    places.resize(static_cast<size_t>(rows * k));
    float* found_sq = distances_sq.data();
    int64_t* found = places.data();
    teams::Team team(threads);
    search(team, sentences, count, width, mixing->k, queries, found_sq, found);
    std::atomic<bool> sound{true};
    team.each(count, [&](int64_t number) {
        const OwnEntries& own = sentences[number];
        const int64_t first = number * width;
        if (!knnmt_mix(&mixing->mixture, 1, width, mixing->k, own.count, mixing->vocabulary, stride, found_sq + first * k,
                       found + first * k, own.values, own.counts, own.said, sums + number, steps + number, scores + first * stride,
                       offsets + first))
            sound = false;
    });
    return sound;
}

bool knnmt_own_mix_in_turn(const OwnMixing* mixing, const OwnEntries* sentences, int32_t count, const int32_t* turns,
                           int32_t threads, int64_t stride, const float* queries, const float* before_sums,
                           const float* before_steps, float* sums, float* steps, int64_t* places, float* scores, float* offsets) {
    struct Piece {
        int32_t sentence;
        int64_t first, rows;
    };
    thread_local std::vector<float> distances_sq;
    thread_local std::vector<Piece> pieces;
    pieces.clear();
    int64_t rows = 0;
    for (int32_t number = 0; number < count; rows += turns[number++]) {
        const int64_t shares = count >= threads ? 1 : std::min(threads, turns[number]);  // as in knnmt_own_search
        for (int64_t share = 0; share < shares; ++share) {
            const int64_t begin = turns[number] * share / shares, end = turns[number] * (share + 1) / shares;
            pieces.push_back({number, rows + begin, end - begin});
        }
    }
    const int64_t k = mixing->k;
    distances_sq.resize(static_cast<size_t>(rows * k));
    float* const found_sq = distances_sq.data();
    const Piece* const work = pieces.data();
    const int64_t some = static_cast<int64_t>(pieces.size());
    teams::Team team(threads);
    team.share(some, [&](int64_t i) {
        const Piece piece = work[i];
        const OwnEntries& own = sentences[piece.sentence];
        search_rows(own, piece.rows, mixing->k, queries + piece.first * own.dimensions, found_sq + piece.first * k, places + piece.first * k);
    });
    int64_t row = 0;
    for (int32_t number = 0; number < count; ++number) {
        const OwnEntries& own = sentences[number];
        for (int32_t turn = 0; turn < turns[number]; ++turn, ++row) {
            sums[row] = turn ? sums[row - 1] : before_sums[number];
            steps[row] = turn ? steps[row - 1] : before_steps[number];
            if (!knnmt_mix(&mixing->mixture, 1, 1, mixing->k, own.count, mixing->vocabulary, stride, found_sq + row * k,
                           places + row * k, own.values, own.counts, own.said, sums + row, steps + row, scores + row * stride,
                           offsets + row))
                return false;
        }
    }
    return true;
}

void knnmt_own_draft(const Drafting* drafting, const OwnEntries* sentences, int32_t count, const int64_t* places,
                     const int32_t* rows, const int64_t* newest, const double* sure, const int32_t* limits, int64_t* drafts,
                     int32_t* lengths) {
    thread_local std::vector<Voter> voters;
    for (int32_t number = 0; number < count; ++number) {
        const OwnEntries& own = sentences[number];
        const int64_t* found = places + static_cast<int64_t>(rows[number]) * drafting->k;
        int64_t* draft = drafts + static_cast<int64_t>(number) * drafting->most;
        double total = 0, reached = 1;
        voters.clear();
        for (int32_t rank = 0; rank < std::min(drafting->k, drafting->voters); ++rank)
            if (found[rank] >= 0 && own.values[found[rank]] == newest[number]) {
                voters.push_back({1 / (1 + static_cast<double>(voters.size())), found[rank]});
                total += voters.back().weight;
            }
        int32_t& length = lengths[number];
        length = 0;
        for (const int32_t limit = std::min(limits[number], drafting->most); length < limit && !voters.empty(); ++length) {
            double most = 0;
            int64_t token = drafting->end;
            for (const Voter& voter : voters) {
                const int64_t named = following(own, voter.place, length + 1, drafting->end);
                double votes = 0;
                for (const Voter& other : voters)
                    if (following(own, other.place, length + 1, drafting->end) == named) votes += other.weight;
                if (votes > most) most = votes, token = named;
            }
            reached *= sure[number] * most / total;
            if (token == drafting->end || token < 0 || token >= drafting->vocabulary || reached < drafting->least) break;
            draft[length] = token;
            const auto names_another = [&](const Voter& voter) {
                return following(own, voter.place, length + 1, drafting->end) != token;
            };
            voters.erase(std::remove_if(voters.begin(), voters.end(), names_another), voters.end());
        }
    }
}
}
