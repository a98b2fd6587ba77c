// Beam search for translations with required content: the same as knnmt.decoding.requirements and knnmt.decoding.constrained.

#include "required.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "vocabulary.h"

namespace {

constexpr float NEVER = -std::numeric_limits<float>::infinity();
constexpr float HOPELESS = -1e30f;  // followed only until enough hypotheses have ended
constexpr int32_t ROOT = 0;

struct Progress {
    int32_t node = ROOT;
    int64_t last = -1;  // token
    std::vector<int32_t> met;
};

// met: how many requirements are; depth: tokens of the next one
struct Candidate {
    Continuation at;
    Progress progress;
    int32_t met, depth;
};

// Hypotheses that have met as much, and are as far in the next requirement.
struct Share {
    int32_t met, depth;
    std::vector<const Candidate*> candidates;
};

struct Requirements {
    const Required& required;
    int64_t end;

    bool lacks(int32_t requirement, const Progress& progress) const {
        return progress.met[static_cast<size_t>(requirement)] < required.times[requirement];
    }

    bool is_open(int32_t node, const Progress& progress) const {
        return std::any_of(required.below + required.below_starts[node], required.below + required.below_starts[node + 1],
                           [&](int32_t each) { return lacks(each, progress); });
    }

    int32_t child(int32_t node, int64_t token) const {
        const int64_t* tokens = required.child_tokens;
        const auto end = tokens + required.child_starts[node + 1];
        const auto found = std::find(tokens + required.child_starts[node], end, token);
        return found == end ? -1 : required.children[found - tokens];
    }

    // The requirement that the last tokens meet, unless their word goes on; -1 if they meet none.
    int32_t ended(const Progress& progress) const {
        const int32_t* end = required.ends + required.end_starts[progress.node + 1];
        const int32_t* found =
            std::find_if(required.ends + required.end_starts[progress.node], end, [&](int32_t each) { return lacks(each, progress); });
        return found == end ? -1 : *found;
    }

    // As it is outside of requirements if nothing continues the last tokens.
    Progress settled(const Progress& progress) const {
        Progress found{ROOT, progress.last, progress.met};
        const int32_t requirement = ended(progress);
        if (requirement >= 0) ++found.met[static_cast<size_t>(requirement)];
        return found;
    }

    bool is_met(const Progress& progress) const {
        const Progress outside = settled(progress);
        for (int32_t each = 0; each < required.count; ++each)
            if (lacks(each, outside)) return false;
        return true;
    }

    // The node of a requirement that a token starts, if it is not met yet; otherwise -1.
    int32_t begun(const Progress& progress, int64_t token) const {
        const int32_t node = child(ROOT, token);
        if (node < 0 || !is_open(node, progress)) return -1;
        if (progress.last < 0) return node;
        if (required.blank[progress.last] && required.spaced[token]) return -1;
        if (required.spaced[token] || !required.closing[progress.last]) return node;
        const bool may_join = std::any_of(required.below + required.below_starts[node], required.below + required.below_starts[node + 1],
                                          [&](int32_t each) { return required.joined_before[each] && lacks(each, progress); });
        return may_join ? node : -1;
    }

    std::optional<Progress> between(const Progress& progress, int64_t token) const {
        const int32_t node = begun(progress, token);
        if (node < 0 && (required.only[token] || (token == end && !is_met(progress)))) return {};
        return Progress{std::max(node, ROOT), token, progress.met};
    }

    // The progress after one more token, if that is allowed.
    std::optional<Progress> after(const Progress& progress, int64_t token) const {
        if (progress.node == ROOT) return between(progress, token);
        const int32_t node = child(progress.node, token), requirement = ended(progress);
        if (node >= 0 && is_open(node, progress)) return Progress{node, token, progress.met};
        if (requirement >= 0 && (required.joined_after[requirement] || !required.joins[token])) return between(settled(progress), token);
        if (!required.ordinary[progress.node]) return {};
        return between({ROOT, progress.last, progress.met}, token);
    }

    // The tokens that start or continue a requirement that is not met yet.
    std::vector<int64_t> advancing(const Progress& progress) const {
        std::vector<int64_t> found;
        const int32_t node = progress.node;
        if (node != ROOT)
            for (int32_t i = required.child_starts[node]; i < required.child_starts[node + 1]; ++i)
                if (is_open(required.children[i], progress)) found.push_back(required.child_tokens[i]);
        if (node == ROOT || required.ordinary[node] || ended(progress) >= 0) {
            const Progress outside = settled(progress);
            for (int32_t i = required.child_starts[ROOT]; i < required.child_starts[ROOT + 1]; ++i) {
                const int64_t token = required.child_tokens[i];
                if (std::find(found.begin(), found.end(), token) == found.end() && begun(outside, token) >= 0) found.push_back(token);
            }
        }
        found.erase(std::remove_if(found.begin(), found.end(), [&](int64_t token) { return !after(progress, token); }), found.end());
        return found;
    }

    // Whether a requirement was started that must be continued.
    bool only_advances(const Progress& progress) const {
        return progress.node != ROOT && !required.ordinary[progress.node] && ended(progress) < 0;
    }

    bool must_not_join(const Progress& progress) const {
        const int32_t requirement = ended(progress);
        return requirement >= 0 && !required.ordinary[progress.node] && !required.joined_after[requirement];
    }

