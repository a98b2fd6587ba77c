// Products of rows with weights, both in int8; see products.h.

#include "product8.h"

#include <algorithm>
#include <vector>

#include "panels.h"
#include "tiles.h"

using products::add_products;
using products::Codes;

namespace {

constexpr int PANELS = products::PANELS8;
constexpr int CODES = WIDTH == 64 ? 8 : 4;        // rows times digits that are multiplied with so many panels at once
constexpr int FEW = WIDTH == 64 ? 10 : 6;         // of these, the memory is the limit
constexpr int64_t SHORT = 640;                    // inputs of panels that end soon after they were begun to be fetched, for each digit
constexpr int CHAINS = 8;                         // sums that are added to independently, so that none waits for its last sum
constexpr int64_t NEAR = 600 << 10;               // bytes of codes that stay near while all weights pass by
constexpr int64_t SOON = 4096;                    // bytes that are fetched ahead of a product of few rows
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr int OFFSET = 128;  // these multiply bytes without a sign by bytes with one
#else
constexpr int OFFSET = 0;
#endif

// Where a row's codes are. Rows that are multiplied together lie together: of each four inputs, all of their digits one after the
// other, so that they are read in one go and do not drive each other out of the cache, as rows of 4,096 bytes would.
struct Place {
    uint8_t* codes;
    int64_t step;  // bytes from four inputs to the next four
};

template <int digits>
Place place_of(const Codes& x, int64_t row) {
    const int64_t each = x.rows * digits <= FEW ? x.rows : CODES / digits, first = row / each * each;
    return {x.codes + first * digits * x.stride + (row - first) * digits * 4, std::min(each, x.rows - first) * digits * 4};
}

// A row in steps of its largest number's 127th, or with two digits of 128 of which the first goes to 127, its 16256th.
template <int digits>
void put(const Codes& into, int64_t row, const float* x, int64_t inputs) {
    using Narrow = uint8_t __attribute__((vector_size(FLOATS)));
    constexpr float LARGEST = digits == 1 ? 127 : 127 * 128;
    const Place place = place_of<digits>(into, row);
    const bool tiled = tiles::serve(into, digits);
    const tiles::Place tile = tiles::place_of(into, digits, row);
    const int64_t whole = inputs / FLOATS * FLOATS;
    float rest[FLOATS] = {};
    std::copy(x + whole, x + inputs, rest);
    Floats highest = load<Floats>(rest), lowest = highest, none = highest * 0.0f;
    for (int64_t i = 0; i < whole; i += FLOATS) {
        const Floats some = load<Floats>(x + i);
        highest = some > highest ? some : highest;
        lowest = some < lowest ? some : lowest;
        none += some * 0.0f;
    }
    const float furthest = largest(highest > -lowest ? highest : -lowest), steps = furthest > 0 ? LARGEST / furthest : 0;
    into.steps[row] = furthest / LARGEST + sum(none);  // no number, where there was one that is none
    const auto put_some = [&](const float* from, int64_t i, int64_t count) __attribute__((always_inline)) {
        const Ints number = nearest(load<Floats>(from) * steps), first = digits == 1 ? number : (number + 64) >> 7;
        const Narrow narrow[2] = {__builtin_convertvector(first + OFFSET, Narrow),
                                  __builtin_convertvector(number - (first << 7) + OFFSET, Narrow)};
        for (int digit = 0; digit < digits; ++digit) {
            int32_t fours[FLOATS / 4];
            std::memcpy(fours, &narrow[digit], sizeof(fours));
            if (tiled) {
                std::memcpy(tile.at(digit, i), fours, static_cast<size_t>(count) * 4);
                continue;
            }
            for (int64_t four = 0; four < count; ++four) std::memcpy(place.codes + (i / 4 + four) * place.step + digit * 4, fours + four, 4);
        }
    };
    for (int64_t i = 0; i < whole; i += FLOATS) put_some(x + i, i, FLOATS / 4);
    if (whole < inputs) put_some(rest, whole, (into.stride - whole) / 4);
}

// What is fetched while rows are multiplied: of many, while each few are, some of the panels that come next; of few, what comes soon.
enum class Fetch { NOTHING, SOON, NEXT };

// One or two digits of some rows, and some panels. chains: how many sums of the same row and output there are.
template <int digits, int rows, int panels, int chains, Fetch fetch>
__attribute__((noinline)) void multiply(const Matrix& matrix, int64_t panel, const Codes& x, int64_t row, float* y, const int8_t* next, int64_t step) {
    static_assert(chains == 1 || panels == 1);
    constexpr int codes = rows * digits;
    const int64_t stride = x.stride, quads = stride / 4, first = panel * FLOATS;
    const int8_t* const weight = static_cast<const int8_t*>(matrix.panels) + first * stride;
    const Place from = place_of<digits>(x, row);
    // All loops over sums are unrolled, or the sums would not stay in registers.
    Ints sums[chains][codes][panels] = {};
#pragma GCC unroll 32
    for (int code = 0; code < codes; ++code)
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p) sums[0][code][p] = load<Ints>(matrix.starts + first + p * FLOATS);
    const auto add_quad = [&](int64_t i, auto& to) __attribute__((always_inline)) {
        Ints some[panels];
        if (fetch == Fetch::NEXT) __builtin_prefetch(next + i * step);
        for (int p = 0; p < panels; ++p) {
            if (fetch == Fetch::SOON) __builtin_prefetch(weight + (p * quads + i) * WIDTH + SOON);
            some[p] = load<Ints>(weight + (p * quads + i) * WIDTH);
        }
#pragma GCC unroll 32
        for (int code = 0; code < codes; ++code) {
            int32_t four;
            std::memcpy(&four, from.codes + i * from.step + code * 4, 4);
            const Ints broadcast = four - Ints{};
#pragma GCC unroll 4
            for (int p = 0; p < panels; ++p) to[code][p] = add_products(to[code][p], broadcast, some[p]);
        }
    };
    int64_t i = 0;
    if constexpr (chains == 1)
        // Meanwhile, the memory to write to is fetched, too, a row at a time: stores that wait for it would hold up the next rows.
        for (int r = 0; r < rows; ++r) {
            const char* const place = reinterpret_cast<const char*>(y + (row + r) * matrix.outputs + first);
            for (int p = 0; p < panels; ++p) __builtin_prefetch(place + p * WIDTH, 1);
            for (const int64_t end = quads * (r + 1) / rows; i < end; ++i) add_quad(i, sums[0]);
        }
    else {
        for (; i + chains <= quads; i += chains)
#pragma GCC unroll 8
            for (int chain = 0; chain < chains; ++chain) add_quad(i + chain, sums[chain]);
        for (; i < quads; ++i) add_quad(i, sums[0]);
#pragma GCC unroll 8
        for (int chain = 1; chain < chains; ++chain)
#pragma GCC unroll 32
            for (int code = 0; code < codes; ++code) sums[0][code][0] += sums[chain][code][0];
    }
    const bool whole = first + panels * FLOATS <= matrix.outputs;
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
        const int64_t output = first + p * FLOATS;
        const Floats scales = load<Floats>(matrix.scales + output);
#pragma GCC unroll 32
        for (int r = 0; r < rows; ++r) {
            Floats sum = __builtin_convertvector(sums[0][r * digits][p], Floats);
            if constexpr (digits == 2) sum = sum * 128.0f + __builtin_convertvector(sums[0][r * digits + 1][p], Floats);
            Floats result = rounded(sum * (scales * x.steps[row + r]));
            if (matrix.bias) result += load<Floats>(matrix.bias + output);
            float* place = y + (row + r) * matrix.outputs + output;
            if (whole)
                std::memcpy(place, &result, sizeof(result));
            else
                std::memcpy(place, &result, static_cast<size_t>(std::min<int64_t>(FLOATS, matrix.outputs - output)) * sizeof(float));
        }
    }
}

