// Reads of mapped files that other programs cut. The system sends SIGBUS to a process that reads a mapped page beyond the end of
// its file, and to one whose disk fails. In a guarded map the handler puts pages of zeros there and notes it. The reader goes on,
// and asks whether the file changed before it uses a result. Elsewhere the signal does what it did before.

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

struct Map {
    std::atomic<uintptr_t> begin{0}, end{0};  // begin is 0 if the place is free
    std::atomic<bool> lost{false};            // a page could not be read
    int file;
    struct stat state;                        // of the file when it was mapped
};

constexpr int32_t MOST = 1 << 16;
Map maps[MOST];
std::atomic<int32_t> used{0};  // all places from here on are free
std::mutex changing;
std::once_flag installed;
struct sigaction before;
uintptr_t page;

void on_bus_error(int number, siginfo_t* info, void* context) {
    const int error = errno;
    const uintptr_t at = reinterpret_cast<uintptr_t>(info->si_addr);
    for (int32_t i = 0; info->si_code > 0 && i < used; ++i) {  // 0 and less: a process sent it
        const uintptr_t begin = maps[i].begin, end = maps[i].end;
        if (!begin || at < begin || at >= end) continue;
        const uintptr_t from = at / page * page;
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
        if (mmap(reinterpret_cast<void*>(from), end - from, PROT_READ, flags, -1, 0) == MAP_FAILED) break;
        maps[i].lost = true;
        errno = error;
        return;
    }
    const struct sigaction earlier = before;
    before = {};  // the default, because the earlier handler may come back here
    before.sa_handler = SIG_DFL;
    if (earlier.sa_flags & SA_SIGINFO) {
        earlier.sa_sigaction(number, info, context);
    } else if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN) {
        earlier.sa_handler(number);
    } else {
        sigaction(number, &before, nullptr);
        raise(number);  // it is delivered when this handler returns
    }
}

void install() {
    page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction own = {};
    own.sa_sigaction = on_bus_error;
    own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&own.sa_mask);
    sigaction(SIGBUS, &own, &before);
}

}  // namespace

extern "C" {

const char* knnmt_source() { return KNNMT_SOURCE; }

// Guard the map of an open file. Returns the number of its place, or -1 if there is none left.
int32_t knnmt_guard(int file, const void* begin, int64_t size) {
    std::call_once(installed, install);
    const std::lock_guard<std::mutex> lock(changing);
    for (int32_t i = 0; i < MOST; ++i) {
        if (maps[i].begin) continue;
        const uintptr_t first = reinterpret_cast<uintptr_t>(begin);
        maps[i].lost = fstat(file, &maps[i].state) != 0;
        maps[i].file = file;
        maps[i].end = (first + static_cast<uintptr_t>(size) + page - 1) / page * page;
        maps[i].begin = first;
        if (i >= used) used = i + 1;
        return i;
    }
    return -1;
}

// The first of some places whose file was cut or written to since it was guarded, or could not be read; -1 if there is none.
int32_t knnmt_changed(const int32_t* places, int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
        const Map& map = maps[places[i]];
        struct stat now;
        if (map.lost || fstat(map.file, &now) != 0 || now.st_size != map.state.st_size ||
            now.st_mtim.tv_sec != map.state.st_mtim.tv_sec || now.st_mtim.tv_nsec != map.state.st_mtim.tv_nsec)
            return i;
    }
    return -1;
}

// No longer guard a map. Call it before the memory is unmapped and the file is closed.
void knnmt_unguard(int32_t place) {
    const std::lock_guard<std::mutex> lock(changing);
    maps[place].begin = 0;
}
}
