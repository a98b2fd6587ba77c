// Products in int8; see products.h.

#pragma once

#include "products.h"
#include "vectors.h"

namespace products {

constexpr int64_t PANELS8 = WIDTH == 64 ? 3 : 2;  // that are worked on at once

// To each sum, four products of a row's numbers with those of an output. Numbers of a row have no sign where `offset` is not 0.
inline Ints add_products(Ints sums, Ints row, Ints weight) {
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

// A row in int8. The matrix says how many digits.
void put_into_codes(const Matrix& matrix, const Codes& into, int64_t row, const float* x);

// The panels from `first` to before `last`, for all rows.
void multiply8(const Matrix& matrix, int64_t first, int64_t last, int64_t rows, const Codes& x, float* y);

}  // namespace products
