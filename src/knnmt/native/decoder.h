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

// A sentence that is decoded: hypotheses of the same length. Keys and values of their tokens lie in slots that they share.
struct Sentence {
    int32_t width;              // hypotheses
    int64_t length;             // tokens that each has consumed
    int64_t used;               // slots
    float* slots;               // (capacity, 2, dim) of the first layer
    float* visible;             // (width, capacity): 0 where a hypothesis sees a slot, else -inf; a step writes its own slots
    const float* const* cross;  // (layers,): keys and values of sources, of which its own (source, 2, dim) begin at cross_offset
    int64_t cross_offset;
    int64_t source;
};

// A step's sentences.
struct State {
    int32_t sentences;
    int32_t together;           // new tokens of each hypothesis, of which one sees those before it
    int64_t capacity;           // slots of a sentence
    int64_t layer_stride;       // numbers from a layer's slots to those of the next
    const Sentence* sentence;
};

// newest: the new tokens, hypothesis by hypothesis; representations (new tokens, dim) are written, and what the step adds to the
// sentences, whose slots have room for it. Returns false, with nothing done, if a token is none of the vocabulary or a hypothesis
// as long as it may be.
bool knnmt_decode(const Decoder* decoder, const State* state, const int64_t* newest, float* representations, int32_t threads);
}
