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
#include <memory>
#include <utility>
#include <vector>

#include "team.h"
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

// Entries in whose place others are searched for.
struct Restated {
    int64_t count;
    const int64_t* ids;     // (count,), ascending
    const int64_t* firsts;  // (count,), the first that says what each says
};
}

namespace {

constexpr int AHEAD = 8;                                   // candidates whose offsets, or tokens, are fetched early
constexpr int LINE = 64;                                   // bytes that are fetched at a time
constexpr int ORDERS = 4;                                  // of n-grams
constexpr int SPAN = 64 - (ORDERS - 1);                    // places from one word of them to the next
constexpr int STEPS = 512;                                 // of height that proposed sentences are told apart by
constexpr int32_t WINDOW = 1 << 14;                        // sentences whose scores are added up at a time: these stay near
constexpr float BM25_K = 1.2f, BM25_B = 0.75f;             // the usual ones
constexpr double LENGTH_OFFSET = 10, LENGTH_POWER = -0.3;  // long segments cover more, and cost more
constexpr int32_t MOST_USUAL = 1024;                       // length whose norm is kept
constexpr double WHOLE = 1 << 30;                          // weights are whole numbers of parts of 1: sums of them are exact
constexpr double TAKEN = -1;                               // what a candidate gains that was chosen, less than any other

// Never 0, however common a token is: a score that is not 0 says that a sentence was named.
double idf(const SourceIndex& index, int32_t token) {
    const double held = static_cast<double>(index.postings[token]), all = static_cast<double>(index.sentences);
    return std::log1p((std::max(all - held, 0.0) + 0.5) / (held + 0.5));
}

// The postings of a token in some of the parts, part by part.
struct Reading {
    const Place* next;
    const Place* end;
    float weight;
};

// The postings of a token in one part, as far as they are not read yet.
struct Unread {
    const int32_t* next;
    const int32_t* end;
    float weight;
};

struct Proposed {
    uint32_t sentence;
    float score;
};

// What an n-gram has lost of its weight, and which candidates hold it: -1 for each, 0 for others.
struct Lost {
    double weight;
    const int8_t* has;
};

struct Candidate {
    uint64_t rank;  // the lower, the better: its score, and among equal ones its number
    const int32_t* tokens;
    int32_t length;

    Candidate() = default;
    Candidate(float score, uint32_t sentence, const int32_t* its_tokens, int32_t its_length) : tokens(its_tokens), length(its_length) {
        uint32_t bits;  // of a number that is not negative: these are in its order
        std::memcpy(&bits, &score, sizeof(bits));
        rank = uint64_t{~bits} << 32 | sentence;
    }
    int64_t sentence() const { return static_cast<uint32_t>(rank); }
};

bool better(const Candidate& a, const Candidate& b) { return a.rank < b.rank; }

// One thread's work. It is kept from call to call: memory that is taken anew costs as much as a choice.
class Chooser {
public:
    void begin(const SourceIndex& index, const Choosing& choosing) {
        index_ = index;
        choosing_ = choosing;
        sums_.resize(WINDOW, 0);
        named_.resize(WINDOW + 1);
        if (slot_of_token_.size() <= static_cast<size_t>(index.vocabulary)) slot_of_token_.resize(static_cast<size_t>(index.vocabulary) + 1, 0);
    }