    // Makes what a hypothesis may not continue with impossible, but for `advancing`.
    void restrict(const Progress& progress, const std::vector<int64_t>& advancing, float* log_probabilities, int64_t vocabulary) const {
        std::vector<float> values;
        for (int64_t token : advancing) values.push_back(log_probabilities[token]);
        for (int32_t i = 0; i < required.only_count; ++i) log_probabilities[required.only_tokens[i]] = NEVER;
        if (must_not_join(progress))
            for (int64_t token = 0; token < vocabulary; ++token)
                if (required.joins[token]) log_probabilities[token] = NEVER;
        if (only_advances(progress)) std::fill_n(log_probabilities, vocabulary, NEVER);
        if (!is_met(progress)) log_probabilities[end] = NEVER;
        for (size_t i = 0; i < advancing.size(); ++i) log_probabilities[advancing[i]] = values[i];
    }
};

bool is_better(const Candidate* a, const Candidate* b) { return a->at.score > b->at.score; }

// The best of each share of the beam in turn, best first, until there are `width`. See `_Rows.shared` in knnmt.decoding.constrained.
std::vector<const Candidate*> shared(const std::vector<const Candidate*>& candidates, size_t width) {
    std::vector<Share> shares;
    for (const Candidate* each : candidates) {
        const int32_t depth = std::min(each->depth, 2);
        auto share = std::find_if(shares.begin(), shares.end(), [&](const Share& some) { return some.met == each->met && some.depth == depth; });
        if (share == shares.end()) share = shares.insert(share, {each->met, depth, {}});
        share->candidates.push_back(each);
    }
    for (Share& share : shares) {
        auto& all = share.candidates;
        const auto furthest = std::max_element(all.begin(), all.end(), [](auto a, auto b) { return a->depth < b->depth; });
        std::rotate(all.begin(), furthest, furthest + 1);
    }
    std::vector<const Share*> by_score, by_met, order;
    for (const Share& share : shares) by_score.push_back(&share);
    by_met = by_score;
    std::stable_sort(by_score.begin(), by_score.end(), [](auto a, auto b) { return is_better(a->candidates[0], b->candidates[0]); });
    std::sort(by_met.begin(), by_met.end(), [](auto a, auto b) { return std::pair(a->met, a->depth) > std::pair(b->met, b->depth); });
    for (size_t i = 0; i < shares.size(); ++i)
        for (const Share* share : {by_score[i], by_met[i]})
            if (std::find(order.begin(), order.end(), share) == order.end()) order.push_back(share);
    std::vector<const Candidate*> chosen;
    for (size_t i = 0; chosen.size() < std::min(width, candidates.size()); ++i)
        for (const Share* share : order)
            if (i < share->candidates.size() && chosen.size() < width) chosen.push_back(share->candidates[i]);
    std::stable_sort(chosen.begin(), chosen.end(), is_better);
    return chosen;
}

// The allowed continuations of all hypotheses, best first.
std::vector<Candidate> candidates_of(const Requirements& requirements, const RequiredStep& step) {
    const int32_t count = step.beam + 1, each = 1 + requirements.required.count;
    std::vector<Progress> progress;
    std::vector<Continuation> likeliest, advancing;
    std::vector<float> best(static_cast<size_t>(count));
    std::vector<int64_t> places(best.size());
    const float none = 0;
    for (int32_t row = 0; row < step.width; ++row) {
        const int32_t* before = step.progress + row * each;
        progress.push_back({before[0], step.length ? step.tokens[row * step.token_capacity + step.length - 1] : -1, {before + 1, before + each}});
        float* log_probabilities = step.log_probabilities + row * step.vocabulary;
        const std::vector<int64_t> tokens = requirements.advancing(progress.back());
        requirements.restrict(progress.back(), tokens, log_probabilities, step.vocabulary);
        for (int64_t token : tokens) advancing.push_back({row, token, log_probabilities[token] + step.scores[row]});
        if (requirements.only_advances(progress.back())) continue;
        best_of(&none, log_probabilities, 1, step.vocabulary, count, best.data(), places.data());
        for (size_t i = 0; i < best.size(); ++i) likeliest.push_back({row, places[i], best[i] + step.scores[row]});
    }
    std::vector<Candidate> found;
    const auto add = [&](const Continuation& at) {
        auto after = requirements.after(progress[static_cast<size_t>(at.parent)], at.token);
        if (!after || !(at.score > NEVER)) return;
        const Progress outside = requirements.settled(*after);
        const int32_t depth = outside.met == after->met ? requirements.required.depths[after->node] : 0;
        found.push_back({at, std::move(*after), std::accumulate(outside.met.begin(), outside.met.end(), 0), depth});
    };
    for (const Continuation& at : likeliest) add(at);
    for (const Continuation& at : advancing)
        if (std::none_of(likeliest.begin(), likeliest.end(), [&](auto& each) { return each.parent == at.parent && each.token == at.token; })) add(at);
    std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return is_better(&a, &b); });
    return found;
}

}  // namespace

Followed follow_required(const RequiredStep& step) {
    const Requirements requirements{step.required, step.end};
    const std::vector<Candidate> candidates = candidates_of(requirements, step);
    Followed followed{{}, {}, {}, NEVER};
    std::vector<const Candidate*> others;
    for (const Candidate& each : candidates) {
        if (each.at.token != step.end)
            others.push_back(&each);
        else if (followed.ended.size() < static_cast<size_t>(step.beam))
            followed.ended.push_back(each.at);
    }
    const std::vector<const Candidate*> going = shared(others, static_cast<size_t>(step.required.width));
    const int64_t length = step.length + 1;
    if (!going.empty() && length < step.max_tokens) followed.leader = HOPELESS;
    for (const Candidate* each : going) {
        followed.going.push_back(each->at);
        followed.progress.push_back(each->progress.node);
        followed.progress.insert(followed.progress.end(), each->progress.met.begin(), each->progress.met.end());
        if (length < step.max_tokens && (length <= step.required.late || requirements.is_met(each->progress)))
            followed.leader = std::max(followed.leader, each->at.score);
    }
    return followed;
}
