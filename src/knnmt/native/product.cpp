// Products of rows with weights, in float32, and how a team shares a product; see products.h.

#include "products.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "panels.h"
#include "product8.h"
#include "vectors.h"

using products::Codes;

namespace {

// So many panels and rows are worked on at once that their sums fill the registers.
constexpr int PANELS = WIDTH == 16 ? 4 : 3;
constexpr int ROWS = WIDTH == 64 ? 8 : WIDTH == 32 ? 4 : 6;
constexpr int64_t MOST_INPUTS = 512;  // of a block: what rows are multiplied by stays near until all of them were
constexpr int64_t MOST_TURNS = 30;    // of rows whose inputs of a block stay near, too
constexpr int64_t SOON = 2048;        // bytes that are fetched ahead of a product of few rows

// Rows are multiplied in turns of about as many rows.
struct Turns {
    int64_t rows;
    const float* x;
    int64_t stride;  // from a row to the next

    int64_t count() const { return (rows + ROWS - 1) / ROWS; }
    int64_t begin(int64_t turn) const { return rows * turn / count(); }  // the first row
};

// Some inputs of a few panels, and what becomes of their products with rows.
struct Block {
    int64_t inputs;
    const void* weights;    // of the first panel
    int64_t stride;         // from a panel to the next
    int64_t beyond;         // numbers between the end of a panel and what is read after it
    const char* next;       // of what is multiplied by after this, some that is fetched meanwhile:
    int64_t next_step;      // so many bytes for each input
    float* wide;            // the same weights in float32, of each input those of all panels
    const float* start;     // what sums begin with, or null
    int64_t start_stride;
    const float* scales;    // what the sums of each output are multiplied by, or null,
    const float* bias;      // and what is then added, or null
    float* y;
    int64_t y_stride;
};

// What the first of several turns writes. Of all templates below, because a thread gets it with its first use of this library.
alignas(WIDTH) thread_local float wide[PANELS * MOST_INPUTS * FLOATS];

// Where the weights come from: the memory, if there is a single turn; the memory, to be written down for other turns; what the first
// of several turns wrote.
enum class From { MEMORY, MEMORY_FIRST, NEAR };

template <int rows, int panels, From from, typename Weight>
__attribute__((noinline)) void multiply(const Block& block, const float* x, int64_t x_stride, int64_t row_number) {
    const Block b = block;  // of which y is no part
    const float* const start = b.start ? b.start + row_number * b.start_stride : nullptr;
    float* const y = b.y + row_number * b.y_stride;
    const Weight* const weights = static_cast<const Weight*>(b.weights);
    // All loops over sums are unrolled, or the sums would not stay in registers.
    Floats sums[rows][panels] = {};
    if (start)
#pragma GCC unroll 8
        for (int row = 0; row < rows; ++row)
#pragma GCC unroll 4
            for (int panel = 0; panel < panels; ++panel) sums[row][panel] = load<Floats>(start + row * b.start_stride + panel * FLOATS);
    const auto add = [&](int64_t i, int64_t ahead) __attribute__((always_inline)) {
        if (from != From::MEMORY) __builtin_prefetch(b.next + i * b.next_step);
        Floats some[panels];
#pragma GCC unroll 4
        for (int panel = 0; panel < panels; ++panel) {
            float* const near = b.wide + (i * panels + panel) * FLOATS;
            const Weight* const weight = weights + panel * b.stride + i * FLOATS;
            if (from == From::MEMORY) __builtin_prefetch(weight + ahead);
            some[panel] = from == From::NEAR ? load<Floats>(near) : widened(weight);
            if (from == From::MEMORY_FIRST) std::memcpy(near, &some[panel], WIDTH);
        }
#pragma GCC unroll 8
        for (int row = 0; row < rows; ++row)
#pragma GCC unroll 4
            for (int panel = 0; panel < panels; ++panel) sums[row][panel] += some[panel] * x[row * x_stride + i];
    };
    constexpr int64_t ahead = SOON / sizeof(Weight);
    int64_t i = 0;
    if (from == From::MEMORY)
        for (; i < b.inputs - ahead / FLOATS; ++i) add(i, ahead);
    for (; i < b.inputs; ++i) add(i, ahead + b.beyond);
    if (b.scales)
#pragma GCC unroll 4
        for (int panel = 0; panel < panels; ++panel) {
            const Floats scales = load<Floats>(b.scales + panel * FLOATS), bias = b.bias ? load<Floats>(b.bias + panel * FLOATS) : Floats{};
#pragma GCC unroll 8
            for (int row = 0; row < rows; ++row) sums[row][panel] = rounded(sums[row][panel] * scales) + bias;
        }
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row)
#pragma GCC unroll 4
        for (int panel = 0; panel < panels; ++panel) std::memcpy(y + row * b.y_stride + panel * FLOATS, &sums[row][panel], WIDTH);
}

