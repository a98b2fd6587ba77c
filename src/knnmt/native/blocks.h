// What a layer of the encoder and one of the decoder have in common: sums with norms, activation, and a team of threads that
// shares products and what is done row by row.

#pragma once

#include <algorithm>
#include <cmath>

#include "products.h"
#include "vectors.h"

extern "C" {

struct Norm {
    const float* weight;  // (dim,), or null where there is no norm
    const float* bias;
};

struct Shape {
    int32_t layers, dim, heads, hidden;
    int32_t activation;  // 0: ReLU, 1: GELU, 2: swish
    int32_t norm_first;  // whether norms stand before their blocks, not after the sums
    float epsilon;
};
}

namespace {

template <typename Change>
void change(float* row, int64_t count, Change each) {
    int64_t i = 0;
    for (; i + FLOATS <= count; i += FLOATS) {
        const Floats some = each(load<Floats>(row + i));
        std::memcpy(row + i, &some, sizeof(some));
    }
    if (i == count) return;
    float rest[FLOATS] = {};
    std::copy(row + i, row + count, rest);
    const Floats some = each(load<Floats>(rest));
    std::memcpy(row + i, &some, static_cast<size_t>(count - i) * sizeof(float));
}

Floats relu(Floats x) { return x > 0 ? x : Floats{}; }
Floats swish(Floats x) { return x / (1 + exponential(-x)); }

// With the error function by formula 7.1.26 of Abramowitz and Stegun, which is right to 1.5e-7.
Floats gelu(Floats x) {
    const Floats size = (x < 0 ? -x : x) * 0.70710678f, t = 1 / (1 + 0.3275911f * size);
    Floats series = 1.061405429f * t - 1.453152027f;
    for (float factor : {1.421413741f, -0.284496736f, 0.254829592f}) series = series * t + factor;
    const Floats beyond = series * t * exponential(-size * size);  // 1 - erf
    return 0.5f * x * (x < 0 ? beyond : 2 - beyond);
}

// The sum of what `each` makes of the numbers of one or two rows.
template <typename Each>
float total(int64_t count, const float* a, const float* b, Each each) {
    Floats sums = {};
    int64_t i = 0;
    for (; i + FLOATS <= count; i += FLOATS) sums += each(load<Floats>(a + i), load<Floats>(b + i));
    float all = sum(sums);
    for (; i < count; ++i) all += each(a[i], b[i]);
    return all;
}

void add(float* to, const float* from, float times, int64_t count) {
    int64_t i = 0;
    for (; i + FLOATS <= count; i += FLOATS) {
        const Floats some = load<Floats>(to + i) + load<Floats>(from + i) * times;
        std::memcpy(to + i, &some, sizeof(some));
    }
    for (; i < count; ++i) to[i] += from[i] * times;
}

void normalise(const Norm& norm, float epsilon, const float* x, float* y, int64_t count) {
    const float mean = total(count, x, x, [](auto a, auto) { return a; }) / static_cast<float>(count);
    const float squares = total(count, x, x, [mean](auto a, auto) { return (a - mean) * (a - mean); });
    const float scale = 1 / std::sqrt(squares / static_cast<float>(count) + epsilon);
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * scale * norm.weight[i] + norm.bias[i];
}

void bend(int32_t activation, float* row, int64_t count) {
    if (activation == 0) change(row, count, relu);
    if (activation == 1) change(row, count, gelu);
    if (activation == 2) change(row, count, swish);
}

// Of at least one number.
void softmax(float* row, int64_t count) {
    Floats mosts = Floats{} + row[0];
    int64_t i = 0;
    for (; i + FLOATS <= count; i += FLOATS) {
        const Floats some = load<Floats>(row + i);
        mosts = some > mosts ? some : mosts;
    }
    float most = largest(mosts);
    for (; i < count; ++i) most = std::max(most, row[i]);
    change(row, count, [most](Floats some) { return exponential(some - most); });
    const float all = total(count, row, row, [](auto a, auto) { return a; });
    change(row, count, [all](Floats some) { return some / all; });
}

// What the threads of a team share, a row of each for every row.
struct Buffers {
    float* x;         // (dim,), the residual sums
    float* normed;    // (dim,), of those, where norms stand first
    float* wide;      // (the larger of 3 dim and hidden,), what the first product of a block gives
    float* attended;  // (dim,)
    float* block;     // (dim,), what a block gives
    uint8_t* codes;   // of the input of the next product, where that is in int8
    float* steps;

