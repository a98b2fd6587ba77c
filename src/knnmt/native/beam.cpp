// Beam search over sentences that need not be of the same length, with the model alone or mixed with each sentence's own entries.
//
// The same as knnmt.decoding.reference, step by step. Between two steps, Python would run code that the weights have driven out of
// the caches: for a small model that takes a fifth of the time.

#include "beam.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "clock.h"
#include "vocabulary.h"

namespace {

constexpr float NEVER = -std::numeric_limits<float>::infinity();

// Rows (width, stride): the first `count` numbers of each become those of its parent.
template <typename Number>
void take_over(Number* rows, int64_t stride, int64_t count, const std::vector<int64_t>& parents) {
    thread_local std::vector<Number> before;
    const int64_t width = 1 + *std::max_element(parents.begin(), parents.end());
    before.resize(static_cast<size_t>(width * count));
    for (int64_t w = 0; w < width; ++w) std::copy_n(rows + w * stride, count, &before[static_cast<size_t>(w * count)]);
    for (size_t w = 0; w < parents.size(); ++w)
        std::copy_n(&before[static_cast<size_t>(parents[w] * count)], count, rows + static_cast<int64_t>(w) * stride);
}

struct Steps {
    const Decoder& decoder;
    const Matrix& output;
    const Rules& rules;
    Search& search;
    const int32_t threads;
    const int64_t vocabulary = output.outputs, dim = decoder.shape.dim;

    std::vector<Sentence> sentences;
    std::vector<int64_t> inputs, first_rows;
    std::vector<float> representations, log_probabilities, offsets;
    std::vector<uint8_t> scratch;

    int64_t forced(const Running& each) const {
        if (rules.forced_last >= 0 && each.state.length == each.max_tokens - 1) return rules.forced_last;
        return each.state.length == 0 ? rules.forced_first : -1;
    }

    // Slots that no hypothesis sees any more become free.
    void compact(Sentence& sentence) const {
        std::vector<int64_t> alive;
        for (int64_t slot = 0; slot < sentence.used; ++slot)
            for (int64_t w = 0; w < sentence.width; ++w)
                if (sentence.visible[w * search.capacity + slot] == 0) {
                    alive.push_back(slot);
                    break;
                }
        for (int32_t layer = 0; layer < decoder.shape.layers; ++layer) {
            float* slots = sentence.slots + layer * search.layer_stride;
            for (size_t i = 0; i < alive.size(); ++i)
                if (alive[i] != static_cast<int64_t>(i)) std::copy_n(slots + alive[i] * 2 * dim, 2 * dim, slots + static_cast<int64_t>(i) * 2 * dim);
        }
        for (int64_t w = 0; w < sentence.width; ++w) {
            float* visible = sentence.visible + w * search.capacity;
            for (size_t i = 0; i < alive.size(); ++i) visible[i] = visible[alive[i]];
        }
        sentence.used = static_cast<int64_t>(alive.size());
    }

    // Whether every sentence has room for a step.
    bool has_capacity() {
        for (Running* each = search.running; each < search.running + search.sentences; ++each) {
            if (each->state.used + each->state.width > search.capacity) {
                compact(each->state);
                search.lacks_slots |= 2 * each->state.used + each->state.width > search.capacity;  // or it would soon be full again
            }
            search.lacks_tokens |= each->state.length + 1 > search.token_capacity;
        }
        return !search.lacks_slots && !search.lacks_tokens;
    }

    bool decode() {
        sentences.clear();
        inputs.clear();
        first_rows.clear();
        for (const Running* each = search.running; each < search.running + search.sentences; ++each) {
            sentences.push_back(each->state);
            first_rows.push_back(static_cast<int64_t>(inputs.size()));
            const int64_t length = each->state.length;
            for (int64_t w = 0; w < each->state.width; ++w) inputs.push_back(length ? each->tokens[w * search.token_capacity + length - 1] : rules.start);
        }
        const size_t rows = inputs.size();
        representations.resize(rows * static_cast<size_t>(dim));
        log_probabilities.resize(rows * static_cast<size_t>(vocabulary));
        offsets.assign(rows, 0.0f);
        const State state{search.sentences, 1, search.capacity, search.layer_stride, sentences.data()};
        return knnmt_decode(&decoder, &state, inputs.data(), representations.data(), threads);
    }

