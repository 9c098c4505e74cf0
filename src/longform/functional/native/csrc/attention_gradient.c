/* Gradients of attention by products of tiles.
 *
 * A task is one head and a part of its queries, of which it takes some at a time. Weights are formed transposed, a row
 * for each key: so they are the first factor of Pᵀ dO and dSᵀ Q as they stand, what belongs to a query (its total, its
 * rowsum) is a vector, and dS, with keys in pairs, is the second factor of (dQ)ᵀ = Kᵀ (dS)ᵀ. With a window three blocks
 * of keys are at hand, and their gradients; what a block gathered is written when no query to come sees it. */
#include <math.h>

#include "units.h"
#include "tiles.h"

#define MANY 4   /* groups of 32 queries at a time */
#define AT_HAND 3 /* blocks of keys */
#define LOG2_E 1.44269504f

/* Groups of 32 keys, of each: (32, d) of keys and values, (d, 32) of keys, and sums (32, d) of their gradients. */
typedef struct {
    bf16 *keys, *values, *transposed;
    float *d_keys, *d_values;
} key_set;

typedef struct {
    key_set of;
    const float *bias; /* of the 32 keys, in powers of 2; or missing */
    int is_far;
} group;

/* What a thread works in. */
typedef struct {
    key_set near[AT_HAND], slots;
    bf16 *query, *query_pairs, *d_out, *d_out_pairs; /* second factors, of each group of queries */
    bf16 *weights, *d_logits, *d_logit_pairs, *block;    /* Pᵀ and dSᵀ of 32 keys; dSᵀ in pairs, of all */
    float *logits, *d_weights, *sums, *bias, *edge;
    float *log_total, *row_sum; /* the latter: rowsum(dO o O) */
    group *groups;
    float total; /* of all dS of slots */
} workspace;

static void take_key_set(key_set *s, char **at, int64_t groups, int64_t dim) {
    size_t bytes = (size_t)(groups * GROUP * dim) * sizeof(bf16);
    s->keys = (bf16 *)take(at, bytes), s->values = (bf16 *)take(at, bytes), s->transposed = (bf16 *)take(at, bytes);
    s->d_keys = (float *)take(at, 2 * bytes), s->d_values = (float *)take(at, 2 * bytes);
}

static key_set key_set_at(const key_set *s, int64_t group, int64_t dim) {
    int64_t at = group * GROUP * dim;
    return (key_set){s->keys + at, s->values + at, s->transposed + at, s->d_keys + at, s->d_values + at};
}

/* Puts `w` into `memory`; returns the bytes that it takes. */
static int64_t lay_out(workspace *w, const attention_gradient_job *job, char *memory) {
    int64_t slots = whole(job->slots), near = whole(job->window), all = AT_HAND * near + slots;
    size_t some = (size_t)(MANY * GROUP * job->dim) * sizeof(bf16), square = GROUP * GROUP;
    char *at = memory;
    for (int i = 0; i < AT_HAND; i++) take_key_set(&w->near[i], &at, near, job->dim);
    take_key_set(&w->slots, &at, slots, job->dim);
    w->query = (bf16 *)take(&at, some), w->query_pairs = (bf16 *)take(&at, some);
    w->d_out = (bf16 *)take(&at, some), w->d_out_pairs = (bf16 *)take(&at, some);
    w->weights = (bf16 *)take(&at, MANY * square * sizeof(bf16));
    w->d_logits = (bf16 *)take(&at, MANY * square * sizeof(bf16));
    w->d_logit_pairs = (bf16 *)take(&at, (size_t)all * MANY * square * sizeof(bf16));
    w->block = (bf16 *)take(&at, 2 * square * sizeof(bf16));
    w->logits = (float *)take(&at, square * sizeof(float));
    w->d_weights = (float *)take(&at, square * sizeof(float));
    w->sums = (float *)take(&at, square * sizeof(float));
    w->bias = (float *)take(&at, (size_t)(slots * GROUP) * sizeof(float));
    w->edge = (float *)take(&at, 2 * GROUP * sizeof(float));
    w->log_total = (float *)take(&at, MANY * GROUP * sizeof(float));
    w->row_sum = (float *)take(&at, MANY * GROUP * sizeof(float));
    w->groups = (group *)take(&at, sizeof(group) * (size_t)all);
    return at - memory;
}

