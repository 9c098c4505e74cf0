/* Vectors of 16 floats by AVX512, and the packing of tiles: what units_amx.h and units_avx512.h have in common. They
 * define UNITS, the instructions, before. */
#include <immintrin.h>
#include <string.h>

#define INLINE UNITS static inline __attribute__((always_inline))

typedef __m512 vec;

#define FETCH(from) _mm_prefetch((const char *)(from), _MM_HINT_T1)

INLINE vec v_load(const float *x) { return _mm512_loadu_ps(x); }
INLINE void v_store(float *to, vec x) { _mm512_storeu_ps(to, x); }
INLINE vec v_all(float x) { return _mm512_set1_ps(x); }
INLINE vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
INLINE vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
INLINE vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
INLINE vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vec v_fms(vec a, vec b, vec c) { return _mm512_fmsub_ps(a, b, c); }
INLINE vec v_max(vec a, vec b) { return _mm512_max_ps(a, b); }
INLINE vec v_min(vec a, vec b) { return _mm512_min_ps(a, b); }
INLINE vec v_abs(vec a) { return _mm512_abs_ps(a); }

INLINE float v_largest(vec a) { return _mm512_reduce_max_ps(a); }
INLINE float v_sum(vec a) { return _mm512_reduce_add_ps(a); }

/* 16 halves as floats. */
INLINE vec v_widen(const bf16 *x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x)), 16));
}

/* 2^x for x <= 0, off by 3e-6 of it: a polynomial over x - floor(x), which vscalef puts to the power. */
INLINE vec v_exp2(vec x) {
    vec f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vec p = v_fma(f, v_all(0.013534167f), v_all(0.052011464f));
    p = v_fma(p, f, v_all(0.24144275f));
    p = v_fma(p, f, v_all(0.69300383f));
    p = v_fma(p, f, v_all(1.0000026f));
    return _mm512_scalef_ps(p, x);
}

/* Writes 32 floats, rounded; returns the sums of two of them each, as rounded. */
INLINE vec v_round(bf16 *to, vec low, vec high) {
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    _mm512_storeu_si512(to, both);
    vec odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000)));
    return v_add(odd, _mm512_castsi512_ps(_mm512_slli_epi32(both, 16)));
}

/* Rows of 16 pairs -> columns: what a tile of keys is. `rows` of them are there, the others 0. */
INLINE void pack_keys(bf16 *to, const bf16 *from, int64_t stride, int rows) {
    __m512i r[16], t[16];
    for (int i = 0; i < 16; i++)
        r[i] = i < rows ? _mm512_loadu_si512(from + i * stride) : _mm512_setzero_si512();
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(to + 32 * i, _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
        _mm512_storeu_si512(to + 32 * (i + 4), _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88));
        _mm512_storeu_si512(to + 32 * (i + 8), _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd));
        _mm512_storeu_si512(to + 32 * (i + 12), _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd));
    }
}

/* Two rows of 32 -> two rows of 16 pairs, one above the other: a row of each of two tiles of values. */
INLINE void pack_values(bf16 *first, bf16 *second, const bf16 *upper, const bf16 *lower) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i half_way = _mm512_set1_epi16(16);
    __m512i a = upper ? _mm512_loadu_si512(upper) : _mm512_setzero_si512();
    __m512i b = lower ? _mm512_loadu_si512(lower) : _mm512_setzero_si512();
    _mm512_storeu_si512(first, _mm512_permutex2var_epi16(a, low, b));
    _mm512_storeu_si512(second, _mm512_permutex2var_epi16(a, _mm512_add_epi16(low, half_way), b));
}