    // Returns false if the index holds what cannot be.
    bool choose(const int32_t* source, int32_t length, int64_t* chosen, float* covered) {
        std::fill_n(chosen, choosing_.count, int64_t{-1});
        covered[0] = covered[1] = 0;
        distinct_.clear();
        for (int32_t place = 0; place < length; ++place) {
            const int32_t token = source[place];
            if (token < 0 || token >= index_.vocabulary || slot_of_token_[token]) continue;
            distinct_.push_back(token);
            slot_of_token_[token] = static_cast<int32_t>(distinct_.size());
        }
        const bool sound = propose();
        if (sound) cover(source, length, chosen, covered);
        else std::fill(sums_.begin(), sums_.end(), 0.0f);
        for (const int32_t token : distinct_) slot_of_token_[token] = 0;
        return sound;
    }

private:
    // Sentences that hold rare tokens of the source, with the sums of these tokens' idf; of the best, candidates.
    bool propose() {
        rarest_ = distinct_;
        std::sort(rarest_.begin(), rarest_.end(), [this](int32_t a, int32_t b) {
            return index_.postings[a] != index_.postings[b] ? index_.postings[a] < index_.postings[b] : a < b;
        });
        int64_t read = 0;
        readings_.clear();
        for (const int32_t token : rarest_) {
            const int64_t postings = index_.postings[token];
            if (read && read + postings > choosing_.postings) break;
            read += postings;
            const float weight = static_cast<float>(idf(index_, token));
            for (const Directory& directory : index_.directories)
                readings_.push_back({directory.places + directory.first[token], directory.places + directory.first[token + 1], weight});
        }
        int64_t held = 0;  // not `read`: the statistics are of a larger store, and may be wrong
        for (const Reading& each : readings_)
            for (const Place* place = each.next; place < each.end; ++place) held += place->end - place->begin;
        if (proposed_.size() <= static_cast<size_t>(held)) proposed_.resize(static_cast<size_t>(held) + 1);
        proposed_count_ = 0;
        highest_ = 0;
        for (int32_t number = 0; number < index_.part_count; ++number) {
            const SourcePart& part = index_.parts[number];
            unread_.clear();
            for (Reading& each : readings_)
                if (each.next < each.end && each.next->part == number) {
                    unread_.push_back({part.posting_sentences + each.next->begin, part.posting_sentences + each.next->end, each.weight});
                    ++each.next;
                }
            if (!read_postings(part)) return false;
        }
        keep_highest();
        return rank();
    }

    // Adds up the scores of a part's sentences, window after window of them: postings are ascending.
    bool read_postings(const SourcePart& part) {
        float* const sums = sums_.data();
        uint16_t* const names = named_.data();
        while (true) {
            int32_t lowest = INT32_MAX;
            bool all_read = true;
            for (const Unread& each : unread_)
                if (each.next < each.end) {
                    lowest = std::min(lowest, *each.next);
                    all_read = false;
                }
            if (all_read) return true;
            if (lowest < 0 || lowest >= part.sentences) return false;
            const uint32_t width = static_cast<uint32_t>(std::min<int64_t>(WINDOW, part.sentences - lowest));
            const uint8_t* passed_over = part.passed_over ? part.passed_over + lowest : nullptr;
            size_t named = 0;
            for (Unread& each : unread_) {
                const float weight = each.weight;
                const int32_t* next = each.next;
                for (; next < each.end; ++next) {
                    const uint32_t place = static_cast<uint32_t>(*next) - static_cast<uint32_t>(lowest);
                    if (place >= width) break;
                    if (passed_over) __builtin_prefetch(passed_over + place);
                    const float sum = sums[place];
                    uint32_t bits;
                    std::memcpy(&bits, &sum, sizeof(bits));  // compared as a whole number, which is faster
                    names[named] = static_cast<uint16_t>(place);
                    named += bits == 0;
                    sums[place] = sum + weight;
                }
                if (next < each.end && *next < lowest) return false;
                each.next = next;
            }
            const uint32_t first = static_cast<uint32_t>(part.first_sentence + lowest);
            size_t count = proposed_count_;
            float highest = highest_;
            for (size_t i = 0; i < named; ++i) {
                const uint32_t place = names[i];
                const float score = sums[place];
                const bool may_be = !passed_over || !passed_over[place];
                proposed_[count] = {first + place, score};
                count += may_be;
                highest = std::max(highest, may_be ? score : 0);
                sums[place] = 0;
            }
            proposed_count_ = count;
            highest_ = highest;
        }
    }

