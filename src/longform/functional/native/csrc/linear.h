/* What a linear layer is asked for. Axes: n rows, D inputs, F outputs. */
#ifndef LONGFORM_LINEAR_H
#define LONGFORM_LINEAR_H

#include <stdint.h>

typedef uint16_t half; /* the upper half of a float: bfloat16 */

/* What a weight W (D, F) is given as. `TILES`: F / 32 panels of D / 32 pairs of tiles of 16 outputs each, in which a
 * row holds two inputs of every output. `HALVES`: its first `weight_rows` rows, the others being zeros. `FLOATS`: its
 * rows, as floats, and `TURNED_FLOATS`: those of its transpose (F, D); these are rounded, and the bias is floats too. */
typedef enum { TILES, HALVES, FLOATS, TURNED_FLOATS } weight_kind;

/* What follows a product plus its bias: nothing, GELU, or in the gradient of GELU its slope at `before_gelu`. */
typedef enum { NOTHING, GELU, SLOPE } ending;

/* `out` (n, F) = x (n, D) W + bias (F), then the ending, then plus `residual` (n, F); sums are floats, rounded once.
 * `bias` and `residual` may be missing; with `bias_times` (n) each row adds the bias so many times. `before_gelu`
 * (n, F) is written by the ending GELU where it is there, and read by the ending SLOPE. D and F are multiples of 32.
 * Rows are contiguous, and so many elements apart. Mirrored in native_jobs.py. */
typedef struct {
    const half *x;
    const void *weight, *bias;
    const half *residual;
    const float *bias_times;
    half *out, *before_gelu;
    int64_t x_row, weight_row, residual_row, out_row, before_row;
    int64_t rows, weight_rows, inputs, outputs, kind, ending;
    int64_t threads, room_bytes; /* `room`: memory to work in, so many bytes a thread, a multiple of 64 like its start */
    void *room;
} linear_job;

void longform_linear_amx(const linear_job *job);
void longform_linear_portable(const linear_job *job);
/* The bytes that a thread needs. */
int64_t longform_linear_amx_room(const linear_job *job);
int64_t longform_linear_portable_room(const linear_job *job);

#endif
