// Products of a step's few rows with weights that are kept in float16 and widened on the way, computed in float32.
//
// A step of a small batch reads every weight of the decoder once and does little with it, so its time is that of reading.
// Weights that float16 holds exactly, as most published ones are, are read in half the time with no digit lost.

#include "vectors.h"

namespace {

// Weights lie in panels of FLOATS outputs: (outputs / FLOATS, inputs, FLOATS). So many panels and rows are worked on at
// once that their sums fill the registers.
constexpr int PANELS = WIDTH == 32 ? 3 : 4;
constexpr int ROWS = WIDTH == 32 ? 4 : 6;

template <int rows, int panels>
void multiply(const uint16_t* weight, const float* bias, const float* x, float* y, int64_t inputs, int64_t outputs) {
    Floats sums[panels][rows];
    for (int panel = 0; panel < panels; ++panel)
        for (int row = 0; row < rows; ++row) sums[panel][row] = bias ? load<Floats>(bias + panel * FLOATS) : Floats{};
    for (int64_t i = 0; i < inputs; ++i)
        for (int panel = 0; panel < panels; ++panel) {
            const Floats some = widened(weight + (panel * inputs + i) * FLOATS);
            for (int row = 0; row < rows; ++row) sums[panel][row] += some * x[row * inputs + i];
        }
    for (int panel = 0; panel < panels; ++panel)
        for (int row = 0; row < rows; ++row)
            std::memcpy(y + row * outputs + panel * FLOATS, &sums[panel][row], sizeof(Floats));
}

// The same for a number of rows that is known only now.
template <int panels, int rows = ROWS>
void multiply_rows(int count, const uint16_t* weight, const float* bias, const float* x, float* y, int64_t inputs,
                   int64_t outputs) {
    if constexpr (rows > 1)
        if (count < rows) return multiply_rows<panels, rows - 1>(count, weight, bias, x, y, inputs, outputs);
    multiply<rows, panels>(weight, bias, x, y, inputs, outputs);
}

}  // namespace

extern "C" {

// How many outputs a panel has.
int32_t knnmt_panel() { return FLOATS; }

// x (rows, inputs), bias (outputs,) or null; y (rows, outputs) is written. Outputs fill whole panels.
void knnmt_product(const uint16_t* weight, const float* bias, const float* x, float* y, int32_t rows, int64_t inputs,
                   int64_t outputs, int32_t threads) {
    const int64_t panels = outputs / FLOATS, groups = (panels + PANELS - 1) / PANELS;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t group = 0; group < groups; ++group)
        for (int32_t row = 0; row < rows; row += ROWS)  // while these panels are near
            for (int64_t panel = group * PANELS, last = panels; panel < (group + 1) * PANELS && panel < last;) {
                const bool whole = panel + PANELS <= last;
                const auto work = whole ? multiply_rows<PANELS> : multiply_rows<1>;
                const int64_t first = panel * FLOATS;
                work(rows - row, weight + first * inputs, bias ? bias + first : nullptr, x + row * inputs,
                     y + row * outputs + first, inputs, outputs);
                panel += whole ? PANELS : 1;
            }
}
}
