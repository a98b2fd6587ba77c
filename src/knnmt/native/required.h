// Content that a translation must have: what required.cpp has for beam search.

#pragma once

#include <cstdint>
#include <vector>

extern "C" {

// The requirements of a sentence, as knnmt.decoding.requirements has them: a trie of token sequences, whose root is node 0. Lists of
// node n lie from starts[n] to starts[n + 1].
struct Required {
    int32_t count;               // requirements
    int32_t width;               // hypotheses, at most
    int64_t late;                // length from which hypotheses that lack something count no more
    const int32_t* times;        // (count,), how often each is required
    const uint8_t *joined_before, *joined_after;  // (count,)
    const int32_t* depths;       // (nodes,)
    const uint8_t* ordinary;     // (nodes,), whether all tokens up to a node may occur anywhere
    const int32_t *child_starts, *children;  // nodes
    const int64_t* child_tokens;
    const int32_t *below_starts, *below;     // requirements with a sequence that passes through a node
    const int32_t *end_starts, *ends;        // requirements with a sequence that ends there
    const uint8_t* only;         // (vocabulary,), tokens that may only occur in required content
    int32_t only_count;
    const int64_t* only_tokens;  // (only_count,), the same tokens
    const uint8_t *joins, *spaced, *closing, *blank;  // (vocabulary,), as Words has them
};
}

// A continuation of a hypothesis of a sentence.
struct Continuation {
    int64_t parent, token;
    float score;
};

// What follows a step of a sentence: hypotheses that end, others that continue, best first, and the score of the best that may still
// become better than finished ones.
struct Followed {
    std::vector<Continuation> ended, going;
    std::vector<int32_t> progress;  // of each that continues: its node, and how often each requirement is met
    float leader;
};

// A sentence whose step is decided: its `width` hypotheses of `length` tokens, each `token_capacity` numbers after the one before, and what they
// fulfil; scores (width,), and the log-probabilities of their next tokens (width, vocabulary), which are changed.
struct RequiredStep {
    const Required& required;
    int64_t end, vocabulary, max_tokens;
    int32_t beam, width;
    int64_t length, token_capacity;
    const int64_t* tokens;
    const int32_t* progress;  // (width, 1 + count)
    const float* scores;
    float* log_probabilities;
};

// The best continuations that keep to the requirements, as knnmt.decoding.constrained chooses them.
Followed follow_required(const RequiredStep& step);
