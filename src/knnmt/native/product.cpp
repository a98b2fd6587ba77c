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
constexpr int64_t SOON = 2048;        // bytes that are fetched ahead of a product of few rows
constexpr int64_t MOST_ROWS = 240;    // whose inputs of a block stay near, too

// Some inputs of a few rows, and the panels that they are multiplied by.
template <typename Weight>
struct Block {
    int64_t inputs;
    const Weight* weight;
    int64_t weight_stride;  // from a panel to the next
    const char* next;       // of what is multiplied by after this, some that is fetched meanwhile:
    int64_t next_step;      // so many bytes for each input
    int64_t beyond;         // numbers between the end of a panel and what is read after it, where that is fetched
    const float* x;
    int64_t x_stride;
    const float* start;     // what sums begin with, or null
    int64_t start_stride;
    float* y;
    int64_t y_stride;
};

template <int rows, int panels, bool soon, typename Weight>
__attribute__((noinline)) void multiply(const Block<Weight>& block) {
    const Block<Weight> b = block;  // of which y is no part
    Floats sums[rows][panels];
    for (int row = 0; row < rows; ++row)
        for (int panel = 0; panel < panels; ++panel)
            sums[row][panel] = b.start ? load<Floats>(b.start + row * b.start_stride + panel * FLOATS) : Floats{};
    const auto add = [&](int64_t i, int64_t ahead) __attribute__((always_inline)) {
        if (!soon) __builtin_prefetch(b.next + i * b.next_step);
        Floats some[panels];
        for (int panel = 0; panel < panels; ++panel) {
            const Weight* const weight = b.weight + panel * b.weight_stride + i * FLOATS;
            if (soon) __builtin_prefetch(weight + ahead);
            some[panel] = widened(weight);
        }
        for (int row = 0; row < rows; ++row)
            for (int panel = 0; panel < panels; ++panel) sums[row][panel] += some[panel] * b.x[row * b.x_stride + i];
    };
    constexpr int64_t ahead = SOON / sizeof(Weight);
    int64_t i = 0;
    if (soon)
        for (; i < b.inputs - ahead / FLOATS; ++i) add(i, ahead);
    for (; i < b.inputs; ++i) add(i, ahead + b.beyond);
    for (int row = 0; row < rows; ++row) std::memcpy(b.y + row * b.y_stride, sums[row], sizeof(sums[row]));
}

// The same for a number of rows that is known only now.
template <int panels, bool soon, typename Weight, int rows = ROWS>
void multiply_rows(int64_t count, const Block<Weight>& block) {
    if constexpr (rows > 1)
        if (count < rows) return multiply_rows<panels, soon, Weight, rows - 1>(count, block);
    multiply<rows, panels, soon>(block);
}

// All rows. Of more rows than are multiplied at once, each turn has as many as the others, and while they are multiplied, the panels
// of `next` are fetched one after the other, as evenly as can be: faster than the memory gives them, multiplication would wait. For
// fewer rows, the memory is the limit, and each panel is fetched a little ahead.
template <int panels, typename Weight>
void multiply_block(int64_t rows, Block<Weight> block, const char* next, int64_t next_stride) {
    if (rows <= ROWS) return multiply_rows<panels, true>(rows, block);
    const int64_t turns = (rows + ROWS - 1) / ROWS, line = block.next_step;
    for (int64_t turn = 0; turn < turns; ++turn) {
        const int64_t count = rows * (turn + 1) / turns - rows * turn / turns, panel = turn * panels / turns;
        const int64_t first = (panel * turns + panels - 1) / panels, share = ((panel + 1) * turns + panels - 1) / panels - first;
        block.next_step = (line + share - 1) / share;
        block.next = next + panel * next_stride + (turn - first) * block.inputs * block.next_step;
        multiply_rows<panels, false>(count, block);
        block.x += count * block.x_stride;
        if (block.start) block.start += count * block.start_stride;
        block.y += count * block.y_stride;
    }
}

// The panels of one block in float32, for many rows: widening takes the ports that multiply.
template <int panels>
const float* widened_block(const uint16_t* weight, int64_t stride, int64_t inputs) {
    thread_local std::vector<float> wide;
    wide.resize(static_cast<size_t>(panels * inputs * FLOATS));
    for (int64_t panel = 0; panel < panels; ++panel)
        for (int64_t i = 0; i < inputs; ++i) {
            const Floats some = widened(weight + panel * stride + i * FLOATS);
            std::memcpy(&wide[static_cast<size_t>((panel * inputs + i) * FLOATS)], &some, sizeof(some));
        }
    return wide.data();
}

