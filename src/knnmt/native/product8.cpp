// Products of rows with weights, both in int8; see products.h.

#include "product8.h"

#include <algorithm>
#include <vector>

#include "panels.h"

using products::Codes;

namespace {

constexpr int PANELS = products::PANELS8;
constexpr int CODES = WIDTH == 64 ? 8 : 4;        // rows times digits that are multiplied with so many panels at once
constexpr int FEW = WIDTH == 64 ? 10 : 6;         // of these, the memory is the limit
constexpr int64_t SHORT = 640;                    // inputs of panels that end soon after they were begun to be fetched, for each digit
constexpr int CHAINS = 8;                         // sums that are added to independently, so that none waits for its last sum
constexpr int64_t SOON = 4096;                    // bytes that are fetched ahead of a product of few rows
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
void put(const Codes& into, int64_t row, const float* x, int64_t inputs) {
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

// What is fetched while rows are multiplied: of many, while each few are, a panel that comes next; of few, what comes soon.
enum class Fetch { NOTHING, SOON, NEXT };

// One or two digits of some rows, and some panels. chains: how many sums of the same row and output there are.
template <int digits, int rows, int panels, int chains, Fetch fetch>
__attribute__((noinline)) void multiply(const Matrix& matrix, int64_t panel, const Codes& x, int64_t row, float* y, const int8_t* next) {
    static_assert(chains == 1 || panels == 1);
    constexpr int codes = rows * digits;
    const int64_t stride = x.stride, quads = stride / 4, first = panel * FLOATS;
    const int8_t* const weight = static_cast<const int8_t*>(matrix.panels) + first * stride;
    const uint8_t* const from = x.codes + row * digits * stride;
    // All loops over sums are unrolled, or the sums would not stay in registers.
    Ints sums[chains][codes][panels] = {};
#pragma GCC unroll 32
    for (int code = 0; code < codes; ++code)
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p) sums[0][code][p] = load<Ints>(matrix.starts + first + p * FLOATS);
    const auto add_quad = [&](int64_t i, auto& to) __attribute__((always_inline)) {
        Ints some[panels];
        if (fetch == Fetch::NEXT) __builtin_prefetch(next + i * WIDTH);
        for (int p = 0; p < panels; ++p) {
            if (fetch == Fetch::SOON) __builtin_prefetch(weight + (p * quads + i) * WIDTH + SOON);
            some[p] = load<Ints>(weight + (p * quads + i) * WIDTH);
        }
#pragma GCC unroll 32
        for (int code = 0; code < codes; ++code) {
            int32_t four;
            std::memcpy(&four, from + code * stride + i * 4, 4);
            const Ints broadcast = four - Ints{};
#pragma GCC unroll 4
            for (int p = 0; p < panels; ++p) to[code][p] = add_products(to[code][p], broadcast, some[p]);
        }
    };
    int64_t i = 0;
    for (; i + chains <= quads; i += chains)
#pragma GCC unroll 8
        for (int chain = 0; chain < chains; ++chain) add_quad(i + chain, sums[chain]);
    if constexpr (chains > 1) {
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
void multiply_rows(int64_t count, const Matrix& matrix, int64_t panel, const Codes& x, int64_t row, float* y, const int8_t* next) {
    if constexpr (rows > 1)
        if (count < rows) return multiply_rows<digits, panels, fetch, rows - 1>(count, matrix, panel, x, row, y, next);
    multiply<digits, rows, panels, 1, fetch>(matrix, panel, x, row, y, next);
}

template <int digits, int panels>
void multiply_panels(const Matrix& matrix, int64_t panel, int64_t rows, const Codes& x, float* y) {
    constexpr int each = CODES / digits;
    const int8_t* next = static_cast<const int8_t*>(matrix.panels) + (panel + panels) * FLOATS * x.stride;
    const bool last = (panel + 2 * panels) * FLOATS > matrix.outputs;
    int64_t row = 0;
    if (rows <= (panels - 1) * each) {  // not enough to fetch all panels that come next
        multiply_rows<digits, panels, Fetch::SOON>(rows, matrix, panel, x, row, y, next);
        row += each;
    } else if (!last)
        for (; row < panels * each && row < rows; row += each, next += FLOATS * x.stride)
            multiply_rows<digits, panels, Fetch::NEXT>(rows - row, matrix, panel, x, row, y, next);
    for (; row < rows; row += each) multiply_rows<digits, panels, Fetch::NOTHING>(rows - row, matrix, panel, x, row, y, next);
}

// Few rows and inputs: all of them with a panel after the other, so that the memory is read in its own order.
template <int digits, int rows = FEW / digits>
void multiply_few(const Matrix& matrix, int64_t first, int64_t last, int64_t count, const Codes& x, float* y) {
    if constexpr (rows > 1)
        if (count < rows) return multiply_few<digits, rows - 1>(matrix, first, last, count, x, y);
    constexpr int chains = rows * digits >= CHAINS ? 1 : CHAINS / (rows * digits) >= 4 ? 4 : 2;
    for (int64_t panel = first; panel < last; ++panel)
        multiply<digits, rows, 1, chains, Fetch::SOON>(matrix, panel, x, 0, y, nullptr);
}

template <int digits>
void multiply_all(const Matrix& matrix, int64_t first, int64_t last, int64_t rows, const Codes& x, float* y) {
    if (rows * digits <= FEW && x.stride <= SHORT * digits) return multiply_few<digits>(matrix, first, last, rows, x, y);
    by_panels<PANELS>(first, last, [&](int64_t at, auto count) { multiply_panels<digits, count>(matrix, at, rows, x, y); });
}

}  // namespace

namespace products {

int32_t offset() { return OFFSET; }

void put_into_codes(const Matrix& matrix, const Codes& into, int64_t row, const float* x) {
    matrix.digits == 1 ? put<1>(into, row, x, matrix.inputs) : put<2>(into, row, x, matrix.inputs);
}

void multiply8(const Matrix& matrix, int64_t first, int64_t last, int64_t rows, const Codes& x, float* y) {
    const auto all = matrix.digits == 1 ? multiply_all<1> : multiply_all<2>;
    if (rows > 0) all(matrix, first, last, rows, x, y);
}

}  // namespace products