    static int64_t wide_of(const Shape& shape) { return std::max<int64_t>(3 * static_cast<int64_t>(shape.dim), shape.hidden); }
    static size_t floats(const Shape& shape, int64_t rows) {
        return static_cast<size_t>(rows * (4 * static_cast<int64_t>(shape.dim) + wide_of(shape) + 1));
    }
    static size_t bytes(const Shape& shape, int64_t rows) {
        return static_cast<size_t>(rows * 2 * products::code_stride(wide_of(shape)));
    }
    Buffers(const Shape& shape, int64_t rows, float* floats, uint8_t* bytes)
        : x(floats),
          normed(floats + rows * shape.dim),
          wide(floats + rows * 4 * shape.dim),
          attended(floats + rows * 2 * shape.dim),
          block(floats + rows * 3 * shape.dim),
          codes(bytes),
          steps(floats + rows * (4 * shape.dim + wide_of(shape))) {}
};

// A team's work on rows.
struct Stack {
    teams::Team& team;
    const Shape& shape;
    const Buffers& at;
    int64_t rows;
    const int64_t dim = shape.dim;

    Stack(teams::Team& team, const Shape& shape, const Buffers& at, int64_t rows) : team(team), shape(shape), at(at), rows(rows) {}

    products::Codes codes_for(const Matrix& matrix) const {
        return {at.codes, at.steps, products::code_stride(matrix.inputs), rows};
    }
    void prepare(const Matrix& matrix, int64_t row, const float* x) {
        products::prepare(matrix, codes_for(matrix), row, x);
    }
    template <typename Work>
    void by_row(const Work& work) {
        team.each(rows, work);
    }
    void multiply(const Matrix& matrix, const float* from, float* to) {
        products::multiply(team, matrix, rows, from, codes_for(matrix), to);
    }

    const float* input() const { return shape.norm_first ? at.normed : at.x; }
    void embed(int64_t row, const float* token, const float* position, const Norm& norm) {
        float* x = at.x + row * dim;
        std::copy_n(token, dim, x);
        add(x, position, 1, dim);
        if (norm.weight) normalise(norm, shape.epsilon, x, x, dim);
    }
    void begin_block(int64_t row, const Norm& norm, const Matrix& first) {
        if (shape.norm_first) normalise(norm, shape.epsilon, at.x + row * dim, at.normed + row * dim, dim);
        prepare(first, row, input() + row * dim);
    }
    void end_block(int64_t row, const Norm& norm) {
        float* x = at.x + row * dim;
        add(x, at.block + row * dim, 1, dim);
        if (!shape.norm_first) normalise(norm, shape.epsilon, x, x, dim);
    }
    void bend_and_back(const Matrix& inner, const Matrix& outer) {
        multiply(inner, input(), at.wide);
        by_row([&](int64_t row) {
            bend(shape.activation, at.wide + row * shape.hidden, shape.hidden);
            prepare(outer, row, at.wide + row * shape.hidden);
        });
        multiply(outer, at.wide, at.block);
    }
    void write(int64_t row, const Norm& norm, float* to) {
        if (norm.weight)
            normalise(norm, shape.epsilon, at.x + row * dim, to, dim);
        else
            std::copy_n(at.x + row * dim, dim, to);
    }
};

}  // namespace
