/* What the gradients of attention are asked for. Axes: B batch, h heads, n queries, S slots, d, p parts of the queries. */
#ifndef LONGFORM_ATTENTION_GRADIENT_H
#define LONGFORM_ATTENTION_GRADIENT_H

#include "attention.h"

/* With P = 2^((Q Kᵀ scale + bias) log2(e) - log_total), O = P V and dO the gradient of O:
 * dV = Pᵀ dO, dS = P o (dO Vᵀ - rowsum(dO o O)), dQ = dS K scale, dK = dSᵀ Q scale. Attention is as in attention.h, over
 * whole documents: with `window` there are as many keys as queries, both from token 0 on. `log_total` (B, h, n) is what
 * attention gave. Of slots gradients are floats, each part's own sum over its queries: `d_slot_key`, `d_slot_value`
 * (B, h, p, S, d), and of head_bias `d_head_bias` (B, h, p), or missing. With a window there is one part. Mirrored in
 * native_jobs.py. */
typedef struct {
    heads_of query, key, value, slot_key, slot_value, out, d_out, d_query, d_key, d_value;
    const float *log_total, *bias, *head_bias;
    float *d_slot_key, *d_slot_value, *d_head_bias;
    int64_t bias_batch, bias_head, bias_block;
    int64_t batch, heads, queries, slots, dim, window, parts;
    int64_t threads, room_bytes; /* `room`: memory to work in, so many bytes a thread, a multiple of 64 like its start */
    void *room;
    float scale;
} attention_gradient_job;

/* d is a multiple of 32. The second ones: the bytes that a thread needs. */
void longform_attention_gradient_amx(const attention_gradient_job *job);
void longform_attention_gradient_portable(const attention_gradient_job *job);
int64_t longform_attention_gradient_amx_room(const attention_gradient_job *job);
int64_t longform_attention_gradient_portable_room(const attention_gradient_job *job);

#endif
