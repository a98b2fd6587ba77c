// A step of the decoder: from the newest token or tokens of each row to their representations, in one call.
//
// The same as knnmt.engine.transformer does in PyTorch, where a step of a few dozen rows is some hundred calls. Threads take
// turns at products, of which each computes some panels, and at what is done row by row; a row does not depend on the
// others.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "products.h"
#include "vectors.h"

using products::code_stride;
using products::Codes;
using products::prepare;

extern "C" {

// Of the OpenMP that PyTorch has loaded: not every compiler has a header for it.
int omp_get_thread_num();
int omp_get_num_threads();

struct Norm {
    const float* weight;  // (dim,), or null where there is no norm
    const float* bias;
};

struct Layer {
    Matrix self_in, self_out, cross_query, cross_out, inner, outer;
    Norm self_norm, cross_norm, feed_forward_norm;
};

struct Decoder {
    int32_t layers, dim, heads, hidden;
    int32_t activation;       // 0: ReLU, 1: GELU, 2: swish
    int32_t norm_first;       // whether norms stand before their blocks, not after the sums
    float epsilon;
    const Layer* layer;       // (layers,)
    int64_t vocabulary, longest;
    const float* tokens;      // (vocabulary, dim), scaled
    const float* positions;   // (longest, dim)
    Norm embedding_norm, last_norm;
};

// What knnmt.engine.state.TransformerState holds.
struct State {
    int32_t sentences, width;
    int32_t together;                  // new tokens of each row, of which one sees those before it; unless turns says how many
    int64_t used;                      // slots before this step
    int64_t capacity, source;
    int64_t layer_stride;              // of slots, in numbers
    float* slots;                      // (layers, sentences, capacity, 2, dim)
    float* visible;                    // (sentences, width, capacity), of which this step's slots are written
    const int64_t* lengths;            // (sentences, width)
    const float* const* cross;         // of each layer (sentences, source, 2, dim)
    const float* cross_mask;           // (sentences, source), or null
    // (sentences,), or null: of sentences with one row each, how many new tokens each has. The token at position i is then in
    // slot i and sees those before it, and `used` and `visible` say nothing.
    const int32_t* turns;
};

// A new token: its row, and its place among the row's new tokens.
struct NewToken {
    int32_t row, place;
};
}

namespace {

template <typename Change>
void change(float* row, int64_t count, Change each) {
    int64_t i = 0;
    for (; i + FLOATS <= count; i += FLOATS) {
        const Floats some = each(load<Floats>(row + i));
        std::memcpy(row + i, &some, sizeof(some));
    }
    if (i == count) return;
    float rest[FLOATS] = {};
    std::copy(row + i, row + count, rest);
    const Floats some = each(load<Floats>(rest));
    std::memcpy(row + i, &some, static_cast<size_t>(count - i) * sizeof(float));
}

Floats relu(Floats x) { return x > 0 ? x : Floats{}; }
Floats swish(Floats x) { return x / (1 + exponential(-x)); }

// With the error function by formula 7.1.26 of Abramowitz and Stegun, which is right to 1.5e-7.
Floats gelu(Floats x) {
    const Floats size = (x < 0 ? -x : x) * 0.70710678f, t = 1 / (1 + 0.3275911f * size);
    Floats series = 1.061405429f * t - 1.453152027f;
    for (float factor : {1.421413741f, -0.284496736f, 0.254829592f}) series = series * t + factor;
    const Floats beyond = series * t * exponential(-size * size);  // 1 - erf
    return 0.5f * x * (x < 0 ? beyond : 2 - beyond);
}

// The sum of what `each` makes of the numbers of one or two rows.
template <typename Each>
float total(int64_t count, const float* a, const float* b, Each each) {
    Floats sums = {};
    int64_t i = 0;
    for (; i + FLOATS <= count; i += FLOATS) sums += each(load<Floats>(a + i), load<Floats>(b + i));
    float all = sum(sums);
    for (; i < count; ++i) all += each(a[i], b[i]);
    return all;
}

float dot(const float* a, const float* b, int64_t count) {
    return total(count, a, b, [](auto x, auto y) { return x * y; });
}

void add(float* to, const float* from, float times, int64_t count) {
    int64_t i = 0;
    for (; i + FLOATS <= count; i += FLOATS) {
        const Floats some = load<Floats>(to + i) + load<Floats>(from + i) * times;
        std::memcpy(to + i, &some, sizeof(some));
    }
    for (; i < count; ++i) to[i] += from[i] * times;
}

void normalise(const Norm& norm, float epsilon, const float* x, float* y, int64_t count) {
    const float mean = total(count, x, x, [](auto a, auto) { return a; }) / static_cast<float>(count);
    const float squares = total(count, x, x, [mean](auto a, auto) { return (a - mean) * (a - mean); });
    const float scale = 1 / std::sqrt(squares / static_cast<float>(count) + epsilon);
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * scale * norm.weight[i] + norm.bias[i];
}

// A row's attention to what it sees of `count` places, each `stride` numbers after the one before, first its keys and
// then its values, (dim,) each.
struct Attention {
    int64_t heads, dim;
    std::vector<int64_t> seen;
    std::vector<float> scores;