    // About as many as are to be ranked, at least: all that are as high as the lowest of them, in steps of height.
    void keep_highest() {
        const float scale = highest_ > 0 ? (STEPS - 1) / highest_ : 0;
        const auto step_of = [scale](const Proposed& each) { return static_cast<int32_t>(each.score * scale); };
        int32_t counts[2][STEPS] = {};  // in turn: the same step often comes again at once
        for (size_t i = 0; i < proposed_count_; ++i) ++counts[i % 2][step_of(proposed_[i])];
        int32_t lowest = STEPS;
        for (int64_t taken = 0; lowest > 0 && taken < choosing_.proposed; taken += counts[0][lowest] + counts[1][lowest]) --lowest;
        size_t kept = 0;
        for (size_t i = 0; i < proposed_count_; ++i) {
            const Proposed each = proposed_[i];
            proposed_[kept] = each;
            kept += step_of(each) >= lowest;
        }
        proposed_count_ = kept;
    }

    // The best by BM25, best first.
    bool rank() {
        candidates_.resize(proposed_count_);
        const SourcePart* part = index_.parts;  // those proposed are in the order of the parts
        for (size_t i = 0; i < proposed_count_; ++i) {
            const uint32_t sentence = proposed_[i].sentence;
            if (i + AHEAD < proposed_count_ && proposed_[i + AHEAD].sentence < part->first_sentence + part->sentences)
                __builtin_prefetch(part->source_offsets + (proposed_[i + AHEAD].sentence - part->first_sentence));
            while (sentence >= part->first_sentence + part->sentences) ++part;
            const int64_t own = sentence - part->first_sentence, begin = part->source_offsets[own], end = part->source_offsets[own + 1];
            if (begin < 0 || begin > end || end > part->tokens || end - begin > INT32_MAX) return false;
            const int32_t length = static_cast<int32_t>(end - begin);
            const float norm = BM25_K * (1 - BM25_B + BM25_B * static_cast<float>(length) / index_.mean_length);
            candidates_[i] = {proposed_[i].score / (1 + norm), sentence, part->source_tokens + begin, length};
        }
        const auto last = candidates_.begin() + std::min<int64_t>(choosing_.candidates, static_cast<int64_t>(candidates_.size()));
        std::nth_element(candidates_.begin(), last, candidates_.end(), better);
        std::sort(candidates_.begin(), last, better);
        candidates_.resize(static_cast<size_t>(last - candidates_.begin()));
        return true;
    }

    // Which of the source's n-grams each candidate holds, and a greedy choice by what is not covered yet.
    void cover(const int32_t* source, int32_t length, int64_t* chosen, float* covered) {
        number_grams(source, length);
        const size_t candidates = candidates_.size();
        stride_ = (candidates + WIDTH - 1) / WIDTH * WIDTH;
        has_.assign(left_.size() * stride_, 0);
        gains_.assign(stride_, TAKEN);
        norms_.assign(stride_, 1);
        held_.clear();
        first_held_.assign(1, 0);
        double total = 0, most = 0;
        for (const double weight : left_) total += weight;
        for (size_t number = 0; number < candidates; ++number) {
            if (number + AHEAD < candidates) expect(candidates_[number + AHEAD]);
            gains_[number] = find_grams(number);
            most = std::max(most, gains_[number]);
            norms_[number] = length_norm(candidates_[number].length);
        }
        double uncovered = total;
        whole_ = left_;
        const size_t count = std::min(static_cast<size_t>(choosing_.count), candidates);
        for (size_t place = 0; place < count; ++place) {
            const size_t number = first_of_highest();
            chosen[place] = candidates_[number].sentence();
            gains_[number] = TAKEN;
            lost_.clear();
            for (size_t i = first_held_[number]; i < first_held_[number + 1]; ++i) {
                const size_t gram = static_cast<size_t>(held_[i]);
                if (left_[gram] == whole_[gram]) uncovered -= whole_[gram];
                const double half = std::floor(left_[gram] / 2);
                if (half < left_[gram]) lost_.push_back({left_[gram] - half, has_.data() + gram * stride_});
                left_[gram] = half;
            }
            lower_gains();
        }
        if (total > 0) {
            covered[0] = static_cast<float>(1 - uncovered / total);
            covered[1] = static_cast<float>(most / total);
        }
    }

