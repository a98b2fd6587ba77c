// The small network of a trained combiner: what network.cpp has for others.

#pragma once

#include <cstdint>

constexpr int MOST_SEEN = 64;  // neighbours of a row

extern "C" {

// One of `robust`, or of `robust-fading` if it fades, as knnmt.retrieval.trained.networks has them.
struct Network {
    int32_t k;             // neighbours that it was trained with, at most MOST_SEEN
    int32_t fades;
    // T, what stands for a missing distance, the scale, sentence_scale and sentence_width of fading; mean and scale of the inputs,
    // (2k,) each; of_neighbour, of_memory (its first weights (2k, 32)) and of_model, weights before biases.
    const float* numbers;
};
}

// What a row is, whatever it found.
struct OfRow {
    const float* scores;  // (vocabulary,), the model's log-probabilities
    int64_t vocabulary;
    float mean, known;    // of the sentence's distances so far, and how many they are, at least 1
};

// A row with its neighbours, nearest first.
struct Seen {
    int32_t count;               // of neighbours, from 1 to the network's k
    const float* distances_sq;   // (count,)
    const int32_t* tokens;       // (count,), each in the vocabulary
    const float* said_there;     // (count,), the model's log-probability of each one's token at its own state
    const float* counts;         // (count,), how many entries each stands for, or null
    OfRow row;
};

// Writes weights (count,), of which the largest is 1, and returns log λ.
float weigh_by_network(const Network& network, const Seen& seen, float* weights);
