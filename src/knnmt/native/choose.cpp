// Retrieval by segment: which segments of a memory cover a source best, found through postings over source tokens.
//
// The same choice as knnmt.index.covering makes in NumPy. Rare tokens propose candidates, BM25 over these tokens ranks them,
// and a greedy choice takes, of the best, the one that adds most to what is covered, n-gram by n-gram. The number of
// postings that are read is bounded, so that the time of a choice does not grow with the memory.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "vectors.h"

extern "C" {

// The source side of a file of the store. A posting is the number of a sentence, named as often as it holds the token.
struct SourcePart {
    int64_t sentences;
    int64_t first_sentence;            // of all, in the store
    int64_t tokens;                    // how many source tokens there are, and as many postings
    const int32_t* posting_sentences;  // (tokens,), ascending for each token
    const int32_t* source_tokens;      // (tokens,)
    const int64_t* source_offsets;     // (sentences + 1,)
    const uint8_t* passed_over;        // (sentences,), not 0 for those that are not to be chosen; null where all may be
    int64_t entries;
    int64_t first_entry;               // of all, in the store
    const int32_t* owners;             // (entries,), the sentence of each, ascending
};

// Where the postings of a token are: in which part, from where to where.
struct Place {
    int32_t part;
    int32_t begin;
    int32_t end;
};

// The places of all tokens in some of the parts.
struct Directory {
    const int64_t* first;  // (vocabulary + 1,), where the places of each token begin
    const Place* places;
};

struct SourceIndex {
    int64_t vocabulary;
    int64_t sentences;        // of all parts
    float mean_length;        // source tokens of a sentence
    int32_t part_count;
    const SourcePart* parts;
    Directory directories[2]; // of the parts that were there for long, and of newer ones
    const int64_t* postings;  // (vocabulary,), how many a token has in all parts
};

struct Choosing {
    int32_t count;       // sentences to choose
    int32_t candidates;  // to choose them from
    int32_t proposed;    // sentences that are ranked by length, too
    int64_t postings;    // read at most, but for the rarest token
};

// Consecutive sentences by the hashes of their sources.
struct HashOrder {
    int64_t first;             // the number of the first sentence
    int64_t count;
    const uint64_t* ordered;   // (count,), ascending
    const int64_t* sentences;  // (count,), which these are
    const uint64_t* hashes;    // (count,), in the order of the sentences
};

// Which sentences have the same source: those with the same hash.
struct SameSources {
    HashOrder orders[2];     // of the sentences that were there for long, and of newer ones
    int64_t removed_count;
    const int64_t* removed;  // (removed_count,), the numbers of removed sentences, ascending
};
}

namespace {

constexpr int AHEAD = 8;                                  // postings, and candidates, whose places are fetched early
constexpr int ORDERS = 4;                                 // of n-grams
constexpr float BM25_K = 1.2f, BM25_B = 0.75f;            // the usual ones
constexpr float LENGTH_OFFSET = 10, LENGTH_POWER = -0.3f; // long segments cover more, and cost more
constexpr float LEFT = 0.5f;                              // of the weight of what is covered once more
constexpr float TAKEN = -1;                               // what a candidate gains that was chosen, less than any other

float idf(const SourceIndex& index, int32_t token) {
    const float held = static_cast<float>(index.postings[token]), all = static_cast<float>(index.sentences);
    return std::log(1 + (std::max(all - held, 0.0f) + 0.5f) / (held + 0.5f));
}

// Scores of sentences that are named again and again, in a table no larger than what is named.
class Scores {
public:
    struct Named {
        uint32_t key;  // the number of a sentence, plus one; 0 for none
        float score;
    };

