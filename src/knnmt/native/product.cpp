// Products of rows with weights, one at a time; see products.h.

#include "products.h"

extern "C" {

// How many outputs a panel has, and what is added to the numbers of rows in int8.
int32_t knnmt_panel() { return FLOATS; }
int32_t knnmt_offset() { return OFFSET; }

// x (rows, inputs); y (rows, outputs) is written. `scratch` of int8 weights: (rows, digits, inputs in fours) bytes, then
// (rows,) numbers of 4 bytes.
void knnmt_product(const Matrix* matrix, const float* x, float* y, uint8_t* scratch, int32_t rows, int32_t threads) {
    const int64_t stride = code_stride(matrix->inputs);
    const Codes codes{scratch, reinterpret_cast<float*>(scratch + rows * matrix->digits * stride), stride};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (int32_t row = 0; row < rows; ++row) prepare(*matrix, codes, row, x + row * matrix->inputs);
#pragma omp for schedule(static, 1)
        for (int thread = 0; thread < threads; ++thread) multiply_share(*matrix, rows, x, codes, y, thread, threads);
    }
}
}
