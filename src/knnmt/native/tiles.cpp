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

constexpr int TOGETHER = 2;             // groups of rows, and panels, that are multiplied at once
constexpr int64_t TILE = 16 * LINE;     // bytes
constexpr int64_t NEAR = 1 << 20;       // bytes of codes that stay near while all weights pass by

// This thread's tiles, until they are released: 0 to 3 are sums of both groups and panels, 4 and 5 codes, 6 and 7 weights.
void configure(int64_t codes) {
    alignas(LINE) struct {
        uint8_t palette = 1, start = 0, reserved[14] = {};
        uint16_t bytes[16] = {};
        uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 8; ++tile) {
        config.bytes[tile] = LINE;
        config.rows[tile] = static_cast<uint8_t>(tile < 6 ? codes : 16);
    }
    asm volatile("" : : "r"(&config) : "memory");  // compilers believe that only its first bytes are read
    _tile_loadconfig(&config);
}

// Some groups and some panels. next: what is fetched meanwhile, `share` bytes for each 64 inputs.
template <int digits, int groups, int panels>
void multiply(const Matrix& matrix, int64_t panel, const Codes& x, const Groups& all, int64_t group, float* y, const int8_t* next, int64_t share) {
    constexpr bool two = groups == 2, wide = panels == 2;
    const int64_t blocks = x.stride / LINE, outputs = matrix.outputs, first = panel * FLOATS;
    const int64_t begin = all.begin(group), rows = all.begin(group + groups) - begin;
    const int8_t* const weight = static_cast<const int8_t*>(matrix.panels) + first * x.stride;
    const Place from = place_of(x, digits, begin), more = place_of(x, digits, all.begin(group + groups - 1));
    const int32_t* const starts = matrix.starts + first;
    _tile_loadd(0, starts, 0);  // the same for every row
    if (wide) _tile_loadd(1, starts + FLOATS, 0);
    if (two) _tile_loadd(2, starts, 0);
    if (two && wide) _tile_loadd(3, starts + FLOATS, 0);
    int64_t row = 0;
    for (int64_t i = 0; i < blocks; ++i, next += share) {
        for (int64_t line = 0; line < share; line += LINE) __builtin_prefetch(next + line, 0, 2);  // not into the nearest cache, whose room the codes need
        for (const int64_t until = rows * (i + 1) / blocks; row < until; ++row)  // what is written to
            for (int p = 0; p < panels; ++p) __builtin_prefetch(y + (begin + row) * outputs + first + p * FLOATS, 1);
        _tile_loadd(4, from.codes + i * from.step, LINE);
        _tile_loadd(6, weight + i * TILE, LINE);
        _tile_dpbusd(0, 4, 6);
        if (wide) {
            _tile_loadd(7, weight + (blocks + i) * TILE, LINE);
            _tile_dpbusd(1, 4, 7);
        }
        if (two) {
            _tile_loadd(5, more.codes + i * more.step, LINE);
            _tile_dpbusd(2, 5, 6);
            if (wide) _tile_dpbusd(3, 5, 7);
        }
    }
    alignas(LINE) int32_t sums[TOGETHER][TOGETHER][16][FLOATS];
    _tile_stored(0, sums[0][0], LINE);
    if (wide) _tile_stored(1, sums[0][1], LINE);
    if (two) _tile_stored(2, sums[1][0], LINE);
    if (two && wide) _tile_stored(3, sums[1][1], LINE);
    for (int p = 0; p < panels; ++p) {
        const int64_t output = first + p * FLOATS;
        const size_t bytes = static_cast<size_t>(std::min<int64_t>(FLOATS, outputs - output)) * sizeof(float);
        const Floats scales = load<Floats>(matrix.scales + output);
        for (int g = 0; g < groups; ++g) {
            const int64_t from_row = all.begin(group + g), to_row = all.begin(group + g + 1);
            for (int64_t r = from_row; r < to_row; ++r) {
                const int32_t(*const found)[FLOATS] = sums[g][p] + (r - from_row) * digits;
                Floats sum = __builtin_convertvector(load<Ints>(found[0]), Floats);
                if constexpr (digits == 2) sum = sum * 128.0f + __builtin_convertvector(load<Ints>(found[1]), Floats);
                Floats result = rounded(sum * (scales * x.steps[r]));
                if (matrix.bias) result += load<Floats>(matrix.bias + output);
                float* const place = y + r * outputs + output;
                if (bytes == sizeof(result))
                    std::memcpy(place, &result, sizeof(result));
                else
                    std::memcpy(place, &result, bytes);
            }
        }
    }
}

// The groups from `begin` to before `end`, and meanwhile the panels that come next are fetched.
template <int digits, int panels>
void multiply_panels(const Matrix& matrix, int64_t panel, int64_t begin, int64_t end, const Codes& x, const Groups& all, float* y) {
    const int64_t turns = (end - begin + TOGETHER - 1) / TOGETHER, lines = (panels * TILE / LINE + turns - 1) / turns;
    const bool last = (panel + 2 * panels) * FLOATS > matrix.outputs;
    const int64_t share = last ? 0 : lines * LINE, step = x.stride / LINE * share;
    const int8_t* next = static_cast<const int8_t*>(matrix.panels) + (panel + panels) * FLOATS * x.stride;
    for (int64_t group = begin; group < end; group += TOGETHER, next += step)
        if (end - group > 1)
            multiply<digits, 2, panels>(matrix, panel, x, all, group, y, next, share);
        else
            multiply<digits, 1, panels>(matrix, panel, x, all, group, y, next, share);
}

template <int digits>
void multiply_all(const Matrix& matrix, int64_t first, int64_t last, const Codes& x, float* y) {
    const Groups all(x.rows, digits);
    const int64_t pairs = (all.count + 1) / 2, blocks = std::min(pairs, (x.rows * digits * x.stride + NEAR - 1) / NEAR);
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t begin = pairs * block / blocks * 2, end = std::min(pairs * (block + 1) / blocks * 2, all.count);
        by_panels<TOGETHER>(first, last, [&](int64_t at, auto panels) { multiply_panels<digits, panels>(matrix, at, begin, end, x, all, y); });
    }
}

}  // namespace

namespace tiles {

bool granted() {
    static const bool is_granted = ask_for_tiles();
    return is_granted;
}

void multiply(const Matrix& matrix, int64_t first, int64_t last, const Codes& x, float* y) {
    configure(Groups(x.rows, matrix.digits).each * matrix.digits);
    matrix.digits == 1 ? multiply_all<1>(matrix, first, last, x, y) : multiply_all<2>(matrix, first, last, x, y);
    _tile_release();  // or each switch of threads would save them
}

}  // namespace tiles

#endif
