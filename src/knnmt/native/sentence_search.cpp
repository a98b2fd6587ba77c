// Search in a sentence's own entries: exact, for thousands of keys of each sentence of a batch.
//
// A batch's keys are read at every step, so fewer bytes are less time: all keys are compared by their codes (codes.h), a sixth of
// their length in float16, each with a bound of what its code may be off by. Keys that could be among the k nearest by this bound
// are measured in float32, from where the store has them. Sentences with the same entries are searched in one pass over these.

#include "sentence_search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <utility>

#include "team.h"

namespace {

constexpr float INFINITE = std::numeric_limits<float>::infinity();
constexpr size_t AHEAD = 4;         // keys that are fetched before they are measured
constexpr int64_t LINE = 64;        // bytes that are fetched at a time
constexpr int64_t NEAR = 4096;      // keys whose codes stay near while many rows pass by
constexpr int64_t MOST_KEYS = 1 << 15;  // whose scores stay near
constexpr int64_t LEAST_KEYS = 512; // that a thread takes of a sentence

int64_t panels_of(const SentenceEntries& own) { return (own.panels.count + FLOATS - 1) / FLOATS; }

// A height is minus the squared distance. A score is a key's product with the query less half of the key's squared length.
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

void expect(const SentenceEntries& own, int32_t place) {
    const char* key = reinterpret_cast<const char*>(own.keys[place]);
    for (int64_t at = 0; at < own.panels.directions->dimensions * 2; at += LINE) __builtin_prefetch(key + at);
}

// A row on its way through the keys of one thread.
struct Row {
    const SentenceEntries& own;
    const float* query;
    const codes::Query& coded;
    size_t k;
    std::vector<Scored> near;  // a heap of heights, of at most k keys

    Scored measured(int32_t place) const {
        return {-distance_sq(query, own.keys[place], static_cast<int>(own.panels.directions->dimensions)), place};
    }

    // What a score must be above, with all that it may be off by, if the key is to be as near as the k-th.
    float reachable() const { return (near.front().score + coded.length_sq) / 2 - coded.slack; }

    // Some keys' scores, from the first of a panel on, which are changed.
    void look(int64_t first, int64_t count, float* scores) {
        if (near.size() < k) look_at_best(first, count, scores);
        if (near.size() == k) look_at_reachable(first, count, scores);
    }

    // Measures as many of the best as `near` lacks.
    void look_at_best(int64_t first, int64_t count, float* scores) {
        const size_t lacking = std::min(k - near.size(), static_cast<size_t>(count));
        thread_local std::vector<Scored> best;
        best.clear();
        for (size_t i = 0; i < lacking; ++i) best.push_back({scores[i], static_cast<int32_t>(i)});
        std::make_heap(best.begin(), best.end(), higher);
        for (int64_t i = static_cast<int64_t>(lacking) / FLOATS * FLOATS; i < count; i += FLOATS) {
            if (!any(load<Floats>(scores + i) > best.front().score)) continue;
            for (int64_t j = std::max(i, static_cast<int64_t>(lacking)); j < std::min(i + FLOATS, count); ++j)
                if (scores[j] > best.front().score) replace_lowest(best, {scores[j], static_cast<int32_t>(j)});
        }
        for (const Scored& each : best) expect(own, static_cast<int32_t>(first) + each.place);
        for (const Scored& each : best) {
            scores[each.place] = -INFINITE;  // is not looked at again
            near.push_back(measured(static_cast<int32_t>(first) + each.place));
        }
        std::make_heap(near.begin(), near.end(), higher);
    }