    double length_norm(int32_t length) {
        const auto norm = [](double tokens) { return std::pow(LENGTH_OFFSET + tokens, LENGTH_POWER); };
        if (length >= MOST_USUAL) return norm(length);
        for (int32_t next = static_cast<int32_t>(usual_norms_.size()); next <= length; ++next) usual_norms_.push_back(norm(next));
        return usual_norms_[length];
    }

    // Takes what n-grams have lost from what the candidates gain that hold them.
    void lower_gains() {
        constexpr size_t VECTORS = 4;
        for (size_t i = 0; i < stride_; i += VECTORS * DOUBLES) {
            Doubles gains[VECTORS];
            std::memcpy(gains, &gains_[i], sizeof(gains));
            for (const Lost& each : lost_) {
                const Longs by = (Longs)(Doubles{} + each.weight);
                for (size_t vector = 0; vector < VECTORS; ++vector)
                    gains[vector] -= (Doubles)(by & widened(each.has + i + vector * DOUBLES));
            }
            std::memcpy(&gains_[i], gains, sizeof(gains));
        }
    }

    size_t first_of_highest() const {
        Doubles most = Doubles{} + 2 * TAKEN;
        Longs places = {}, place = {};  // of the vectors
        for (size_t i = 0; i < stride_; i += DOUBLES, place += 1) {
            const Doubles some = load<Doubles>(&gains_[i]) * load<Doubles>(&norms_[i]);
            places = some > most ? place : places;
            most = some > most ? some : most;
        }
        int64_t first = 0;
        double highest = 2 * TAKEN;
        for (int64_t lane = 0; lane < DOUBLES; ++lane) {
            const int64_t here = places[lane] * DOUBLES + lane;
            if (most[lane] < highest || (most[lane] == highest && here > first)) continue;
            highest = most[lane];
            first = here;
        }
        return static_cast<size_t>(first);
    }

    // The distinct n-grams of the source: their weights, and at which place each ends first.
    void number_grams(const int32_t* source, int32_t length) {
        words_ = 1 + static_cast<size_t>(std::max(0, length - ORDERS)) / SPAN;
        places_.assign(words_ * (distinct_.size() + 1), 0);
        slots_.resize(static_cast<size_t>(length));
        weights_.assign(1, 0);
        for (const int32_t token : distinct_) weights_.push_back(idf(index_, token));
        for (int32_t place = 0; place < length; ++place) {
            const int32_t token = source[place];
            slots_[place] = token < 0 || token >= index_.vocabulary ? 0 : slot_of_token_[token];
            for (size_t word = 0; slots_[place] && word < words_; ++word) {
                const int64_t bit = place - static_cast<int64_t>(word * SPAN);
                if (bit >= 0 && bit < 64) places_of(word)[slots_[place]] |= uint64_t{1} << bit;
            }
        }
        left_.clear();
        firsts_.assign(ORDERS * words_, 0);
        gram_at_.assign(ORDERS * words_ * 64, -1);
        for (int32_t place = 0; place < length; ++place) {
            double sum = 0;
            for (int32_t n = 0; n < ORDERS && n <= place && slots_[place - n]; ++n) {
                sum += weights_[slots_[place - n]];
                const auto [word, bit] = first_end(place, n);
                if (word * SPAN + bit < static_cast<size_t>(place)) continue;
                firsts_[n * words_ + word] |= uint64_t{1} << bit;
                gram_at_[(n * words_ + word) * 64 + bit] = static_cast<int32_t>(left_.size());
                left_.push_back(std::floor(sum * std::sqrt(n + 1.0) * WHOLE));
            }
        }
    }

    // A word's places of each of the source's tokens. Words have ORDERS - 1 places in common, so that every n-gram is whole in
    // the word that has its end at another place than these.
    uint64_t* places_of(size_t word) { return places_.data() + word * (distinct_.size() + 1); }