    void begin(int64_t most) {
        int bits = 10;
        // The numbers of sentences have 32 bits; seldom are as many different, and a small table stays near.
        while (bits < 31 && int64_t{1} << bits < most + most / 4) ++bits;
        shift_ = 32 - bits;
        mask_ = (uint32_t{1} << bits) - 1;
        if (table_.size() <= mask_) table_.resize(size_t{mask_} + 1);
        std::memset(table_.data(), 0, (size_t{mask_} + 1) * sizeof(Named));
        used_.clear();
    }
    void expect(uint32_t sentence) const { __builtin_prefetch(&table_[((sentence + 1) * 0x9E3779B1u) >> shift_]); }
    void add(uint32_t sentence, float score) {
        const uint32_t key = sentence + 1;
        uint32_t place = (key * 0x9E3779B1u) >> shift_;
        while (table_[place].key != key) {
            if (!table_[place].key) {
                table_[place].key = key;
                used_.push_back(place);
                break;
            }
            place = (place + 1) & mask_;
        }
        table_[place].score += score;
    }
    // About the `most` highest, at least: all that are as high as the lowest of them, in a few hundred steps of height.
    template <typename Take>
    void best(int64_t most, Take take) const {
        constexpr int STEPS = 512;
        float highest = 0;
        for (const uint32_t place : used_) highest = std::max(highest, table_[place].score);
        const float scale = highest > 0 ? (STEPS - 1) / highest : 0;
        int64_t counts[STEPS] = {};
        for (const uint32_t place : used_) ++counts[static_cast<int>(table_[place].score * scale)];
        int lowest = STEPS;
        for (int64_t taken = 0; lowest > 0 && taken < most;) taken += counts[--lowest];
        for (const uint32_t place : used_)
            if (static_cast<int>(table_[place].score * scale) >= lowest) take(table_[place].key - 1, table_[place].score);
    }

private:
    std::vector<Named> table_;
    std::vector<uint32_t> used_;
    int shift_ = 22;
    uint32_t mask_ = 0;
};

struct Candidate {
    float score;
    int64_t sentence;
    const int32_t* tokens;
    int32_t length;
};

bool better(const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.sentence < b.sentence;
}

// One thread's work. It is kept from call to call: memory that is taken anew costs as much as a choice.
class Chooser {
public:
    void begin(const SourceIndex& index, const Choosing& choosing) {
        index_ = index;
        choosing_ = choosing;
        if (first_of_token_.size() < static_cast<size_t>(index.vocabulary)) first_of_token_.resize(static_cast<size_t>(index.vocabulary), -1);
    }

    // Returns false if the index holds what cannot be.
    bool choose(const int32_t* source, int32_t length, int64_t* chosen, float* covered) {
        std::fill_n(chosen, choosing_.count, int64_t{-1});
        covered[0] = covered[1] = 0;
        distinct_.clear();
        next_same_.assign(static_cast<size_t>(length), -1);
        for (int32_t place = length - 1; place >= 0; --place) {
            const int32_t token = source[place];
            if (token < 0 || token >= index_.vocabulary) continue;
            if (first_of_token_[token] < 0) distinct_.push_back(token);
            next_same_[place] = first_of_token_[token];
            first_of_token_[token] = place;
        }
        const bool sound = propose() && (cover(source, length, chosen, covered), true);
        for (const int32_t token : distinct_) first_of_token_[token] = -1;
        return sound;
    }

private:
    // Sentences that hold rare tokens of the source, with the sums of these tokens' idf.
    bool propose() {
        std::sort(distinct_.begin(), distinct_.end(), [this](int32_t a, int32_t b) {
            return index_.postings[a] != index_.postings[b] ? index_.postings[a] < index_.postings[b] : a < b;
        });
        int64_t read = 0;
        size_t proposing = 0;
        for (; proposing < distinct_.size(); ++proposing) {
            const int64_t postings = index_.postings[distinct_[proposing]];
            if (read && read + postings > choosing_.postings) break;
            read += postings;
        }
        scores_.begin(std::min(read, index_.sentences));
        for (size_t i = 0; i < proposing; ++i) {
            for (const Directory& directory : index_.directories)
                if (!read_postings(directory, distinct_[i])) return false;
        }
        candidates_.clear();
        bool sound = true;
        scores_.best(choosing_.proposed, [&](uint32_t sentence, float score) {
            Candidate candidate{score, sentence, nullptr, 0};
            sound = sound && locate(candidate);
            candidate.score /= 1 + length_norm(candidate.length);
            candidates_.push_back(candidate);
        });
        keep_best(choosing_.candidates);
        return sound;
    }

