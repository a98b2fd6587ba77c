// Search in a sentence's own entries: what sentence_search.cpp has for others.

#pragma once

#include <cstdint>
#include <vector>

#include "codes.h"
#include "mixing.h"

extern "C" {

struct SentenceEntries {
    const uint16_t* const* keys;  // (count,), where each key is, in float16
    const int64_t* ids;           // (count,), ascending
    const int32_t* values;        // (count,), the token of each
    const float* counts;          // (count,), how many entries each stands for, or null
    const float* said;            // (count,), the model's own log-probability of each, for a network; or null
    CodePanels panels;            // written by knnmt_sentence_prepare; their count is that of the entries
};

// What is the same at all steps of a batch, as knnmt_mix has it.
struct SentenceMixing {
    Mixture mixture;
    int32_t k;
    int64_t vocabulary;
};

// Search and mixture for the rows of each sentence, `width` of them, queries (count * width, dimensions): what knnmt_mix does with
// the k nearest of the sentence's entries.
bool knnmt_sentence_mix(const SentenceMixing* mixing, const SentenceEntries* sentences, int32_t count, int32_t width, int32_t threads,
                   int64_t stride, const float* queries, float* sums, float* steps, float* scores, float* offsets);
}

// Rows of a sentence that are searched in its own entries and mixed: as knnmt_sentence_mix has it.
struct SentenceRows {
    const SentenceMixing* mixing;
    const SentenceEntries* own;
    int32_t width;
    const float* queries;
    float *sum, *steps, *scores, *offsets;
};

// Each row of scores begins `stride` numbers after the one before. Returns the place of a sentence that knnmt_mix refuses, or -1.
int64_t mix_sentences(const std::vector<SentenceRows>& sentences, int64_t stride, int32_t threads);