    void score() {
        const int64_t rows = static_cast<int64_t>(inputs.size());
        scratch.resize(static_cast<size_t>(rows * (output.digits * products::code_stride(output.inputs) + 4)));
        knnmt_log_probabilities(&output, representations.data(), log_probabilities.data(), scratch.data(), static_cast<int32_t>(rows), threads);
    }

    bool mix() {
        std::vector<SentenceRows> mixed;
        std::vector<int32_t> numbers;
        for (int32_t i = 0; i < search.sentences; ++i) {
            Running& each = search.running[i];
            if (!each.mixing || forced(each) >= 0) continue;
            each.searches += each.state.width;
            const int64_t row = first_rows[static_cast<size_t>(i)];
            mixed.push_back({each.mixing, each.own, each.state.width, &representations[static_cast<size_t>(row * dim)], &each.sum, &each.steps,
                             &log_probabilities[static_cast<size_t>(row * vocabulary)], &offsets[static_cast<size_t>(row)]});
            numbers.push_back(i);
        }
        const int64_t refused = mixed.empty() ? -1 : mix_sentences(mixed, vocabulary, threads);
        if (refused >= 0) search.refused = numbers[static_cast<size_t>(refused)];
        return refused < 0;
    }

    // Whether a hypothesis ends in the first tokens of a sequence.
    bool has_reached(const int64_t* tokens, int64_t length, const int64_t* begin, const int64_t* end) const {
        return end - begin <= length && std::equal(begin, end, tokens + length - (end - begin));
    }

    void forbid(const Running& each, int64_t row) {
        for (int64_t w = 0; w < each.state.width; ++w) {
            float* scores = &log_probabilities[static_cast<size_t>((row + w) * vocabulary)];
            if (each.state.length < rules.min_tokens) scores[rules.end] = NEVER;
            for (int32_t i = 0; i < rules.forbidden; ++i) scores[rules.never[i]] = NEVER;
            const int64_t* begin = rules.sequence_tokens;
            for (int32_t i = 0; i < rules.sequences; ++i) {
                const int64_t* end = rules.sequence_tokens + rules.sequence_ends[i];
                if (has_reached(each.tokens + w * search.token_capacity, each.state.length, begin, end - 1)) scores[end[-1]] = NEVER;
                begin = end;
            }
        }
    }

    // Scores of the hypotheses of a sentence before their next token.
    std::vector<float> before(const Running& each, int64_t row) const {
        std::vector<float> found(each.scores, each.scores + each.state.width);
        for (size_t w = 0; w < found.size(); ++w) found[w] += offsets[static_cast<size_t>(row) + w];
        return found;
    }

    // The best continuations of a sentence, whatever they contain, as knnmt_best has them.
    Followed follow_freely(const Running& each, int64_t row) {
        const int32_t count = 2 * rules.beam, width = each.state.width;
        const int64_t token = forced(each);
        std::vector<Continuation> best;
        if (token >= 0) {
            for (int32_t w = 0; w < width; ++w) best.push_back({w, token, each.scores[w]});
            best.resize(static_cast<size_t>(count), {0, 0, NEVER});
        } else {
            forbid(each, row);
            std::vector<float> sums = before(each, row), scores(static_cast<size_t>(count));
            std::vector<int64_t> places(scores.size());
            // Of a single hypothesis, the best token is that of the best log-probability, which a sum might round away.
            const float single = width == 1 ? sums[0] : 0.0f;
            if (width == 1) sums[0] = 0.0f;
            best_of(sums.data(), &log_probabilities[static_cast<size_t>(row * vocabulary)], width, vocabulary, count, scores.data(), places.data());
            for (size_t i = 0; i < scores.size(); ++i) best.push_back({places[i] / vocabulary, places[i] % vocabulary, scores[i] + single});
        }
        const bool last = each.state.length + 1 == each.max_tokens, alone = token >= 0 && each.state.length == 0;
        const size_t most = alone ? 1 : static_cast<size_t>(rules.beam);  // a forced first token has one continuation of one hypothesis
        Followed followed;
        for (size_t i = 0; i < best.size(); ++i) {
            const bool possible = best[i].score > NEVER, ends = best[i].token == rules.end && possible;
            if (i < static_cast<size_t>(rules.beam) && (ends || last) && possible) followed.ended.push_back(best[i]);
            if (!ends && followed.going.size() < most) followed.going.push_back(best[i]);
        }
        followed.leader = followed.going[0].score;
        return followed;
    }

