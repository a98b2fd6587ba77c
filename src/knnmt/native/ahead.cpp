// Several steps of a search with the model alone: decoder, vocabulary and best continuations, as long as these are just followed.
//
// Between two steps, Python would run code that the weights have driven out of the caches: for a small model that takes a fifth
// of the time.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "clock.h"
#include "decoder.h"
#include "vocabulary.h"

extern "C" {

// Sentences with `width` hypotheses each, of the same length, and what the search does with them.
struct Ahead {
    int32_t count;              // continuations of a sentence that are looked at; a step follows the `width` best of them
    int32_t steps;              // at most
    int32_t forbidden;          // tokens
    int64_t end;                // the token that ends a hypothesis
    const int64_t* never;       // (forbidden,)
    int64_t length;             // of the hypotheses
    int64_t longest;            // room for tokens of a hypothesis
    int64_t* tokens;            // (sentences, width), the newest; written like the next two
    int64_t* history;           // (sentences, width, longest)
    float* scores;              // (sentences, width)
    float* best;                // (sentences, count), of the last step
    int64_t* places;            // (sentences, count), of the last step, as knnmt_best
    float* representations;     // (sentences, width, dim)
    float* log_probabilities;   // (sentences, width, vocabulary)
    uint8_t* scratch;           // as knnmt_product
    double seconds[3];          // that decoder, vocabulary and choice took; written
};
}

namespace {

// Rows (width, stride), of whose numbers the first `count` are replaced by those of their parents.
template <typename Number>
void take_over(Number* rows, int64_t width, int64_t stride, int64_t count, const std::vector<int64_t>& parents) {
    thread_local std::vector<Number> before;
    before.resize(static_cast<size_t>(width * count));
    for (int64_t w = 0; w < width; ++w) std::copy_n(rows + w * stride, count, &before[static_cast<size_t>(w * count)]);
    for (int64_t w = 0; w < width; ++w)
        std::copy_n(&before[static_cast<size_t>(parents[static_cast<size_t>(w)] * count)], count, rows + w * stride);
}

struct Steps {
    Ahead& ahead;
    const int64_t sentences, width, vocabulary;

    void choose(int32_t threads) {
        for (int64_t row = 0; row < sentences * width; ++row)
            for (int32_t i = 0; i < ahead.forbidden; ++i)
                ahead.log_probabilities[row * vocabulary + ahead.never[i]] = -std::numeric_limits<float>::infinity();
        // Of a single hypothesis, the best token is that of the best log-probability, which a sum might round away.
        const bool single = ahead.count == 1 && width == 1;
        const std::vector<float> none(single ? static_cast<size_t>(sentences) : 0);
        knnmt_best(single ? none.data() : ahead.scores, ahead.log_probabilities, ahead.best, ahead.places,
                   static_cast<int32_t>(sentences), static_cast<int32_t>(width), vocabulary, ahead.count, threads);
        if (single)
            for (int64_t i = 0; i < sentences; ++i) ahead.best[i] += ahead.scores[i];
    }

    // Whether a step is not just followed: a hypothesis ends, or a sentence has no possible continuation.
    bool matters() const {
        for (int64_t sentence = 0; sentence < sentences; ++sentence) {
            const int64_t first = sentence * ahead.count;
            if (!std::isfinite(ahead.best[first])) return true;
            for (int64_t w = 0; w < width; ++w)
                if (ahead.places[first + w] % vocabulary == ahead.end) return true;
        }
        return false;
    }

    void follow(const State& state) {
        std::vector<int64_t> parents(static_cast<size_t>(width));
        for (int64_t sentence = 0; sentence < sentences; ++sentence) {
            const int64_t first = sentence * width;
            const int64_t* places = ahead.places + sentence * ahead.count;
            int64_t* const history = ahead.history + first * ahead.longest;
            for (int64_t w = 0; w < width; ++w) {
                parents[static_cast<size_t>(w)] = places[w] / vocabulary;
                ahead.tokens[first + w] = places[w] % vocabulary;
                ahead.scores[first + w] = ahead.best[sentence * ahead.count + w];
            }
            if (width > 1) {
                take_over(history, width, ahead.longest, ahead.length, parents);
                take_over(state.visible + first * state.capacity, width, state.capacity, state.used, parents);
            }
            for (int64_t w = 0; w < width; ++w) history[w * ahead.longest + ahead.length] = ahead.tokens[first + w];
        }
        ++ahead.length;
    }
};

}  // namespace

extern "C" {

// Makes steps with one new token of each row, until the last or one that is not just followed; the choice of that one is left to
// the caller. Returns how many steps were made, or -1 if knnmt_decode has refused one. The state has slots for all steps, a history
// room for their tokens, and `count` is at least `width`, or there is one step.
int32_t knnmt_ahead(const Decoder* decoder, const State* state, const Matrix* output, Ahead* ahead, int32_t threads) {
    const int64_t rows = static_cast<int64_t>(state->sentences) * state->width;
    std::vector<int64_t> lengths(state->lengths, state->lengths + rows);
    State now = *state;
    now.lengths = lengths.data();
    Steps steps{*ahead, state->sentences, state->width, output->outputs};
    Clock clock;
    for (int32_t made = 1;; ++made) {
        if (!knnmt_decode(decoder, &now, ahead->tokens, ahead->representations, threads)) return -1;
        ahead->seconds[0] += clock.lap();
        knnmt_log_probabilities(output, ahead->representations, ahead->log_probabilities, ahead->scratch, static_cast<int32_t>(rows), threads);
        ahead->seconds[1] += clock.lap();
        steps.choose(threads);
        now.used += now.width;
        for (auto& length : lengths) ++length;
        const bool last = made == ahead->steps || steps.matters();
        if (!last) steps.follow(now);
        ahead->seconds[2] += clock.lap();
        if (last) return made;
    }
}
}