// A turn, of a number of rows that is known only now. Of several turns, each has at least half of the most rows.
template <int panels, From from, typename Weight, int rows = ROWS>
void multiply_turn(int64_t count, const Block& block, const float* x, int64_t x_stride, int64_t row_number) {
    if constexpr (rows > (from == From::MEMORY ? 1 : ROWS / 2))
        if (count < rows) return multiply_turn<panels, from, Weight, rows - 1>(count, block, x, x_stride, row_number);
    multiply<rows, panels, from, Weight>(block, x, x_stride, row_number);
}

// The turns from `first` to before `last`, whose rows have x. While several are multiplied, the panels of `next` are fetched one after
// the other, as evenly as can be: faster than the memory gives them, multiplication would wait. For a single one, the memory is the
// limit, and each panel is fetched a little ahead.
template <int panels, typename Weight>
void multiply_turns(const Turns& turns, int64_t first, int64_t last, const float* x, Block block, const char* next, int64_t next_stride) {
    const int64_t from = turns.begin(first), count = last - first, line = FLOATS * sizeof(Weight);
    if (count == 1) return multiply_turn<panels, From::MEMORY, Weight>(turns.begin(last) - from, block, x, turns.stride, 0);
    for (int64_t turn = 0; turn < count; ++turn) {
        const int64_t row = turns.begin(first + turn) - from, rows = turns.begin(first + turn + 1) - from - row;
        const int64_t panel = turn * panels / count, of_panel = (panel * count + panels - 1) / panels;
        const int64_t share = ((panel + 1) * count + panels - 1) / panels - of_panel;
        block.next_step = (line + share - 1) / share;
        block.next = next + panel * next_stride + (turn - of_panel) * block.inputs * block.next_step;
        if (turn == 0)
            multiply_turn<panels, From::MEMORY_FIRST, Weight>(rows, block, x, turns.stride, row);
        else
            multiply_turn<panels, From::NEAR, float>(rows, block, x + row * turns.stride, turns.stride, row);
    }
}

// The turns from `first_turn` to before `last_turn`, of which rows of y begin `y_stride` numbers after one another.
template <int panels, typename Weight>
void multiply_panels(const Matrix& matrix, int64_t panel, const Turns& turns, int64_t first_turn, int64_t last_turn, float* y, int64_t y_stride) {
    const int64_t inputs = matrix.inputs, outputs = matrix.outputs, first = panel * FLOATS, stride = inputs * FLOATS;
    const int64_t row = turns.begin(first_turn), rows = turns.begin(last_turn) - row;
    const int64_t blocks = (inputs + MOST_INPUTS - 1) / MOST_INPUTS;
    const bool whole = first + panels * FLOATS <= outputs;
    constexpr bool scaled = std::is_same_v<Weight, Whole24>;
    thread_local std::vector<float> sums;  // of panels that have outputs beyond the last
    if (!whole) sums.resize(static_cast<size_t>(rows * panels * FLOATS));
    y += row * y_stride + first;
    float* const to = whole ? y : sums.data();
    const int64_t to_stride = whole ? y_stride : panels * FLOATS;
    const Weight* const weights = static_cast<const Weight*>(matrix.panels) + first * inputs;
    const float* const bias = matrix.bias ? matrix.bias + first : nullptr;
    for (int64_t number = 0; number < blocks; ++number) {
        const int64_t begin = inputs * number / blocks, count = inputs * (number + 1) / blocks - begin;
        const Weight* const weight = weights + begin * FLOATS;
        const bool last = number + 1 == blocks, end = last && first + 2 * panels * FLOATS > outputs;
        // After this, the next inputs of these panels, or the first of those that follow; at the very end nothing new.
        const Weight* const next = end ? weight : last ? weights + panels * stride : weight + count * FLOATS;
        const float* const start = number ? to : scaled ? nullptr : bias;
        const float* const scales = scaled && last ? matrix.scales + first : nullptr;
        multiply_turns<panels, Weight>(turns, first_turn, last_turn, turns.x + row * turns.stride + begin,
                                       Block{count, weight, stride, last ? (panels - 1) * stride : 0, nullptr, 0, wide, start,
                                             number ? to_stride : 0, scales, bias, to, to_stride},
                                       reinterpret_cast<const char*>(next), stride * sizeof(Weight));
    }
    if (!whole)
        for (int64_t i = 0; i < rows; ++i) std::copy_n(to + i * to_stride, outputs - first, y + i * y_stride);
}

