// Search in lists of four-bit codes: from decoder states to their nearest entries in one call.
//
// The lists are those of a FAISS index ("IVF…,PQ…x4fs", codes of whole reduced keys), read where FAISS has them; the
// keys are the store's own, in its memory maps. FAISS and PyTorch take a dozen calls for the same. Here rows that look
// into one list, as the beams of a sentence do, read it one after the other while it is in the cache.
//
// Only plain C types cross the border, so that one build serves every Python.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "team.h"
#include "vectors.h"

extern "C" {

struct Lists {
    int32_t count;
    int32_t dimensions;           // of a reduced key
    int32_t parts;                // codes of a key, an even number, each of dimensions / parts dimensions
    const float* centroids;       // (dimensions, 16)
    const uint8_t* const* codes;  // of each list, packed
    const int64_t* const* ids;    // of each list, the entries that the codes belong to
    const int64_t* sizes;         // of each list
};

struct Keys {
    int32_t dimensions;
    int32_t halves;           // 1: float16, 0: float32
    int32_t segments;
    const void* const* rows;  // where each segment's keys begin
    const int64_t* ends;      // the id after each segment's last
    const uint8_t* live;      // of each entry, or null where nothing was removed
};

struct Limits {
    int32_t k;
    int32_t candidates;  // of a row that are measured again, k at least
    int32_t probes;
    float reach;         // 0: however far
};
}

namespace {

// ---- Which lists, and how far their codes are -----------------------------------------------------------------------

constexpr int BLOCK = 32;         // codes that lie packed together
constexpr int ENTRIES = 16;       // what four bits can say
constexpr int AHEAD_BYTES = 5120; // two blocks of 160 dimensions: asked for before they are needed, a fifth less time

// The lists of a row: those with the `probes` nearest centres, as far as they are within reach.
void choose_lists(const Lists& lists, const Limits& limits, const float* query, const float* products,
                  std::vector<std::pair<float, int32_t>>& chosen) {
    float norm_sq = 0;
    for (int i = 0; i < lists.dimensions; ++i) norm_sq += query[i] * query[i];
    float least[16];
    std::fill(least, least + 16, products[0]);
    int list = 0;
    for (; list + 16 <= lists.count; list += 16)
        for (int i = 0; i < 16; ++i) least[i] = products[list + i] < least[i] ? products[list + i] : least[i];
    float nearest = *std::min_element(least, least + 16);
    for (; list < lists.count; ++list) nearest = std::min(nearest, products[list]);
    float furthest = std::numeric_limits<float>::max();
    if (limits.reach > 0) furthest = std::max(nearest, limits.reach * std::max(nearest + norm_sq, 0.0f) - norm_sq);
    chosen.clear();
    for (list = 0; list < lists.count; ++list)
        if (products[list] <= furthest) chosen.emplace_back(products[list], list);
    if (chosen.size() > static_cast<size_t>(limits.probes)) {
        std::nth_element(chosen.begin(), chosen.begin() + limits.probes - 1, chosen.end());
        chosen.resize(static_cast<size_t>(limits.probes));
    }
}

// How far each code of each part is from the query, in steps of a size that all parts share: (parts, 16).
void fill_table(const Lists& lists, const float* query, std::vector<float>& exact, uint8_t* table) {
    const int each = lists.dimensions / lists.parts, numbers = lists.parts * ENTRIES;
    exact.resize(static_cast<size_t>(numbers));
    Floats widest = {};
    const float* centroid = lists.centroids;
    for (int part = 0; part < lists.parts; ++part) {
        Floats row[ENTRIES / FLOATS] = {};
        for (int i = 0; i < each; ++i, ++query)
            for (Floats& some : row) {
                const Floats difference = load<Floats>(centroid) - *query;
                some += difference * difference;
                centroid += FLOATS;
            }
        // Counted from the nearest code, for what all codes of a part have in common needs no steps.
        Floats nearest = row[0];
        for (const Floats& some : row) nearest = some < nearest ? some : nearest;
        const float least = extreme(nearest, [](float a, float b) { return std::min(a, b); });
        for (Floats& some : row) {
            some -= least;
            widest = some > widest ? some : widest;
        }
        std::memcpy(&exact[static_cast<size_t>(part * ENTRIES)], row, sizeof(row));
    }
    const float largest = extreme(widest, [](float a, float b) { return std::max(a, b); });
    const int most = std::min(255, 65535 / lists.parts);  // the sum of all parts fits 16 bits
    const float steps = largest > 0 ? static_cast<float>(most) / largest : 0.0f;
    for (int i = 0; i < numbers; ++i)
        table[i] = static_cast<uint8_t>(static_cast<int32_t>(exact[static_cast<size_t>(i)] * steps + 0.5f));
}

// The distances of a block's codes by the table. Returns whether one of them is below `limit`.
//
// codes: (parts / 2, 32) bytes as FAISS packs them: of each pair of parts 16 bytes for the first and 16 for the second,
// in which the low half of byte j belongs to code j / 2 (j even) or 8 + j / 2 (j odd), and the high half to 16 more.
bool scan(const uint8_t* codes, const uint8_t* table, int parts, uint16_t limit, uint16_t* sums) {
    Words even0 = {}, odd0 = {}, even1 = {}, odd1 = {};
    int byte = 0;
    for (; byte + WIDTH <= parts * 16; byte += WIDTH) {
        __builtin_prefetch(codes + byte + AHEAD_BYTES);
        const Bytes code = load<Bytes>(codes + byte), entries = load<Bytes>(table + byte);
        const Words first = (Words)look_up(entries, code & 15), second = (Words)look_up(entries, code >> 4);
        even0 += first;  // and 256 times the odd ones, which go out again below
        odd0 += first >> 8;
        even1 += second;
        odd1 += second >> 8;
    }
    even0 -= odd0 << 8;
    even1 -= odd1 << 8;
    // Each holds eight codes, once for every 16 bytes of its width.
    const Words spread[] = {even0, odd0, even1, odd1};
    Eight folded[4][WIDTH / 16];
    std::memcpy(folded, spread, sizeof(spread));
    for (auto& eight : folded)
        for (int i = 1; i < WIDTH / 16; ++i) eight[0] += eight[i];
    for (int i = 0; i < 4; ++i) std::memcpy(sums + 8 * i, &folded[i][0], sizeof(Eight));
    for (; byte < parts * 16; ++byte) {
        const int code = (byte % 16) / 2 + (byte % 2) * 8;
        const uint8_t* entries = table + byte / 16 * 16;
        sums[code] += entries[codes[byte] & 15];
        sums[code + 16] += entries[codes[byte] >> 4];
    }
    Eight near = {};
    for (int i = 0; i < BLOCK; i += 8) {
        Eight eight;
        std::memcpy(&eight, sums + i, sizeof(Eight));
        near |= (Eight)(eight < limit);
    }
    uint64_t any[2];
    std::memcpy(any, &near, sizeof(any));
    return any[0] | any[1];
}

// ---- What a row has found -------------------------------------------------------------------------------------------

struct Candidate {
    uint16_t rough;
    int64_t id;
};

// The `wanted` nearest candidates of a row, and some more until the far ones are let go.
struct Proposals {
    std::vector<Candidate> found;
    size_t wanted = 0;
    uint16_t limit = 0xffff;

