// The networks of Robust kNN-MT for a row, as knnmt.retrieval.trained.networks has them in PyTorch, where each of some fifty
// calls costs more than its arithmetic.

#include "network.h"

#include <algorithm>
#include <cmath>

#include "vectors.h"

namespace {

constexpr int HIDDEN = 32, OF_NEIGHBOUR = 4, BEST = 8;
constexpr float LEAST = -30.0f;    // the smallest log-probability that a network is shown
constexpr float MOST = -1e-6f;     // log λ at most, if it fades

Floats tanh_of(Floats numbers) { return 1.0f - 2.0f / (exponential(numbers + numbers) + 1.0f); }

float log_sigmoid(float x) { return std::min(x, 0.0f) - std::log1p(std::exp(-std::fabs(x))); }

void put(Floats some, float* into) { std::memcpy(into, &some, sizeof(some)); }

// The highest scores, descending, none below LEAST.
void find_best(const float* scores, int64_t count, float* best) {
    std::fill_n(best, BEST, LEAST);
    const auto add = [best](float score) {
        if (!(score > best[BEST - 1])) return;
        int place = BEST - 1;
        for (; place && score > best[place - 1]; --place) best[place] = best[place - 1];
        best[place] = score;
    };
    int64_t i = 0;
    for (; i + FLOATS <= count; i += FLOATS)
        if (any(load<Floats>(scores + i) > best[BEST - 1]))
            for (int64_t j = i; j < i + FLOATS; ++j) add(scores[j]);
    for (; i < count; ++i) add(scores[i]);
}

// The numbers of a network, taken from the first to the last.
struct Numbers {
    const float* at;
    const float* take(int count) {
        const float* taken = at;
        at += count;
        return taken;
    }
    float take() { return *at++; }
};

float dot(const float* a, const float* b, int count) {
    float sum = 0;
    for (int i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

}  // namespace

float weigh_by_network(const Network& network, const Seen& seen, float* weights) {
    const int k = network.k, count = seen.count;
    Numbers numbers{network.numbers};
    const float temperature = numbers.take(), far = numbers.take();
    const float scale = numbers.take(), sentence_scale = numbers.take(), sentence_width = numbers.take();
    const float *mean = numbers.take(2 * k), *factor = numbers.take(2 * k);

    float there[MOST_SEEN] = {}, here[MOST_SEEN] = {}, best[BEST], scores[MOST_SEEN] = {};
    for (int i = 0; i < count; ++i) {
        there[i] = std::max(seen.said_there[i], LEAST);
        here[i] = std::max(seen.row.scores[seen.tokens[i]], LEAST);
    }
    find_best(seen.row.scores, seen.row.vocabulary, best);

    // What the model says of each neighbour's token corrects that neighbour.
    const float *first = numbers.take(2 * OF_NEIGHBOUR), *bias = numbers.take(OF_NEIGHBOUR), *second = numbers.take(OF_NEIGHBOUR);
    const float last = numbers.take();
    for (int i = 0; i < count; i += FLOATS) {
        const Floats of_entry = load<Floats>(there + i), of_row = load<Floats>(here + i);
        Floats correction = Floats{} + last;
        for (int unit = 0; unit < OF_NEIGHBOUR; ++unit)
            correction += second[unit] * tanh_of(first[2 * unit] * of_entry + first[2 * unit + 1] * of_row + bias[unit]);
        put(correction, scores + i);
    }

    // Distances, and how many different tokens there are up to each neighbour.
    const float *rows = numbers.take(2 * k * HIDDEN), *hidden_bias = numbers.take(HIDDEN), *of_two = numbers.take(2 * HIDDEN);
    const float *two_bias = numbers.take(2);
    float hidden[HIDDEN];
    std::copy_n(hidden_bias, HIDDEN, hidden);
    const auto enter = [&](int place, float value) {
        const float input = (value - mean[place]) * factor[place];
        for (int unit = 0; unit < HIDDEN; ++unit) hidden[unit] += input * rows[place * HIDDEN + unit];
    };
    int distinct = 0;
    for (int i = 0; i < k; ++i) {
        enter(i, i < count ? seen.distances_sq[i] : far);
        distinct += i < count && std::find(seen.tokens, seen.tokens + i, seen.tokens[i]) == seen.tokens + i;
        enter(k + i, static_cast<float>(distinct));
    }
    for (int unit = 0; unit < HIDDEN; unit += FLOATS) put(tanh_of(load<Floats>(hidden + unit)), hidden + unit);
    const float of_memory = two_bias[0] + dot(of_two, hidden, HIDDEN), sharpness = two_bias[1] + dot(of_two + HIDDEN, hidden, HIDDEN);

    const float* of_both = numbers.take(2 * k + BEST);
    const float of_model = numbers.take() + dot(of_both, there, k) + dot(of_both + k, here, k) + dot(of_both + 2 * k, best, BEST);
    float log_lambda = log_sigmoid(of_memory - of_model);
    if (network.fades) {
        const float doubt = std::min(std::sqrt(seen.distances_sq[0]) / scale, 1.0f) / (seen.row.known + 1);
        log_lambda += log_sigmoid((sentence_scale - seen.row.mean) / sentence_width) + std::log1p(-doubt);
        log_lambda = std::min(log_lambda, MOST);
    }

    const float slope = 2 / (1 + std::exp(-sharpness)) / temperature;
    for (int i = 0; i < count; ++i) {
        scores[i] += (seen.distances_sq[0] - seen.distances_sq[i]) * slope;
        if (seen.counts) scores[i] += std::log(seen.counts[i]);
    }
    const float highest = *std::max_element(scores, scores + count);
    for (int i = 0; i < count; i += FLOATS) put(exponential(load<Floats>(scores + i) - highest), scores + i);
    std::copy_n(scores, count, weights);
    return log_lambda;
}
