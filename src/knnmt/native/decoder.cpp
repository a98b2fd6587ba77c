// A step of the decoder: from the newest token or tokens of each row to their representations, in one call.
//
// The same as knnmt.engine.transformer does in PyTorch, where a step of a few dozen rows is some hundred calls. A row
// does not depend on the others.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "decoder.h"

namespace {

// A new token of a hypothesis of a sentence: its place among the new ones, and its slot.
struct NewToken {
    const Sentence* sentence;
    int64_t hypothesis, place, slot;

    float* visible(int64_t capacity) const { return sentence->visible + hypothesis * capacity; }
};

// A row's attention to what it sees of `count` places, each `stride` numbers after the one before, first its keys and
// then its values, (dim,) each. It takes as many places at a time as a vector has numbers.
struct Attention {
    int64_t heads, dim;

    void operator()(const float* query, const float* places, const float* mask, int64_t count, float* result) const {
        thread_local std::vector<const float*> own_seen;
        thread_local std::vector<float> own_scores;
        auto& seen = own_seen;  // here, or they would be looked up at each access
        auto& scores = own_scores;
        const int64_t stride = 2 * dim, each = dim / heads;
        seen.clear();
        for (int64_t i = 0; i < count; ++i)
            if (!mask || mask[i] == 0) seen.push_back(places + i * stride);
        const int64_t found = static_cast<int64_t>(seen.size()), room = (found + FLOATS - 1) / FLOATS * FLOATS;
        std::fill(result, result + dim, 0.0f);
        if (!found) return;
        seen.resize(static_cast<size_t>(room), seen.back());
        const float scale = 1 / std::sqrt(static_cast<float>(each));
        scores.resize(static_cast<size_t>(heads * room));
        for (int64_t i = 0; i < room; i += FLOATS)
            for (int64_t head = 0; head < heads; ++head) {
                const Floats some = products_of(query + head * each, &seen[static_cast<size_t>(i)], head * each, each) * scale;
                std::memcpy(&scores[static_cast<size_t>(head * room + i)], &some, sizeof(some));
            }
        for (int64_t head = 0; head < heads; ++head) softmax(&scores[static_cast<size_t>(head * room)], found);
        for (int64_t i = 0; i < found; i += FLOATS)
            for (int64_t head = 0; head < heads; ++head)
                add_values(&seen[static_cast<size_t>(i)], &scores[static_cast<size_t>(head * room + i)],
                           std::min<int64_t>(FLOATS, found - i), dim + head * each, each, result + head * each);
    }

    // Of a query with the keys that begin `first` numbers after each place.
    static Floats products_of(const float* query, const float* const* places, int64_t first, int64_t count) {
        Floats parts[FLOATS], rest = {};
        for (int place = 0; place < FLOATS; ++place) {
            const float* key = places[place] + first;
            Floats sums = {};
            int64_t i = 0;
            for (; i + FLOATS <= count; i += FLOATS) sums += load<Floats>(query + i) * load<Floats>(key + i);
            for (; i < count; ++i) rest[place] += query[i] * key[i];
            parts[place] = sums;
        }
        return sums_of(parts) + rest;
    }

    // To a result, the values that begin `first` numbers after each place, as often as the weights say.
    static void add_values(const float* const* places, const float* weights, int64_t number, int64_t first, int64_t count, float* result) {
        constexpr int TOGETHER = 4;
        int64_t i = 0;
        for (; i + TOGETHER * FLOATS <= count; i += TOGETHER * FLOATS) {
            Floats sums[TOGETHER];
            std::memcpy(sums, result + i, sizeof(sums));
            for (int64_t place = 0; place < number; ++place)
                for (int v = 0; v < TOGETHER; ++v) sums[v] += load<Floats>(places[place] + first + i + v * FLOATS) * weights[place];
            std::memcpy(result + i, sums, sizeof(sums));
        }
        if (i < count)
            for (int64_t place = 0; place < number; ++place) add(result + i, places[place] + first + i, weights[place], count - i);
    }
};

// The layers of a step.
struct DecoderStack : Stack {
    const Decoder& decoder;
    const State& state;
    const NewToken* tokens;  // each is a row
    const Attention attention;

    DecoderStack(teams::Team& team, const Decoder& decoder, const State& state, const Buffers& at, const NewToken* tokens, int64_t rows)
        : Stack(team, decoder.shape, at, rows), decoder(decoder), state(state), tokens(tokens), attention{decoder.shape.heads, dim} {}

