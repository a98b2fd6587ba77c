// The encoder: from the tokens of sentences to their states, and from those to what the decoder's layers attend to.
//
// The same as knnmt.engine.transformer does in PyTorch, but the tokens of all sentences stand one after the other, and nothing is
// computed for the padding between them. A sentence does not depend on the others.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "blocks.h"

extern "C" {

struct EncoderLayer {
    Matrix attention_in, attention_out, inner, outer;
    Norm attention_norm, feed_forward_norm;
};

struct Encoder {
    Shape shape;
    const EncoderLayer* layer;  // (layers,)
    int64_t vocabulary, longest;
    const float* tokens;        // (vocabulary, dim), scaled
    const float* positions;     // (longest, dim)
    Norm embedding_norm, last_norm;
};
}

namespace {

constexpr int64_t QUERIES = 128;  // that are multiplied at once with all keys

int64_t whole_panels(int64_t outputs) { return (outputs + FLOATS - 1) / FLOATS * FLOATS; }

// The attention of one head in a sentence. Its keys and values become panels of weights.
struct Head {
    std::vector<float> keys, values, scores;

    // rows: of each of `count` tokens the head's query, with its key `dim` numbers and its value `2 dim` numbers further on;
    // results: (count, each), of which each begins `dim` numbers after the one before
    void operator()(const float* rows, int64_t count, int64_t dim, int64_t each, float* results) {
        const int64_t stride = 3 * dim;
        const float scale = 1 / std::sqrt(static_cast<float>(each));
        keys.assign(static_cast<size_t>(whole_panels(count) * each), 0);
        values.assign(static_cast<size_t>(whole_panels(each) * count), 0);
        for (int64_t token = 0; token < count; ++token) {
            const float *key = rows + token * stride + dim, *value = key + dim;
            float* const to = &keys[static_cast<size_t>(token / FLOATS * FLOATS * each + token % FLOATS)];
            for (int64_t i = 0; i < each; ++i) to[i * FLOATS] = key[i] * scale;
            for (int64_t i = 0; i < each; i += FLOATS)
                std::copy_n(value + i, std::min<int64_t>(FLOATS, each - i), &values[static_cast<size_t>(i * count + token * FLOATS)]);
        }
        scores.resize(static_cast<size_t>(std::min(QUERIES, count) * count));
        for (int64_t first = 0; first < count; first += QUERIES) {
            const int64_t some = std::min(QUERIES, count - first);
            products::multiply_floats(keys.data(), each, count, some, rows + first * stride, stride, scores.data(), count);
            for (int64_t row = 0; row < some; ++row) softmax(&scores[static_cast<size_t>(row * count)], count);
            products::multiply_floats(values.data(), count, each, some, scores.data(), count, results + first * dim, dim);
        }
    }
};

struct EncoderStack : Stack {
    const Encoder& encoder;
    const std::vector<int64_t>& firsts;  // rows of sentences, and after the last of them

    EncoderStack(teams::Team& team, const Encoder& encoder, const Buffers& at, const std::vector<int64_t>& firsts)
        : Stack(team, encoder.shape, at, firsts.back()), encoder(encoder), firsts(firsts) {}

    void embed_tokens(const int64_t* tokens, const int64_t* places) {
        by_row([&](int64_t row) {
            embed(row, encoder.tokens + tokens[row] * dim, encoder.positions + places[row] * dim, encoder.embedding_norm);
            begin_block(row, encoder.layer->attention_norm, encoder.layer->attention_in);
        });
    }
    void attention(const EncoderLayer& layer) {
        multiply(layer.attention_in, input(), at.wide);
        const int64_t heads = shape.heads, each = dim / heads, sentences = static_cast<int64_t>(firsts.size()) - 1;
        team.share(sentences * heads, [&](int64_t i) {
            thread_local Head head;
            const int64_t first = firsts[static_cast<size_t>(i / heads)], count = firsts[static_cast<size_t>(i / heads + 1)] - first;
            const int64_t at_head = i % heads * each;
            head(at.wide + first * 3 * dim + at_head, count, dim, each, at.attended + first * dim + at_head);
        });
        if (layer.attention_out.digits)
            by_row([&](int64_t row) { prepare(layer.attention_out, row, at.attended + row * dim); });
        multiply(layer.attention_out, at.attended, at.block);
        by_row([&](int64_t row) {
            end_block(row, layer.attention_norm);
            begin_block(row, layer.feed_forward_norm, layer.inner);
        });
    }
    void feed_forward(const EncoderLayer& layer, const EncoderLayer* next, float* const* states) {
        bend_and_back(layer.inner, layer.outer);
        by_row([&](int64_t row) {
            end_block(row, layer.feed_forward_norm);
            if (next) return begin_block(row, next->attention_norm, next->attention_in);
            write(row, encoder.last_norm, states[row]);
        });
    }
};

// Rows of padded sentences, (sentences, longest): the first rows of sentences where padding is left out.
std::vector<int64_t> first_rows(const int64_t* lengths, int32_t sentences) {
    std::vector<int64_t> firsts{0};
    for (int32_t i = 0; i < sentences; ++i) firsts.push_back(firsts.back() + lengths[i]);
    return firsts;
}

}  // namespace