    // The word and the bit where the n-gram of `n` tokens more than one, ending at a place of the source, ends first.
    std::pair<size_t, size_t> first_end(int32_t place, int32_t n) {
        for (size_t word = 0;; ++word) {
            uint64_t ends = word ? ~uint64_t{0} << (ORDERS - 1) : ~uint64_t{0};
            for (int32_t i = 0; i <= n; ++i) ends &= places_of(word)[slots_[place - i]] << i;
            if (ends) return {word, static_cast<size_t>(__builtin_ctzll(ends))};
        }
    }

    static void expect(const Candidate& candidate) {
        const char* tokens = reinterpret_cast<const char*>(candidate.tokens);
        for (int at = 0; at < 3 * LINE; at += LINE) __builtin_prefetch(tokens + at);
    }

    // Puts down which of the source's n-grams a candidate holds; the sum of their weights.
    double find_grams(size_t number) {
        const Candidate& candidate = candidates_[number];
        const uint32_t vocabulary = static_cast<uint32_t>(index_.vocabulary);
        const int32_t* slot_of_token = slot_of_token_.data();
        int8_t* has = has_.data() + number;
        const size_t before = held_.size();
        held_.resize(before + left_.size());
        int32_t* held = held_.data() + before;
        double gain = 0;
        for (size_t word = 0; word < words_; ++word) {
            const uint64_t* places = places_of(word);
            uint64_t ends[ORDERS] = {}, found[ORDERS] = {};  // of n-grams that end at this token, and at any
            for (int32_t i = 0; i < candidate.length; ++i) {
                const uint64_t here = places[slot_of_token[std::min(static_cast<uint32_t>(candidate.tokens[i]), vocabulary)]];
                for (int n = ORDERS - 1; n > 0; --n) found[n] |= ends[n] = ends[n - 1] << 1 & here;
                found[0] |= ends[0] = here;
            }
            for (size_t n = 0; n < ORDERS; ++n)
                for (uint64_t bits = found[n] & firsts_[n * words_ + word]; bits; bits &= bits - 1) {
                    const int32_t gram = gram_at_[(n * words_ + word) * 64 + static_cast<size_t>(__builtin_ctzll(bits))];
                    has[static_cast<size_t>(gram) * stride_] = -1;
                    *held++ = gram;
                    gain += left_[gram];
                }
        }
        held_.resize(static_cast<size_t>(held - held_.data()));
        first_held_.push_back(held_.size());
        return gain;
    }