// At most MOST_ROWS rows, which begin `x_stride` and `y_stride` numbers after one another.
template <int panels, typename Weight>
void multiply_panels(const Matrix& matrix, int64_t panel, int64_t rows, const float* x, int64_t x_stride, float* y, int64_t y_stride) {
    const int64_t inputs = matrix.inputs, outputs = matrix.outputs, first = panel * FLOATS, stride = inputs * FLOATS;
    const int64_t blocks = (inputs + MOST_INPUTS - 1) / MOST_INPUTS;
    const bool whole = first + panels * FLOATS <= outputs;
    thread_local std::vector<float> sums;  // of panels that have outputs beyond the last
    if (!whole) sums.resize(static_cast<size_t>(rows * panels * FLOATS));
    float* const to = whole ? y + first : sums.data();
    const int64_t to_stride = whole ? y_stride : panels * FLOATS;
    const Weight* const weights = static_cast<const Weight*>(matrix.panels) + first * inputs;
    for (int64_t number = 0; number < blocks; ++number) {
        const int64_t begin = inputs * number / blocks, count = inputs * (number + 1) / blocks - begin;
        const Weight* const weight = weights + begin * FLOATS;
        const bool last = number + 1 == blocks, end = last && first + 2 * panels * FLOATS > outputs;
        // After this, the next inputs of these panels, or the first of those that follow; at the very end nothing new.
        const Weight* const next = end ? weight : last ? weights + panels * stride : weight + count * FLOATS;
        const float* const start = number ? to : matrix.bias ? matrix.bias + first : nullptr;
        const int64_t step = FLOATS * sizeof(Weight), next_stride = stride * sizeof(Weight);
        const auto multiply_by = [&](const auto* near, int64_t near_stride) {
            multiply_block<panels>(
                rows,
                Block<std::decay_t<decltype(*near)>>{count, near, near_stride, nullptr, step, last ? (panels - 1) * stride : 0, x + begin, x_stride, start, number ? to_stride : 0, to, to_stride},
                reinterpret_cast<const char*>(next), next_stride);
        };
        if constexpr (std::is_same_v<Weight, uint16_t>)
            if (rows > 8 * ROWS) {  // of fewer, to widen panels again while they are near is faster than to write them down
                multiply_by(widened_block<panels>(weight, stride, count), count * FLOATS);
                continue;
            }
        multiply_by(weight, stride);
    }
    if (!whole)
        for (int64_t row = 0; row < rows; ++row) std::copy_n(to + row * to_stride, outputs - first, y + row * y_stride + first);
}

// ---- Parts of a product ---------------------------------------------------------------------------------------------

constexpr int64_t PART = 1 << 16;      // weights that a few rows are multiplied with in some microseconds
constexpr int64_t MOST_PARTS = 16;     // for each thread

// The panels from `first` to before `last`, for all rows.
void multiply_part(const Matrix& matrix, int64_t first, int64_t last, int64_t rows, const float* x, const Codes& codes, float* y) {
    if (matrix.digits == 0)
        for (int64_t row = 0; row < rows; row += MOST_ROWS) {
            const int64_t some = std::min(MOST_ROWS, rows - row);
            by_panels<PANELS>(first, last, [&](int64_t at, auto count) {
                const float* from = x + row * matrix.inputs;
                float* to = y + row * matrix.outputs;
                if (matrix.half)
                    multiply_panels<count, uint16_t>(matrix, at, some, from, matrix.inputs, to, matrix.outputs);
                else
                    multiply_panels<count, float>(matrix, at, some, from, matrix.inputs, to, matrix.outputs);
            });
        }
    else
        products::multiply8(matrix, first, last, rows, codes, y);
}

}  // namespace

namespace products {

void prepare(const Matrix& matrix, const Codes& into, int64_t row, const float* x) {
    if (matrix.digits) put_into_codes(matrix, into, row, x);
}

void multiply(teams::Team& team, const Matrix& matrix, int64_t rows, const float* x, const Codes& codes, float* y) {
    const int64_t panels = (matrix.outputs + FLOATS - 1) / FLOATS, together = matrix.digits ? PANELS8 : PANELS;
    const int64_t groups = (panels + together - 1) / together;  // that are worked on at once
    const int64_t turns = (rows + ROWS - 1) / ROWS * matrix.inputs * matrix.outputs / PART;
    const int64_t parts = team.threads() > 1 ? std::min(groups, std::clamp(turns, team.threads(), MOST_PARTS * team.threads())) : 1;
    team.share(parts, [&](int64_t part) {
        const int64_t first = groups * part / parts * together, last = groups * (part + 1) / parts * together;
        multiply_part(matrix, first, std::min(last, panels), rows, x, codes, y);
    });
}

void multiply_floats(const float* panels, int64_t inputs, int64_t outputs, int64_t rows, const float* x, int64_t x_stride, float* y,
                     int64_t y_stride) {
    const Matrix matrix{0, 0, inputs, outputs, panels, nullptr, nullptr, nullptr};
    by_panels<PANELS>(0, (outputs + FLOATS - 1) / FLOATS, [&](int64_t at, auto count) {
        multiply_panels<count, float>(matrix, at, rows, x, x_stride, y, y_stride);
    });
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
