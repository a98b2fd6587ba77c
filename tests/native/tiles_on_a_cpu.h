// What the tiles of AMX do, computed without them, so that tests run the code that uses them on any CPU. Whatever that code does
// wrongly, and a CPU would answer with a signal or with nothing, ends the process.

#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "product8.h"

namespace stand_in {

struct Configuration {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};
static_assert(sizeof(Configuration) == 64);

thread_local Configuration configuration;  // all zero: none
thread_local uint8_t registers[8][16][64];
std::atomic<int64_t> products{0};

inline void demand(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "tiles: %s\n", what);
    std::abort();
}

inline void demand_tile(int tile) {
    demand(configuration.palette == 1, "used without a configuration");
    demand(tile >= 0 && tile < 8 && configuration.rows[tile] != 0, "one that has no size");
}

inline void configure(const void* from) {
    std::memcpy(&configuration, from, sizeof(configuration));
    demand(configuration.palette == 1 && configuration.start == 0, "palette or start");
    for (uint8_t none : configuration.reserved) demand(none == 0, "reserved bytes");
    for (int tile = 0; tile < 16; ++tile) {
        const int rows = configuration.rows[tile], bytes = configuration.bytes[tile];
        demand(rows <= (tile < 8 ? 16 : 0) && bytes <= (tile < 8 ? 64 : 0) && (rows == 0) == (bytes == 0), "their sizes");
    }
    std::memset(registers, 0, sizeof(registers));
}

inline void release() {
    demand_tile(0);
    configuration = {};
}

inline void load(int tile, const void* from, int64_t stride) {
    demand_tile(tile);
    std::memset(registers[tile], 0, sizeof(registers[tile]));
    for (int row = 0; row < configuration.rows[tile]; ++row)
        std::memcpy(registers[tile][row], static_cast<const uint8_t*>(from) + row * stride, configuration.bytes[tile]);
}

inline void store(int tile, void* to, int64_t stride) {
    demand_tile(tile);
    for (int row = 0; row < configuration.rows[tile]; ++row)
        std::memcpy(static_cast<uint8_t*>(to) + row * stride, registers[tile][row], configuration.bytes[tile]);
}

inline void multiply(int sums, int codes, int weights) {
    for (int tile : {sums, codes, weights}) demand_tile(tile);
    const Configuration& has = configuration;
    demand(sums != codes && sums != weights && codes != weights, "the same one twice");
    demand(has.rows[sums] == has.rows[codes] && has.bytes[sums] == has.bytes[weights], "sums of another size");
    demand(has.bytes[codes] == has.rows[weights] * 4, "codes and weights of different sizes");
    for (int row = 0; row < has.rows[codes]; ++row)
        for (int column = 0; column < has.bytes[sums] / 4; ++column) {
            uint32_t sum;
            std::memcpy(&sum, &registers[sums][row][column * 4], 4);
            for (int four = 0; four < has.bytes[codes] / 4; ++four)
                for (int i = 0; i < 4; ++i)
                    sum += static_cast<uint32_t>(registers[codes][row][four * 4 + i] * static_cast<int8_t>(registers[weights][four][column * 4 + i]));
            std::memcpy(&registers[sums][row][column * 4], &sum, 4);
        }
    ++products;
}

}  // namespace stand_in

#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbusd
#define _tile_loadconfig stand_in::configure
#define _tile_release stand_in::release
#define _tile_loadd stand_in::load
#define _tile_stored stand_in::store
#define _tile_dpbusd stand_in::multiply

static bool ask_for_tiles() { return true; }

extern "C" {

// How often tiles were multiplied.
int64_t knnmt_tile_products() { return stand_in::products; }

int32_t knnmt_panel() { return FLOATS; }
int32_t knnmt_offset() { return products::offset(); }

// As in product.cpp, but each thread has one part of the panels.
void knnmt_product(const Matrix* matrix, const float* x, float* y, uint8_t* scratch, int32_t rows, int32_t threads) {
    const int64_t stride = products::code_stride(matrix->inputs), panels = (matrix->outputs + FLOATS - 1) / FLOATS;
    const products::Codes codes{scratch, reinterpret_cast<float*>(scratch + rows * matrix->digits * stride), stride, rows};
    for (int64_t row = 0; row < rows; ++row) products::put_into_codes(*matrix, codes, row, x + row * matrix->inputs);
    std::vector<std::thread> all;
    for (int64_t part = 0; part < threads; ++part)
        all.emplace_back([=] {
            products::multiply8(*matrix, panels * part / threads, panels * (part + 1) / threads, rows, codes, y);
            stand_in::demand(stand_in::configuration.palette == 0, "not released");
        });
    for (std::thread& thread : all) thread.join();
}
}
