/* Attention by products of tiles.
 *
 * A task is one head and some blocks of its queries. Keys are packed in groups of 32: d / 32 x 2 tiles of keys, as
 * the second factor of Q Kᵀ, and d / 16 tiles of values. A block lists the groups that it sees; for 32 queries at a
 * time the logits of some groups after others stand in the nearest cache and become weights, which then meet the
 * values. */
#include <math.h>

#include "units.h"
#include "tiles.h"

#define TASK_ROWS 1024  /* queries of a task, about */
#define CHUNK 4         /* groups whose logits stand in the nearest cache */
#define WIDE (CHUNK * GROUP + 16) /* floats of a row of logits: one cache line more */
#define LOG2_E 1.44269504f
#define LEAST_TOTAL 0x1p-60f
#define MOST_TOTAL 0x1p60f

typedef struct {
    const bf16 *keys, *values;
    const float *bias; /* of the 32 keys, in powers of 2; or missing */
} group;

/* How the queries are cut: `all` blocks, `many` of them a task. */
typedef struct {
    int64_t block, all, many;
} cut;

/* What a thread works in. */
typedef struct {
    bf16 *near_keys, *near_values, *slot_keys, *slot_values, *token_keys, *token_values, *rows, *query, *weights;
    float *logits, *bias, *edge, *out;
    group *groups;
    int64_t packed; /* the head whose slots are packed, -1 for none */
    cut cut;
} workspace;

/* Tasks of about TASK_ROWS queries, or of fewer where threads would have none. Without a window any cut is as good. */
static cut cut_of(const attention_job *job) {
    int64_t unit = job->window ? job->window : GROUP, all = divided(job->queries, unit);
    int64_t many = TASK_ROWS / unit > 1 ? TASK_ROWS / unit : 1;
    while (many > 1 && job->batch * job->heads * divided(all, many) < 4 * job->threads) many /= 2;
    if (job->window) return (cut){unit, all, many};
    return (cut){unit * many, divided(all, many), 1};
}

/* Puts `w` into `memory`; returns the bytes that it takes. */
static int64_t lay_out(workspace *w, const attention_job *job, char *memory) {
    cut c = w->cut = cut_of(job);
    int64_t slot_groups = whole(job->slots), block_groups = job->window ? whole(c.block) : 0;
    int64_t near_groups = (c.many + 2) * block_groups, token_groups = whole(job->tokens_of_block);
    int64_t seen = 3 * block_groups + slot_groups + token_groups;
    size_t packed = (size_t)GROUP * job->dim * sizeof(bf16);
    char *at = memory;
    w->near_keys = (bf16 *)take(&at, packed * near_groups);
    w->near_values = (bf16 *)take(&at, packed * near_groups);
    w->slot_keys = (bf16 *)take(&at, packed * slot_groups);
    w->slot_values = (bf16 *)take(&at, packed * slot_groups);
    w->token_keys = (bf16 *)take(&at, packed * token_groups);
    w->token_values = (bf16 *)take(&at, packed * token_groups);
    w->rows = (bf16 *)take(&at, 2 * packed * token_groups);
    w->query = (bf16 *)take(&at, packed);
    w->logits = (float *)take(&at, sizeof(float) * GROUP * WIDE);
    w->weights = (bf16 *)take(&at, sizeof(bf16) * GROUP * (seen * GROUP + 32));
    w->bias = (float *)take(&at, sizeof(float) * slot_groups * GROUP);
    w->edge = (float *)take(&at, sizeof(float) * 3 * GROUP);
    w->out = (float *)take(&at, sizeof(float) * GROUP * GROUP);
    w->groups = (group *)take(&at, sizeof(group) * seen);
    w->packed = -1;
    return at - memory;
}

/* `rows` keys and values, and zeros to fill the last group of 32. */
UNITS static void pack(bf16 *keys, bf16 *values, const bf16 *key, int64_t key_row, const bf16 *value, int64_t value_row,
                       int64_t rows, int64_t dim) {
    for (int64_t start = 0; start < rows; start += GROUP) {
        for (int64_t side = 0; side < 2; side++)
            for (int64_t d = 0; d < dim; d += 32) {
                int64_t first = start + 16 * side, left = least(16, rows - first);
                pack_keys(keys, key + first * key_row + d, key_row, left > 0 ? (int)left : 0);
                keys += TILE;
            }
        for (int64_t d = 0; d < dim; d += 32) {
            for (int64_t row = start; row < start + GROUP; row += 2) {
                const bf16 *upper = row < rows ? value + row * value_row + d : 0;
                const bf16 *lower = row + 1 < rows ? value + (row + 1) * value_row + d : 0;
                bf16 *to = values + (row - start) / 2 * 32;
                pack_values(to, to + TILE, upper, lower);
            }
            values += 2 * TILE;
        }
    }
}

