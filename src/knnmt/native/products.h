// Products of rows with weights that lie in panels, as a team of threads computes them: what product.cpp has for others.
//
// Weights in float32 that float16 holds exactly, as many published ones are, are read in half the time with no digit lost. Others
// are whole numbers of 24 bits with a scale for each output, which are read in three quarters of the time and lose less than sums
// in float32 do. Products are computed in float32. Weights in int8 have a scale for each output, and rows are put into int8 on the way, each with
// a scale of its own and one or two digits a number: the sums are integers, so that every build and PyTorch find the same.

#pragma once

#include <cstdint>

#include "team.h"

extern "C" {

struct Matrix {
    int32_t digits;         // of int8: how many each number of a row gets, 1 or 2; else 0
    int32_t bytes;          // of a weight: 4 for float32, 3 for whole numbers of 24 bits, 2 for float16, 1 for int8
    int64_t inputs;
    int64_t outputs;
    // Whole panels, with zeros for outputs beyond the last: (panels, inputs, FLOATS), of int8 (panels, inputs / 4, FLOATS, 4).
    const void* panels;
    const float* bias;      // of each output, whole panels, or null
    const float* scales;    // of whole numbers: of each output, whole panels
    const int32_t* starts;  // of int8: what the sums of each output begin with, whole panels
};
}

namespace products {

// Rows in int8: so many codes of each as it has digits times `stride`, in an order that product8.cpp knows, and the size of its step.
struct Codes {
    uint8_t* codes;
    float* steps;
    int64_t stride, rows;
};

inline int64_t code_stride(int64_t inputs) { return (inputs + 3) / 4 * 4; }

// What is added to the numbers of rows in int8.
int32_t offset();

// A row for a product, where the weights are in int8.
void prepare(const Matrix& matrix, const Codes& into, int64_t row, const float* x);

// y (rows, outputs) of rows x (rows, inputs), or of the same in int8 where the weights are.
void multiply(teams::Team& team, const Matrix& matrix, int64_t rows, const float* x, const Codes& codes, float* y);

// The same on one thread, of a few rows with panels of float32, where rows begin x_stride and y_stride numbers after one another.
void multiply_floats(const float* panels, int64_t inputs, int64_t outputs, int64_t rows, const float* x, int64_t x_stride, float* y,
                     int64_t y_stride);

// Both for all rows, as knnmt_product.
void multiply(teams::Team& team, const Matrix& matrix, const float* x, float* y, uint8_t* scratch, int64_t rows);

}  // namespace products
