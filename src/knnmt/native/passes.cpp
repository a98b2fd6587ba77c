// Passes of greedy search with drafts: decoder, vocabulary, search, mixture, choice and the next drafts, until a sentence is done.
//
// The same as knnmt.decoding.drafted does in Python, pass by pass; between two passes, Python would run code that the weights have
// driven out of the caches.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "clock.h"
#include "decoder.h"
#include "own.h"
#include "vocabulary.h"

extern "C" {

struct Passes {
    int64_t end;            // the token that ends a sentence
    int64_t max_tokens;     // of a sentence
    int64_t positions;      // up to which tokens may be drafted
    int64_t until;          // so many tokens of a sentence: what is forbidden stays the same before
    int64_t room;           // for tokens of a sentence
    int32_t forbidden;      // tokens
    const int64_t* never;   // (forbidden,)
    double row_cost, speed; // as in knnmt.decoding.drafted, like the next two
    double surely, surer;   // a token that all entries name has this probability, and so much more for each unit of λ
    // Of each sentence, (sentences,) if nothing else is said; all are changed.
    int64_t* generated;     // (sentences, room)
    uint8_t* drafted;       // (sentences, room): whether each token came in one pass with the one before it
    int64_t* lengths;       // tokens
    int64_t* last;          // the newest token
    double* scores;
    uint8_t* lost;          // whether nothing was possible
    uint8_t* ended;
    float* sums;            // of the mixture
    float* steps;
    int64_t* drafts;        // (sentences, the most tokens of a draft)
    int32_t* draft_lengths;
    // Counts, to which the passes add.
    int64_t searches, accepted;
    int64_t* by_length;     // (1 + the most tokens of a draft,), drafts
    double seconds[4];      // that decoder, vocabulary, search and the rest took
};
}

namespace {

// What each row of a pass needs.
struct Rows {
    int64_t room = 0;
    std::unique_ptr<float[]> representations, log_probabilities;
    std::vector<float> none, best, offsets, sums, steps;
    std::vector<int64_t> tokens, places;

    void fit(int64_t rows, int64_t dim, int64_t vocabulary, int64_t k) {
        if (rows <= room) return;
        room = rows;
        representations.reset(new float[static_cast<size_t>(rows * dim)]);
        log_probabilities.reset(new float[static_cast<size_t>(rows * vocabulary)]);
        for (auto* each : {&none, &best, &offsets, &sums, &steps}) each->assign(static_cast<size_t>(rows), 0);
        tokens.resize(static_cast<size_t>(rows));
        places.resize(static_cast<size_t>(rows * k));
    }
};

struct Search {
    Passes& passes;
    const int32_t sentences;
    const int64_t most;  // tokens of a draft

    bool done(int32_t number) const { return passes.ended[number] || passes.lost[number]; }

    // The tokens of a pass up to the first that was not drafted; how many turns were used.
    int32_t take(int32_t number, const float* best, const float* offsets, const int64_t* chosen) {
        const int64_t* draft = passes.drafts + number * most;
        int64_t& length = passes.lengths[number];
        for (int32_t turn = 0;; ++turn) {
            const float gain = best[turn] + offsets[turn];
            if (!std::isfinite(gain)) {
                passes.lost[number] = 1;
                return turn + 1;
            }
            passes.generated[number * passes.room + length] = chosen[turn];
            passes.drafted[number * passes.room + length] = turn > 0;
            ++length;
            passes.scores[number] += gain;
            passes.last[number] = chosen[turn];
            passes.ended[number] = chosen[turn] == passes.end || length == passes.max_tokens;
            if (passes.ended[number] || turn == passes.draft_lengths[number] || draft[turn] != chosen[turn]) return turn + 1;
        }
    }

    void count(int32_t number, int32_t taken) {
        passes.searches += taken;
        if (!passes.draft_lengths[number]) return;
        ++passes.by_length[passes.draft_lengths[number]];
        passes.accepted += taken - 1;
    }

