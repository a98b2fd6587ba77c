// What a decoding step does around the search: the cache of retrieval, and equations 2 and 3.
//
// The same as knnmt.retrieval.{cache,combiner,distribution} do in PyTorch, where each of some forty calls costs more
// than its arithmetic: a step has a few dozen rows of a few neighbours.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "mixing.h"
#include "team.h"
#include "vectors.h"

extern "C" {

// The SHA-256 of these sources, so that a build of older ones is not called with the arguments of newer ones.
const char* knnmt_source() { return KNNMT_SOURCE; }

struct Cache {
    int32_t capacity;      // states of a scope
    int32_t dimensions;
    int32_t k;
    float threshold;       // the largest Euclidean distance of a hit
    float* keys;           // (scopes, capacity, dimensions)
    float* distances_sq;   // (scopes, capacity, k), what was found for each state
    int64_t* ids;
    int64_t* written;      // (scopes,), how many states were; the oldest of a full scope are overwritten
};
}

namespace {

// The squared distance if it is below `limit`, or some number that is not.
float distance_sq_below(float limit, const float* query, const float* key, int dimensions) {
    constexpr int FIRST = 64;  // most states are further already by these
    if (dimensions <= FIRST) return distance_sq(query, key, dimensions);
    const float some = distance_sq(query, key, FIRST);
    return some >= limit ? some : some + distance_sq(query + FIRST, key + FIRST, dimensions - FIRST);
}

// Whether a row found something, by the first that it did: no state that overflowed is near anything.
bool found_some(float nearest_sq, int64_t id) { return id >= 0 && nearest_sq < std::numeric_limits<float>::infinity(); }

float log_sigmoid(float x) { return std::min(x, 0.0f) - std::log1p(std::exp(-std::fabs(x))); }

// As in knnmt.retrieval.combiner.
constexpr float SAME_WEIGHT = 0.99f, LOG_ADVANTAGE = 9.0f;

float sameness(float distance_sq, float same_distance) {
    const float part = distance_sq / (same_distance * same_distance);
    return std::exp(-part * part);
}

// log(exp(a) + exp(b)), where a may be -inf
float log_add(float a, float b) {
    const float larger = std::max(a, b), smaller = std::min(a, b);
    return larger == -std::numeric_limits<float>::infinity() ? larger : larger + std::log1p(std::exp(smaller - larger));
}

// What the neighbours of a row weigh, (count,), and log λ, both by distance alone. mean, known: of the sentence's distances so far
float weigh_by_distance(const Mixture& mixture, const float* near_sq, const int64_t* near, int32_t count, const float* counts,
                        float mean, float known, float* weights) {
    const float distance = std::sqrt(near_sq[0]);
    float log_lambda = std::log(mixture.weight);
    if (mixture.fades) {
        log_lambda += log_sigmoid((mixture.scale - distance) / mixture.width) +
                      log_sigmoid((mixture.sentence_scale - mean) / mixture.sentence_width) +
                      std::log1p(-std::min(distance / mixture.scale, 1.0f) / (known + 1));
        log_lambda = log_add(log_lambda, std::log1p(-std::exp(log_lambda)) +
                                             std::log(SAME_WEIGHT * sameness(near_sq[0], mixture.same_distance)));
    }
    for (int32_t i = 0; i < count; ++i) {
        weights[i] = std::exp((near_sq[0] - near_sq[i]) / mixture.temperature);
        if (mixture.fades) weights[i] *= std::exp(LOG_ADVANTAGE * sameness(near_sq[i], mixture.same_distance));
        if (counts) weights[i] *= counts[near[i]];
    }
    return log_lambda;
}

// The same by a network. row: the rest of what it sees
float weigh_by_network(const Network& network, const float* near_sq, const int64_t* near, const int32_t* tokens, int32_t count,
                       const float* counts, const float* said, const OfRow& row, float* weights) {
    float counted[MOST_SEEN], said_there[MOST_SEEN];
    for (int32_t i = 0; i < count; ++i) {
        said_there[i] = said[near[i]];
        if (counts) counted[i] = counts[near[i]];
    }
    return weigh_by_network(network, {count, near_sq, tokens, said_there, counts ? counted : nullptr, row}, weights);
}

}  // namespace