/* Rows (., d) -> second factors for 32 of them: by columns (d / 32 x 2 tiles of 16 rows), and by rows in pairs. */
UNITS static void pack_rows(bf16 *columns, bf16 *pairs, const bf16 *from, int64_t row, int64_t rows, int64_t dim) {
    for (int64_t d = 0; d < dim; d += 32) {
        for (int64_t side = 0; side < 2; side++, columns += TILE) {
            int64_t left = least(16, rows - 16 * side);
            pack_keys(columns, from + 16 * side * row + d, row, left > 0 ? (int)left : 0);
        }
        for (int64_t i = 0; i < GROUP; i += 2)
            pack_values(pairs + i * 16, pairs + TILE + i * 16, i < rows ? from + i * row + d : 0,
                        i + 1 < rows ? from + (i + 1) * row + d : 0);
        pairs += 2 * TILE;
    }
}

/* `rows` keys and values with zeros behind them, and no gradients yet. */
UNITS static void fill(key_set *s, const bf16 *key, int64_t key_row, const bf16 *value, int64_t value_row, int64_t rows,
                       int64_t dim) {
    size_t row_bytes = (size_t)dim * sizeof(bf16);
    int64_t all = whole(rows) * GROUP;
    for (int64_t i = 0; i < rows; i++) {
        memcpy(s->keys + i * dim, key + i * key_row, row_bytes);
        memcpy(s->values + i * dim, value + i * value_row, row_bytes);
    }
    memset(s->keys + rows * dim, 0, (size_t)(all - rows) * row_bytes);
    memset(s->values + rows * dim, 0, (size_t)(all - rows) * row_bytes);
    for (int64_t i = 0; i < all * dim; i += GROUP * dim)
        for (int64_t d = 0; d < dim; d += 32)
            transpose(s->transposed + i + d * GROUP, GROUP, s->keys + i + d, dim, GROUP);
    memset(s->d_keys, 0, 2 * (size_t)all * row_bytes);
    memset(s->d_values, 0, 2 * (size_t)all * row_bytes);
}

/* What 32 queries or fewer bring: their rows and those of dO as second factors, their totals, their rowsums. */
UNITS static void begin_queries(workspace *w, const attention_gradient_job *job, int64_t b, int64_t h, int64_t first,
                                int64_t rows, int64_t g) {
    int64_t at = g * GROUP * job->dim;
#define AT(x) (job->x.data + b * job->x.batch + h * job->x.head + first * job->x.row)
    pack_rows(w->query + at, w->query_pairs + at, AT(query), job->query.row, rows, job->dim);
    pack_rows(w->d_out + at, w->d_out_pairs + at, AT(d_out), job->d_out.row, rows, job->dim);
    for (int64_t i = 0; i < GROUP; i++) {
        vec sum = v_all(0.0f);
        for (int64_t d = 0; i < rows && d < job->dim; d += 16)
            sum = v_fma(v_widen(AT(out) + i * job->out.row + d), v_widen(AT(d_out) + i * job->d_out.row + d), sum);
        w->row_sum[g * GROUP + i] = v_sum(sum);
        int64_t at_query = (b * job->heads + h) * job->queries + first + i;
        w->log_total[g * GROUP + i] = i < rows ? job->log_total[at_query] : INFINITY;
    }
#undef AT
}

/* A first factor (32, d) times a second one (d, 32) -> 32 x 32 sums. */
INLINE void multiply(const bf16 *rows, int64_t dim, const bf16 *columns, float *sums) {
    clear_sums();
    for (int64_t d = 0; d < dim; d += 32, columns += 2 * TILE) add_products(rows + d, dim, columns, columns + TILE, 0);
    store_sums(sums, GROUP);
}

/* Pᵀ and dSᵀ scale of 32 keys and 32 queries, from logits and V dOᵀ; returns `total` plus the latter. */
INLINE vec weigh(workspace *w, const float *bias, int64_t g, bf16 *pairs, float scale, vec total) {
    vec times = v_all(scale * LOG2_E), by = v_all(scale);
    vec low_total = v_load(w->log_total + g * GROUP), high_total = v_load(w->log_total + g * GROUP + 16);
    vec low_sum = v_load(w->row_sum + g * GROUP), high_sum = v_load(w->row_sum + g * GROUP + 16);
    for (int64_t i = 0; i < GROUP; i++) {
        const float *x = w->logits + i * GROUP, *d_weight = w->d_weights + i * GROUP;
        bf16 *weights = w->weights + (i * MANY + g) * GROUP, *d_logits = w->d_logits + (i * MANY + g) * GROUP;
        vec own = v_all(bias ? bias[i] : 0.0f);
        vec low = v_exp2(v_fma(v_load(x), times, v_sub(own, low_total)));
        vec high = v_exp2(v_fma(v_load(x + 16), times, v_sub(own, high_total)));
        v_round(weights, low, high);
        low = v_mul(v_mul(low, by), v_sub(v_load(d_weight), low_sum));
        high = v_mul(v_mul(high, by), v_sub(v_load(d_weight + 16), high_sum));
        v_round(d_logits, low, high);
        total = v_add(total, v_add(low, high));
        if (i % 2) pack_values(pairs + (i - 1) * 16, pairs + TILE + (i - 1) * 16, d_logits - MANY * GROUP, d_logits);
    }
    return total;
}