    // last_rows (sentences,): the row of the last token of each.
    void draft(Drafting drafting, const OwnEntries* own, const Rows& rows, const std::vector<int32_t>& last_rows) {
        std::vector<double> sure(static_cast<size_t>(sentences));
        std::vector<int32_t> limits(static_cast<size_t>(sentences));
        int32_t open = 0;
        for (int32_t number = 0; number < sentences; ++number) {
            const size_t at = static_cast<size_t>(number);
            const double lambda = 1 - std::exp(static_cast<double>(rows.offsets[static_cast<size_t>(last_rows[at])]));
            sure[at] = std::min(1.0, passes.surely + passes.surer * lambda);
            limits[at] = done(number) ? 0 : static_cast<int32_t>(std::max<int64_t>(passes.positions - passes.lengths[number] - 1, 0));
            open += !done(number);
        }
        drafting.least = passes.speed * open * passes.row_cost / (1 + passes.row_cost * std::max(open - 1, 0));
        std::fill_n(passes.draft_lengths, sentences, 0);
        if (open && *std::max_element(sure.begin(), sure.end()) > drafting.least)
            knnmt_own_draft(&drafting, own, sentences, rows.places.data(), last_rows.data(), passes.last, sure.data(), limits.data(),
                            passes.drafts, passes.draft_lengths);
    }
};

}  // namespace

extern "C" {

// Makes passes until a sentence is done, something else is forbidden or the state has no room. Returns how many were made, -1 if
// knnmt_decode has refused one, or -2 if knnmt_own_mix_in_turn has.
int32_t knnmt_passes(const Decoder* decoder, const State* state, const Matrix* output, const OwnMixing* mixing, const Drafting* drafting,
                     const OwnEntries* own, Passes* passes, int32_t threads) {
    const int32_t sentences = state->sentences;
    const int64_t vocabulary = output->outputs, most = drafting->most;
    std::vector<int32_t> turns(static_cast<size_t>(sentences)), last_rows(static_cast<size_t>(sentences));
    std::vector<int64_t> inputs;
    std::vector<uint8_t> scratch;
    Rows rows;
    Search search{*passes, sentences, most};
    State now = *state;
    now.lengths = passes->lengths;
    now.turns = turns.data();
    Clock clock;
    for (int32_t made = 0;; ++made) {
        inputs.clear();
        for (int32_t number = 0; number < sentences; ++number) {
            const int32_t some = turns[static_cast<size_t>(number)] = 1 + passes->draft_lengths[number];
            if (search.done(number) || passes->lengths[number] + some > std::min(passes->until, now.capacity)) return made;
            inputs.push_back(passes->last[number]);
            inputs.insert(inputs.end(), passes->drafts + number * most, passes->drafts + number * most + some - 1);
        }
        const int64_t count = static_cast<int64_t>(inputs.size());
        rows.fit(count, decoder->shape.dim, vocabulary, mixing->k);
        scratch.resize(static_cast<size_t>(count * (output->digits * products::code_stride(output->inputs) + 4)));
        if (!knnmt_decode(decoder, &now, inputs.data(), rows.representations.get(), threads)) return -1;
        passes->seconds[0] += clock.lap();
        float* const scores = rows.log_probabilities.get();
        knnmt_log_probabilities(output, rows.representations.get(), scores, scratch.data(), static_cast<int32_t>(count), threads);
        passes->seconds[1] += clock.lap();
        if (!knnmt_own_mix_in_turn(mixing, own, sentences, turns.data(), threads, vocabulary, rows.representations.get(), passes->sums,
                                   passes->steps, rows.sums.data(), rows.steps.data(), rows.places.data(), scores, rows.offsets.data()))
            return -2;
        passes->seconds[2] += clock.lap();
        for (int64_t row = 0; row < count; ++row)
            for (int32_t i = 0; i < passes->forbidden; ++i)
                scores[row * vocabulary + passes->never[i]] = -std::numeric_limits<float>::infinity();
        knnmt_best(rows.none.data(), scores, rows.best.data(), rows.tokens.data(), static_cast<int32_t>(count), 1, vocabulary, 1, threads);
        int32_t first = 0;
        for (int32_t number = 0; number < sentences; ++number) {
            const size_t at = static_cast<size_t>(first);
            const int32_t taken = search.take(number, &rows.best[at], &rows.offsets[at], &rows.tokens[at]);
            search.count(number, taken);
            last_rows[static_cast<size_t>(number)] = first + taken - 1;
            passes->sums[number] = rows.sums[at + static_cast<size_t>(taken) - 1];
            passes->steps[number] = rows.steps[at + static_cast<size_t>(taken) - 1];
            first += turns[static_cast<size_t>(number)];
        }
        search.draft(*drafting, own, rows, last_rows);
        passes->seconds[3] += clock.lap();
    }
}
}