    bool read_postings(const Directory& directory, int32_t token) {
        const float weight = idf(index_, token);
        for (int64_t at = directory.first[token]; at < directory.first[token + 1]; ++at) {
            const Place& place = directory.places[at];
            const SourcePart& part = index_.parts[place.part];
            for (int32_t posting = place.begin; posting < place.end; ++posting) {
                if (posting + AHEAD < place.end) scores_.expect(number(part, part.posting_sentences[posting + AHEAD]));
                const int32_t sentence = part.posting_sentences[posting];
                if (sentence < 0 || sentence >= part.sentences) return false;
                if (!part.passed_over || !part.passed_over[sentence]) scores_.add(number(part, sentence), weight);
            }
        }
        return true;
    }

    static uint32_t number(const SourcePart& part, int32_t sentence) {
        return static_cast<uint32_t>(part.first_sentence + sentence);
    }

    float length_norm(int32_t length) const {
        return BM25_K * (1 - BM25_B + BM25_B * static_cast<float>(length) / index_.mean_length);
    }

    bool locate(Candidate& candidate) const {
        int32_t low = 0, high = index_.part_count;
        while (high - low > 1) {
            const int32_t middle = (low + high) / 2;
            (index_.parts[middle].first_sentence <= candidate.sentence ? low : high) = middle;
        }
        const SourcePart& part = index_.parts[low];
        const int64_t sentence = candidate.sentence - part.first_sentence;
        if (sentence < 0 || sentence >= part.sentences) return false;
        const int64_t begin = part.source_offsets[sentence], end = part.source_offsets[sentence + 1];
        if (begin < 0 || begin > end || end > part.tokens || end - begin > INT32_MAX) return false;
        candidate.tokens = part.source_tokens + begin;
        candidate.length = static_cast<int32_t>(end - begin);
        return true;
    }

    void keep_best(int32_t most) {
        if (static_cast<int64_t>(candidates_.size()) <= most) return;
        std::nth_element(candidates_.begin(), candidates_.begin() + most, candidates_.end(), better);
        candidates_.resize(static_cast<size_t>(most));
    }

