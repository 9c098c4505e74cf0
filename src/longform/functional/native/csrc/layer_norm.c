/* Layer normalisation: a row is read once, and stays in the nearest cache until it is written. */
#include "layer_norm.h"

#include <math.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define UNITS __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#endif

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

#define LANES 16

typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(32), aligned(2), may_alias));

#define WIDE(from) ((floats)(__builtin_convertvector(*(const halves *)(from), words) << 16))

static inline float total(const floats *x) {
    float sum = 0.0f;
    for (int i = 0; i < LANES; i++) sum += (*x)[i];
    return sum;
}

/* x (F) as floats less their mean -> `row`; returns 1 over the root of their variance + `epsilon`. */
FOR_EACH_CPU static float centre(const uint16_t *x, int64_t features, float epsilon, float *row) {
    floats sum[4] = {{0}}, squares[4] = {{0}};
    for (int64_t i = 0; i < features; i += 4 * LANES)
        for (int64_t j = 0; j < 4; j++) {
            floats some = WIDE(x + i + j * LANES);
            *(floats *)(row + i + j * LANES) = some;
            sum[j] += some;
        }
    sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    float mean = total(sum) / (float)features;
    for (int64_t i = 0; i < features; i += 4 * LANES)
        for (int64_t j = 0; j < 4; j++) {
            floats some = *(const floats *)(row + i + j * LANES) - mean;
            *(floats *)(row + i + j * LANES) = some;
            squares[j] += some * some;
        }
    squares[0] = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    return 1.0f / sqrtf(total(squares) / (float)features + epsilon);
}

/* row (F) times `by` times `weight` plus `bias`, rounded -> `out`. */
FOR_EACH_CPU static void scale(const float *row, int64_t features, float by, const float *weight, const float *bias,
                               uint16_t *out) {
    for (int64_t i = 0; i < features; i += LANES) {
        floats some = *(const floats *)(row + i) * by * *(const floats *)(weight + i) + *(const floats *)(bias + i);
        words bits = (words)some, broken = (words)(some != some);
        bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        bits = (bits & ~broken) | (broken & 0x7fc0);
        *(halves *)(out + i) = __builtin_convertvector(bits, halves);
    }
}

#ifdef UNITS
/* The same where the machine rounds by itself. */
UNITS static void scale_by_units(const float *row, int64_t features, float by, const float *weight, const float *bias,
                                 uint16_t *out) {
    __m512 times = _mm512_set1_ps(by);
    for (int64_t i = 0; i < features; i += 2 * LANES) {
        __m512 low = _mm512_mul_ps(_mm512_loadu_ps(row + i), times);
        __m512 high = _mm512_mul_ps(_mm512_loadu_ps(row + i + LANES), times);
        low = _mm512_fmadd_ps(low, _mm512_loadu_ps(weight + i), _mm512_loadu_ps(bias + i));
        high = _mm512_fmadd_ps(high, _mm512_loadu_ps(weight + i + LANES), _mm512_loadu_ps(bias + i + LANES));
        _mm512_storeu_si512(out + i, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}
#endif

static void normalise(const norm_job *job, int64_t first, int64_t end) {
    float weight[LONGFORM_MOST_FEATURES], bias[LONGFORM_MOST_FEATURES], row[LONGFORM_MOST_FEATURES];
    int64_t features = job->features;
    for (int64_t i = 0; i < features; i += LANES) {
        *(floats *)(weight + i) = WIDE(job->weight + i);
        *(floats *)(bias + i) = WIDE(job->bias + i);
    }
    for (int64_t r = first; r < end; r++) {
        float by = centre(job->x + r * features, features, job->epsilon, row);
#ifdef UNITS
        if (job->units) {
            scale_by_units(row, features, by, weight, bias, job->out + r * features);
            continue;
        }
#endif
        scale(row, features, by, weight, bias, job->out + r * features);
    }
}

void longform_layer_norm(const norm_job *job) {
    int64_t pieces = job->threads < job->rows ? job->threads : job->rows;
#pragma omp parallel for num_threads((int)job->threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        normalise(job, job->rows * piece / pieces, job->rows * (piece + 1) / pieces);
    }
}