/* Logits of 32 queries and `count` groups, (32, WIDE). */
UNITS static inline void multiply_keys(const bf16 *query, int64_t row, const group *groups, int64_t count, int64_t dim,
                                       float *logits) {
    int64_t depth = dim / 32;
    for (int64_t g = 0; g < count; g++) {
        clear_sums();
        for (int64_t d = 0; d < depth; d++)
            add_products(query + 32 * d, row, groups[g].keys + d * TILE, groups[g].keys + (depth + d) * TILE, 0);
        store_sums(logits + g * GROUP, WIDE);
    }
}

/* 2^(x scale + bias - shift) of one row -> `to`; returns `total` plus what was written: weights then sum to 1. */
UNITS static inline vec powers(const float *logits, bf16 *to, const group *groups, int64_t count, float scale,
                               float shift, vec total) {
    vec times = v_all(scale), less = v_all(shift);
    for (int64_t g = 0; g < count; g++) {
        const float *x = logits + g * GROUP, *bias = groups[g].bias;
        vec low, high;
        if (bias) {
            low = v_fma(v_load(x), times, v_sub(v_load(bias), less));
            high = v_fma(v_load(x + 16), times, v_sub(v_load(bias + 16), less));
        } else {
            low = v_fms(v_load(x), times, less), high = v_fms(v_load(x + 16), times, less);
        }
        total = v_add(total, v_round(to + g * GROUP, v_exp2(low), v_exp2(high)));
    }
    return total;
}

/* The largest x scale + bias of one row. */
UNITS static float peak(const float *logits, const group *groups, int64_t count, float scale) {
    vec times = v_all(scale), most = v_all(-INFINITY);
    for (int64_t g = 0; g < count; g++)
        for (int64_t i = 0; i < GROUP; i += 16) {
            vec added = groups[g].bias ? v_load(groups[g].bias + i) : v_all(0.0f);
            most = v_max(v_fma(v_load(logits + g * GROUP + i), times, added), most);
        }
    return v_largest(most);
}

/* Weights of 32 queries and all groups, some groups at a time so that logits stay in the nearest cache; `totals`: what
 * they are to be divided by, taken from logits less `shifts`. */
UNITS static void weigh(workspace *w, const attention_job *job, const bf16 *query, int64_t query_row, int rows,
                        int64_t count, int64_t narrow_row, const float *shifts, float *totals) {
    float scale = job->scale * LOG2_E;
    vec sums[GROUP];
    for (int row = 0; row < rows; row++) sums[row] = v_all(0.0f);
    for (int64_t g = 0; g < count; g += CHUNK) {
        int64_t some = least(CHUNK, count - g);
        const group *groups = w->groups + g;
        multiply_keys(query, query_row, groups, some, job->dim, w->logits);
        for (int row = 0; row < rows; row++)
            sums[row] = powers(w->logits + row * WIDE, w->weights + row * narrow_row + g * GROUP, groups, some, scale,
                               shifts[row], sums[row]);
    }
    for (int row = 0; row < rows; row++) totals[row] = v_sum(sums[row]);
}

/* The largest logits of 32 queries, 0 for those that see nothing. */
UNITS static void peaks(workspace *w, const attention_job *job, const bf16 *query, int64_t query_row, int rows,
                        int64_t count, float *found) {
    float scale = job->scale * LOG2_E;
    for (int row = 0; row < rows; row++) found[row] = -INFINITY;
    for (int64_t g = 0; g < count; g += CHUNK) {
        int64_t some = least(CHUNK, count - g);
        multiply_keys(query, query_row, w->groups + g, some, job->dim, w->logits);
        for (int row = 0; row < rows; row++) {
            float own = peak(w->logits + row * WIDE, w->groups + g, some, scale);
            found[row] = own > found[row] ? own : found[row];
        }
    }
    for (int row = 0; row < rows; row++) found[row] = found[row] > -INFINITY ? found[row] : 0.0f;
}