// The same for at most `rows` of `count` rows.
template <int digits, int panels, Fetch fetch, int rows = CODES / digits>
void multiply_rows(int64_t count, const Matrix& matrix, int64_t panel, const Codes& x, int64_t row, float* y, const int8_t* next = nullptr,
                   int64_t step = 0) {
    if constexpr (rows > 1)
        if (count < rows) return multiply_rows<digits, panels, fetch, rows - 1>(count, matrix, panel, x, row, y, next, step);
    multiply<digits, rows, panels, 1, fetch>(matrix, panel, x, row, y, next, step);
}

// The rows from `begin` to before `end`.
template <int digits, int panels>
void multiply_panels(const Matrix& matrix, int64_t panel, int64_t begin, int64_t end, const Codes& x, float* y) {
    constexpr int each = CODES / digits;
    const int64_t turns = (end - begin + each - 1) / each, bytes = FLOATS * x.stride;  // of a panel
    const bool last = (panel + 2 * panels) * FLOATS > matrix.outputs;
    if (turns < panels)  // not enough to fetch all panels that come next
        for (int64_t row = begin; row < end; row += each) multiply_rows<digits, panels, Fetch::SOON>(end - row, matrix, panel, x, row, y);
    else if (last)
        for (int64_t row = begin; row < end; row += each) multiply_rows<digits, panels, Fetch::NOTHING>(end - row, matrix, panel, x, row, y);
    else {
        const int8_t* next = static_cast<const int8_t*>(matrix.panels) + (panel + panels) * bytes;
        const int64_t step = (panels * WIDTH + turns - 1) / turns;  // bytes for each four inputs, as even as can be
        for (int64_t row = begin; row < end; row += each, next += x.stride / 4 * step)
            multiply_rows<digits, panels, Fetch::NEXT>(end - row, matrix, panel, x, row, y, next, step);
    }
}

