// Numbers as a kernel finds them in memory: halves if its constant HALF is 1, else floats. They are computed with as floats.

template <int half> struct StoredAs { typedef float Number; };
template <> struct StoredAs<1> { typedef unsigned short Number; };
typedef StoredAs<HALF>::Number Number;

constexpr int CHUNK = 16 / sizeof(Number);  // numbers that are read at once

struct __align__(16) Chunk {
    Number numbers[CHUNK];
};

__device__ float read(unsigned short bits) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(bits));
    return number;
}

__device__ float read(float number) { return number; }

#ifndef ON_A_CPU
__device__ unsigned short half_of(float number) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(number));
    return bits;
}
#endif

__device__ void write(unsigned short* place, float number) { *place = half_of(number); }

__device__ void write(float* place, float number) { *place = number; }
