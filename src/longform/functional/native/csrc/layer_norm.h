/* Layer normalisation. Axes: n rows, F features. */
#ifndef LONGFORM_LAYER_NORM_H
#define LONGFORM_LAYER_NORM_H

#include <stdint.h>

#define LONGFORM_MOST_FEATURES 4096

/* `out` (n, F): rows of `x` (n, F) less their mean, over the root of their variance + `epsilon`, times `weight` (F), plus
 * `bias` (F); all bfloat16 and contiguous, computed as floats and rounded once. F is a multiple of 64, and at most
 * LONGFORM_MOST_FEATURES. Mirrored in native_norm.py. */
typedef struct {
    const uint16_t *x, *weight, *bias;
    uint16_t *out;
    int64_t rows, features, threads;
    int64_t units; /* whether the machine has AVX512's instructions for bfloat16 */
    float epsilon;
} norm_job;

void longform_layer_norm(const norm_job *job);

#endif