// Few rows and inputs: all of them with a panel after the other, so that the memory is read in its own order.
template <int digits, int rows = FEW / digits>
void multiply_few(const Matrix& matrix, int64_t first, int64_t last, int64_t count, const Codes& x, float* y) {
    if constexpr (rows > 1)
        if (count < rows) return multiply_few<digits, rows - 1>(matrix, first, last, count, x, y);
    constexpr int chains = rows * digits >= CHAINS ? 1 : CHAINS / (rows * digits) >= 4 ? 4 : 2;
    for (int64_t panel = first; panel < last; ++panel)
        multiply<digits, rows, 1, chains, Fetch::SOON>(matrix, panel, x, 0, y, nullptr, 0);
}

template <int digits>
void multiply_all(const Matrix& matrix, int64_t first, int64_t last, int64_t rows, const Codes& x, float* y) {
    if (rows * digits <= FEW && x.stride <= SHORT * digits) return multiply_few<digits>(matrix, first, last, rows, x, y);
    constexpr int64_t each = CODES / digits;
    const int64_t groups = (rows + each - 1) / each, blocks = std::min(groups, (groups * CODES * x.stride + NEAR - 1) / NEAR);
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t begin = groups * block / blocks * each, end = std::min(groups * (block + 1) / blocks * each, rows);
        by_panels<PANELS>(first, last, [&](int64_t at, auto count) { multiply_panels<digits, count>(matrix, at, begin, end, x, y); });
    }
}

}  // namespace

namespace products {

int32_t offset() { return OFFSET; }

void put_into_codes(const Matrix& matrix, const Codes& into, int64_t row, const float* x) {
    matrix.digits == 1 ? put<1>(into, row, x, matrix.inputs) : put<2>(into, row, x, matrix.inputs);
}

void multiply8(const Matrix& matrix, int64_t first, int64_t last, int64_t rows, const Codes& x, float* y) {
    if constexpr (tiles::BUILT)
        if (tiles::serve(x, matrix.digits)) return tiles::multiply(matrix, first, last, x, y);
    const auto all = matrix.digits == 1 ? multiply_all<1> : multiply_all<2>;
    if (rows > 0) all(matrix, first, last, rows, x, y);
}

}  // namespace products