    // Which of the source's n-grams each candidate holds, and a greedy choice by what is not covered yet.
    void cover(const int32_t* source, int32_t length, int64_t* chosen, float* covered) {
        std::sort(candidates_.begin(), candidates_.end(), better);
        weights_.resize(next_same_.size());
        for (const int32_t token : distinct_) weights_[first_of_token_[token]] = idf(index_, token);
        number_grams(source, length);
        held_.clear();
        first_held_.assign(1, 0);
        seen_.assign(gram_weights_.size(), -1);
        float total = 0;
        for (const float weight : gram_weights_) total += weight;
        std::vector<float> left = gram_weights_;
        const int32_t candidates = static_cast<int32_t>(candidates_.size());
        gains_.assign((candidates_.size() + FLOATS - 1) / FLOATS * FLOATS, TAKEN);
        norms_.clear();
        for (int32_t number = 0; number < candidates; ++number) {
            const Candidate& candidate = candidates_[static_cast<size_t>(number)];
            if (number + AHEAD < candidates) __builtin_prefetch(candidates_[static_cast<size_t>(number + AHEAD)].tokens);
            for (int32_t i = 0; i < candidate.length; ++i) {
                const int32_t token = candidate.tokens[i];
                if (token < 0 || token >= index_.vocabulary) continue;
                for (int32_t place = first_of_token_[token]; place >= 0; place = next_same_[place])
                    for (int32_t n = 0; n < ORDERS && place + n < length && i + n < candidate.length; ++n) {
                        if (source[place + n] != candidate.tokens[i + n]) break;
                        const int32_t gram = gram_at_[static_cast<size_t>(place) * ORDERS + n];
                        if (gram < 0 || seen_[gram] == number) continue;
                        seen_[gram] = number;
                        held_.push_back(gram);
                    }
            }
            first_held_.push_back(static_cast<int32_t>(held_.size()));
            norms_.push_back(std::pow(LENGTH_OFFSET + static_cast<float>(candidate.length), LENGTH_POWER));
            const float gain = gain_of(number, left);
            if (total > 0) covered[1] = std::max(covered[1], gain / norms_.back() / total);
            gains_[static_cast<size_t>(number)] = gain;
        }
        float uncovered = total;
        int32_t count = 0;
        int32_t looked = -1;
        while (count < std::min(choosing_.count, candidates)) {
            const int32_t number = first_of_highest();
            if (number != looked) {  // gains only fall: whoever is still first after a new look is first
                gains_[static_cast<size_t>(number)] = gain_of(number, left);
                looked = number;
                continue;
            }
            gains_[static_cast<size_t>(number)] = TAKEN;
            looked = -1;
            chosen[count++] = candidates_[static_cast<size_t>(number)].sentence;
            for (int32_t i = first_held_[number]; i < first_held_[number + 1]; ++i) {
                const int32_t gram = held_[i];
                if (left[gram] == gram_weights_[gram]) uncovered -= gram_weights_[gram];
                left[gram] *= LEFT;
            }
        }
        if (total > 0) covered[0] = std::max(0.0f, 1 - uncovered / total);
    }

    int32_t first_of_highest() const {
        Floats most = Floats{} + TAKEN;
        Ints places = {}, place = {};  // of the vectors
        for (size_t i = 0; i < gains_.size(); i += FLOATS, place += 1) {
            const Floats some = load<Floats>(&gains_[i]);
            places = some > most ? place : places;
            most = some > most ? some : most;
        }
        int32_t first = INT32_MAX;
        const float highest = largest(most);
        for (int lane = 0; lane < FLOATS; ++lane)
            if (most[lane] == highest) first = std::min(first, places[lane] * FLOATS + lane);
        return first;
    }

    float gain_of(int32_t number, const std::vector<float>& left) const {
        float gain = 0;
        for (int32_t i = first_held_[number]; i < first_held_[number + 1]; ++i) gain += left[held_[i]];
        return gain * norms_[number];
    }

    // The distinct n-grams of the source, their weights, and which one begins at each place.
    void number_grams(const int32_t* source, int32_t length) {
        gram_weights_.clear();
        gram_at_.assign(static_cast<size_t>(length) * ORDERS, -1);
        for (int32_t place = 0; place < length; ++place) {
            float sum = 0;
            for (int32_t n = 0; n < ORDERS && place + n < length; ++n) {
                const int32_t token = source[place + n];
                if (token < 0 || token >= index_.vocabulary) break;
                sum += weights_[first_of_token_[token]];
                int32_t same = -1;  // the number of an equal n-gram that begins later: only places of the same token can
                for (int32_t other = first_of_token_[source[place]]; other >= 0 && other < place; other = next_same_[other])
                    if (other + n < length && std::equal(source + place, source + place + n + 1, source + other)) {
                        same = gram_at_[static_cast<size_t>(other) * ORDERS + n];
                        break;
                    }
                if (same < 0) {
                    same = static_cast<int32_t>(gram_weights_.size());
                    gram_weights_.push_back(sum * std::sqrt(static_cast<float>(n + 1)));
                }
                gram_at_[static_cast<size_t>(place) * ORDERS + n] = same;
            }
        }
    }

