/* What each kernel is asked for: one structure a kernel, mirrored field by field in ../jobs.py.
 *
 * Axes: B batch, h heads, n queries or rows, m keys, S slots, d head dimension, D inputs, F outputs or features, p
 * parts. `threads`: how many work. `workspace`: their memory, `workspace_bytes` for each thread, multiples of 64. */
#pragma once
#include <stdint.h>

/* Which structures these are, and what is done with them: VERSION and `digest` of ../jobs.py. */
#define JOBS_VERSION 2
#define JOBS_DIGEST 0xbdbecc55

typedef uint16_t bf16; /* bfloat16: the upper 16 bits of a float */

#define WORKERS                       \
    int64_t threads, workspace_bytes; \
    void *workspace

/* A tensor (B, h, rows, d) by its strides in elements; d is contiguous. */
typedef struct {
    bf16 *data;
    int64_t batch, head, row;
} heads_of;

/* softmax(Q Kᵀ scale + bias) V; d is a multiple of 32. A query sees all slots; with `window` w also the keys of its
 * block and of both neighbours, blocks being w tokens of the text. Query 0 is token `start`, a block's first; key 0 is
 * token `key_start`, likewise. `bias` (float, of slots) has a row for each block of queries, the first one's first, or
 * one for all (stride 0); `head_bias` (h) is added to it; either may be missing. `tokens` (B, h, blocks,
 * `tokens_of_block`): more keys that the queries of a block see, by their tokens, -1 for none. A query that sees nothing
 * gets zeros.
 * `log_total` (B, h, n), where wanted: the logarithms to base 2 of the sums that the weights are divided by, infinite
 * for a query that sees nothing. */
typedef struct {
    heads_of query, key, value, slot_key, slot_value, out;
    const float *bias, *head_bias;
    float *log_total;
    const int64_t *tokens;
    int64_t bias_batch, bias_head, bias_block;
    int64_t batch, heads, queries, keys, slots, dim;
    int64_t window, start, key_start, tokens_of_block;
    WORKERS;
    float scale;
} attention_job;

/* Gradients of attention. With P = 2^((Q Kᵀ scale + bias) log2(e) - log_total), O = P V and dO the gradient of O:
 * dV = Pᵀ dO, dS = P o (dO Vᵀ - rowsum(dO o O)), dQ = dS K scale, dK = dSᵀ Q scale. Attention is as above, over whole
 * documents: with `window` there are as many keys as queries, both from token 0 on. `log_total` (B, h, n) is what
 * attention gave. The gradients of slots are floats, each part's own sum over its queries: `d_slot_key`, `d_slot_value`
 * (B, h, p, S, d), and that of head_bias `d_head_bias` (B, h, p), or missing. With a window there is one part. */
typedef struct {
    heads_of query, key, value, slot_key, slot_value, out, d_out, d_query, d_key, d_value;
    const float *log_total, *bias, *head_bias;
    float *d_slot_key, *d_slot_value, *d_head_bias;
    int64_t bias_batch, bias_head, bias_block;
    int64_t batch, heads, queries, slots, dim, window, parts;
    WORKERS;
    float scale;
} attention_gradient_job;

/* `out` (n, F) = x (n, D) W + bias (F), then GELU where `gelu` is 1, then plus `residual` (n, F); sums are floats,
 * rounded once. `bias` and `residual` may be missing. `weight`: F / 32 panels of D / 32 pairs of tiles of 16 outputs
 * each, in which a row holds two inputs of every output. D and F are multiples of 32. Each row is contiguous; `x_row`
 * and its like are the elements from one row to the next. */
typedef struct {
    const bf16 *x, *weight, *bias, *residual;
    bf16 *out;
    int64_t x_row, residual_row, out_row, rows, inputs, outputs, gelu;
    WORKERS;
} linear_job;