    void add(uint16_t rough, int64_t id) {
        found.push_back({rough, id});
        if (found.size() == 3 * wanted) keep_nearest();
    }
    void keep_nearest() {
        if (found.size() <= wanted) return;
        const auto last = found.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
        std::nth_element(found.begin(), last, found.end(), [](const Candidate& a, const Candidate& b) {
            return a.rough != b.rough ? a.rough < b.rough : a.id < b.id;
        });
        limit = last->rough;
        found.resize(wanted);
    }
};

void scan_list(const Lists& lists, const Keys& keys, int32_t list, const uint8_t* table, Proposals& row) {
    const uint8_t* codes = lists.codes[list];
    const int64_t* ids = lists.ids[list];
    uint16_t sums[BLOCK];
    for (int64_t first = 0; first < lists.sizes[list]; first += BLOCK, codes += lists.parts * 16) {
        if (!scan(codes, table, lists.parts, row.limit, sums)) continue;
        const int64_t count = std::min<int64_t>(BLOCK, lists.sizes[list] - first);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t id = ids[first + i];
            if (sums[i] < row.limit && (!keys.live || keys.live[id])) row.add(sums[i], id);
        }
    }
}

// The k nearest of a row's candidates by the keys themselves; the id -1 stands where there are no more. What is no
// finite distance away, as a state that has overflowed is from all keys, is not found.
template <typename Key>
void measure(const Keys& keys, int k, const float* query, const std::vector<Candidate>& candidates, float* distances_sq,
             int64_t* ids) {
    constexpr size_t AHEAD = 6;  // keys lie all over the store
    constexpr float FAR = std::numeric_limits<float>::infinity();
    const size_t count = candidates.size(), found = std::min(count, static_cast<size_t>(k));
    std::vector<const Key*> places(count);
    std::vector<std::pair<float, int64_t>> measured(count);
    for (size_t i = 0; i < count + AHEAD; ++i) {
        if (i < count) {
            const int64_t id = candidates[i].id;
            const auto segment = std::upper_bound(keys.ends, keys.ends + keys.segments, id) - keys.ends;
            const int64_t first = segment ? keys.ends[segment - 1] : 0;
            places[i] = static_cast<const Key*>(keys.rows[segment]) + (id - first) * keys.dimensions;
            for (int j = 0; j < keys.dimensions; j += 64 / static_cast<int>(sizeof(Key))) __builtin_prefetch(places[i] + j);
        }
        if (i >= AHEAD) {
            const size_t now = i - AHEAD;
            const float found_sq = distance_sq(query, places[now], keys.dimensions);
            measured[now] = found_sq < FAR ? std::pair(found_sq, candidates[now].id) : std::pair(FAR, int64_t{-1});
        }
    }
    std::partial_sort(measured.begin(), measured.begin() + static_cast<std::ptrdiff_t>(found), measured.end());
    for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
        distances_sq[i] = i < found ? measured[i].first : FAR;
        ids[i] = i < found ? measured[i].second : -1;
    }
}

}  // namespace

