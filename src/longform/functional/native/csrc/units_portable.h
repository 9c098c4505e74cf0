/* The units of units_amx.h as loops, for any machine: slow, and what the tests of the others are compared with. */
#include <math.h>
#include <string.h>

#define UNITS
#define INLINE static inline

typedef struct {
    float x[16];
} vec;

typedef struct {
    int unused;
} tile_setting;

static _Thread_local uint8_t tiles[8][16][64];

INLINE void units_begin(tile_setting *before) { before->unused = 0; }
INLINE void units_end(const tile_setting *before) { (void)before; }

INLINE float wide(bf16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float out;
    memcpy(&out, &bits, 4);
    return out;
}

INLINE bf16 narrow(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (x != x) return 0x7fc0;
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

INLINE void tile_load(int tile, const void *from, int64_t bytes) {
    for (int row = 0; row < 16; row++) memcpy(tiles[tile][row], (const uint8_t *)from + row * bytes, 64);
}

INLINE void tile_store(int tile, void *to, int64_t bytes) {
    for (int row = 0; row < 16; row++) memcpy((uint8_t *)to + row * bytes, tiles[tile][row], 64);
}

INLINE void tile_dot(int out, int left, int right) {
    float *c = (float *)tiles[out];
    const bf16 *a = (const bf16 *)tiles[left], *b = (const bf16 *)tiles[right];
    for (int i = 0; i < 16; i++)
        for (int pair = 0; pair < 16; pair++)
            for (int j = 0; j < 16; j++)
                c[16 * i + j] += wide(a[32 * i + 2 * pair]) * wide(b[32 * pair + 2 * j]) +
                                 wide(a[32 * i + 2 * pair + 1]) * wide(b[32 * pair + 2 * j + 1]);
}

#define TILE_ZERO(t) memset(tiles[t], 0, sizeof tiles[t])
#define TILE_LOAD(t, from, bytes) tile_load(t, from, bytes)
#define TILE_STREAM(t, from, bytes) tile_load(t, from, bytes)
#define TILE_STORE(t, to, bytes) tile_store(t, to, bytes)
#define TILE_DOT(c, a, b) tile_dot(c, a, b)
#define FETCH(from) ((void)(from))

#define EACH(expression)                                     \
    vec out;                                                 \
    for (int i = 0; i < 16; i++) out.x[i] = (expression);    \
    return out

INLINE vec v_load(const float *x) { EACH(x[i]); }
INLINE void v_store(float *to, vec x) { memcpy(to, x.x, sizeof x.x); }
INLINE vec v_all(float x) { EACH(x); }
INLINE vec v_add(vec a, vec b) { EACH(a.x[i] + b.x[i]); }
INLINE vec v_sub(vec a, vec b) { EACH(a.x[i] - b.x[i]); }
INLINE vec v_mul(vec a, vec b) { EACH(a.x[i] * b.x[i]); }
INLINE vec v_fma(vec a, vec b, vec c) { EACH(a.x[i] * b.x[i] + c.x[i]); }
INLINE vec v_fms(vec a, vec b, vec c) { EACH(a.x[i] * b.x[i] - c.x[i]); }
INLINE vec v_max(vec a, vec b) { EACH(a.x[i] > b.x[i] ? a.x[i] : b.x[i]); }
INLINE vec v_min(vec a, vec b) { EACH(a.x[i] < b.x[i] ? a.x[i] : b.x[i]); }
INLINE vec v_abs(vec a) { EACH(fabsf(a.x[i])); }
INLINE vec v_widen(const bf16 *x) { EACH(wide(x[i])); }
INLINE vec v_exp2(vec a) { EACH(exp2f(a.x[i])); }

INLINE float v_largest(vec a) {
    float out = a.x[0];
    for (int i = 1; i < 16; i++) out = a.x[i] > out ? a.x[i] : out;
    return out;
}

INLINE float v_sum(vec a) {
    float out = 0;
    for (int i = 0; i < 16; i++) out += a.x[i];
    return out;
}

INLINE vec v_round(bf16 *to, vec low, vec high) {
    for (int i = 0; i < 16; i++) to[i] = narrow(low.x[i]), to[16 + i] = narrow(high.x[i]);
    EACH(wide(to[i]) + wide(to[16 + i]));
}

INLINE void pack_keys(bf16 *to, const bf16 *from, int64_t stride, int rows) {
    for (int row = 0; row < 16; row++)
        for (int pair = 0; pair < 16; pair++)
            for (int part = 0; part < 2; part++)
                to[32 * pair + 2 * row + part] = row < rows ? from[row * stride + 2 * pair + part] : 0;
}

INLINE void pack_values(bf16 *first, bf16 *second, const bf16 *upper, const bf16 *lower) {
    for (int j = 0; j < 16; j++) {
        first[2 * j] = upper ? upper[j] : 0, first[2 * j + 1] = lower ? lower[j] : 0;
        second[2 * j] = upper ? upper[16 + j] : 0, second[2 * j + 1] = lower ? lower[16 + j] : 0;
    }
}
