/* What a linear layer is asked for. Axes: n rows, D inputs, F outputs. */
#ifndef LONGFORM_LINEAR_H
#define LONGFORM_LINEAR_H

#include <stdint.h>

typedef uint16_t half; /* the upper half of a float: bfloat16 */

/* `out` (n, F) = x (n, D) W + bias (F), then GELU `with_gelu`, then plus `residual` (n, F); sums are floats, rounded
 * once. `bias` and `residual` may be missing; with `bias_times` (n) each row adds the bias so many times. D and F are
 * multiples of 32. `weight`: W (D, F) in tiles, F / 32 panels of D / 32 pairs of tiles of 16 outputs each, in which a row
 * holds two inputs of every output; or with `weight_row`, W's first `weight_rows` rows, the others being zeros. Rows are
 * contiguous, and so many elements apart. Mirrored in native_library.py. */
typedef struct {
    const half *x, *weight, *bias, *residual;
    const float *bias_times;
    half *out;
    int64_t x_row, weight_row, residual_row, out_row;
    int64_t rows, weight_rows, inputs, outputs, with_gelu;
    int64_t threads, room_bytes; /* `room`: memory to work in, so many bytes a thread, a multiple of 64 like its start */
    void *room;
} linear_job;

void longform_linear_amx(const linear_job *job);
void longform_linear_portable(const linear_job *job);
/* The bytes that a thread needs. */
int64_t longform_linear_amx_room(const linear_job *job);
int64_t longform_linear_portable_room(const linear_job *job);

#endif
