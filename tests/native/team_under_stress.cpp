// Many callers with teams of all sizes: each part must be done exactly once, and before `share` returns. Prints what went wrong.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "team.h"

namespace {

std::atomic<int> faults{0};

void require(bool holds, const char* what) {
    if (holds) return;
    std::printf("%s\n", what);
    ++faults;
}

// One caller's turns: sizes of teams, numbers of parts and their lengths all change. What is counted is no atomic number, so that
// a sanitizer sees whether a part's work is known to the caller when `share` returns.
void call(int seed, int turns) {
    unsigned random = static_cast<unsigned>(seed) * 2654435761u + 1;
    const auto below = [&](unsigned limit) { return (random = random * 1664525u + 1013904223u) / 65536 % limit; };
    for (int turn = 0; turn < turns; ++turn) {
        teams::Team team(static_cast<int>(below(6)));
        for (unsigned phase = 0; phase <= below(20); ++phase) {
            std::vector<int> counts(below(40));
            const unsigned length = below(2) ? 0 : below(3000);
            const auto work = [&](int64_t part) {
                for (volatile unsigned i = 0; i < length; i = i + 1) {
                }
                ++counts[static_cast<size_t>(part)];
            };
            if (below(2))
                team.share(static_cast<int64_t>(counts.size()), work);
            else
                team.each(static_cast<int64_t>(counts.size()), work);
            for (int count : counts) require(count == 1, "a part was not done once");
        }
        if (below(50) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // until others sleep
    }
}

void call_from_many(int callers, int turns) {
    std::vector<std::thread> all;
    for (int caller = 0; caller < callers; ++caller) all.emplace_back(call, caller, turns);
    for (std::thread& each : all) each.join();
}

// A process that is forked while others work computes, too, and ends.
void fork_beside(int turns) {
    std::thread other(call, 99, turns);
    for (int child = 0; child < 5; ++child) {
        call(child, 10);
        const pid_t id = fork();
        if (id == 0) {
            alarm(60);  // a process that waits for threads that it does not have would wait forever
            const int before = faults;
            call(child, 20);
            call_from_many(2, 10);
            std::exit(faults != before);
        }
        int status = 0;
        waitpid(id, &status, 0);
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked process failed");
    }
    other.join();
}

// Whether a thread other than the caller takes a part, within some tries.
bool shares(teams::Team& team, int tries) {
    const auto caller = std::this_thread::get_id();
    std::atomic<bool> shared{false};
    for (int count = 0; count < tries && !shared; ++count)
        team.share(8, [&](int64_t) {
            if (std::this_thread::get_id() != caller) shared = true;
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        });
    return shared;
}

// Whether work is so often done alone, or shared, right after another thread needed so many microseconds for a part and the caller 100.
// There are several tries: a machine that does something else for long may hide it.
bool follows(teams::Team& team, bool alone, int64_t length, int often) {
    const auto caller = std::this_thread::get_id();
    for (int count = 0; count < 30 && often; ++count) {
        require(shares(team, 10000), "no thread shared the work");
        std::atomic<bool> waited{false};
        team.share(2, [&](int64_t) {
            if (std::this_thread::get_id() != caller) waited = true;
            std::this_thread::sleep_for(std::chrono::microseconds(std::this_thread::get_id() == caller ? 100 : length));
        });
        if (waited && shares(team, 1) != alone) --often;
    }
    return !often;
}

// Whoever had to wait for a thread that lost its core works alone for some time, and shares again later.
void lose_a_core() {
    teams::Team team(2);
    require(follows(team, true, 10000, 1), "work was shared with a thread that had lost its core");
    require(shares(team, 10000), "work was never shared again");
    require(follows(team, false, 700, 10), "work was not shared with a thread that needed a little longer");
}

}  // namespace

int main(int, char** arguments) {
    const int turns = std::atoi(arguments[1]);
    lose_a_core();
    call(7, turns);
    call_from_many(4, turns);
    if (std::atoi(arguments[2])) fork_beside(turns);
    if (!faults) std::puts("sound");
}
