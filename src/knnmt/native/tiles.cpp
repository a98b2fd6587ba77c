// Products in int8 with the tiles of AMX; see tiles.h.

#include "tiles.h"

#if defined(__AVX512VNNI__) && (defined(__AMX_INT8__) || defined(KNNMT_TILES))

#include "panels.h"
#include "vectors.h"

#if defined(KNNMT_TILES)  // a header that computes what tiles do, for tests where the CPU has none
#include KNNMT_TILES
#else
#include <sys/syscall.h>
#include <unistd.h>

static bool ask_for_tiles() {
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;  // of the calling process, and of those that it forks
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

using products::Codes;
using tiles::Groups;
using tiles::LINE;
using tiles::Place;
using tiles::place_of;

namespace {

constexpr int PANELS = 2;            // that a group of rows is multiplied with at once: more were slower, and two groups, too
constexpr int64_t TILE = 16 * LINE;  // bytes
constexpr int64_t NEAR = 1 << 20;    // bytes of codes that stay near while all weights pass by

// This thread's tiles, until they are released: 0 and 1 are sums of two panels, 2 codes, 3 and 4 weights.
void configure(int64_t codes) {
    alignas(LINE) struct {
        uint8_t palette = 1, start = 0, reserved[14] = {};
        uint16_t bytes[16] = {};
        uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 5; ++tile) {
        config.bytes[tile] = LINE;
        config.rows[tile] = static_cast<uint8_t>(tile < 3 ? codes : 16);
    }
    asm volatile("" : : "r"(&config) : "memory");  // compilers believe that only its first bytes are read
    _tile_loadconfig(&config);
}

// A group and some panels. next: what is fetched meanwhile, `share` bytes for each 64 inputs.
template <int digits, int panels>
void multiply(const Matrix& matrix, int64_t panel, const Codes& x, int64_t begin, int64_t end, float* y, const int8_t* next, int64_t share) {
    const int64_t blocks = x.stride / LINE, outputs = matrix.outputs, first = panel * FLOATS;
    const int8_t* const weight = static_cast<const int8_t*>(matrix.panels) + first * x.stride;
    const int32_t* const starts = matrix.starts + first;
    const Place from = place_of(x, digits, begin);
    _tile_loadd(0, starts, 0);  // the same for every code
    if (panels > 1) _tile_loadd(1, starts + FLOATS, 0);
    int64_t row = begin;
    for (int64_t i = 0; i < blocks; ++i, next += share) {
        for (int64_t line = 0; line < share; line += LINE) __builtin_prefetch(next + line, 0, 2);  // the nearest cache has no room
        for (const int64_t until = begin + (end - begin) * (i + 1) / blocks; row < until; ++row)   // what is written to
            for (int p = 0; p < panels; ++p) __builtin_prefetch(y + row * outputs + first + p * FLOATS, 1);
        _tile_loadd(2, from.codes + i * from.step, LINE);
        _tile_loadd(3, weight + i * TILE, LINE);
        _tile_dpbusd(0, 2, 3);
        if (panels > 1) {
            _tile_loadd(4, weight + (blocks + i) * TILE, LINE);
            _tile_dpbusd(1, 2, 4);
        }
    }
    alignas(LINE) int32_t sums[PANELS][tiles::CODES][FLOATS];
    _tile_stored(0, sums[0], LINE);
    if (panels > 1) _tile_stored(1, sums[1], LINE);
    for (row = begin; row < end; ++row)
        for (int p = 0; p < panels; ++p) {
            const int64_t output = first + p * FLOATS, rest = outputs - output;
            const int32_t(*const found)[FLOATS] = sums[p] + (row - begin) * digits;
            Floats sum = __builtin_convertvector(load<Ints>(found[0]), Floats);
            if constexpr (digits == 2) sum = sum * 128.0f + __builtin_convertvector(load<Ints>(found[1]), Floats);
            Floats result = rounded(sum * (load<Floats>(matrix.scales + output) * x.steps[row]));
            if (matrix.bias) result += load<Floats>(matrix.bias + output);
            float* const place = y + row * outputs + output;
            if (rest >= FLOATS)
                std::memcpy(place, &result, sizeof(result));
            else
                std::memcpy(place, &result, static_cast<size_t>(rest) * sizeof(float));
        }
}

// The groups from `begin` to before `end`, and meanwhile the panels that come next are fetched.
template <int digits, int panels>
void multiply_panels(const Matrix& matrix, int64_t panel, const Groups& groups, int64_t begin, int64_t end, const Codes& x, float* y) {
    const bool last = (panel + 2 * panels) * FLOATS > matrix.outputs;
    const int64_t turns = end - begin, share = last ? 0 : (panels * TILE / LINE + turns - 1) / turns * LINE;
    const int8_t* next = static_cast<const int8_t*>(matrix.panels) + (panel + panels) * FLOATS * x.stride;
    for (int64_t group = begin; group < end; ++group, next += x.stride / LINE * share)
        multiply<digits, panels>(matrix, panel, x, groups.begin(group), groups.begin(group + 1), y, next, share);
}

template <int digits>
void multiply_all(const Matrix& matrix, int64_t first, int64_t last, const Codes& x, float* y) {
    const Groups groups(x.rows, digits);
    const int64_t blocks = std::min(groups.count, (x.rows * digits * x.stride + NEAR - 1) / NEAR);
    configure(groups.each * digits);
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t begin = groups.count * block / blocks, end = groups.count * (block + 1) / blocks;
        by_panels<PANELS>(first, last, [&](int64_t at, auto count) { multiply_panels<digits, count>(matrix, at, groups, begin, end, x, y); });
    }
    _tile_release();  // or each switch of threads would save them
}

}  // namespace

namespace tiles {

bool granted() {
    static const bool is_granted = ask_for_tiles();
    return is_granted;
}

void multiply(const Matrix& matrix, int64_t first, int64_t last, const Codes& x, float* y) {
    matrix.digits == 1 ? multiply_all<1>(matrix, first, last, x, y) : multiply_all<2>(matrix, first, last, x, y);
}

}  // namespace tiles

#endif
