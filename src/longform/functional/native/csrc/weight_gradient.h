/* What the gradient of a linear layer's weight is asked for. Axes: n rows, D inputs, F outputs. */
#ifndef LONGFORM_WEIGHT_GRADIENT_H
#define LONGFORM_WEIGHT_GRADIENT_H

#include <stdint.h>

typedef uint16_t half; /* the upper half of a float: bfloat16 */

/* `d_weight` (F, D) = `d_out` (n, F) transposed times `x` (n, D), and `d_bias` (F) = the sums of `d_out`, in floats;
 * `d_bias` may be missing. D and F are multiples of 32. Rows of `d_weight` touch, the others are contiguous and so many
 * elements apart. Mirrored in native_jobs.py. */
typedef struct {
    const half *x, *d_out;
    float *d_weight, *d_bias;
    int64_t x_row, d_out_row, rows, inputs, outputs;
    int64_t threads, room_bytes; /* `room`: memory to work in, so many bytes a thread, a multiple of 64 like its start */
    void *room;
} weight_gradient_job;

void longform_weight_gradient_amx(const weight_gradient_job *job);
void longform_weight_gradient_portable(const weight_gradient_job *job);
/* The bytes that a thread needs. */
int64_t longform_weight_gradient_amx_room(const weight_gradient_job *job);
int64_t longform_weight_gradient_portable_room(const weight_gradient_job *job);

#endif