    SourceIndex index_{};
    Choosing choosing_{};
    Scores scores_;
    std::vector<int32_t> first_of_token_;  // (vocabulary,), the first place of a token in the source, or -1, as between sources
    std::vector<int32_t> next_same_;       // (length,), the next place of the same token, or -1
    std::vector<int32_t> distinct_, gram_at_, seen_, held_, first_held_;
    std::vector<float> weights_, gram_weights_, norms_, gains_;
    std::vector<Candidate> candidates_;
};

// The first entry of a sentence, and how many it has.
std::pair<int64_t, int64_t> entries_of(const SourceIndex& index, int64_t sentence) {
    const SourcePart* part = std::upper_bound(
        index.parts, index.parts + index.part_count, sentence,
        [](int64_t number, const SourcePart& other) { return number < other.first_sentence; }) - 1;
    const int32_t own = static_cast<int32_t>(sentence - part->first_sentence);
    const auto [begin, end] = std::equal_range(part->owners, part->owners + part->entries, own);
    return {part->first_entry + (begin - part->owners), end - begin};
}

}  // namespace

extern "C" {

// For each source, tokens[offsets[i]] to before tokens[offsets[i + 1]], the numbers of the sentences that cover it best,
// best first, (sources, count), -1 where there are no more; covered (sources, 2): which part of its n-grams, by weight, is
// covered by them, and which by one of them. Returns false if the index holds what cannot be.
bool knnmt_choose(const SourceIndex* index, const Choosing* choosing, int32_t sources, int32_t threads, const int32_t* tokens,
                  const int64_t* offsets, int64_t* chosen, float* covered) {
    std::atomic<bool> sound{true};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        thread_local Chooser chooser;
        chooser.begin(*index, *choosing);
#pragma omp for schedule(dynamic, 1)
        for (int32_t i = 0; i < sources; ++i) {
            const int32_t length = static_cast<int32_t>(offsets[i + 1] - offsets[i]);
            if (!chooser.choose(tokens + offsets[i], length, chosen + static_cast<int64_t>(i) * choosing->count, covered + 2 * i))
                sound = false;
        }
    }
    return sound;
}

// The entries of chosen sentences, (sources, count), -1 for none, and of those with the same sources: those of source i from
// ids[offsets[i]] on, ascending and each once, sizes[i] of them. Without ids, sizes[i] is how many there are at most.
// first_of (entries,): the entry in whose place each is searched for, null where every entry is for itself.
void knnmt_own_entries(const SourceIndex* index, const SameSources* same, const int64_t* first_of, int32_t sources,
                       int32_t count, int32_t threads, const int64_t* chosen, const int64_t* offsets, int64_t* sizes,
                       int64_t* ids) {
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads) if (threads > 1)
    for (int32_t i = 0; i < sources; ++i) {
        int64_t* end = ids ? ids + offsets[i] : nullptr;
        sizes[i] = 0;
        for (int32_t j = 0; j < count; ++j) {
            const int64_t sentence = chosen[static_cast<int64_t>(i) * count + j];
            if (sentence < 0 || sentence >= index->sentences) continue;
            const HashOrder& own = same->orders[sentence >= same->orders[1].first ? 1 : 0];
            const uint64_t hash = own.hashes[sentence - own.first];
            for (const HashOrder& order : same->orders) {
                const auto alike = std::equal_range(order.ordered, order.ordered + order.count, hash);
                for (const uint64_t* each = alike.first; each < alike.second; ++each) {
                    const int64_t other = order.sentences[each - order.ordered];
                    if (std::binary_search(same->removed, same->removed + same->removed_count, other)) continue;
                    const auto [first, size] = entries_of(*index, other);
                    sizes[i] += size;
                    for (int64_t entry = first; ids && entry < first + size; ++entry)
                        *end++ = first_of ? first_of[entry] : entry;
                }
            }
        }
        if (ids) {
            std::sort(ids + offsets[i], end);
            sizes[i] = std::unique(ids + offsets[i], end) - (ids + offsets[i]);
        }
    }
}
}
