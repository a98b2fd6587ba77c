// Products of rows with weights, in float32 and in int8; see products.h.

#include "products.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "vectors.h"

using products::Codes;

namespace {

// ---- float32 --------------------------------------------------------------------------------------------------------

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
    for (int64_t i = 0; i < b.inputs; ++i) {
        if (!soon) __builtin_prefetch(b.next + i * b.next_step);
        Floats some[panels];
        for (int panel = 0; panel < panels; ++panel) {
            const Weight* const weight = b.weight + panel * b.weight_stride + i * FLOATS;
            if (soon) __builtin_prefetch(weight + SOON / sizeof(Weight));
            some[panel] = widened(weight);
        }
        for (int row = 0; row < rows; ++row)
            for (int panel = 0; panel < panels; ++panel) sums[row][panel] += some[panel] * b.x[row * b.x_stride + i];
    }
    for (int row = 0; row < rows; ++row) std::memcpy(b.y + row * b.y_stride, sums[row], sizeof(sums[row]));
}

// The same for a number of rows that is known only now.
template <int panels, bool soon, typename Weight, int rows = ROWS>
void multiply_rows(int64_t count, const Block<Weight>& block) {
    if constexpr (rows > 1)
        if (count < rows) return multiply_rows<panels, soon, Weight, rows - 1>(count, block);
    multiply<rows, panels, soon>(block);
}

// All rows. Of more rows than are multiplied at once, while the first few are multiplied, the panels of `next` are fetched, one
// after the other. For fewer, the memory is the limit, and each panel is fetched a little ahead.
template <int panels, typename Weight>
void multiply_block(int64_t rows, Block<Weight> block, const char* next, int64_t next_stride) {
    if (rows <= ROWS) return multiply_rows<panels, true>(rows, block);
    for (int64_t row = 0; row < rows; row += ROWS) {
        const int64_t turn = row / ROWS;
        block.next = next + (turn < panels ? turn : 0) * next_stride;
        multiply_rows<panels, false>(rows - row, block);
        block.x += ROWS * block.x_stride;
        if (block.start) block.start += ROWS * block.start_stride;
        block.y += ROWS * block.y_stride;
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
                Block<std::decay_t<decltype(*near)>>{count, near, near_stride, nullptr, step, x + begin, x_stride, start, number ? to_stride : 0, to, to_stride},
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

// ---- int8 -----------------------------------------------------------------------------------------------------------

constexpr int PANELS8 = WIDTH == 64 ? 3 : 2;
constexpr int ROWS8 = WIDTH == 64 ? 8 : 4;
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr int OFFSET = 128;  // these multiply bytes without a sign by bytes with one
#else
constexpr int OFFSET = 0;
#endif

// To each sum, four products of a row's numbers with those of an output.
Ints add_products(Ints sums, Ints row, Ints weight) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)row, (__m512i)weight);
#elif defined(__AVXVNNI__)
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)row, (__m256i)weight);
#elif defined(__AVX512BW__)
    // 16 bits hold 2 * 127 * 127; the row's sign goes to the weight, for there are no products of two signed bytes.
    const __m512i x = (__m512i)row, w = (__m512i)weight;
    const __m512i signed_weight = _mm512_mask_sub_epi8(w, _mm512_movepi8_mask(x), _mm512_setzero_si512(), w);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(x), signed_weight);
    return sums + (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVX2__)
    const __m256i x = (__m256i)row, w = (__m256i)weight;
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(w, x));  // as above
    return sums + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__ARM_FEATURE_DOTPROD)
    return (Ints)vdotq_s32((int32x4_t)sums, (int8x16_t)row, (int8x16_t)weight);
#else
    const int8x16_t x = (int8x16_t)row, w = (int8x16_t)weight;
    const int32x4_t first = vpaddlq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(w)));
    return sums + (Ints)vpaddq_s32(first, vpaddlq_s16(vmull_high_s8(x, w)));
#endif
}

// A row in steps of its largest number's 127th, or with two digits of 128 of which the first goes to 127, its 16256th.
template <int digits>
void put_into_codes(const Codes& into, int64_t row, const float* x, int64_t inputs) {
    using Narrow = uint8_t __attribute__((vector_size(FLOATS)));
    constexpr float LARGEST = digits == 1 ? 127 : 127 * 128;
    uint8_t* codes = into.codes + row * digits * into.stride;
    const int64_t whole = inputs / FLOATS * FLOATS;
    float rest[FLOATS] = {};
    std::copy(x + whole, x + inputs, rest);
    Floats most = {}, none = {};
    for (int64_t i = 0; i <= whole; i += FLOATS) {
        const Floats some = load<Floats>(i < whole ? x + i : rest);
        most = some > most ? some : most;
        most = -some > most ? -some : most;
        none += some * 0.0f;
    }
    const float furthest = largest(most), steps = furthest > 0 ? LARGEST / furthest : 0;
    into.steps[row] = furthest / LARGEST + sum(none);  // no number, where there was one that is none
    for (int64_t i = 0; i <= whole; i += FLOATS) {
        const size_t bytes = static_cast<size_t>(i < whole ? FLOATS : into.stride - whole);
        const Ints number = nearest(load<Floats>(i < whole ? x + i : rest) * steps);
        const Ints first = digits == 1 ? number : (number + 64) >> 7;
        const Narrow narrow = __builtin_convertvector(first + OFFSET, Narrow);
        std::memcpy(codes + i, &narrow, bytes);
        if constexpr (digits == 2) {
            const Narrow second = __builtin_convertvector(number - (first << 7) + OFFSET, Narrow);
            std::memcpy(codes + into.stride + i, &second, bytes);
        }
    }
}

