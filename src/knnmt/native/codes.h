// Keys in four bits a number, and bounds of their distances from a query: what codes.cpp has for sentence_search.cpp.
//
// Keys and queries are turned so that most of the keys' variance lies in the first numbers, and these alone become codes. With u a
// query and x a key, both less the mean, and y and z their first numbers, u x = z c + z (y - c) + (what lies beyond): the product
// is off by no more than |z| |y - c| plus the lengths of what lies beyond, multiplied.

#pragma once

#include <cstdint>

#include "vectors.h"

extern "C" {

struct Directions {
    int64_t dimensions;   // of a key
    int64_t kept;         // directions, a multiple of 16
    const float* panels;  // (kept / FLOATS, dimensions, FLOATS), orthonormal columns, or zeros
    const float* mean;    // (dimensions,)
    const float* steps;   // (kept,), from one code of a direction to the next
};

// Codes of a store's keys, made at their first use. A key's place is its id modulo `capacity`: in a large store, a later key may
// take the place of an earlier one.
struct KeyCodes {
    Directions directions;
    int64_t capacity;
    int64_t* ids;      // (capacity,), of the key in each place, plus 1; 0 for none
    uint8_t* codes;    // (capacity, kept / 2)
    float* numbers;    // (capacity, 4): see CodeNumbers
};

// The codes of some keys in panels.
struct CodePanels {
    const Directions* directions;
    int64_t count;       // keys
    // All for whole panels.
    uint8_t* codes;      // (panels, kept / 8, FLOATS, 4): of each eight numbers, the first four in the lower bits
    float* halves;       // half of each squared length, less the mean; infinite beyond the last key
    float* rounded_off;  // |y - c|
    float* beyond;       // the length of what lies beyond the kept directions
    float* code_lengths;  // |c| in steps
    float longest;       // key, less the mean
};
}

namespace codes {

constexpr float MIDDLE = 7.5f;  // a code stands for its distance from this, in steps

// What `KeyCodes::numbers` holds of a key.
struct CodeNumbers {
    float half, rounded_off, beyond, code_length;
};

// Makes the codes of at most MOST_KEYS keys, each at a pointer of its own.
constexpr int64_t MOST_KEYS = 16;
void encode(const Directions& directions, const uint16_t* const* keys, int64_t count, uint8_t* codes, CodeNumbers* numbers);

// Puts keys together in a panel, the codes of each from where they are.
void put(const CodePanels& panels, int64_t panel, const uint8_t* const (&keys)[FLOATS], const CodeNumbers (&numbers)[FLOATS]);

// A query, as it is multiplied with codes.
constexpr int BLOCKS = 3;
struct Query {
    const int8_t* numbers;  // (kept,), each block in steps of its own
    float scales[BLOCKS];   // these steps
    float start;            // what every product begins with
    // What a product may be off by for each unit of a key's `rounded_off`, `beyond` and `code_lengths`.
    float first, beyond, lost;
    float slack;            // what a product may be off by besides
    float length_sq;        // less the mean
    bool finite;            // or it is near nothing
};

// queries (rows,): of each (dimensions,); into: (rows, kept), whose memory the results refer to
void prepare(const CodePanels& panels, const float* const* queries, int64_t rows, int8_t* into, Query* found);

// At most ROWS queries and the panels from `first` to before `last`: products less halves of squared lengths. Each row of `scores`
// begins `stride` numbers after the one before.
constexpr int ROWS = WIDTH == 64 ? 8 : 4;
void multiply(const CodePanels& panels, int64_t first, int64_t last, const Query* queries, int64_t rows, float* scores, int64_t stride);

}  // namespace codes
