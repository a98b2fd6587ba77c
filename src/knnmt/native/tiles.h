// Products in int8 with the tiles of AMX: 16 codes of 64 inputs by 16 outputs at once. Of many rows they are up to three times as fast
// as VNNI, and the sums are the same; of few rows, the memory is the limit anyway. See product8.cpp, which chooses.

#pragma once

#include <algorithm>

#include "products.h"

namespace tiles {

#if defined(__AVX512VNNI__) && (defined(__AMX_INT8__) || defined(KNNMT_TILES))
constexpr bool BUILT = true;
#else
constexpr bool BUILT = false;
#endif
constexpr int64_t CODES = 16;      // of a tile, rows times digits
constexpr int64_t LINE = 64;       // inputs of a tile, a byte each
constexpr int64_t FEWEST = 11;     // codes that are multiplied with tiles

// Whether Linux lets this process use tiles.
bool granted();

inline bool serve(const products::Codes& x, int64_t digits) {
    return BUILT && x.rows * digits >= FEWEST && x.stride % LINE == 0 && granted();
}

// Rows in groups that fill a tile as well as can be: as many in each, fewer in the first alone.
struct Groups {
    int64_t rows, count, each;

    Groups(int64_t rows, int64_t digits)
        : rows(rows), count((rows * digits + CODES - 1) / CODES), each((rows + count - 1) / count) {}
    int64_t begin(int64_t group) const { return std::max<int64_t>(0, rows - (count - group) * each); }
    int64_t of(int64_t row) const { return count - 1 - (rows - 1 - row) / each; }
};

// Where a row's codes are. Of each 64 inputs, all rows of a group lie one after the other, and of a row its digits. So a tile is read in
// one go, and one that has room for more rows than the first group has reads some of what follows, never beyond the last code.
struct Place {
    uint8_t* codes;  // the first
    int64_t step;    // bytes from 64 inputs to the next

    uint8_t* at(int64_t digit, int64_t input) const { return codes + input / LINE * step + digit * LINE + input % LINE; }
};

inline Place place_of(const products::Codes& x, int64_t digits, int64_t row) {
    const Groups groups(x.rows, digits);
    const int64_t group = groups.of(row), begin = groups.begin(group), codes = (groups.begin(group + 1) - begin) * digits;
    return {x.codes + begin * digits * x.stride + (row - begin) * digits * LINE, codes * LINE};
}

// As products::multiply8, where tiles serve these codes.
void multiply(const Matrix& matrix, int64_t first, int64_t last, const products::Codes& x, float* y);

}  // namespace tiles
