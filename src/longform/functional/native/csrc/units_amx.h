/* Tiles of 16 x 16 floats by AMX, vectors of 16 floats by AVX512. */
#include <sys/syscall.h>
#include <unistd.h>

#define UNITS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")))
#include "vectors_avx512.h"

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_setting;

/* Configures eight tiles of 16 rows of 64 bytes; what was set before comes back by the other. The compiler believes
 * that the instructions touch eight bytes of a setting: it must not be one that it could keep in registers. */
INLINE void units_begin(tile_setting *before) {
    static const tile_setting own = {.palette = 1,
                                     .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                     .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_storeconfig(before);
    __asm__ volatile("" : : "r"(before) : "memory");
    _tile_loadconfig(&own);
}

INLINE void units_end(const tile_setting *before) {
    if (before->palette)
        _tile_loadconfig(before);
    else
        _tile_release();
}

#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, from, bytes) _tile_loadd(t, from, bytes)
#define TILE_STREAM(t, from, bytes) _tile_stream_loadd(t, from, bytes) /* past the nearest cache */
#define TILE_STORE(t, to, bytes) _tile_stored(t, to, bytes)
#define TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