    void embed_newest(const int64_t* newest) {
        by_row([&](int64_t row) {
            const NewToken& token = tokens[row];
            const Sentence& sentence = *token.sentence;
            const float* position = decoder.positions + (sentence.length + token.place) * dim;
            embed(row, decoder.tokens + newest[row] * dim, position, decoder.embedding_norm);
            if (token.place == 0) {
                float* visible = token.visible(state.capacity);
                std::fill_n(visible + sentence.used, sentence.width * state.together, -std::numeric_limits<float>::infinity());
                std::fill_n(visible + token.slot, state.together, 0.0f);
            }
            begin_block(row, decoder.layer->self_norm, decoder.layer->self_in);
        });
    }
    void self_attention(const Layer& layer, int32_t number) {
        multiply(layer.self_in, input(), at.wide);
        const auto places_of = [&](int64_t row) { return tokens[row].sentence->slots + number * state.layer_stride; };
        const auto put = [&](int64_t row) {
            std::copy_n(at.wide + row * 3 * dim + dim, 2 * dim, places_of(row) + tokens[row].slot * 2 * dim);
        };
        const bool several = state.together > 1;
        if (several) by_row(put);  // before others see it
        by_row([&](int64_t row) {
            if (!several) put(row);
            float* attended = at.attended + row * dim;
            const NewToken& token = tokens[row];
            attention(at.wide + row * 3 * dim, places_of(row), token.visible(state.capacity), token.slot + 1, attended);
            prepare(layer.self_out, row, attended);
        });
        multiply(layer.self_out, at.attended, at.block);
        by_row([&](int64_t row) {
            end_block(row, layer.self_norm);
            begin_block(row, layer.cross_norm, layer.cross_query);
        });
    }
    void source_attention(const Layer& layer, int32_t number) {
        multiply(layer.cross_query, input(), at.wide);
        by_row([&](int64_t row) {
            const Sentence& sentence = *tokens[row].sentence;
            float* attended = at.attended + row * dim;
            attention(at.wide + row * dim, sentence.cross[number] + sentence.cross_offset, nullptr, sentence.source, attended);
            prepare(layer.cross_out, row, attended);
        });
        multiply(layer.cross_out, at.attended, at.block);
        by_row([&](int64_t row) {
            end_block(row, layer.cross_norm);
            begin_block(row, layer.feed_forward_norm, layer.inner);
        });
    }
    void feed_forward(const Layer& layer, const Layer* next, float* representations) {
        bend_and_back(layer.inner, layer.outer);
        by_row([&](int64_t row) {
            end_block(row, layer.feed_forward_norm);
            if (next) return begin_block(row, next->self_norm, next->self_in);
            write(row, decoder.last_norm, representations + row * dim);
        });
    }
};

}  // namespace

extern "C" {

bool knnmt_decode(const Decoder* decoder, const State* state, const int64_t* newest, float* representations, int32_t threads) {
    thread_local std::vector<NewToken> tokens;
    tokens.clear();
    for (const Sentence* sentence = state->sentence; sentence < state->sentence + state->sentences; ++sentence)
        for (int64_t hypothesis = 0; hypothesis < sentence->width; ++hypothesis)
            for (int64_t place = 0; place < state->together; ++place)
                tokens.push_back({sentence, hypothesis, place, sentence->used + hypothesis * state->together + place});
    const int64_t rows = static_cast<int64_t>(tokens.size());
    const NewToken* const new_tokens = tokens.data();
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t position = new_tokens[row].sentence->length + new_tokens[row].place;
        if (newest[row] < 0 || newest[row] >= decoder->vocabulary || position >= decoder->longest) return false;
    }
    thread_local std::vector<float> floats;
    thread_local std::vector<uint8_t> codes;
    floats.resize(Buffers::floats(decoder->shape, rows));
    codes.resize(Buffers::bytes(decoder->shape, rows));
    const Buffers at(decoder->shape, rows, floats.data(), codes.data());
    teams::Team team(threads);
    DecoderStack stack(team, *decoder, *state, at, new_tokens, rows);
    stack.embed_newest(newest);
    for (int32_t i = 0; i < decoder->shape.layers; ++i) {
        const Layer& layer = decoder->layer[i];
        stack.self_attention(layer, i);
        stack.source_attention(layer, i);
        stack.feed_forward(layer, i + 1 < decoder->shape.layers ? &layer + 1 : nullptr, representations);
    }
    return true;
}
}
