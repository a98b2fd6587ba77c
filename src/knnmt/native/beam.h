// Beam search: what beam.cpp has for others.

#pragma once

#include <cstdint>

#include "decoder.h"
#include "sentence_search.h"
#include "required.h"

extern "C" {

// A sentence and its running hypotheses, the likeliest first.
struct Running {
    Sentence state;           // its length is that of the hypotheses
    int64_t* tokens;          // (width, token_capacity), of each hypothesis
    float* scores;            // (width,), sums of log-probabilities
    double least;             // a normalised score that the first hypothesis must be able to beat; -inf if it need not
    const SentenceMixing* mixing;  // how it is mixed with its own entries, or null for the model alone
    const SentenceEntries* own;
    float sum, steps;         // as knnmt_mix has them
    const Required* required; // content that its hypotheses must have, or null
    int32_t* progress;        // (width, 1 + required.count), as Followed has it
    int64_t max_tokens;       // of a hypothesis, with its end
    double length_penalty;
    int64_t hoped_length;     // of which a running hypothesis may hope for the score; 0 for its own
    int64_t searches;         // written: rows that were mixed, in all steps
    float leader;             // written: the best score of those that may still become better than finished ones
    int32_t closed;           // written: whether nothing better can come
};

// What every step obeys. A token is -1 where there is none.
struct Rules {
    int32_t beam;                    // hypotheses; 2 beam continuations are looked at
    int64_t start;                   // the decoder's first input
    int64_t end;                     // the token that ends a hypothesis
    int64_t min_tokens;              // of a hypothesis, with its end
    int64_t forced_first, forced_last;
    int32_t forbidden;               // tokens
    const int64_t* never;            // (forbidden,)
    int32_t sequences;               // of tokens, of which the last is forbidden after the others
    const int64_t* sequence_ends;    // (sequences,): where each ends in sequence_tokens
    const int64_t* sequence_tokens;
};

// A hypothesis that has ended.
struct Ended {
    int32_t sentence;
    float score;
    int64_t* tokens;  // (token_capacity,); given
};

// Memory of a search, and what its steps count.
struct Search {
    int64_t capacity, layer_stride;  // as State has them
    int64_t token_capacity;          // of a hypothesis
    int32_t sentences;
    int32_t steps;                   // at most
    Running* running;                // (sentences,)
    Ended* ended;                    // (sentences * beam,)
    int32_t endings;                 // written: how many have ended
    int32_t lacks_slots, lacks_tokens;  // written: what no further step can be made without
    int32_t refused;                 // written: the sentence that knnmt_mix has refused
    double seconds[4];               // written: that decoder, vocabulary, mixture and choice took
};

// Makes steps until a hypothesis ends, a sentence is closed or memory must grow. Returns how many were made, -1 if knnmt_decode has
// refused one, or -2 if knnmt_mix has.
int32_t knnmt_beam(const Decoder* decoder, const Matrix* output, const Rules* rules, Search* search, int32_t threads);
}