// What is fetched while rows are multiplied with panels: of many rows, while each few are, a panel that comes next, and of few,
// for which the memory is the limit, what comes soon of the panels themselves.
enum class Fetch { NOTHING, SOON, NEXT };

template <int digits, int rows, int panels, Fetch fetch>
__attribute__((noinline)) void multiply8(const Matrix& matrix, int64_t panel, const Codes& x, int64_t row, float* y, const int8_t* next) {
    const int64_t quads = x.stride / 4, first = panel * FLOATS;
    const int8_t* weight = static_cast<const int8_t*>(matrix.panels) + first * x.stride;
    const uint8_t* codes = x.codes + row * digits * x.stride;
    Ints sums[rows * digits][panels];
    for (auto& each : sums)
        for (int p = 0; p < panels; ++p) each[p] = load<Ints>(matrix.starts + first + p * FLOATS);
    for (int64_t i = 0; i < quads; ++i) {
        Ints some[panels];
        if (fetch == Fetch::NEXT) __builtin_prefetch(next + i * WIDTH);
        for (int p = 0; p < panels; ++p) {
            if (fetch == Fetch::SOON) __builtin_prefetch(weight + (p * quads + i) * WIDTH + SOON);
            some[p] = load<Ints>(weight + (p * quads + i) * WIDTH);
        }
        for (int r = 0; r < rows * digits; ++r) {
            int32_t four;
            std::memcpy(&four, codes + r * x.stride + i * 4, 4);
            const Ints broadcast = four - Ints{};
            for (int p = 0; p < panels; ++p) sums[r][p] = add_products(sums[r][p], broadcast, some[p]);
        }
    }
    const bool whole = first + panels * FLOATS <= matrix.outputs;
    for (int p = 0; p < panels; ++p) {
        const int64_t output = first + p * FLOATS;
        const Floats scales = load<Floats>(matrix.scales + output);
        for (int r = 0; r < rows; ++r) {
            Floats sum = __builtin_convertvector(sums[r * digits][p], Floats);
            if constexpr (digits == 2) sum = sum * 128.0f + __builtin_convertvector(sums[r * digits + 1][p], Floats);
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

template <int digits, int panels, Fetch fetch, int rows = ROWS8 / digits>
void multiply8_rows(int64_t count, const Matrix& matrix, int64_t panel, const Codes& x, int64_t row, float* y, const int8_t* next) {
    if constexpr (rows > 1)
        if (count < rows) return multiply8_rows<digits, panels, fetch, rows - 1>(count, matrix, panel, x, row, y, next);
    multiply8<digits, rows, panels, fetch>(matrix, panel, x, row, y, next);
}

template <int digits, int panels>
void multiply8_panels(const Matrix& matrix, int64_t panel, int64_t rows, const Codes& x, float* y) {
    constexpr int each = ROWS8 / digits;
    const int8_t* next = static_cast<const int8_t*>(matrix.panels) + (panel + panels) * FLOATS * x.stride;
    const bool last = (panel + 2 * panels) * FLOATS > matrix.outputs;
    int64_t row = 0;
    if (rows <= (panels - 1) * each) {
        multiply8_rows<digits, panels, Fetch::SOON>(rows, matrix, panel, x, row, y, next);
        row += each;
    } else if (!last)
        for (; row < panels * each && row < rows; row += each, next += FLOATS * x.stride)
            multiply8_rows<digits, panels, Fetch::NEXT>(rows - row, matrix, panel, x, row, y, next);
    for (; row < rows; row += each) multiply8_rows<digits, panels, Fetch::NOTHING>(rows - row, matrix, panel, x, row, y, next);
}

// ---- Parts of a product ---------------------------------------------------------------------------------------------

// `work` on the panels before `last`: `most` at once, for those fill the registers, and towards the end fewer, but rather
// twice two than three and one alone.
template <int most, typename Work>
void by_panels(int64_t panel, int64_t last, Work work) {
    for (; last - panel >= most && (most < 3 || last - panel != most + 1); panel += most)
        work(panel, std::integral_constant<int, most>());
    if constexpr (most > 1)
        if (panel < last) by_panels<most - 1>(panel, last, work);
}

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
    else if (matrix.digits == 1)
        by_panels<PANELS8>(first, last, [&](int64_t at, auto count) { multiply8_panels<1, count>(matrix, at, rows, codes, y); });
    else
        by_panels<PANELS8>(first, last, [&](int64_t at, auto count) { multiply8_panels<2, count>(matrix, at, rows, codes, y); });
}

}  // namespace

namespace products {

int32_t offset() { return OFFSET; }

void prepare(const Matrix& matrix, const Codes& into, int64_t row, const float* x) {
    if (matrix.digits == 1) put_into_codes<1>(into, row, x, matrix.inputs);
    if (matrix.digits == 2) put_into_codes<2>(into, row, x, matrix.inputs);
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
    const Codes codes{scratch, reinterpret_cast<float*>(scratch + rows * matrix.digits * stride), stride};
    if (matrix.digits) team.each(rows, [&](int64_t row) { prepare(matrix, codes, row, x + row * matrix.inputs); });
    multiply(team, matrix, rows, x, codes, y);
}

}  // namespace products

extern "C" {

// How many outputs a panel has, and what is added to the numbers of rows in int8.
int32_t knnmt_panel() { return FLOATS; }
int32_t knnmt_offset() { return OFFSET; }

// x (rows, inputs); y (rows, outputs) is written. `scratch` of int8 weights: (rows, digits, inputs in fours) bytes, then
// (rows,) numbers of 4 bytes.
void knnmt_product(const Matrix* matrix, const float* x, float* y, uint8_t* scratch, int32_t rows, int32_t threads) {
    teams::Team team(threads);
    products::multiply(team, *matrix, x, y, scratch, rows);
}
}