/* First factors (32, 32 `groups`), rows so many apart, times rows in pairs, added to (32, d) sums. */
INLINE void gather(float *to, const bf16 *factors, const bf16 *pairs, int64_t groups, int64_t dim) {
    for (int64_t d = 0; d < dim; d += 32) {
        begin_sums(to + d, dim);
        for (int64_t g = 0; g < groups; g++) {
            const bf16 *tiles = pairs + g * GROUP * dim + d * GROUP;
            add_products(factors + g * GROUP, MANY * GROUP, tiles, tiles + TILE, 0);
        }
        store_sums(to + d, dim);
    }
}

/* (dQ)ᵀ = Kᵀ (dS)ᵀ of 32 queries, of which `rows` are there -> their rows of dQ. */
UNITS static void finish_queries(workspace *w, int64_t dim, int64_t count, int64_t g, bf16 *out, int64_t out_row,
                                 int64_t rows) {
    bf16 *transposed = w->block + GROUP * GROUP;
    for (int64_t d = 0; d < dim; d += 32) {
        clear_sums();
        for (int64_t s = 0; s < count; s++) {
            const bf16 *pairs = w->d_logit_pairs + (s * MANY + g) * 2 * TILE;
            add_products(w->groups[s].of.transposed + d * GROUP, GROUP, pairs, pairs + TILE, 0);
        }
        store_sums(w->sums, GROUP);
        for (int64_t i = 0; i < GROUP; i++)
            v_round(w->block + i * GROUP, v_load(w->sums + i * GROUP), v_load(w->sums + i * GROUP + 16));
        transpose(transposed, GROUP, w->block, GROUP, GROUP);
        for (int64_t i = 0; i < rows; i++) memcpy(out + i * out_row + d, transposed + i * GROUP, 64);
    }
}

/* Queries `first` to `end`, at most MANY groups, against the listed keys. */
UNITS static void some_queries(workspace *w, const attention_gradient_job *job, int64_t b, int64_t h, int64_t count,
                               int64_t first, int64_t end) {
    int64_t dim = job->dim, groups = whole(end - first);
    for (int64_t g = 0; g < groups; g++)
        begin_queries(w, job, b, h, first + g * GROUP, least(GROUP, end - first - g * GROUP), g);
    for (int64_t s = 0; s < count; s++) {
        const group *own = w->groups + s;
        vec total = v_all(0.0f);
        for (int64_t g = 0; g < groups; g++) {
            multiply(own->of.keys, dim, w->query + g * GROUP * dim, w->logits);
            multiply(own->of.values, dim, w->d_out + g * GROUP * dim, w->d_weights);
            total = weigh(w, own->bias, g, w->d_logit_pairs + (s * MANY + g) * 2 * TILE, job->scale, total);
        }
        if (own->is_far) w->total += v_sum(total);
        gather(own->of.d_values, w->weights, w->d_out_pairs, groups, dim);
        gather(own->of.d_keys, w->d_logits, w->query_pairs, groups, dim);
    }
    bf16 *out = job->d_query.data + b * job->d_query.batch + h * job->d_query.head + first * job->d_query.row;
    for (int64_t g = 0; g < groups; g++)
        finish_queries(w, dim, count, g, out + g * GROUP * job->d_query.row, job->d_query.row,
                       least(GROUP, end - first - g * GROUP));
}

/* Lists the groups of a block of `rows` keys; the last one hides what fills it up. */
static int64_t list_near(workspace *w, int64_t count, const key_set *keys, int64_t rows, int64_t dim, float *edge) {
    for (int64_t g = 0; g < whole(rows); g++) {
        int64_t left = rows - g * GROUP;
        for (int64_t i = 0; left < GROUP && i < GROUP; i++) edge[i] = i < left ? 0.0f : -INFINITY;
        w->groups[count++] = (group){key_set_at(keys, g, dim), left < GROUP ? edge : 0, 0};
    }
    return count;
}

