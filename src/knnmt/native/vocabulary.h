// What vocabulary.cpp does, for other compiled code.

#pragma once

#include <cstdint>

#include "products.h"

extern "C" {

// As knnmt_product, and then y of each row less the logarithm of the sum of its exponentials.
void knnmt_log_probabilities(const Matrix* matrix, const float* x, float* y, uint8_t* scratch, int32_t rows, int32_t threads);

// The `count` best of the sums of scores (sentences, width) and log_probabilities (sentences, width, vocabulary), best
// first: best (sentences, count), and where they are in a sentence's log-probabilities, places (sentences, count).
// Where there are not as many, -inf at the first place.
void knnmt_best(const float* scores, const float* log_probabilities, float* best, int64_t* places, int32_t sentences,
                int32_t width, int64_t vocabulary, int32_t count, int32_t threads);
}

// The same for one sentence.
void best_of(const float* scores, const float* log_probabilities, int32_t width, int64_t vocabulary, int32_t count, float* best,
             int64_t* places);
