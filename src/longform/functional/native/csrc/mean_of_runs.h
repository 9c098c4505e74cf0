/* Means of runs of rows. Axes: B batch, n rows, F features, S runs. */
#ifndef LONGFORM_MEAN_OF_RUNS_H
#define LONGFORM_MEAN_OF_RUNS_H

#include <stdint.h>

/* Row s of `out` (B, S, F), bfloat16 and contiguous: the sum of rows s size to (s + 1) size of `x` (B, n, F), F
 * contiguous, as far as there are such rows and without the first `sinks`, over `count` (B, S), or over 1 where that is
 * less. Summed as floats. Mirrored in native_pooling.py. */
typedef struct {
    const uint16_t *x;
    uint16_t *out;
    const float *count;
    int64_t x_batch, x_row, count_batch;
    int64_t batch, rows, features, size, sinks, threads;
} mean_job;

void longform_mean_of_runs(const mean_job *job);

#endif
