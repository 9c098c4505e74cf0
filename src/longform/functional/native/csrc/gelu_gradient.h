/* What the gradient of GELU is asked for. */
#ifndef LONGFORM_GELU_GRADIENT_H
#define LONGFORM_GELU_GRADIENT_H

#include <stdint.h>

typedef uint16_t half; /* the upper half of a float: bfloat16 */

/* `d_x` = `d_out` times GELU'(`x`), so many of each; `d_x` may be the memory of `d_out`. `count` is a multiple of 32.
 * Mirrored in native_jobs.py. */
typedef struct {
    const half *x, *d_out;
    half *d_x;
    int64_t count;
    int64_t threads, room_bytes; /* no memory to work in is needed */
    void *room;
} gelu_gradient_job;

void longform_gelu_gradient_amx(const gelu_gradient_job *job);
void longform_gelu_gradient_portable(const gelu_gradient_job *job);
int64_t longform_gelu_gradient_amx_room(const gelu_gradient_job *job);
int64_t longform_gelu_gradient_portable_room(const gelu_gradient_job *job);

#endif