// The panels from `first` to before `last`, for all rows.
template <typename Weight>
void multiply_all(const Matrix& matrix, int64_t first, int64_t last, const Turns& turns, float* y, int64_t y_stride) {
    const int64_t blocks = (turns.count() + MOST_TURNS - 1) / MOST_TURNS;
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t from = turns.count() * block / blocks, to = turns.count() * (block + 1) / blocks;
        by_panels<PANELS>(first, last, [&](int64_t at, auto count) {
            multiply_panels<count, Weight>(matrix, at, turns, from, to, y, y_stride);
        });
    }
}

// ---- Parts of a product ---------------------------------------------------------------------------------------------

constexpr int64_t PART = 1 << 16;      // weights that a few rows are multiplied with in some microseconds
constexpr int64_t MOST_PARTS = 16;     // for each thread

void multiply_part(const Matrix& matrix, int64_t first, int64_t last, const Turns& turns, const Codes& codes, float* y) {
    if (matrix.digits) return products::multiply8(matrix, first, last, turns.rows, codes, y);
    const auto all = matrix.bytes == 2 ? multiply_all<uint16_t> : matrix.bytes == 3 ? multiply_all<Whole24> : multiply_all<float>;
    all(matrix, first, last, turns, y, matrix.outputs);
}

}  // namespace

namespace products {

void prepare(const Matrix& matrix, const Codes& into, int64_t row, const float* x) {
    if (matrix.digits) put_into_codes(matrix, into, row, x);
}

void multiply(teams::Team& team, const Matrix& matrix, int64_t rows, const float* x, const Codes& codes, float* y) {
    const int64_t panels = (matrix.outputs + FLOATS - 1) / FLOATS, at_once = matrix.digits ? PANELS8 : PANELS;
    const int64_t groups = (panels + at_once - 1) / at_once;
    const int64_t work = (rows + ROWS - 1) / ROWS * matrix.inputs * matrix.outputs / PART;
    const int64_t parts = team.threads() > 1 ? std::min(groups, std::clamp(work, team.threads(), MOST_PARTS * team.threads())) : 1;
    const Turns turns{rows, x, matrix.inputs};
    team.share(parts, [&](int64_t part) {
        const int64_t first = groups * part / parts * at_once, last = groups * (part + 1) / parts * at_once;
        multiply_part(matrix, first, std::min(last, panels), turns, codes, y);
    });
}

void multiply_floats(const float* panels, int64_t inputs, int64_t outputs, int64_t rows, const float* x, int64_t x_stride, float* y,
                     int64_t y_stride) {
    const Matrix matrix{0, 4, inputs, outputs, panels, nullptr, nullptr, nullptr};
    multiply_all<float>(matrix, 0, (outputs + FLOATS - 1) / FLOATS, {rows, x, x_stride}, y, y_stride);
}

void multiply(teams::Team& team, const Matrix& matrix, const float* x, float* y, uint8_t* scratch, int64_t rows) {
    const int64_t stride = code_stride(matrix.inputs);
    const Codes codes{scratch, reinterpret_cast<float*>(scratch + rows * matrix.digits * stride), stride, rows};
    if (matrix.digits) team.each(rows, [&](int64_t row) { prepare(matrix, codes, row, x + row * matrix.inputs); });
    multiply(team, matrix, rows, x, codes, y);
}

}  // namespace products

extern "C" {

// How many outputs a panel has, and what is added to the numbers of rows in int8.
int32_t knnmt_panel() { return FLOATS; }
int32_t knnmt_offset() { return products::offset(); }

// x (rows, inputs); y (rows, outputs) is written. `scratch` of int8 weights: (rows, digits, inputs in fours) bytes, then
// (rows,) numbers of 4 bytes.
void knnmt_product(const Matrix* matrix, const float* x, float* y, uint8_t* scratch, int32_t rows, int32_t threads) {
    teams::Team team(threads);
    products::multiply(team, *matrix, x, y, scratch, rows);
}
}