extern "C" {

// Which rows are within reach of an earlier state: `distances` (rows,) to the nearest such, infinite for the others;
// those take over what that state found. Rows lie scope by scope, `rows_each` of them: queries (rows, dimensions),
// distances_sq and ids (rows, k). Returns how many rows have no hit; their numbers are written into `misses`.
int32_t knnmt_cache_look(const Cache* cache, int32_t scopes, int32_t rows_each, int32_t threads, const float* queries,
                         float* distances, float* distances_sq, int64_t* ids, int64_t* misses) {
    const int64_t dim = cache->dimensions, k = cache->k;
    const float infinity = std::numeric_limits<float>::infinity();
    const float beyond = std::nextafter(cache->threshold * cache->threshold, infinity);
    teams::Team team(threads);
    team.each(scopes, [&](int64_t scope) {
        const int64_t begin = scope * rows_each, first = scope * cache->capacity;
        const int64_t used = std::min<int64_t>(cache->written[scope], cache->capacity);
        std::vector<std::pair<float, int64_t>> nearest(static_cast<size_t>(rows_each), {beyond, -1});
        for (int64_t state = first; state < first + used; ++state)  // each is read once for all rows
            for (int32_t row = 0; row < rows_each; ++row) {
                auto& best = nearest[static_cast<size_t>(row)];
                const float* query = queries + (begin + row) * dim;
                const float found = distance_sq_below(best.first, query, cache->keys + state * dim, cache->dimensions);
                if (found < best.first) best = {found, state};
            }
        for (int64_t row = begin; row < begin + rows_each; ++row) {
            const auto [found_sq, place] = nearest[static_cast<size_t>(row - begin)];
            distances[row] = place < 0 ? infinity : std::sqrt(found_sq);
            if (place < 0) continue;
            std::copy_n(cache->distances_sq + place * k, k, distances_sq + row * k);
            std::copy_n(cache->ids + place * k, k, ids + row * k);
        }
    });
    int32_t missed = 0;
    for (int64_t row = 0; row < static_cast<int64_t>(scopes) * rows_each; ++row)
        if (distances[row] == infinity) misses[missed++] = row;
    return missed;
}

// Keep the given rows of a step, (count,), and what they found.
void knnmt_cache_keep(const Cache* cache, int32_t count, int32_t rows_each, const int64_t* rows, const float* queries,
                      const float* distances_sq, const int64_t* ids) {
    const int64_t dim = cache->dimensions, k = cache->k;
    for (int32_t i = 0; i < count; ++i) {
        const int64_t row = rows[i], scope = row / rows_each;
        const int64_t state = scope * cache->capacity + cache->written[scope]++ % cache->capacity;
        std::copy_n(queries + row * dim, dim, cache->keys + state * dim);
        std::copy_n(distances_sq + row * k, k, cache->distances_sq + state * k);
        std::copy_n(ids + row * k, k, cache->ids + state * k);
    }
}

bool knnmt_mix(const Mixture* mixture, int32_t sentences, int32_t width, int32_t k, int64_t entries, int64_t vocabulary,
               int64_t stride, const float* distances_sq, const int64_t* ids, const int32_t* values,
               const float* counts, const float* said, float* sums, float* steps, float* scores, float* offsets) {
    constexpr float MOST = 1 - 0x1p-24f;  // the largest λ below 1
    for (int64_t i = 0; i < static_cast<int64_t>(sentences) * width * k; ++i)
        if (ids[i] >= 0 && (ids[i] >= entries || values[ids[i]] < 0 || values[ids[i]] >= vocabulary)) return false;
    for (int32_t sentence = 0; sentence < sentences; ++sentence) {
        const int64_t begin = static_cast<int64_t>(sentence) * width;
        float sum = 0;
        int32_t found = 0;
        for (int64_t row = begin; row < begin + width; ++row)
            if (found_some(distances_sq[row * k], ids[row * k])) {
                sum += std::sqrt(distances_sq[row * k]);
                ++found;
            }
        if (found) {
            sums[sentence] += sum / static_cast<float>(found);
            steps[sentence] += 1;
        }
        const float mean = sums[sentence] / std::max(steps[sentence], 1.0f);
        for (int64_t row = begin; row < begin + width; ++row) {
            const float* near_sq = distances_sq + row * k;
            const int64_t* near = ids + row * k;
            offsets[row] = 0;
            if (!found_some(near_sq[0], near[0])) continue;
            int32_t tokens[256], count = 0;
            for (; count < k && near[count] >= 0; ++count) tokens[count] = values[near[count]];
            const float known = std::max(steps[sentence], 1.0f);
            float weights[256], log_lambda;
            if (mixture->network)
                log_lambda = weigh_by_network(*mixture->network, near_sq, near, tokens, count, counts, said,
                                              {scores + row * stride, vocabulary, mean, known}, weights);
            else
                log_lambda = weigh_by_distance(*mixture, near_sq, near, count, counts, mean, known, weights);
            const float lambda = std::min(std::exp(log_lambda), MOST);
            offsets[row] = std::log1p(-lambda);
            if (!(log_lambda > -std::numeric_limits<float>::infinity())) continue;
            const float total = std::accumulate(weights, weights + count, 0.0f);
            // As logarithms: a λ too small for a float32 still says which of two impossible tokens is the likelier.
            const float log_share = log_lambda - offsets[row] - std::log(total);
            bool counted[256] = {};  // with an earlier one that has the same token
            for (int32_t i = 0; i < count; ++i) {
                if (counted[i]) continue;
                const int32_t token = tokens[i];
                float weight = weights[i];
                for (int32_t j = i + 1; j < count; ++j)
                    if (tokens[j] == token) {
                        counted[j] = true;
                        weight += weights[j];
                    }
                if (!(weight > 0)) continue;
                float& score = scores[row * stride + token];
                score = log_add(score, log_share + std::log(weight));
            }
        }
    }
    return true;
}
}
