/* Kernels over rows of bf16 numbers that need no tiles: means of runs, and layer normalisation. A row is read once, and
 * stays in the nearest cache until it is written. Where GCC can, each is compiled for several CPUs, of which the right
 * one is taken when the library is loaded. */
#include <math.h>
#include <string.h>

#include "jobs.h"

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

#define LANES 16

typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(64), aligned(4), may_alias));
typedef bf16 bf16s __attribute__((vector_size(32), aligned(2), may_alias));

#define WIDE(from) ((floats)(__builtin_convertvector(*(const bf16s *)(from), words) << 16))

static inline __attribute__((always_inline)) void store_rounded(bf16 *to, floats x) {
    words bits = (words)x, broken = (words)(x != x);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    *(bf16s *)to = __builtin_convertvector((bits & ~broken) | (broken & 0x7fc0), bf16s);
}

/* Sums of `rows` rows of `x`, so many elements apart, times `by`, some features at a time -> `out`. */
FOR_EACH_CPU static void mean(const bf16 *x, int64_t row, int64_t rows, int64_t features, float by, bf16 *out) {
    for (int64_t start = 0; start < features; start += 4 * LANES) {
        floats sum[4] = {{0}};
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < 4; j++) sum[j] += WIDE(x + i * row + start + j * LANES);
        for (int64_t j = 0; j < 4; j++) store_rounded(out + start + j * LANES, sum[j] * by);
    }
}

void longform_mean_of_runs(const mean_job *job) {
    int64_t runs = (job->rows + job->size - 1) / job->size;
#pragma omp parallel for num_threads((int)job->threads) schedule(static)
    for (int64_t task = 0; task < job->batch * runs; task++) {
        int64_t b = task / runs, s = task % runs, first = s * job->size, end = first + job->size;
        first = first < job->sinks ? job->sinks : first;
        end = end > job->rows ? job->rows : end;
        float count = job->count[b * job->count_batch + s];
        mean(job->x + b * job->x_batch + first * job->x_row, job->x_row, end > first ? end - first : 0, job->features,
             1.0f / (count > 1.0f ? count : 1.0f), job->out + task * job->features);
    }
}

static inline float total(const floats *x) {
    float sum = 0.0f;
    for (int i = 0; i < LANES; i++) sum += (*x)[i];
    return sum;
}

/* x (F) as floats less their mean -> `row`; returns 1 over the root of their variance + `epsilon`. */
FOR_EACH_CPU static float centre(const bf16 *x, int64_t features, float epsilon, float *row) {
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
FOR_EACH_CPU static void scale(float *row, int64_t features, float by, float *weight, float *bias, bf16 *out) {
    for (int64_t i = 0; i < features; i += LANES)
        store_rounded(out + i, *(floats *)(row + i) * by * *(floats *)(weight + i) + *(floats *)(bias + i));
}

static void normalise(const norm_job *job, int64_t first, int64_t end) {
    float weight[MOST_FEATURES], bias[MOST_FEATURES], row[MOST_FEATURES];
    int64_t features = job->features;
    for (int64_t i = 0; i < features; i += LANES) {
        *(floats *)(weight + i) = WIDE(job->weight + i);
        *(floats *)(bias + i) = WIDE(job->bias + i);
    }
    for (int64_t r = first; r < end; r++) {
        float by = centre(job->x + r * features, features, job->epsilon, row);
        scale(row, features, by, weight, bias, job->out + r * features);
    }
}

void longform_layer_norm(const norm_job *job) {
    int64_t pieces = job->threads < job->rows ? job->threads : job->rows;
#pragma omp parallel for num_threads((int)job->threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++)
        normalise(job, job->rows * piece / pieces, job->rows * (piece + 1) / pieces);
}
