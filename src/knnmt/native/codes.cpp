// Keys in four bits a number; see codes.h.

#include "codes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "panels.h"
#include "product8.h"

namespace {

constexpr int PANELS = 2;         // that are worked on at once
constexpr int64_t SOON = 4096;    // bytes that are fetched ahead
constexpr float LARGEST = 127;    // number of a query
constexpr float HIGHEST = 15;     // code
constexpr float LEAST = 1e-30f;   // number whose inverse is finite, too
constexpr float UP = 1 + 0x1p-13f;  // lengths are rounded up

// The numbers of a key or a query less the mean, with zeros to the end of a vector. Returns the squared length.
template <typename Number>
float centre(const Directions& directions, const Number* key, float* into) {
    Floats squares = {};
    for (int64_t i = 0; i < directions.dimensions; i += FLOATS) {
        Floats some = {};
        if (i + FLOATS <= directions.dimensions)
            some = widened(key + i) - load<Floats>(directions.mean + i);
        else
            for (int64_t j = i; j < directions.dimensions; ++j) some[j - i] = widened(key[j]) - directions.mean[j];
        squares += some * some;
        std::memcpy(into + i, &some, sizeof(some));
    }
    return sum(squares);
}

int64_t whole_vectors(int64_t count) { return (count + FLOATS - 1) / FLOATS * FLOATS; }

// What sums of float32 may be wrong by, of numbers whose squares add up to `squares`.
float rounding(const Directions& directions, float squares) {
    return static_cast<float>(directions.dimensions + directions.kept) * 0x1p-22f * squares;
}

// The first eight numbers of a block: the first are the largest, and each block has steps of its own.
int64_t block_begin(int block, int64_t eights) {
    constexpr int64_t BEGINS[] = {0, 2, 8};
    return block < codes::BLOCKS ? std::min(BEGINS[block], eights) : eights;
}

float beyond(const Directions& directions, float whole_sq, float first_sq) {
    return std::sqrt(std::max(0.0f, whole_sq - first_sq) + rounding(directions, whole_sq));
}

// The same four numbers in each lane, straight from memory: a register of the integer unit would take one more port.
Ints four_of(const int8_t* numbers) {
#if defined(__AVX512BW__)
    return (Ints)_mm512_set1_epi32(*reinterpret_cast<const int32_t __attribute__((aligned(1), may_alias))*>(numbers));
#else
    int32_t four;
    std::memcpy(&four, numbers, sizeof(four));
    return four - Ints{};
#endif
}

template <int rows, int panels>
__attribute__((noinline)) void multiply_some(const CodePanels& all, int64_t panel, const codes::Query* queries, float* scores, int64_t stride) {
    const int64_t eights = all.directions->kept / 8;
    const uint8_t* const from = all.codes + panel * eights * WIDTH;
    const int8_t* numbers[rows];
    for (int row = 0; row < rows; ++row) numbers[row] = queries[row].numbers;
    for (int block = 0; block < codes::BLOCKS; ++block) {
        Ints sums[rows][panels] = {};
        for (int64_t i = block_begin(block, eights); i < block_begin(block + 1, eights); ++i) {
            Ints low[panels], high[panels];
#pragma GCC unroll 2
            for (int p = 0; p < panels; ++p) {
                const uint8_t* const place = from + (p * eights + i) * WIDTH;
                __builtin_prefetch(place + SOON);
                const Bytes some = load<Bytes>(place);
                low[p] = (Ints)(some & 15);
                high[p] = (Ints)((Bytes)((Words)some >> 4) & 15);
            }
#pragma GCC unroll 8
            for (int row = 0; row < rows; ++row) {
                const Ints first = four_of(numbers[row] + 8 * i), second = four_of(numbers[row] + 8 * i + 4);
#pragma GCC unroll 2
                for (int p = 0; p < panels; ++p)
                    sums[row][p] = products::add_products(products::add_products(sums[row][p], low[p], first), high[p], second);
            }
        }
#pragma GCC unroll 2
        for (int p = 0; p < panels; ++p)
#pragma GCC unroll 8
            for (int row = 0; row < rows; ++row) {
                float* const score = scores + row * stride + p * FLOATS;
                const Floats before = block ? load<Floats>(score) : queries[row].start - load<Floats>(all.halves + (panel + p) * FLOATS);
                const Floats result = before + __builtin_convertvector(sums[row][p], Floats) * queries[row].scales[block];
                std::memcpy(score, &result, sizeof(result));
            }
    }
}

template <int panels, int rows = codes::ROWS>
void multiply_rows(int64_t count, const CodePanels& all, int64_t panel, const codes::Query* queries, float* scores, int64_t stride) {
    if constexpr (rows > 1)
        if (count < rows) return multiply_rows<panels, rows - 1>(count, all, panel, queries, scores, stride);
    multiply_some<rows, panels>(all, panel, queries, scores, stride);
}

// The kept numbers of a query, which are changed, in whole steps.
void put_into_numbers(const Directions& directions, float* turned, int8_t* into, codes::Query& found) {
    using Narrow = int8_t __attribute__((vector_size(FLOATS)));
    const int64_t kept = directions.kept;
    Floats first_sq = {}, squares = {}, lost_sq = {};
    for (int64_t i = 0; i < kept; i += FLOATS) {
        Floats z = load<Floats>(turned + i);
        first_sq += z * z;
        z *= load<Floats>(directions.steps + i);
        squares += z * z;
        std::memcpy(turned + i, &z, sizeof(z));
    }
    for (int block = 0; block < codes::BLOCKS; ++block) {
        const int64_t begin = 8 * block_begin(block, kept / 8), end = 8 * block_begin(block + 1, kept / 8);
        Floats most = {};
        for (int64_t i = begin; i < end; i += FLOATS) {
            const Floats z = load<Floats>(turned + i);
            most = z > most ? z : most;
            most = -z > most ? -z : most;
        }
        const float furthest = largest(most);
        const bool measurable = furthest > LEAST && furthest < 1 / LEAST;  // or all of it counts as lost
        const float scale = measurable ? furthest / LARGEST : 0;
        Ints total = {};
        for (int64_t i = begin; i < end; i += FLOATS) {
            const Floats z = load<Floats>(turned + i);
            const Ints number = measurable ? nearest(z * (LARGEST / furthest)) : Ints{};
            const Floats lost = z - __builtin_convertvector(number, Floats) * scale;
            lost_sq += lost * lost;
            total += number;
            const Narrow narrow = __builtin_convertvector(number, Narrow);
            std::memcpy(into + i, &narrow, sizeof(narrow));
        }
        int32_t all = 0;
        for (int lane = 0; lane < FLOATS; ++lane) all += total[lane];
        found.scales[block] = scale;
        found.start -= codes::MIDDLE * scale * static_cast<float>(all);
    }
    found.first = std::sqrt(sum(first_sq)) * UP;
    found.lost = std::sqrt(sum(lost_sq)) * UP;
    found.beyond = beyond(directions, found.length_sq, sum(first_sq));
    found.slack += std::sqrt(sum(squares) * static_cast<float>(kept)) * 0x1p-18f;
}

}  // namespace

