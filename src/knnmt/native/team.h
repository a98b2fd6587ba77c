// Teams of threads that share work in parts.
//
// Whoever is free takes the next part, and the caller takes parts, too. So nobody waits for a thread that has no core: others do
// its work, and only a part that was begun is waited for. A thread that waits soon sleeps, and its core is free for the one that
// it waits for. OpenMP gives each thread its share beforehand, and all wait for the last.

#pragma once

#include <algorithm>
#include <cstdint>

namespace teams {

struct Crew;

// Parts for each thread, of items that take little time.
constexpr int64_t PARTS_EACH = 2;

// The calling thread, and others as long as this exists. Any number of teams may exist at once.
class Team {
  public:
    explicit Team(int32_t threads);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int64_t threads() const { return threads_; }

    // work(part) for each of these parts, by any thread. Returns when all are done.
    template <typename Work>
    void share(int64_t parts, const Work& work) {
        if (!crew_ || parts < 2) {
            for (int64_t part = 0; part < parts; ++part) work(part);
            return;
        }
        share_out(parts, &work, [](const void* what, int64_t part) { (*static_cast<const Work*>(what))(part); });
    }

    // work(item) for each of these items, of which some consecutive ones are a part.
    template <typename Work>
    void each(int64_t items, const Work& work) {
        const int64_t parts = std::min(items, threads_ * PARTS_EACH);
        share(parts, [&](int64_t part) {
            for (int64_t item = items * part / parts; item < items * (part + 1) / parts; ++item) work(item);
        });
    }

  private:
    void share_out(int64_t parts, const void* what, void (*work)(const void*, int64_t));

    Crew* crew_ = nullptr;  // the other threads, or null if there are none
    int64_t threads_;
};

}  // namespace teams
