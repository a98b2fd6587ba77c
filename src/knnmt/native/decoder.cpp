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

// A new token: its row, and its place among the row's new tokens.
struct NewToken {
    int32_t row, place;
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
    const NewToken* tokens;  // each has a row
    const Attention attention;

    DecoderStack(teams::Team& team, const Decoder& decoder, const State& state, const Buffers& at, const NewToken* tokens, int64_t rows)
        : Stack(team, decoder.shape, at, rows), decoder(decoder), state(state), tokens(tokens), attention{decoder.shape.heads, dim} {}

    // A new token's row, its place among the row's new tokens, its sentence, and its slot.
    int64_t row_of(int64_t token) const { return tokens[token].row; }
    int64_t place_of(int64_t token) const { return tokens[token].place; }
    int64_t sentence_of(int64_t token) const { return row_of(token) / state.width; }
    int64_t slot_of(int64_t token) const {
        if (state.turns) return state.lengths[row_of(token)] + place_of(token);
        return state.used + row_of(token) % state.width * state.together + place_of(token);
    }

    void embed_newest(const int64_t* newest) {
        by_row([&](int64_t row) {
            const float* position = decoder.positions + (state.lengths[row_of(row)] + place_of(row)) * dim;
            embed(row, decoder.tokens + newest[row] * dim, position, decoder.embedding_norm);
            if (place_of(row) == 0 && !state.turns) {
                float* visible = state.visible + row_of(row) * state.capacity;
                std::fill_n(visible + state.used, state.width * state.together, -std::numeric_limits<float>::infinity());
                std::fill_n(visible + slot_of(row), state.together, 0.0f);
            }
            begin_block(row, decoder.layer->self_norm, decoder.layer->self_in);
        });
    }
    void self_attention(const Layer& layer, float* slots) {
        multiply(layer.self_in, input(), at.wide);
        const auto places_of = [&](int64_t row) { return slots + sentence_of(row) * state.capacity * 2 * dim; };
        const auto put = [&](int64_t row) {
            std::copy_n(at.wide + row * 3 * dim + dim, 2 * dim, places_of(row) + slot_of(row) * 2 * dim);
        };
        const bool several = state.turns || state.together > 1;
        if (several) by_row(put);  // before others see it
        by_row([&](int64_t row) {
            if (!several) put(row);
            float* attended = at.attended + row * dim;
            const float* visible = state.turns ? nullptr : state.visible + row_of(row) * state.capacity;
            attention(at.wide + row * 3 * dim, places_of(row), visible, slot_of(row) + 1, attended);
            prepare(layer.self_out, row, attended);
        });
        multiply(layer.self_out, at.attended, at.block);
        by_row([&](int64_t row) {
            end_block(row, layer.self_norm);
            begin_block(row, layer.cross_norm, layer.cross_query);
        });
    }
    void source_attention(const Layer& layer, const float* cross) {
        multiply(layer.cross_query, input(), at.wide);
        by_row([&](int64_t row) {
            const int64_t sentence = sentence_of(row);
            const float* mask = state.cross_mask ? state.cross_mask + sentence * state.source : nullptr;
            float* attended = at.attended + row * dim;
            attention(at.wide + row * dim, cross + sentence * state.source * 2 * dim, mask, state.source, attended);
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
    for (int32_t row = 0; row < state->sentences * state->width; ++row)
        for (int32_t place = 0; place < (state->turns ? state->turns[row] : state->together); ++place)
            tokens.push_back({row, place});
    const int64_t rows = static_cast<int64_t>(tokens.size());
    const NewToken* const new_tokens = tokens.data();
    for (int64_t token = 0; token < rows; ++token) {
        const int64_t position = state->lengths[new_tokens[token].row] + new_tokens[token].place;
        if (newest[token] < 0 || newest[token] >= decoder->vocabulary || position >= decoder->longest) return false;
        if (state->turns && position >= state->capacity) return false;
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
        stack.self_attention(layer, state->slots + i * state->layer_stride);
        stack.source_attention(layer, state->cross[i]);
        stack.feed_forward(layer, i + 1 < decoder->shape.layers ? &layer + 1 : nullptr, representations);
    }
    return true;
}
}