    void look_at_reachable(int64_t first, int64_t count, const float* scores) {
        thread_local std::vector<Scored> found;  // by the highest that a score may be
        found.clear();
        const float least = reachable();
        for (int64_t i = 0; i < count; i += FLOATS) {
            const Floats most = load<Floats>(scores + i) + load<Floats>(own.panels.rounded_off + first + i) * coded.first +
                                load<Floats>(own.panels.beyond + first + i) * coded.beyond +
                                load<Floats>(own.panels.code_lengths + first + i) * coded.lost;
            float each[FLOATS];
            std::memcpy(each, &most, sizeof(each));
            for (uint32_t lanes = bits(most > least); lanes; lanes &= lanes - 1) {
                const int lane = __builtin_ctz(lanes);
                if (i + lane < count) found.push_back({each[lane], static_cast<int32_t>(first + i + lane)});
            }
        }
        if (found.size() > k) std::nth_element(found.begin(), found.begin() + static_cast<int64_t>(k), found.end(), higher);
        for (size_t i = 0; i < std::min(AHEAD, found.size()); ++i) expect(own, found[i].place);
        for (size_t i = 0; i < found.size(); ++i) {
            if (i + AHEAD < found.size() && found[i + AHEAD].score > reachable()) expect(own, found[i + AHEAD].place);
            if (!(found[i].score > reachable())) continue;
            const Scored other = measured(found[i].place);
            if (higher(other, near.front())) replace_lowest(near, other);
        }
    }
};

// Rows that are searched in the same entries: of one sentence, or of several.
struct Group {
    const SentenceEntries* own;
    int32_t k;
    std::vector<const float*> queries;
    std::vector<float*> distances_sq;  // of each row, (k,)
    std::vector<int64_t*> places;      // which of the entries are found
    std::vector<codes::Query> coded;
    std::vector<int8_t> numbers;       // of these
};

// The panels from `first` to before `last` of a group, and the nearest of them for each row.
struct Part {
    const Group* group;
    int64_t first, last;
    std::vector<Row> rows;
};

void search_part(Part& part) {
    const SentenceEntries& own = *part.group->own;
    // Few rows look at many keys at a time: the more they see, the fewer they measure before they know what is near.
    const int64_t keys = part.rows.size() > codes::ROWS ? NEAR : MOST_KEYS, each = keys / FLOATS;
    const int64_t stride = keys + LINE;  // or rows of scores would drive each other out of the cache
    thread_local std::vector<float> scores;
    scores.resize(static_cast<size_t>(codes::ROWS * stride));
    for (int64_t first = part.first; first < part.last; first += each) {
        const int64_t last = std::min(first + each, part.last), begin = first * FLOATS;
        const int64_t count = std::min(last * FLOATS, own.panels.count) - begin, rows = static_cast<int64_t>(part.rows.size());
        for (int64_t row = 0; row < rows; row += codes::ROWS) {
            const int64_t some = std::min<int64_t>(codes::ROWS, rows - row);
            codes::multiply(own.panels, first, last, &part.group->coded[static_cast<size_t>(row)], some, scores.data(), stride);
            for (int64_t i = 0; i < some; ++i)
                if (part.rows[static_cast<size_t>(row + i)].coded.finite)
                    part.rows[static_cast<size_t>(row + i)].look(begin, count, &scores[static_cast<size_t>(i * stride)]);
        }
    }
}

// Writes the k nearest of what the parts of a group have found for a row.
void write_nearest(const Group& group, size_t row, const Part* parts, const Part* end) {
    const size_t k = static_cast<size_t>(group.k);
    std::vector<Scored> all;
    for (const Part* part = parts; part < end; ++part) {
        const std::vector<Scored>& near = part->rows[row].near;
        all.insert(all.end(), near.begin(), near.end());
    }
    std::sort(all.begin(), all.end(), higher);
    for (size_t i = 0; i < k; ++i) {
        group.distances_sq[row][i] = i < all.size() ? -all[i].score : INFINITE;
        group.places[row][i] = i < all.size() ? all[i].place : -1;
    }
}

void search(teams::Team& team, std::vector<Group>& groups) {
    std::vector<std::pair<size_t, size_t>> rows;  // of which group, the first of some
    for (size_t number = 0; number < groups.size(); ++number) {
        Group& group = groups[number];
        group.coded.resize(group.queries.size());
        if (!group.own->panels.count) continue;
        group.numbers.resize(group.queries.size() * static_cast<size_t>(group.own->panels.directions->kept));
        for (size_t row = 0; row < group.queries.size(); row += codes::ROWS) rows.emplace_back(number, row);
    }
    team.share(static_cast<int64_t>(rows.size()), [&](int64_t i) {
        const auto [number, row] = rows[static_cast<size_t>(i)];
        Group& group = groups[number];
        int8_t* into = &group.numbers[row * static_cast<size_t>(group.own->panels.directions->kept)];
        const size_t count = std::min<size_t>(codes::ROWS, group.queries.size() - row);
        codes::prepare(group.own->panels, &group.queries[row], static_cast<int64_t>(count), into, &group.coded[row]);
    });
    // Few groups are shared by their keys, so that each thread reads others.
    const int64_t wanted = static_cast<int64_t>(groups.size()) >= 2 * team.threads() ? 1 : team.threads();
    std::vector<Part> parts;
    std::vector<size_t> first_parts;
    for (const Group& group : groups) {
        first_parts.push_back(parts.size());
        const int64_t panels = panels_of(*group.own);
        const int64_t shares = std::clamp<int64_t>(group.own->panels.count / LEAST_KEYS, 1, wanted);
        for (int64_t share = 0; share < shares; ++share) {
            Part part{&group, panels * share / shares, panels * (share + 1) / shares, {}};
            for (size_t row = 0; row < group.queries.size(); ++row)
                part.rows.push_back({*group.own, group.queries[row], group.coded[row], static_cast<size_t>(group.k), {}});
            parts.push_back(std::move(part));
        }
    }
    first_parts.push_back(parts.size());
    team.share(static_cast<int64_t>(parts.size()), [&](int64_t i) { search_part(parts[static_cast<size_t>(i)]); });
    for (size_t number = 0; number < groups.size(); ++number)
        for (size_t row = 0; row < groups[number].queries.size(); ++row)
            write_nearest(groups[number], row, parts.data() + first_parts[number], parts.data() + first_parts[number + 1]);
}

// Adds the rows of a sentence to the group that has the same entries, or to a new one.
void add_rows(std::vector<Group>& groups, const SentenceEntries& own, int32_t k, int64_t width, const float* queries,
              float* distances_sq, int64_t* places) {
    const auto same = [&](const Group& other) { return other.own->panels.codes == own.panels.codes && other.own->panels.count == own.panels.count && other.k == k; };
    auto group = own.panels.count ? std::find_if(groups.begin(), groups.end(), same) : groups.end();
    if (group == groups.end()) group = groups.insert(group, Group{&own, k, {}, {}, {}, {}, {}});
    for (int64_t row = 0; row < width; ++row) {
        group->queries.push_back(queries + row * own.panels.directions->dimensions);
        group->distances_sq.push_back(distances_sq + row * k);
        group->places.push_back(places + row * k);
    }
}

// A key whose code is to be made.
struct Missing {
    int64_t place, id;
    const uint16_t* key;
};

// The codes of all keys whose places are free or taken by others; of two keys for the same place, one.
void encode_missing(teams::Team& team, const KeyCodes& known, const SentenceEntries* sentences, int32_t count) {
    std::vector<std::vector<Missing>> of_sentences(static_cast<size_t>(count));
    team.share(count, [&](int64_t i) {
        const SentenceEntries& own = sentences[i];
        for (int64_t number = 0; number < own.panels.count; ++number) {
            const int64_t place = own.ids[number] % known.capacity;
            if (known.ids[place] != own.ids[number] + 1) of_sentences[static_cast<size_t>(i)].push_back({place, own.ids[number], own.keys[number]});
        }
    });
    std::vector<Missing> all;
    for (const std::vector<Missing>& each : of_sentences) all.insert(all.end(), each.begin(), each.end());
    std::sort(all.begin(), all.end(), [](const Missing& a, const Missing& b) { return a.place != b.place ? a.place < b.place : a.id < b.id; });
    all.erase(std::unique(all.begin(), all.end(), [](const Missing& a, const Missing& b) { return a.place == b.place; }), all.end());
    const int64_t bytes = known.directions.kept / 2, blocks = (static_cast<int64_t>(all.size()) + codes::MOST_KEYS - 1) / codes::MOST_KEYS;
    team.share(blocks, [&](int64_t block) {
        const size_t begin = static_cast<size_t>(block * codes::MOST_KEYS), end = std::min(begin + codes::MOST_KEYS, all.size());
        const uint16_t* keys[codes::MOST_KEYS];
        thread_local std::vector<uint8_t> made;
        made.resize(static_cast<size_t>(codes::MOST_KEYS * bytes));
        codes::CodeNumbers numbers[codes::MOST_KEYS];
        for (size_t i = begin; i < end; ++i) keys[i - begin] = all[i].key;
        codes::encode(known.directions, keys, static_cast<int64_t>(end - begin), made.data(), numbers);
        for (size_t i = begin; i < end; ++i) {
            std::copy_n(&made[(i - begin) * static_cast<size_t>(bytes)], bytes, known.codes + all[i].place * bytes);
            std::memcpy(known.numbers + all[i].place * 4, &numbers[i - begin], sizeof(numbers[0]));
            known.ids[all[i].place] = all[i].id + 1;
        }
    });
}

// Puts the codes of a panel of a sentence together. Returns the largest squared length of its keys, infinite if one is not a number.
float put_panel(const KeyCodes& known, const SentenceEntries& own, int64_t panel) {
    const int64_t bytes = known.directions.kept / 2;
    thread_local std::vector<uint8_t> made;
    made.resize(static_cast<size_t>(FLOATS * bytes));
    const uint8_t* keys[FLOATS];
    codes::CodeNumbers numbers[FLOATS];
    float longest_sq = 0;
    for (int lane = 0; lane < FLOATS; ++lane) {
        const int64_t number = std::min(panel * FLOATS + lane, own.panels.count - 1), place = own.ids[number] % known.capacity;
        keys[lane] = known.codes + place * bytes;
        std::memcpy(&numbers[lane], known.numbers + place * 4, sizeof(numbers[lane]));
        if (known.ids[place] != own.ids[number] + 1) {  // another key has its place
            uint8_t* const again = &made[static_cast<size_t>(lane * bytes)];
            codes::encode(known.directions, own.keys + number, 1, again, &numbers[lane]);
            keys[lane] = again;
        }
        const float length_sq = 2 * numbers[lane].half;
        longest_sq = length_sq < INFINITE ? std::max(longest_sq, length_sq) : INFINITE;  // NaN would compare as nothing
    }
    codes::put(own.panels, panel, keys, numbers);
    return longest_sq;
}

}  // namespace

