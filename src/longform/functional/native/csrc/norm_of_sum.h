/* What the norm of a sum is asked for, and its gradients, where a float32 residual and a bfloat16 branch are added. */
#ifndef LONGFORM_NORM_OF_SUM_H
#define LONGFORM_NORM_OF_SUM_H

#include <stdint.h>

typedef uint16_t half; /* the upper half of a float: bfloat16 */

/* With s = `residual` + `branch` (n, F), z = (s - mean) / sqrt(variance + epsilon): `out` = z weight + bias, and
 * `rounded` the same in halves, where it is wanted; `mean` and `scale` (n), the latter 1 / sqrt(variance + epsilon), are
 * kept for the way back. With `d_residual` they are read, and gradients are formed from those of `out`, `rounded` or
 * both: with g = (d_out + d_rounded) weight, d_residual = (g - mean(g) - z mean(g z)) scale, `d_branch` the same in
 * halves, and the sums over rows `d_weight` and `d_bias` (F). F is a multiple of 32. Mirrored in native_jobs.py. */
typedef struct {
    const float *residual, *weight, *bias, *d_out;
    const half *branch, *d_rounded;
    float *out, *mean, *scale, *d_residual, *d_weight, *d_bias;
    half *rounded, *d_branch;
    int64_t rows, features;
    int64_t threads, room_bytes; /* `room`: memory to work in, so many bytes a thread, a multiple of 64 like its start */
    void *room;
    float epsilon;
} norm_of_sum_job;

void longform_norm_of_sum_amx(const norm_of_sum_job *job);
void longform_norm_of_sum_portable(const norm_of_sum_job *job);
int64_t longform_norm_of_sum_amx_room(const norm_of_sum_job *job);
int64_t longform_norm_of_sum_portable_room(const norm_of_sum_job *job);

#endif
