// Vectors as wide as the CPU of this build has them, and what is computed with them in several places.

#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512BW__)
constexpr int WIDTH = 64;
#elif defined(__AVX2__)
constexpr int WIDTH = 32;
#elif defined(__aarch64__)
constexpr int WIDTH = 16;
#else
#error "made for x86-64 with AVX2 or AVX-512, and for 64-bit ARM; elsewhere FAISS does the same work"
#endif
using Bytes = uint8_t __attribute__((vector_size(WIDTH)));
using Words = uint16_t __attribute__((vector_size(WIDTH)));
using Eight = uint16_t __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(WIDTH)));
using Ints = int32_t __attribute__((vector_size(WIDTH)));
using Doubles = double __attribute__((vector_size(WIDTH)));
using Longs = int64_t __attribute__((vector_size(WIDTH)));
constexpr int FLOATS = WIDTH / 4;
constexpr int DOUBLES = WIDTH / 8;

template <typename Vector>
Vector load(const void* from) {
    Vector vector;
    std::memcpy(&vector, from, WIDTH);
    return vector;
}

// Within each 16 bytes, the entries that the codes name.
Bytes look_up(Bytes entries, Bytes codes) {
#if defined(__AVX512BW__)
    return (Bytes)_mm512_shuffle_epi8((__m512i)entries, (__m512i)codes);
#elif defined(__AVX2__)
    return (Bytes)_mm256_shuffle_epi8((__m256i)entries, (__m256i)codes);
#else
    return (Bytes)vqtbl1q_u8((uint8x16_t)entries, (uint8x16_t)codes);
#endif
}

float widened(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31, fraction = half & 0x3ffu;
    float value;
    if (exponent == 0) {  // zero, or too small for the exponent
        value = static_cast<float>(fraction) * 0x1p-24f;
        return sign ? -value : value;
    }
    const uint32_t bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    std::memcpy(&value, &bits, 4);
    return value;
}

Floats widened(const uint16_t* halves) {
#if defined(__AVX512BW__)
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
#elif defined(__AVX2__)
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
#else
    return (Floats)vcvt_f32_f16(vld1_f16(reinterpret_cast<const __fp16*>(halves)));
#endif
}
Floats widened(const float* floats) { return load<Floats>(floats); }

// A whole number of 24 bits. Of as many as a vector has numbers, the upper 16 bits lie first, then the lower 8.
struct Whole24 {
    uint8_t bytes[3];
};
Floats widened(const Whole24* numbers) {
    const uint8_t* const upper = numbers->bytes;
    const uint8_t* const lower = upper + 2 * FLOATS;
#if defined(__AVX512BW__)
    const Ints high = (Ints)_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(upper)));
    const Ints low = (Ints)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lower)));
    return (Floats)_mm512_cvtepi32_ps((__m512i)(high << 8 | low));
#elif defined(__AVX2__)
    const Ints high = (Ints)_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(upper)));
    const Ints low = (Ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(lower)));
    return (Floats)_mm256_cvtepi32_ps((__m256i)(high << 8 | low));
#else
    int16_t highs[FLOATS];
    uint8_t lows[8] = {};
    std::memcpy(highs, upper, sizeof(highs));
    std::memcpy(lows, lower, FLOATS);
    const Ints high = (Ints)vmovl_s16(vld1_s16(highs)), low = (Ints)vmovl_u16(vget_low_u16(vmovl_u8(vld1_u8(lows))));
    return (Floats)vcvtq_f32_s32((int32x4_t)(high << 8 | low));
#endif
}
float widened(float value) { return value; }

// As many as there are in a vector of 64 bits each.
Longs widened(const int8_t* bytes) {
    int64_t some = 0;
    std::memcpy(&some, bytes, DOUBLES);
#if defined(__AVX512BW__)
    return (Longs)_mm512_cvtepi8_epi64(_mm_cvtsi64_si128(some));
#elif defined(__AVX2__)
    return (Longs)_mm256_cvtepi8_epi64(_mm_cvtsi64_si128(some));
#else
    return Longs{bytes[0], bytes[1]};
#endif
}

// The nearest integers, even ones where two are as near.
Ints nearest(Floats numbers) {
#if defined(__AVX512BW__)
    return (Ints)_mm512_cvtps_epi32((__m512)numbers);
#elif defined(__AVX2__)
    return (Ints)_mm256_cvtps_epi32((__m256)numbers);
#else
    return (Ints)vcvtnq_s32_f32((float32x4_t)numbers);
#endif
}

// The same number, rounded: what is added to a product after this is not added before rounding, as compilers like to.
Floats rounded(Floats numbers) {
#if defined(__x86_64__)
    asm("" : "+v"(numbers));
#else
    asm("" : "+w"(numbers));
#endif
    return numbers;
}