/* Weights (32, wide) times values, each row divided by its total -> out (rows, d). */
UNITS static void multiply_values(const bf16 *weights, int64_t wide_row, const group *groups, int64_t count,
                                  int64_t dim, const float *totals, float *sums, bf16 *out, int64_t out_row, int rows) {
    for (int64_t d = 0; d < dim; d += 32) {
        clear_sums();
        for (int64_t g = 0; g < count; g++) {
            const bf16 *values = groups[g].values + d / 16 * TILE;
            add_products(weights + g * GROUP, wide_row, values, values + TILE, 0);
        }
        store_sums(sums, GROUP);
        for (int row = 0; row < rows; row++) {
            vec by = v_all(totals[row] == 0.0f ? 0.0f : 1.0f / totals[row]);
            const float *x = sums + row * GROUP;
            v_round(out + row * out_row + d, v_mul(v_load(x), by), v_mul(v_load(x + 16), by));
        }
    }
}

/* `rows` queries, at most 32, against the listed groups. */
UNITS static void attend(workspace *w, const attention_job *job, int64_t count, const bf16 *query, int64_t query_row,
                         bf16 *out, float *log_total, int rows) {
    int64_t narrow_row = count * GROUP + 32;
    float totals[GROUP], shifts[GROUP] = {0};
    if (rows < GROUP) {
        memset(w->query, 0, (size_t)GROUP * job->dim * sizeof(bf16));
        for (int row = 0; row < rows; row++)
            memcpy(w->query + row * job->dim, query + row * query_row, (size_t)job->dim * sizeof(bf16));
        query = w->query, query_row = job->dim;
    }
    /* A softmax is the same whatever is taken from its logits, and a bfloat16 reaches as far as a float: the largest
     * logit is looked for only where a total shows that powers ran out. */
    weigh(w, job, query, query_row, rows, count, narrow_row, shifts, totals);
    int ran_out = 0;
    for (int row = 0; row < rows; row++) ran_out |= !(totals[row] >= LEAST_TOTAL && totals[row] <= MOST_TOTAL);
    if (ran_out) {
        peaks(w, job, query, query_row, rows, count, shifts);
        weigh(w, job, query, query_row, rows, count, narrow_row, shifts, totals);
    }
    for (int row = 0; log_total && row < rows; row++)
        log_total[row] = totals[row] == 0.0f ? INFINITY : log2f(totals[row]) + shifts[row];
    multiply_values(w->weights, narrow_row, w->groups, count, job->dim, totals, w->out, out, job->out.row, rows);
}

/* Lists the groups of `rows` keys, packed at `at`; the last one hides what fills it up. */
static int64_t list_near(workspace *w, int64_t count, const bf16 *keys, const bf16 *values, int64_t rows, int64_t dim,
                         float *edge) {
    for (int64_t g = 0; g < whole(rows); g++) {
        int64_t left = rows - g * GROUP;
        group *own = w->groups + count++;
        own->keys = keys + g * GROUP * dim, own->values = values + g * GROUP * dim, own->bias = 0;
        if (left < GROUP) {
            for (int64_t i = 0; i < GROUP; i++) edge[i] = i < left ? 0.0f : -INFINITY;
            own->bias = edge;
        }
    }
    return count;
}

/* Lists the groups of slots of which any is seen. */
static int64_t list_slots(workspace *w, int64_t count, const attention_job *job, const float *bias, float added) {
    for (int64_t g = 0; g < whole(job->slots); g++) {
        int seen = 0, plain = 1;
        float *own = w->bias + g * GROUP;
        for (int64_t i = 0; i < GROUP; i++) {
            int64_t slot = g * GROUP + i;
            float x = slot >= job->slots ? -INFINITY : (bias ? bias[slot] : 0.0f) + added;
            own[i] = x * LOG2_E;
            seen |= x > -INFINITY || x != x, plain &= x == 0.0f;
        }
        if (!seen) continue;
        group *to = w->groups + count++;
        to->keys = w->slot_keys + g * GROUP * job->dim, to->values = w->slot_values + g * GROUP * job->dim;
        to->bias = plain ? 0 : own;
    }
    return count;
}

