/* Means of runs of rows, read once. */
#include "mean_of_runs.h"

#include <string.h>

#define SOME 256 /* features at a time, whose sums stand in registers and the nearest cache */

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

FOR_EACH_CPU static void mean(const uint16_t *x, int64_t row, int64_t rows, int64_t features, float by,
                              uint16_t *out) {
    for (int64_t start = 0; start < features; start += SOME) {
        int64_t some = features - start < SOME ? features - start : SOME;
        union {
            float x[SOME];
            uint32_t bits[SOME];
        } one, sum;
        memset(sum.x, 0, sizeof sum.x);
        for (int64_t i = 0; i < rows; i++) {
            const uint16_t *from = x + i * row + start;
            for (int64_t j = 0; j < some; j++) one.bits[j] = (uint32_t)from[j] << 16;
            for (int64_t j = 0; j < some; j++) sum.x[j] += one.x[j];
        }
        for (int64_t j = 0; j < some; j++) sum.x[j] *= by;
        for (int64_t j = 0; j < some; j++) {
            uint32_t bits = sum.bits[j], rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
            out[start + j] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
        }
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
