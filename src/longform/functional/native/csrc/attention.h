/* What attention is asked for, and the units that compute it. Axes: B batch, h heads, n queries, m keys, S slots, d. */
#ifndef LONGFORM_ATTENTION_H
#define LONGFORM_ATTENTION_H

#include <stdint.h>

typedef uint16_t half; /* the upper half of a float: bfloat16 */

/* A tensor (B, h, rows, d) by its strides in elements; d is contiguous. */
typedef struct {
    half *data;
    int64_t batch, head, row;
} heads_of;

/* softmax(Q Kᵀ scale + bias) V. A query sees all slots; with `window` w also the keys of its block and both neighbours,
 * blocks being w tokens of the text. Query 0 is token `start`, a block's first; key 0 is token `key_start`, likewise.
 * `bias` (float, of slots) has a row for each block of queries, the first one's first, or one for all (stride 0);
 * `head_bias` (h) is added to it; either may be missing. Sees nothing: zeros. `log_total` (B, h, n), where wanted: the
 * logarithms to base 2 of the sums that the weights are divided by, infinite for what sees nothing. Mirrored in
 * native_jobs.py. */
typedef struct {
    heads_of query, key, value, slot_key, slot_value, out;
    const float *bias, *head_bias;
    float *log_total;
    int64_t bias_batch, bias_head, bias_block;
    int64_t batch, heads, queries, keys, slots, dim;
    int64_t window, start, key_start;
    int64_t threads, room_bytes; /* `room`: memory to work in, so many bytes a thread, a multiple of 64 like its start */
    void *room;
    float scale;
} attention_job;

/* d is a multiple of 32. The second ones: the bytes that a thread needs. */
void longform_attention_amx(const attention_job *job);
void longform_attention_portable(const attention_job *job);
int64_t longform_attention_amx_room(const attention_job *job);
int64_t longform_attention_portable_room(const attention_job *job);
/* Whether the system grants AMX to this process; whether the machine has it is for the caller to know. */
int longform_grants_amx(void);

#endif