// Whether a comparison holds anywhere.
bool any(Ints holds) {
#if defined(__AVX512BW__)
    return _mm512_test_epi32_mask((__m512i)holds, (__m512i)holds);
#elif defined(__AVX2__)
    return _mm256_movemask_ps((__m256)holds);
#else
    return vmaxvq_u32((uint32x4_t)holds);
#endif
}

// The lanes where a comparison holds, the first in the lowest bit.
uint32_t bits(Ints holds) {
#if defined(__AVX512BW__)
    return _mm512_test_epi32_mask((__m512i)holds, (__m512i)holds);
#elif defined(__AVX2__)
    return static_cast<uint32_t>(_mm256_movemask_ps((__m256)holds));
#else
    return static_cast<uint32_t>((holds[0] & 1) | (holds[1] & 2) | (holds[2] & 4) | (holds[3] & 8));
#endif
}

template <typename Choose>
float extreme(Floats numbers, Choose choose) {
    float found = numbers[0];
    for (int lane = 1; lane < FLOATS; ++lane) found = choose(found, numbers[lane]);
    return found;
}
float largest(Floats numbers) {
    return extreme(numbers, [](float a, float b) { return a > b ? a : b; });
}
float sum(Floats numbers) {
#if defined(__AVX512BW__)
    return _mm512_reduce_add_ps((__m512)numbers);
#else
    float total = 0;
    for (int lane = 0; lane < FLOATS; ++lane) total += numbers[lane];
    return total;
#endif
}

// The sum of each of as many vectors as a vector has numbers, every one added up in the same order.
Floats sums_of(const Floats (&parts)[FLOATS]) {
#if defined(__AVX512BW__)
    __m512 fours[4];
    for (int i = 0; i < 4; ++i) {
        const __m512 a = (__m512)parts[4 * i], b = (__m512)parts[4 * i + 1], c = (__m512)parts[4 * i + 2], d = (__m512)parts[4 * i + 3];
        const __m512d ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
        const __m512d cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
        fours[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    }
    __m512 halves[2];
    for (int i = 0; i < 2; ++i) {
        const __m512 a = fours[2 * i], b = fours[2 * i + 1];
        halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    }
    const __m512 a = halves[0], b = halves[1];
    return (Floats)_mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
#elif defined(__AVX2__)
    __m256 fours[2];
    for (int i = 0; i < 2; ++i) {
        const __m256 ab = _mm256_hadd_ps((__m256)parts[4 * i], (__m256)parts[4 * i + 1]);
        fours[i] = _mm256_hadd_ps(ab, _mm256_hadd_ps((__m256)parts[4 * i + 2], (__m256)parts[4 * i + 3]));
    }
    const __m256 low = _mm256_permute2f128_ps(fours[0], fours[1], 0x20), high = _mm256_permute2f128_ps(fours[0], fours[1], 0x31);
    return (Floats)_mm256_add_ps(low, high);
#else
    const float32x4_t ab = vpaddq_f32((float32x4_t)parts[0], (float32x4_t)parts[1]);
    return (Floats)vpaddq_f32(ab, vpaddq_f32((float32x4_t)parts[2], (float32x4_t)parts[3]));
#endif
}

Floats clamped(Floats numbers, float least, float most) {
    numbers = numbers < least ? Floats{} + least : numbers;
    return numbers > most ? Floats{} + most : numbers;
}

// e to the power of each, to two units in the last place; what lies below -87 or above 88 is as those are.
Floats exponential(Floats numbers) {
    numbers = clamped(numbers, -87.0f, 88.0f);
    const Ints whole = nearest(numbers * 1.44269504f);
    const Floats times = __builtin_convertvector(whole, Floats);
    const Floats rest = numbers - times * 0.693359375f + times * 2.12194440e-4f;  // ln 2 in two parts
    Floats series = rest * (1 / 5040.0f) + 1 / 720.0f;
    for (float factor : {1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1.0f, 1.0f}) series = series * rest + factor;
    return series * (Floats)((whole + 127) << 23);
}

template <typename Key>
float distance_sq(const float* query, const Key* key, int dimensions) {
    Floats sum0 = {}, sum1 = {};
    int i = 0;
    for (; i + 2 * FLOATS <= dimensions; i += 2 * FLOATS) {
        const Floats a = load<Floats>(query + i) - widened(key + i);
        const Floats b = load<Floats>(query + i + FLOATS) - widened(key + i + FLOATS);
        sum0 += a * a;
        sum1 += b * b;
    }
    float all = sum(sum0 + sum1);
    for (; i < dimensions; ++i) all += (query[i] - widened(key[i])) * (query[i] - widened(key[i]));
    return all;
}

}  // namespace