    void operator()(const float* query, const float* places, const float* mask, int64_t count, float* result) {
        const int64_t stride = 2 * dim, each = dim / heads;
        seen.clear();
        for (int64_t i = 0; i < count; ++i)
            if (!mask || mask[i] == 0) seen.push_back(i);
        const int64_t found = static_cast<int64_t>(seen.size());
        std::fill(result, result + dim, 0.0f);
        if (!found) return;
        const float scale = 1 / std::sqrt(static_cast<float>(each));
        scores.resize(static_cast<size_t>(heads * found));
        for (int64_t i = 0; i < found; ++i)
            for (int64_t head = 0; head < heads; ++head)
                scores[static_cast<size_t>(head * found + i)] =
                    scale * dot(query + head * each, places + seen[static_cast<size_t>(i)] * stride + head * each, each);
        for (int64_t head = 0; head < heads; ++head) {
            float* mine = &scores[static_cast<size_t>(head * found)];
            const float most = *std::max_element(mine, mine + found);
            change(mine, found, [most](Floats some) { return exponential(some - most); });
            float total = 0;
            for (int64_t i = 0; i < found; ++i) total += mine[i];
            for (int64_t i = 0; i < found; ++i) mine[i] /= total;
        }
        for (int64_t i = 0; i < found; ++i)
            for (int64_t head = 0; head < heads; ++head)
                add(result + head * each, places + seen[static_cast<size_t>(i)] * stride + dim + head * each,
                    scores[static_cast<size_t>(head * found + i)], each);
    }
};

// What the threads of a step share, a row of each for every row.
struct Buffers {
    float* x;         // (dim,), the residual sums
    float* normed;    // (dim,), of those, where norms stand first
    float* wide;      // (the larger of 3 dim and hidden,), what the first product of a block gives
    float* attended;  // (dim,)
    float* block;     // (dim,), what a block gives
    uint8_t* codes;   // of the input of the next product, where that is in int8
    float* steps;
};

// One thread's part in a step. Whatever all must have done before begins with a barrier.
struct Worker {
    const Decoder& decoder;
    const State& state;
    const Buffers& at;
    const NewToken* tokens;
    int64_t rows;  // of which each new token has one
    int thread, threads;
    Attention attention;
    const int64_t dim = decoder.dim;

    Codes codes_for(const Matrix& matrix) const { return {at.codes, at.steps, code_stride(matrix.inputs)}; }

    // A new token's row, its place among the row's new tokens, its sentence, and its slot.
    int64_t row_of(int64_t token) const { return tokens[token].row; }
    int64_t place_of(int64_t token) const { return tokens[token].place; }
    int64_t sentence_of(int64_t token) const { return row_of(token) / state.width; }
    int64_t slot_of(int64_t token) const {
        if (state.turns) return state.lengths[row_of(token)] + place_of(token);
        return state.used + row_of(token) % state.width * state.together + place_of(token);
    }

    template <typename Work>
    void by_row(Work work) {
#pragma omp barrier
        for (int64_t row = rows * thread / threads; row < rows * (thread + 1) / threads; ++row) work(row);
    }
    void multiply(const Matrix& matrix, const float* from, float* to) {
#pragma omp barrier
        products::multiply_share(matrix, rows, from, codes_for(matrix), to, thread, threads);
    }

