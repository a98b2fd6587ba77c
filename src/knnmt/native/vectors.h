// Vectors as wide as the CPU of this build has them, and the squared distance of a query to a key.

#pragma once

#include <cstdint>
#include <cstring>

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
constexpr int FLOATS = WIDTH / 4;

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
float widened(float value) { return value; }

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
    sum0 += sum1;
    float sum = 0;
    for (int lane = 0; lane < FLOATS; ++lane) sum += sum0[lane];
    for (; i < dimensions; ++i) sum += (query[i] - widened(key[i])) * (query[i] - widened(key[i]));
    return sum;
}

}  // namespace