/* Lists the groups of slots of which any is seen. */
static int64_t list_slots(workspace *w, int64_t count, const attention_gradient_job *job, const float *bias,
                          float added) {
    for (int64_t g = 0; g < whole(job->slots); g++) {
        float *own = w->bias + g * GROUP;
        int seen = 0;
        for (int64_t i = 0; i < GROUP; i++) {
            int64_t slot = g * GROUP + i;
            own[i] = slot >= job->slots ? -INFINITY : ((bias ? bias[slot] : 0.0f) + added) * LOG2_E;
            seen |= !(own[i] == -INFINITY);
        }
        if (seen) w->groups[count++] = (group){key_set_at(&w->slots, g, job->dim), own, 1};
    }
    return count;
}

/* The gradients of a block of keys, which are complete. */
UNITS static void write_near(const key_set *keys, const attention_gradient_job *job, int64_t b, int64_t h,
                             int64_t first, int64_t rows) {
    bf16 *d_key = job->d_key.data + b * job->d_key.batch + h * job->d_key.head + first * job->d_key.row;
    bf16 *d_value = job->d_value.data + b * job->d_value.batch + h * job->d_value.head + first * job->d_value.row;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < job->dim; d += 32) {
            const float *x = keys->d_keys + i * job->dim + d, *y = keys->d_values + i * job->dim + d;
            v_round(d_key + i * job->d_key.row + d, v_load(x), v_load(x + 16));
            v_round(d_value + i * job->d_value.row + d, v_load(y), v_load(y + 16));
        }
}

/* Queries `first` to `end` of one head; all of them with a window. */
UNITS static void one_task(workspace *w, const attention_gradient_job *job, int64_t b, int64_t h, int64_t part,
                           int64_t first, int64_t end) {
    int64_t dim = job->dim, window = job->window, step = window ? window : end - first;
    int64_t blocks = window ? divided(job->queries, window) : 0, filled = 0;
    float added = job->head_bias ? job->head_bias[h] : 0.0f;
#define AT(x) (job->x.data + b * job->x.batch + h * job->x.head)
    fill(&w->slots, AT(slot_key), job->slot_key.row, AT(slot_value), job->slot_value.row, job->slots, dim);
    w->total = 0.0f;
    for (int64_t i = 0; first < end; i++, first += step) {
        int64_t count = 0, stop = least(first + step, end);
        for (; filled < least(i + 2, blocks); filled++) {
            key_set *own = &w->near[filled % AT_HAND];
            int64_t at = filled * window;
            if (filled >= AT_HAND) write_near(own, job, b, h, at - AT_HAND * window, window);
            fill(own, AT(key) + at * job->key.row, job->key.row, AT(value) + at * job->value.row, job->value.row,
                 least(window, job->queries - at), dim);
        }
        for (int64_t j = i ? i - 1 : 0; j < filled; j++) {
            int64_t rows = least(window, job->queries - j * window);
            count = list_near(w, count, &w->near[j % AT_HAND], rows, dim, w->edge + (rows < window ? GROUP : 0));
        }
        const float *bias = job->bias ? job->bias + b * job->bias_batch + h * job->bias_head + i * job->bias_block : 0;
        count = list_slots(w, count, job, bias, added);
        for (int64_t at = first; at < stop; at += MANY * GROUP)
            some_queries(w, job, b, h, count, at, least(at + MANY * GROUP, stop));
    }
#undef AT
    for (int64_t j = blocks > AT_HAND ? blocks - AT_HAND : 0; j < blocks; j++)
        write_near(&w->near[j % AT_HAND], job, b, h, j * window, least(window, job->queries - j * window));
    int64_t task = (b * job->heads + h) * job->parts + part, all = job->slots * dim;
    memcpy(job->d_slot_key + task * all, w->slots.d_keys, (size_t)all * sizeof(float));
    memcpy(job->d_slot_value + task * all, w->slots.d_values, (size_t)all * sizeof(float));
    if (job->d_head_bias) job->d_head_bias[task] = w->total / job->scale;
}

static int64_t tasks_of(const attention_gradient_job *job) { return job->batch * job->heads * job->parts; }

UNITS static void do_task(workspace *w, const attention_gradient_job *job, int64_t task) {
    int64_t each = whole(divided(job->queries, job->parts)) * GROUP;
    int64_t part = task % job->parts, head = task / job->parts;
    one_task(w, job, head / job->heads, head % job->heads, part, part * each, least((part + 1) * each, job->queries));
}

#define JOB attention_gradient_job
#define ENTRY NAMED(attention_gradient)
#define WORKSPACE NAMED(attention_gradient_workspace)
#include "tasks.h"