namespace codes {

void encode(const Directions& directions, const uint16_t* const* keys, int64_t count, uint8_t* codes, CodeNumbers* numbers) {
    using Narrow = uint8_t __attribute__((vector_size(FLOATS)));
    const int64_t stride = whole_vectors(directions.dimensions), kept = directions.kept;
    thread_local std::vector<float> centred, turned;
    thread_local std::vector<uint8_t> places;
    centred.resize(static_cast<size_t>(MOST_KEYS * stride));
    turned.resize(static_cast<size_t>(MOST_KEYS * kept));
    places.resize(static_cast<size_t>(kept));
    float squares[MOST_KEYS];
    for (int64_t key = 0; key < count; ++key) squares[key] = centre(directions, keys[key], &centred[static_cast<size_t>(key * stride)]);
    products::multiply_floats(directions.panels, directions.dimensions, kept, count, centred.data(), stride, turned.data(), kept);
    for (int64_t key = 0; key < count; ++key) {
        Floats first_sq = {}, lost_sq = {}, code_sq = {};
        for (int64_t i = 0; i < kept; i += FLOATS) {
            const Floats y = load<Floats>(&turned[static_cast<size_t>(key * kept + i)]), step = load<Floats>(directions.steps + i);
            const Floats exact = y / (step > 0 ? step : 1) + MIDDLE;  // where there are no steps, y has no variance
            const Ints place = nearest(clamped(exact == exact ? exact : Floats{}, 0, HIGHEST));
            const Floats code = __builtin_convertvector(place, Floats) - MIDDLE, lost = y - code * step;
            first_sq += y * y;
            lost_sq += lost * lost;
            code_sq += code * code;
            const Narrow narrow = __builtin_convertvector(place, Narrow);
            std::memcpy(&places[static_cast<size_t>(i)], &narrow, sizeof(narrow));
        }
        for (int64_t i = 0; i < kept; i += 8) {
            uint32_t fours[2];
            std::memcpy(fours, &places[static_cast<size_t>(i)], sizeof(fours));
            const uint32_t both = fours[0] | fours[1] << 4;
            std::memcpy(codes + (key * kept + i) / 2, &both, sizeof(both));
        }
        numbers[key] = {squares[key] / 2, std::sqrt(sum(lost_sq)) * UP, beyond(directions, squares[key], sum(first_sq)),
                        std::sqrt(sum(code_sq)) * UP};
    }
}

void put(const CodePanels& panels, int64_t panel, const uint8_t* const (&keys)[FLOATS], const CodeNumbers (&numbers)[FLOATS]) {
    const int64_t eights = panels.directions->kept / 8;
    uint8_t* const into = panels.codes + panel * eights * WIDTH;
    for (int64_t i = 0; i < eights; ++i)
        for (int lane = 0; lane < FLOATS; ++lane) std::memcpy(into + i * WIDTH + lane * 4, keys[lane] + 4 * i, 4);
    for (int lane = 0; lane < FLOATS; ++lane) {
        const int64_t number = panel * FLOATS + lane;
        panels.halves[number] = number < panels.count ? numbers[lane].half : std::numeric_limits<float>::infinity();
        panels.rounded_off[number] = numbers[lane].rounded_off;
        panels.beyond[number] = numbers[lane].beyond;
        panels.code_lengths[number] = numbers[lane].code_length;
    }
}

void prepare(const CodePanels& panels, const float* const* queries, int64_t rows, int8_t* into, Query* found) {
    const Directions& directions = *panels.directions;
    const int64_t stride = whole_vectors(directions.dimensions), kept = directions.kept;
    thread_local std::vector<float> centred, turned;
    centred.resize(static_cast<size_t>(rows * stride));
    turned.resize(static_cast<size_t>(rows * kept));
    for (int64_t row = 0; row < rows; ++row) {
        const float length_sq = centre(directions, queries[row], &centred[static_cast<size_t>(row * stride)]);
        const float both = std::sqrt(length_sq) + panels.longest;
        const bool finite = both < std::numeric_limits<float>::infinity();
        found[row] = {into + row * kept, {}, 0, 0, 0, 0, rounding(directions, both * both), length_sq, finite};
    }
    products::multiply_floats(directions.panels, directions.dimensions, kept, rows, centred.data(), stride, turned.data(), kept);
    for (int64_t row = 0; row < rows; ++row)
        if (found[row].finite) put_into_numbers(directions, &turned[static_cast<size_t>(row * kept)], into + row * kept, found[row]);
}

void multiply(const CodePanels& panels, int64_t first, int64_t last, const Query* queries, int64_t rows, float* scores, int64_t stride) {
    by_panels<PANELS>(first, last, [&](int64_t panel, auto count) {
        multiply_rows<count>(rows, panels, panel, queries, scores + (panel - first) * FLOATS, stride);
    });
}

}  // namespace codes