extern "C" {

// queries (rows, keys.dimensions); reduced (rows, lists.dimensions); products (rows, lists.count): the squared norm of
// each centre less twice its product with the reduced query. Written are distances_sq and ids, (rows, k).
void knnmt_search(const Lists* lists, const Keys* keys, const Limits* limits, int32_t rows, int32_t threads,
                  const float* queries, const float* reduced, const float* products, float* distances_sq, int64_t* ids) {
    const int64_t table_bytes = static_cast<int64_t>(lists->parts) * ENTRIES;
    const int64_t k = limits->k;

    // Neighbouring rows, for those are the beams of a sentence, and only one part for each thread: rows of a part share lists. No part
    // is empty: beside it, each other one would seem to take as long as if its thread had lost its core.
    const int64_t parts = std::clamp<int64_t>(threads, 1, std::max(rows, 1));
    teams::Team team(static_cast<int32_t>(parts));
    team.share(parts, [&](int64_t part) {
        const int64_t begin = rows * part / parts, count = rows * (part + 1) / parts - begin;
        std::vector<std::pair<int32_t, int64_t>> visits;  // list and row
        std::vector<std::pair<float, int32_t>> chosen;
        std::vector<float> exact;
        std::vector<uint8_t> tables(static_cast<size_t>(table_bytes * count));
        std::vector<Proposals> proposals(static_cast<size_t>(count));
        for (int64_t row = 0; row < count; ++row) {
            const float* query = reduced + (begin + row) * lists->dimensions;
            choose_lists(*lists, *limits, query, products + (begin + row) * lists->count, chosen);
            for (const auto& each : chosen) visits.emplace_back(each.second, row);
            fill_table(*lists, query, exact, &tables[static_cast<size_t>(row * table_bytes)]);
            proposals[static_cast<size_t>(row)].wanted = static_cast<size_t>(limits->candidates);
        }
        std::sort(visits.begin(), visits.end());
        for (size_t visit = 0; visit < visits.size(); ++visit) {
            const auto [list, row] = visits[visit];
            if (visit + 1 < visits.size() && visits[visit + 1].first != list)
                for (int byte = 0; byte < AHEAD_BYTES; byte += 64) __builtin_prefetch(lists->codes[visits[visit + 1].first] + byte);
            scan_list(*lists, *keys, list, &tables[static_cast<size_t>(row * table_bytes)], proposals[static_cast<size_t>(row)]);
        }
        for (int64_t row = 0; row < count; ++row) {
            Proposals& mine = proposals[static_cast<size_t>(row)];
            mine.keep_nearest();
            const int64_t global = begin + row;
            const auto measured = keys->halves ? measure<uint16_t> : measure<float>;
            measured(*keys, limits->k, queries + global * keys->dimensions, mine.found, distances_sq + global * k, ids + global * k);
        }
    });
}
}
