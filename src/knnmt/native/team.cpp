// See team.h. Threads are made when they are first needed, and then kept until the process ends.

#include "team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using Word = std::atomic<uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free, "the system waits for a plain number to change");

void sleep_while(Word& word, uint32_t value) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake(Word& word) { syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

void breathe() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr int64_t MICROSECOND = 1000, MILLISECOND = 1000 * MICROSECOND;
constexpr int64_t PATIENCE = MILLISECOND;          // of a thread without work: longer than the pauses between calls of a step
constexpr int64_t BRIEFLY = 20 * MICROSECOND;      // of all, where waiting takes a core from other programs
constexpr int64_t OF_CALLER = 50 * MICROSECOND;    // at least, who waits for parts that others have begun: most are shorter
constexpr int64_t LOST_CORE = MILLISECOND / 2;     // a pause between two looks at the clock that no computation explains

// Other programs that take cores from our threads. As long as there are any, threads that wait sleep soon, because a core that one
// gives up may be where another goes on that has lost its own. And as many fewer threads take parts as rivals have cores: one that loses
// its core has begun a part, and the others would wait for it as long as the rival computes.
class Rivals {
  public:
    bool seen(int64_t time) const { return time < until_.load(std::memory_order_relaxed); }
    int64_t cores(int64_t time) const { return seen(time) ? cores_.load(std::memory_order_relaxed) : 0; }

    // They are remembered for some time, and if they come back soon after it for twice as long.
    void see(int64_t time) {
        const int64_t until = until_.load(std::memory_order_relaxed), before = span_.load(std::memory_order_relaxed);
        if (time < until) return;
        const int64_t span = time - until < before ? std::min(2 * before, LONGEST) : SHORTEST;
        span_.store(span, std::memory_order_relaxed);
        cores_.store(0, std::memory_order_relaxed);
        until_.store(time + span, std::memory_order_relaxed);
    }
    void see_core_taken(int64_t time) {
        see(time);
        cores_.fetch_add(1, std::memory_order_relaxed);
    }

  private:
    static constexpr int64_t SHORTEST = 20 * MILLISECOND, LONGEST = 640 * MILLISECOND;
    std::atomic<int64_t> until_{0}, span_{SHORTEST}, cores_{0};
};

Rivals rivals;

// Whether something comes true soon: within this time, or less if there are rivals.
template <typename Condition>
bool soon(int64_t patience, const Condition& condition) {
    constexpr int LOOKS = 16;  // before a look at the clock
    const int64_t begin = now(), end = begin + (rivals.seen(begin) ? BRIEFLY : patience);
    for (int64_t time = begin; time < end;) {
        for (int look = 0; look < LOOKS; ++look) {
            if (condition()) return true;
            breathe();
        }
        const int64_t before = time;
        time = now();
        if (time - before > LOST_CORE) rivals.see(time);
    }
    return condition();
}

}  // namespace

namespace teams {

// The threads that a team has beside its caller, and what they work on. Each number that several threads wait for or write has a
// cache line of its own.
struct Crew {
    // How many threads may take parts, in the upper half, and how many parts are left to take.
    alignas(64) std::atomic<uint64_t> open{0};
    // Only read by those who have taken a part, and not written before all parts are done.
    alignas(64) void (*work)(const void*, int64_t) = nullptr;
    const void* what = nullptr;
    uint32_t parts = 0;
    alignas(64) Word done{0};  // parts, by others than the caller
    Word caller_sleeps{0};
    alignas(64) Word bell{0};  // changes when sleepers are woken
    Word sleepers{0};          // whether there are any that nobody has woken
    int32_t size = 0;

    bool open_to(uint32_t member) const {
        const uint64_t all = open.load(std::memory_order_seq_cst);
        return static_cast<uint32_t>(all) && member < all >> 32;
    }