    SourceIndex index_{};
    Choosing choosing_{};
    std::vector<int32_t> slot_of_token_;  // (vocabulary + 1,), which of the source's tokens it is, from 1 on; 0 for others, and for all between sources
    std::vector<int32_t> distinct_, rarest_;
    std::vector<Reading> readings_;
    std::vector<Unread> unread_;
    std::vector<float> sums_;       // (WINDOW,), 0 between windows
    std::vector<uint16_t> named_;   // places in the window
    size_t proposed_count_ = 0;
    std::vector<Proposed> proposed_;
    float highest_ = 0;             // score of those proposed
    std::vector<Candidate> candidates_;
    size_t words_ = 0;              // of 64 places of the source
    std::vector<uint64_t> places_;  // (words, slots); slot 0 is of tokens that the source does not have
    std::vector<uint64_t> firsts_;  // (orders, words), where an n-gram ends that does not end earlier, too
    std::vector<int32_t> gram_at_;  // (orders, words, 64), the number of that n-gram
    std::vector<int32_t> slots_;    // of the source's tokens
    std::vector<double> weights_;   // of slots
    std::vector<double> whole_, left_;  // of n-grams
    size_t stride_ = 0;             // candidates, in whole vectors
    std::vector<int8_t> has_;       // (n-grams, stride), -1 where a candidate holds it
    std::vector<Lost> lost_;
    std::vector<double> gains_, norms_;  // (stride,)
    std::vector<double> usual_norms_;    // of lengths
    std::vector<int32_t> held_;     // the n-grams of one candidate after the other
    std::vector<size_t> first_held_;
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

// Consecutive entries that are searched for themselves, from `ids` on; the first of those that say the same as others, into `firsts`.
// Returns the end of what is written.
int64_t* put_ids(const Restated* restated, int64_t first, int64_t size, int64_t* ids, std::vector<int64_t>& firsts) {
    const int64_t* next[2] = {};
    for (int i = 0; restated && i < 2; ++i) next[i] = std::lower_bound(restated[i].ids, restated[i].ids + restated[i].count, first);
    for (int64_t id = first; id < first + size; ++id) {
        int64_t said = id;
        for (int i = 0; restated && i < 2; ++i)
            if (next[i] < restated[i].ids + restated[i].count && *next[i] == id) said = restated[i].firsts[next[i]++ - restated[i].ids];
        if (said == id) *ids++ = id;
        else firsts.push_back(said);
    }
    return ids;
}

}  // namespace

extern "C" {

// For each source, tokens[offsets[i]] to before tokens[offsets[i + 1]], the numbers of the sentences that cover it best,
// best first, (sources, count), -1 where there are no more; covered (sources, 2): which part of its n-grams, by weight, is
// covered by them, and which by one of them. Returns false if the index holds what cannot be.
bool knnmt_choose(const SourceIndex* index, const Choosing* choosing, int32_t sources, int32_t threads, const int32_t* tokens,
                  const int64_t* offsets, int64_t* chosen, float* covered) {
    std::atomic<bool> sound{true};
    teams::Team team(threads);
    team.share(sources, [&](int64_t i) {
        thread_local const auto own = std::make_unique<Chooser>();
        Chooser& chooser = *own;  // at a place of its own: one of the thread would be looked up at each access
        chooser.begin(*index, *choosing);
        const int32_t length = static_cast<int32_t>(offsets[i + 1] - offsets[i]);
        if (!chooser.choose(tokens + offsets[i], length, chosen + i * choosing->count, covered + 2 * i)) sound = false;
    });
    return sound;
}

// The entries of chosen sentences, (sources, count), -1 for none, and of those with the same sources: those of source i from
// ids[offsets[i]] on, ascending and each once, sizes[i] of them. Without ids, sizes[i] is how many there are at most.
// restated (2,): in the place of which entries another is searched for, null where every entry is for itself.
void knnmt_sentence_entries(const SourceIndex* index, const SameSources* same, const Restated* restated, int32_t sources,
                       int32_t count, int32_t threads, const int64_t* chosen, const int64_t* offsets, int64_t* sizes,
                       int64_t* ids) {
    teams::Team team(threads);
    team.share(sources, [&](int64_t i) {
        thread_local std::vector<std::pair<int64_t, int64_t>> runs;  // the first entry of a sentence, and how many it has
        thread_local std::vector<int64_t> firsts;
        runs.clear();
        firsts.clear();
        for (int32_t j = 0; j < count; ++j) {
            const int64_t sentence = chosen[i * count + j];
            if (sentence < 0 || sentence >= index->sentences) continue;
            const HashOrder& own = same->orders[sentence >= same->orders[1].first ? 1 : 0];
            const uint64_t hash = own.hashes[sentence - own.first];
            for (const HashOrder& order : same->orders) {
                const auto alike = std::equal_range(order.ordered, order.ordered + order.count, hash);
                for (const uint64_t* each = alike.first; each < alike.second; ++each) {
                    const int64_t other = order.sentences[each - order.ordered];
                    if (std::binary_search(same->removed, same->removed + same->removed_count, other)) continue;
                    runs.push_back(entries_of(*index, other));
                }
            }
        }
        std::sort(runs.begin(), runs.end());
        runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
        sizes[i] = 0;
        for (const auto& run : runs) sizes[i] += run.second;
        if (!ids) return;
        int64_t* const begin = ids + offsets[i];
        int64_t* end = begin;
        for (const auto& run : runs) end = put_ids(restated, run.first, run.second, end, firsts);
        if (!firsts.empty()) {
            std::sort(firsts.begin(), firsts.end());
            int64_t* const middle = end;
            end = std::copy(firsts.begin(), firsts.end(), end);
            std::inplace_merge(begin, middle, end);
            end = std::unique(begin, end);
        }
        sizes[i] = end - begin;
    });
}
}