/* Packs and lists the keys and values of selected `tokens`, -1 for none. */
UNITS static int64_t list_tokens(workspace *w, int64_t count, const attention_job *job, const int64_t *tokens,
                                 const bf16 *key, const bf16 *value) {
    int64_t rows = 0, dim = job->dim;
    bf16 *keys = w->rows, *values = keys + whole(job->tokens_of_block) * GROUP * dim;
    for (int64_t i = 0; i < job->tokens_of_block; i++) {
        if (tokens[i] < 0) continue;
        int64_t at = tokens[i] - job->key_start;
        memcpy(keys + rows * dim, key + at * job->key.row, (size_t)dim * sizeof(bf16));
        memcpy(values + rows++ * dim, value + at * job->value.row, (size_t)dim * sizeof(bf16));
    }
    pack(w->token_keys, w->token_values, keys, dim, values, dim, rows, dim);
    return list_near(w, count, w->token_keys, w->token_values, rows, dim, w->edge + 2 * GROUP);
}

/* Blocks `first` to `end` of one head. */
UNITS static void one_task(workspace *w, const attention_job *job, int64_t block, int64_t b, int64_t h, int64_t first,
                           int64_t end) {
    int64_t dim = job->dim, block_groups = whole(block), head = b * job->heads + h;
#define AT(x) (job->x.data + b * job->x.batch + h * job->x.head)
    if (job->slots && w->packed != head) {
        pack(w->slot_keys, w->slot_values, AT(slot_key), job->slot_key.row, AT(slot_value), job->slot_value.row,
             job->slots, dim);
        w->packed = head;
    }
    /* Blocks counted from the first query's; the near keys of these from `low` on, block by block. */
    int64_t ahead = job->window ? (job->start - job->key_start) / block : 0;
    int64_t key_blocks = job->window ? divided(job->keys, block) : 0;
    int64_t low = first + ahead > 0 ? first + ahead - 1 : 0, high = least(end + ahead + 1, key_blocks);
    for (int64_t i = low; i < high; i++) {
        int64_t at = (i - low) * block_groups * GROUP * dim;
        pack(w->near_keys + at, w->near_values + at, AT(key) + i * block * job->key.row, job->key.row,
             AT(value) + i * block * job->value.row, job->value.row, least(block, job->keys - i * block), dim);
    }
    for (int64_t i = first; i < end; i++) {
        int64_t count = 0, mine = i + ahead;
        for (int64_t j = mine > 0 ? mine - 1 : 0; j < least(mine + 2, key_blocks); j++) {
            int64_t at = (j - low) * block_groups * GROUP * dim, rows = least(block, job->keys - j * block);
            float *edge = w->edge + (rows < block ? GROUP : 0);
            count = list_near(w, count, w->near_keys + at, w->near_values + at, rows, dim, edge);
        }
        if (job->tokens_of_block)
            count = list_tokens(w, count, job, job->tokens + (head * w->cut.all + i) * job->tokens_of_block, AT(key),
                                AT(value));
        if (job->slots) {
            const float *bias = job->bias;
            if (bias) bias += b * job->bias_batch + h * job->bias_head + i * job->bias_block;
            count = list_slots(w, count, job, bias, job->head_bias ? job->head_bias[h] : 0.0f);
        }
        int64_t stop = least((i + 1) * block, job->queries);
        for (int64_t row = i * block; row < stop; row += GROUP)
            attend(w, job, count, AT(query) + row * job->query.row, job->query.row, AT(out) + row * job->out.row,
                   job->log_total ? job->log_total + head * job->queries + row : 0, (int)least(GROUP, stop - row));
    }
#undef AT
}

/* Of each head. */
static int64_t pieces_of(cut c) { return divided(c.all, c.many); }

static int64_t tasks_of(const attention_job *job) { return job->batch * job->heads * pieces_of(cut_of(job)); }

UNITS static void do_task(workspace *w, const attention_job *job, int64_t task) {
    int64_t pieces = pieces_of(w->cut), head = task / pieces, first = task % pieces * w->cut.many;
    one_task(w, job, w->cut.block, head / job->heads, head % job->heads, first,
             least(first + w->cut.many, w->cut.all));
}

#define JOB attention_job
#define ENTRY NAMED(attention)
#define WORKSPACE NAMED(attention_workspace)
#include "tasks.h"