    const float* input() const { return decoder.norm_first ? at.normed : at.x; }
    void begin_block(int64_t row, const Norm& norm, const Matrix& first) {
        if (decoder.norm_first) normalise(norm, decoder.epsilon, at.x + row * dim, at.normed + row * dim, dim);
        prepare(first, codes_for(first), row, input() + row * dim);
    }
    void end_block(int64_t row, const Norm& norm) {
        float* x = at.x + row * dim;
        add(x, at.block + row * dim, 1, dim);
        if (!decoder.norm_first) normalise(norm, decoder.epsilon, x, x, dim);
    }

    void embed(const int64_t* newest) {
        by_row([&](int64_t row) {
            float* x = at.x + row * dim;
            std::copy_n(decoder.tokens + newest[row] * dim, dim, x);
            add(x, decoder.positions + (state.lengths[row_of(row)] + place_of(row)) * dim, 1, dim);
            if (decoder.embedding_norm.weight) normalise(decoder.embedding_norm, decoder.epsilon, x, x, dim);
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
            prepare(layer.self_out, codes_for(layer.self_out), row, attended);
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
            prepare(layer.cross_out, codes_for(layer.cross_out), row, attended);
        });
        multiply(layer.cross_out, at.attended, at.block);
        by_row([&](int64_t row) {
            end_block(row, layer.cross_norm);
            begin_block(row, layer.feed_forward_norm, layer.inner);
        });
    }
    void feed_forward(const Layer& layer, const Layer* next, float* representations) {
        const int64_t hidden = decoder.hidden;
        multiply(layer.inner, input(), at.wide);
        by_row([&](int64_t row) {
            float* bent = at.wide + row * hidden;
            if (decoder.activation == 0) change(bent, hidden, relu);
            if (decoder.activation == 1) change(bent, hidden, gelu);
            if (decoder.activation == 2) change(bent, hidden, swish);
            prepare(layer.outer, codes_for(layer.outer), row, bent);
        });
        multiply(layer.outer, at.wide, at.block);
        by_row([&](int64_t row) {
            end_block(row, layer.feed_forward_norm);
            if (next) return begin_block(row, next->self_norm, next->self_in);
            const float* x = at.x + row * dim;
            if (decoder.last_norm.weight)
                normalise(decoder.last_norm, decoder.epsilon, x, representations + row * dim, dim);
            else
                std::copy_n(x, dim, representations + row * dim);
        });
    }
};

}  // namespace

extern "C" {

// newest: the new tokens, row by row; representations (new tokens, dim) are written, and what the step adds to the state, whose
// slots have room for it. Returns false, with nothing done, if a token is none of the vocabulary or a row is as long as it may
// be.
bool knnmt_decode(const Decoder* decoder, const State* state, const int64_t* newest, float* representations, int32_t threads) {
    const int64_t dim = decoder->dim;
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
    const int64_t wide = std::max<int64_t>(3 * dim, decoder->hidden), bytes = 2 * code_stride(std::max(wide, dim));
    thread_local std::vector<float> floats;
    thread_local std::vector<uint8_t> codes;
    floats.resize(static_cast<size_t>(rows * (4 * dim + wide + 1)));
    codes.resize(static_cast<size_t>(rows * bytes));
    float* const first = floats.data();
    const Buffers at{first, first + rows * dim, first + rows * 4 * dim, first + rows * 2 * dim, first + rows * 3 * dim,
                     codes.data(), first + rows * (4 * dim + wide)};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        Worker worker{*decoder, *state, at, new_tokens, rows, omp_get_thread_num(), omp_get_num_threads(), {decoder->heads, dim}};
        worker.embed(newest);
        for (int32_t i = 0; i < decoder->layers; ++i) {
            const Layer& layer = decoder->layer[i];
            worker.self_attention(layer, state->slots + i * state->layer_stride);
            worker.source_attention(layer, state->cross[i]);
            worker.feed_forward(layer, i + 1 < decoder->layers ? &layer + 1 : nullptr, representations);
        }
    }
    return true;
}
}