extern "C" {

// The codes of the entries of sentences: those that are not known are made. Returns whether all keys are finite numbers.
bool knnmt_sentence_prepare(const KeyCodes* known, SentenceEntries* sentences, int32_t count, int32_t threads) {
    teams::Team team(threads);
    encode_missing(team, *known, sentences, count);
    struct Work {
        int32_t sentence;
        int64_t first;
        float longest_sq;
    };
    std::vector<Work> work;
    for (int32_t number = 0; number < count; ++number)
        for (int64_t panel = 0; panel < panels_of(sentences[number]); panel += LEAST_KEYS / FLOATS) work.push_back({number, panel, 0});
    team.share(static_cast<int64_t>(work.size()), [&](int64_t i) {
        Work& each = work[static_cast<size_t>(i)];
        const SentenceEntries& own = sentences[each.sentence];
        const int64_t end = std::min(each.first + LEAST_KEYS / FLOATS, panels_of(own));
        for (int64_t panel = each.first; panel < end; ++panel) {
            const float longest_sq = put_panel(*known, own, panel);
            each.longest_sq = std::max(each.longest_sq, longest_sq);
        }
    });
    bool sound = true;
    for (const Work& each : work) {
        CodePanels& panels = sentences[each.sentence].panels;
        panels.longest = std::max(panels.longest, std::sqrt(each.longest_sq));
        sound &= each.longest_sq < INFINITE;
    }
    return sound;
}

// For the rows of each sentence, `width` of them, queries (sentences * width, dimensions), the k nearest of its entries:
// distances_sq and ids (sentences * width, k), nearest first, infinite and -1 where there are no more.
void knnmt_sentence_search(const SentenceEntries* sentences, int32_t count, int32_t width, int32_t k, int32_t threads,
                      const float* queries, float* distances_sq, int64_t* ids) {
    teams::Team team(threads);
    std::vector<Group> groups;
    for (int64_t number = 0, row = 0; number < count; ++number, row += width)
        add_rows(groups, sentences[number], k, width, queries + row * sentences->panels.directions->dimensions, distances_sq + row * k, ids + row * k);
    search(team, groups);
    for (int64_t i = 0; i < static_cast<int64_t>(count) * width * k; ++i)
        if (ids[i] >= 0) ids[i] = sentences[i / (static_cast<int64_t>(width) * k)].ids[ids[i]];
}

bool knnmt_sentence_mix(const SentenceMixing* mixing, const SentenceEntries* sentences, int32_t count, int32_t width, int32_t threads,
                   int64_t stride, const float* queries, float* sums, float* steps, float* scores, float* offsets) {
    std::vector<SentenceRows> rows;
    for (int64_t number = 0, row = 0; number < count; ++number, row += width)
        rows.push_back({mixing, sentences + number, width, queries + row * sentences->panels.directions->dimensions, sums + number,
                        steps + number, scores + row * stride, offsets + row});
    return mix_sentences(rows, stride, threads) < 0;
}
}

