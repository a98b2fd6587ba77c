// Products in int8; see products.h.

#pragma once

#include "products.h"
#include "vectors.h"

namespace products {

constexpr int64_t PANELS8 = WIDTH == 64 ? 3 : 2;  // that are worked on at once

// A row in int8. The matrix says how many digits.
void put_into_codes(const Matrix& matrix, const Codes& into, int64_t row, const float* x);

// The codes of a row that has one digit a number, without what was added to them: (stride,).
void read_codes(const Codes& x, int64_t row, float* into);

// The panels from `first` to before `last`, for all rows.
void multiply8(const Matrix& matrix, int64_t first, int64_t last, int64_t rows, const Codes& x, float* y);

}  // namespace products