    Followed follow_required_of(const Running& each, int64_t row) {
        float* const scores = &log_probabilities[static_cast<size_t>(row * vocabulary)];
        const int64_t token = forced(each);
        if (token >= 0) {
            std::fill_n(scores, each.state.width * vocabulary, NEVER);
            for (int32_t w = 0; w < each.state.width; ++w) scores[w * vocabulary + token] = 0;
        } else {
            forbid(each, row);
        }
        const std::vector<float> sums = before(each, row);
        return follow_required({*each.required, rules.end, vocabulary, each.max_tokens, rules.beam, each.state.width, each.state.length, search.token_capacity,
                                each.tokens, each.progress, sums.data(), scores});
    }

    void end(int32_t sentence, const int64_t* tokens, const Continuation& last) {
        const int64_t length = search.running[sentence].state.length;
        Ended& ended = search.ended[search.endings++];
        ended.sentence = sentence;
        ended.score = last.score;
        std::copy_n(tokens, length, ended.tokens);
        ended.tokens[length] = last.token;
    }

    // Hypotheses end, and others go on.
    void follow(int32_t number, const Followed& followed) {
        Running& each = search.running[number];
        const int64_t length = each.state.length;
        for (const Continuation& ended : followed.ended) end(number, each.tokens + ended.parent * search.token_capacity, ended);
        std::vector<int64_t> parents;
        for (const Continuation& going : followed.going) parents.push_back(going.parent);
        if (!parents.empty()) {
            take_over(each.tokens, search.token_capacity, length, parents);
            take_over(each.state.visible, search.capacity, each.state.used + each.state.width, parents);
        }
        for (size_t w = 0; w < parents.size(); ++w) {
            each.tokens[static_cast<int64_t>(w) * search.token_capacity + length] = followed.going[w].token;
            each.scores[w] = followed.going[w].score;
        }
        std::copy(followed.progress.begin(), followed.progress.end(), each.progress);
        each.state.used += each.state.width;
        each.state.width = static_cast<int32_t>(parents.size());
        ++each.state.length;
        each.leader = followed.leader;
        const double hoped = static_cast<double>(each.hoped_length ? each.hoped_length : each.state.length);
        each.closed = each.state.length == each.max_tokens || !(each.leader > NEVER) ||
                      static_cast<double>(each.leader) / std::pow(hoped, each.length_penalty) <= each.least;
    }

    bool choose() {
        std::vector<Followed> followed(static_cast<size_t>(search.sentences));
        teams::Team team(threads);
        team.each(search.sentences, [&](int64_t i) {
            const Running& each = search.running[i];
            const int64_t row = first_rows[static_cast<size_t>(i)];
            followed[static_cast<size_t>(i)] = each.required ? follow_required_of(each, row) : follow_freely(each, row);
        });
        bool closed = false;
        for (int32_t i = 0; i < search.sentences; ++i) {
            follow(i, followed[static_cast<size_t>(i)]);
            closed |= search.running[i].closed != 0;
        }
        return search.endings || closed;
    }

    bool all_forced() const {
        return std::all_of(search.running, search.running + search.sentences, [&](const Running& each) { return forced(each) >= 0; });
    }
};

}  // namespace

extern "C" {

int32_t knnmt_beam(const Decoder* decoder, const Matrix* output, const Rules* rules, Search* search, int32_t threads) {
    Steps steps{*decoder, *output, *rules, *search, threads};
    search->endings = search->lacks_slots = search->lacks_tokens = 0;
    Clock clock;
    for (int32_t made = 0; made < search->steps; ++made) {
        if (!steps.has_capacity()) return made;
        if (!steps.decode()) return -1;
        search->seconds[0] += clock.lap();
        if (!steps.all_forced()) {
            steps.score();
            search->seconds[1] += clock.lap();
            if (!steps.mix()) return -2;
            search->seconds[2] += clock.lap();
        }
        const bool decided = steps.choose();
        search->seconds[3] += clock.lap();
        if (decided) return made + 1;
    }
    return search->steps;
}
}
