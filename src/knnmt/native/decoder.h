// A step of the decoder, as other compiled code calls it; see decoder.cpp.

#pragma once

#include <cstdint>

#include "blocks.h"

extern "C" {

struct Layer {
    Matrix self_in, self_out, cross_query, cross_out, inner, outer;
    Norm self_norm, cross_norm, feed_forward_norm;
};

struct Decoder {
    Shape shape;
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

// newest: the new tokens, row by row; representations (new tokens, dim) are written, and what the step adds to the state, whose
// slots have room for it. Returns false, with nothing done, if a token is none of the vocabulary or a row is as long as it may
// be.
bool knnmt_decode(const Decoder* decoder, const State* state, const int64_t* newest, float* representations, int32_t threads);
}
