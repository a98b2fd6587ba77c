// Time that parts of a compiled call take.

#pragma once

#include <chrono>

namespace {

struct Clock {
    std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();

    // Seconds since the last lap.
    double lap() {
        const auto before = last;
        last = std::chrono::steady_clock::now();
        return std::chrono::duration<double>(last - before).count();
    }
};

}  // namespace
