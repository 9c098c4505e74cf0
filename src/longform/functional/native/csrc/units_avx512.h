/* Tiles of 16 x 16 floats in the nearest cache, multiplied by AVX512-bf16 in registers: for CPUs without AMX. A tile of
 * sums, 0 to 3, is memory of the thread; a factor, 4 to 7, is where its rows are. */
#define UNITS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#include "vectors_avx512.h"

typedef struct {
    int unused;
} tile_setting;

typedef struct {
    const char *at;
    int64_t row; /* bytes from row to row */
} tile_rows;

static _Thread_local __attribute__((aligned(64))) float tile_sums[4][16][16];
static _Thread_local tile_rows tile_factors[8];

INLINE void units_begin(tile_setting *before) { before->unused = 0; }
INLINE void units_end(const tile_setting *before) { (void)before; }

INLINE void tile_zero(int tile) {
    for (int row = 0; row < 16; row++) _mm512_store_ps(tile_sums[tile][row], _mm512_setzero_ps());
}

INLINE void tile_load(int tile, const void *from, int64_t bytes) {
    if (tile > 3) tile_factors[tile] = (tile_rows){from, bytes};
    else
        for (int row = 0; row < 16; row++)
            _mm512_store_ps(tile_sums[tile][row], _mm512_loadu_ps((const char *)from + row * bytes));
}

INLINE void tile_store(int tile, void *to, int64_t bytes) {
    for (int row = 0; row < 16; row++) _mm512_storeu_ps((char *)to + row * bytes, _mm512_load_ps(tile_sums[tile][row]));
}

/* One factor's 16 rows of pairs stay in registers, and eight rows of sums at a time. */
INLINE void tile_dot(int out, int left, int right) {
    tile_rows a = tile_factors[left], b = tile_factors[right];
    __m512i held[16];
#pragma GCC unroll 16
    for (int pair = 0; pair < 16; pair++) held[pair] = _mm512_loadu_si512(b.at + pair * b.row);
    for (int row = 0; row < 16; row += 8) {
        vec sums[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) sums[i] = _mm512_load_ps(tile_sums[out][row + i]);
#pragma GCC unroll 16
        for (int pair = 0; pair < 16; pair++)
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                int32_t both;
                memcpy(&both, a.at + (row + i) * a.row + 4 * pair, 4);
                sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)_mm512_set1_epi32(both), (__m512bh)held[pair]);
            }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) _mm512_store_ps(tile_sums[out][row + i], sums[i]);
    }
}

#define TILE_ZERO(t) tile_zero(t)
#define TILE_LOAD(t, from, bytes) tile_load(t, from, bytes)
#define TILE_STREAM(t, from, bytes) tile_load(t, from, bytes)
#define TILE_STORE(t, to, bytes) tile_store(t, to, bytes)
#define TILE_DOT(c, a, b) tile_dot(c, a, b)