extern "C" {

// tokens: those of all sentences, one after the other; lengths (sentences,), how many each has, at most `padded`; states
// (sentences, padded, dim) are written, those of padding as zeros. Returns false, with nothing done, if a token is none of the
// vocabulary or a sentence longer than it may be.
bool knnmt_encode(const Encoder* encoder, const int64_t* tokens, const int64_t* lengths, int32_t sentences, int64_t padded,
                  float* states, int32_t threads) {
    const Shape& shape = encoder->shape;
    const std::vector<int64_t> firsts = first_rows(lengths, sentences);
    const int64_t rows = firsts.back();
    std::vector<int64_t> places(static_cast<size_t>(rows));
    std::vector<float*> to(static_cast<size_t>(rows));
    for (int64_t row = 0; row < rows; ++row)
        if (tokens[row] < 0 || tokens[row] >= encoder->vocabulary) return false;
    for (int32_t i = 0; i < sentences; ++i) {
        if (lengths[i] > padded || lengths[i] > encoder->longest) return false;
        for (int64_t place = 0; place < lengths[i]; ++place) {
            const size_t row = static_cast<size_t>(firsts[static_cast<size_t>(i)] + place);
            places[row] = place;
            to[row] = states + (i * padded + place) * shape.dim;
        }
    }
    for (int32_t i = 0; i < sentences; ++i)
        std::fill(states + (i * padded + lengths[i]) * shape.dim, states + (i + 1) * padded * shape.dim, 0.0f);
    // Not initialised, and not kept: a batch may have many rows.
    const std::unique_ptr<float[]> floats(new float[Buffers::floats(shape, rows)]);
    const std::unique_ptr<uint8_t[]> codes(new uint8_t[Buffers::bytes(shape, rows)]);
    const Buffers at(shape, rows, floats.get(), codes.get());
    teams::Team team(threads);
    EncoderStack stack(team, *encoder, at, firsts);
    stack.embed_tokens(tokens, places.data());
    for (int32_t i = 0; i < shape.layers; ++i) {
        const EncoderLayer& layer = encoder->layer[i];
        stack.attention(layer);
        stack.feed_forward(layer, i + 1 < shape.layers ? &layer + 1 : nullptr, to.data());
    }
    return true;
}

// Products of the states (sentences, padded, dim) with each of `matrices`: results (matrices,), of each (sentences, padded, outputs),
// those of padding zeros. All matrices have as many inputs and outputs, and all or none are in int8.
void knnmt_source_attention(const Matrix* matrices, int32_t count, const float* states, const int64_t* lengths, int32_t sentences,
                            int64_t padded, float* const* results, int32_t threads) {
    const int64_t dim = matrices->inputs, outputs = matrices->outputs, stride = products::code_stride(dim);
    const std::vector<int64_t> firsts = first_rows(lengths, sentences);
    const int64_t rows = firsts.back();
    const std::unique_ptr<float[]> floats(new float[static_cast<size_t>(rows * (dim + outputs + 1))]);
    const std::unique_ptr<uint8_t[]> bytes(new uint8_t[static_cast<size_t>(rows * 2 * stride)]);
    float *const x = floats.get(), *const y = x + rows * dim;
    const products::Codes codes{bytes.get(), y + rows * outputs, stride, rows};
    teams::Team team(threads);
    team.each(sentences, [&](int64_t sentence) {
        const int64_t first = firsts[static_cast<size_t>(sentence)], length = lengths[sentence];
        std::copy_n(states + sentence * padded * dim, length * dim, x + first * dim);
        for (int64_t row = first; row < first + length; ++row) products::prepare(*matrices, codes, row, x + row * dim);
    });
    for (int32_t i = 0; i < count; ++i) {
        products::multiply(team, matrices[i], rows, x, codes, y);
        team.each(sentences, [&](int64_t sentence) {
            const int64_t length = lengths[sentence];
            float* const to = results[i] + sentence * padded * outputs;
            std::copy_n(y + firsts[static_cast<size_t>(sentence)] * outputs, length * outputs, to);
            std::fill(to + length * outputs, to + padded * outputs, 0.0f);
        });
    }
}
}
