// Search in a sentence's own entries, and drafts from them: what own.cpp has for others.

#pragma once

#include <cstdint>

#include "mixing.h"

extern "C" {

struct OwnEntries {
    int64_t count;
    int64_t dimensions;
    const uint16_t* const* keys;  // (count,), where each key is, in float16
    const int64_t* ids;           // (count,)
    const int32_t* values;        // (count,), the token of each
    const float* counts;          // (count,), how many entries each stands for, or null
    const float* said;            // (count,), the model's own log-probability of each, for a network; or null
    // What knnmt_own_prepare writes, all for whole panels: the keys in int8, each with a scale, as products.h has them.
    int8_t* panels;
    float* bias;                  // minus half of each squared length
    float* scales;
    int32_t* starts;
    float* lost;                  // the length of what int8 lost of each
    float most_lost;
    float longest;                // the length of the longest
};

// How tokens are drafted.
struct Drafting {
    int32_t k;           // of the rows that were searched
    int32_t voters;      // entries, at most, that are asked what comes next
    int32_t most;        // tokens of a draft
    int64_t vocabulary;
    int64_t end;         // the token that ends sentences
    double least;        // a draft ends before the first token that is reached with less probability
};

// What is the same at all steps of a batch, as knnmt_mix has it.
struct OwnMixing {
    Mixture mixture;
    int32_t k;
    int64_t vocabulary;
};

// Search and mixture for rows of each sentence that are steps one after the other, turns (sentences,) of them. Written for each row:
// places (rows, k), which of the sentence's entries it found, -1 for none, and sums and steps (rows,), as they are after it;
// those before the first are before_sums and before_steps (sentences,).
bool knnmt_own_mix_in_turn(const OwnMixing* mixing, const OwnEntries* sentences, int32_t count, const int32_t* turns,
                           int32_t threads, int64_t stride, const float* queries, const float* before_sums,
                           const float* before_steps, float* sums, float* steps, int64_t* places, float* scores, float* offsets);

// What comes next in the entries by which each sentence went on, after knnmt_own_mix_in_turn. rows (sentences,): the row that
// chose newest (sentences,), its last token. The entries that the row found and that have this token vote on the one that
// follows them; the nearest counts most, and those that name another have no vote on what comes after it. sure (sentences,): how
// probable a token is that all name. limits (sentences,): how many tokens the draft of each may have. Written: drafts
// (sentences, most) and lengths (sentences,). A draft ends before the end of a sentence.
void knnmt_own_draft(const Drafting* drafting, const OwnEntries* sentences, int32_t count, const int64_t* places,
                     const int32_t* rows, const int64_t* newest, const double* sure, const int32_t* limits, int64_t* drafts,
                     int32_t* lengths);
}