    // Works until no part is left; how many parts were this thread's.
    uint32_t take_parts(uint32_t member) {
        uint32_t mine = 0;
        uint64_t all = open.load(std::memory_order_acquire);
        while (static_cast<uint32_t>(all) && member < all >> 32) {
            if (!open.compare_exchange_weak(all, all - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
            work(what, parts - static_cast<uint32_t>(all));
            ++mine;
            all = open.load(std::memory_order_acquire);
        }
        return mine;
    }

    void serve(uint32_t member) {
        for (;;) {
            if (const uint32_t mine = take_parts(member)) {
                done.fetch_add(mine);
                if (caller_sleeps.load()) wake(done);
            }
            if (soon(PATIENCE, [&] { return open_to(member); })) continue;
            const uint32_t rung = bell.load();  // before others can know that this thread sleeps
            sleepers.store(1);
            if (!open_to(member)) sleep_while(bell, rung);
        }
    }

    void share_out(int64_t members, uint32_t count, const void* of, void (*by)(const void*, int64_t)) {
        const int64_t begin = now();
        members -= rivals.cores(begin);
        if (members < 2) {
            for (uint32_t part = 0; part < count; ++part) by(of, part);
            return;
        }
        work = by;
        what = of;
        parts = count;
        done.store(0, std::memory_order_relaxed);
        open.store(static_cast<uint64_t>(members) << 32 | count);
        if (sleepers.exchange(0)) {
            ++bell;
            wake(bell);
        }
        const uint32_t mine = take_parts(0), others = count - mine;
        if (done.load(std::memory_order_acquire) == others) return;
        // Parts of a search take milliseconds: another that takes as long as this thread's own has not lost its core.
        const int64_t end = now(), of_part = mine ? (end - begin) / mine : 0;
        if (soon(std::max(OF_CALLER, 2 * of_part), [&] { return done.load(std::memory_order_acquire) == others; })) return;
        rivals.see(now());
        caller_sleeps.store(1);
        for (uint32_t found; (found = done.load()) != others;) sleep_while(done, found);
        caller_sleeps.store(0, std::memory_order_relaxed);
        const int64_t awake = now();
        // Who had no part does not know how long one takes.
        if (mine && awake - end > std::max(MILLISECOND, 2 * of_part)) rivals.see_core_taken(awake);
    }

    // Signals are for the threads of the program.
    void grow(int32_t wanted) {
        if (size >= wanted) return;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            for (; size < wanted; ++size) {
                std::thread member(&Crew::serve, this, static_cast<uint32_t>(size + 1));
                pthread_setname_np(member.native_handle(), "knnmt");
                member.detach();
            }
        } catch (const std::system_error&) {  // no more threads are allowed: those that there are do all the work
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
};

namespace {

// Crews that no team has now. They are never destroyed, so that threads need not be waited for when the process ends.
struct Free {
    std::mutex mutex;
    std::vector<Crew*> crews;

    static Free& all() {
        static Free* const free = [] {
            pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); }, [] {
                all().crews.clear();  // a forked process has none of the threads
                all().mutex.unlock();
            });
            return new Free;
        }();
        return *free;
    }
    Crew* take() {
        const std::lock_guard<std::mutex> lock(mutex);
        if (crews.empty()) return new Crew;
        Crew* const last = crews.back();
        crews.pop_back();
        return last;
    }
    void give_back(Crew* crew) {
        const std::lock_guard<std::mutex> lock(mutex);
        crews.push_back(crew);
    }
};

}  // namespace

Team::Team(int32_t threads) : threads_(std::max(threads, 1)) {
    if (threads_ == 1) return;
    crew_ = Free::all().take();
    crew_->grow(static_cast<int32_t>(threads_ - 1));
}

Team::~Team() {
    if (crew_) Free::all().give_back(crew_);
}

void Team::share_out(int64_t parts, const void* what, void (*work)(const void*, int64_t)) {
    crew_->share_out(threads_, static_cast<uint32_t>(parts), what, work);
}

}  // namespace teams