int64_t mix_sentences(const std::vector<SentenceRows>& sentences, int64_t stride, int32_t threads) {
    int64_t found = 0;
    for (const SentenceRows& each : sentences) found += static_cast<int64_t>(each.width) * each.mixing->k;
    std::vector<float> distances_sq(static_cast<size_t>(found));
    std::vector<int64_t> places(static_cast<size_t>(found)), firsts;
    std::vector<Group> groups;
    teams::Team team(threads);
    int64_t first = 0;
    for (const SentenceRows& each : sentences) {
        firsts.push_back(first);
        add_rows(groups, *each.own, each.mixing->k, each.width, each.queries, distances_sq.data() + first, places.data() + first);
        first += static_cast<int64_t>(each.width) * each.mixing->k;
    }
    search(team, groups);
    std::atomic<int64_t> refused{-1};
    team.each(static_cast<int64_t>(sentences.size()), [&](int64_t i) {
        const SentenceRows& each = sentences[static_cast<size_t>(i)];
        const SentenceEntries& own = *each.own;
        const int64_t at = firsts[static_cast<size_t>(i)];
        if (!knnmt_mix(&each.mixing->mixture, 1, each.width, each.mixing->k, own.panels.count, each.mixing->vocabulary, stride,
                       distances_sq.data() + at, places.data() + at, own.values, own.counts, own.said, each.sum, each.steps, each.scores,
                       each.offsets))
            refused = i;
    });
    return refused;
}
