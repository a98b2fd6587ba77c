// Equations 2 and 3: what step.cpp has for others.

#pragma once

#include <cstdint>

#include "network.h"

extern "C" {

struct Mixture {
    float temperature;
    float weight;          // the largest λ
    int32_t fades;         // 0: λ is the weight, and what follows is not used
    float scale, width, sentence_scale, sentence_width;
    float same_distance;   // up to about which an entry is of the very same state
    const Network* network;  // weighs the neighbours and predicts λ in place of the above; or null
};

// Equations 2 and 3, with λ fixed, fading or by a network, on the log-probabilities of a step, in place.
//
// distances_sq and ids (rows, k), k at most 256, nearest first, infinite and -1 where there are no more; values: the
// token of each entry; counts: how many entries each stands for, or null; said: the model's own log-probability of each,
// for a network; sums and steps (sentences,): the distances of the sentence's steps and their number, to which this one
// is added; scores (rows, vocabulary), each row `stride` numbers after the one before; offsets (rows,): what is to be
// added to all of a row. Returns false, with nothing changed, if an id is of none of the `entries` or its token not of
// the vocabulary: what stands there is other memory.
bool knnmt_mix(const Mixture* mixture, int32_t sentences, int32_t width, int32_t k, int64_t entries, int64_t vocabulary,
               int64_t stride, const float* distances_sq, const int64_t* ids, const int32_t* values,
               const float* counts, const float* said, float* sums, float* steps, float* scores, float* offsets);
}
