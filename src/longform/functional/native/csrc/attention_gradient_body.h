/* Gradients of attention by tiles; included once for each kind of units, which gives v_*, TILE_*, pack_* and UNITS.
 *
 * A task is one head and a part of its queries, of which it takes some at a time. Weights are formed transposed, a row
 * for each key: so they are the first factor of Pᵀ dO and dSᵀ Q as they stand, what belongs to a query (its total, its
 * rowsum) is a vector, and dS, with keys in pairs, is the second factor of (dQ)ᵀ = Kᵀ (dS)ᵀ. With a window three blocks
 * of keys are at hand, and their gradients; what a block gathered is written when no query to come sees it. */
#include <math.h>
#include <stddef.h>

#include "tiles.h"

#define MANY 4   /* groups of 32 queries at a time */
#define AT_HAND 3 /* blocks of keys */
#define LOG2_E 1.44269504f

/* Groups of 32 keys, of each: (32, d) of keys and values, (d, 32) of keys, and sums (32, d) of their gradients. */
typedef struct {
    half *keys, *values, *turned;
    float *d_keys, *d_values;
} store;

typedef struct {
    store of;
    const float *bias; /* of the 32 keys, in powers of 2; or missing */
    int is_far;
} group;

/* What a thread works in. */
typedef struct {
    store near[AT_HAND], slots;
    half *query, *query_pairs, *slope, *slope_pairs; /* second factors, of each group of queries */
    half *weights, *slants, *slant_pairs, *block;    /* Pᵀ and dSᵀ of 32 keys; dSᵀ in pairs, of all */
    float *logits, *rises, *sums, *bias, *edge;
    float *less, *mean; /* log_total and rowsum(dO o O) */
    group *groups;
    float total; /* of all dS of slots */
} room;

static char *take(char **at, size_t bytes) {
    char *out = *at;
    *at += (bytes + 63) / 64 * 64;
    return out;
}

static void take_store(store *s, char **at, int64_t groups, int64_t dim) {
    size_t bytes = (size_t)(groups * GROUP * dim) * sizeof(half);
    s->keys = (half *)take(at, bytes), s->values = (half *)take(at, bytes), s->turned = (half *)take(at, bytes);
    s->d_keys = (float *)take(at, 2 * bytes), s->d_values = (float *)take(at, 2 * bytes);
}

static store store_at(const store *s, int64_t group, int64_t dim) {
    int64_t at = group * GROUP * dim;
    return (store){s->keys + at, s->values + at, s->turned + at, s->d_keys + at, s->d_values + at};
}

/* Puts `r` into `memory`; returns the bytes that it takes. */
static int64_t lay_out(room *r, const attention_gradient_job *job, char *memory) {
    int64_t slots = whole(job->slots), near = whole(job->window), all = AT_HAND * near + slots;
    size_t some = (size_t)(MANY * GROUP * job->dim) * sizeof(half), square = GROUP * GROUP;
    char *at = memory;
    for (int i = 0; i < AT_HAND; i++) take_store(&r->near[i], &at, near, job->dim);
    take_store(&r->slots, &at, slots, job->dim);
    r->query = (half *)take(&at, some), r->query_pairs = (half *)take(&at, some);
    r->slope = (half *)take(&at, some), r->slope_pairs = (half *)take(&at, some);
    r->weights = (half *)take(&at, MANY * square * sizeof(half));
    r->slants = (half *)take(&at, MANY * square * sizeof(half));
    r->slant_pairs = (half *)take(&at, (size_t)all * MANY * square * sizeof(half));
    r->block = (half *)take(&at, 2 * square * sizeof(half));
    r->logits = (float *)take(&at, square * sizeof(float));
    r->rises = (float *)take(&at, square * sizeof(float));
    r->sums = (float *)take(&at, square * sizeof(float));
    r->bias = (float *)take(&at, (size_t)(slots * GROUP) * sizeof(float));
    r->edge = (float *)take(&at, 2 * GROUP * sizeof(float));
    r->less = (float *)take(&at, MANY * GROUP * sizeof(float));
    r->mean = (float *)take(&at, MANY * GROUP * sizeof(float));
    r->groups = (group *)take(&at, sizeof(group) * (size_t)all);
    return at - memory;
}

/* Rows (., d) -> second factors for 32 of them: by columns (d / 32 x 2 tiles of 16 rows), and by rows in pairs. */
UNITS static void pack_rows(half *columns, half *pairs, const half *from, int64_t row, int64_t rows, int64_t dim) {
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
UNITS static void fill(store *s, const half *key, int64_t key_row, const half *value, int64_t value_row, int64_t rows,
                       int64_t dim) {
    size_t row_bytes = (size_t)dim * sizeof(half);
    int64_t all = whole(rows) * GROUP;
    for (int64_t i = 0; i < rows; i++) {
        memcpy(s->keys + i * dim, key + i * key_row, row_bytes);
        memcpy(s->values + i * dim, value + i * value_row, row_bytes);
    }
    memset(s->keys + rows * dim, 0, (size_t)(all - rows) * row_bytes);
    memset(s->values + rows * dim, 0, (size_t)(all - rows) * row_bytes);
    for (int64_t i = 0; i < all * dim; i += GROUP * dim)
        for (int64_t d = 0; d < dim; d += 32) turn(s->turned + i + d * GROUP, GROUP, s->keys + i + d, dim, GROUP);
    memset(s->d_keys, 0, 2 * (size_t)all * row_bytes);
    memset(s->d_values, 0, 2 * (size_t)all * row_bytes);
}

/* What 32 queries or fewer bring: their rows and slopes as second factors, their totals, their rowsums. */
UNITS static void begin_queries(room *r, const attention_gradient_job *job, int64_t b, int64_t h, int64_t first,
                                int64_t rows, int64_t g) {
    int64_t at = g * GROUP * job->dim;
#define AT(x) (job->x.data + b * job->x.batch + h * job->x.head + first * job->x.row)
    pack_rows(r->query + at, r->query_pairs + at, AT(query), job->query.row, rows, job->dim);
    pack_rows(r->slope + at, r->slope_pairs + at, AT(d_out), job->d_out.row, rows, job->dim);
    for (int64_t i = 0; i < GROUP; i++) {
        vec sum = v_all(0.0f);
        for (int64_t d = 0; i < rows && d < job->dim; d += 16)
            sum = v_fma(v_widen(AT(out) + i * job->out.row + d), v_widen(AT(d_out) + i * job->d_out.row + d), sum);
        r->mean[g * GROUP + i] = v_sum(sum);
        r->less[g * GROUP + i] = i < rows ? job->log_total[(b * job->heads + h) * job->queries + first + i] : INFINITY;
    }
#undef AT
}

/* A first factor (32, d) times a second one (d, 32) -> 32 x 32 sums. */
INLINE void multiply(const half *rows, int64_t dim, const half *columns, float *sums) {
    clear_sums();
    for (int64_t d = 0; d < dim; d += 32, columns += 2 * TILE) add_products(rows + d, dim, columns, columns + TILE, 0);
    store_sums(sums, GROUP);
}

/* Pᵀ and dSᵀ scale of 32 keys and 32 queries, from logits and V dOᵀ; returns `total` plus the latter. */
INLINE vec weigh(room *r, const float *bias, int64_t g, half *pairs, float scale, vec total) {
    vec times = v_all(scale * LOG2_E), by = v_all(scale);
    vec low_less = v_load(r->less + g * GROUP), high_less = v_load(r->less + g * GROUP + 16);
    vec low_mean = v_load(r->mean + g * GROUP), high_mean = v_load(r->mean + g * GROUP + 16);
    for (int64_t i = 0; i < GROUP; i++) {
        const float *x = r->logits + i * GROUP, *rise = r->rises + i * GROUP;
        half *weights = r->weights + (i * MANY + g) * GROUP, *slants = r->slants + (i * MANY + g) * GROUP;
        vec own = v_all(bias ? bias[i] : 0.0f);
        vec low = v_exp2(v_fma(v_load(x), times, v_sub(own, low_less)));
        vec high = v_exp2(v_fma(v_load(x + 16), times, v_sub(own, high_less)));
        v_round(weights, low, high);
        low = v_mul(v_mul(low, by), v_sub(v_load(rise), low_mean));
        high = v_mul(v_mul(high, by), v_sub(v_load(rise + 16), high_mean));
        v_round(slants, low, high);
        total = v_add(total, v_add(low, high));
        if (i % 2) pack_values(pairs + (i - 1) * 16, pairs + TILE + (i - 1) * 16, slants - MANY * GROUP, slants);
    }
    return total;
}

/* First factors (32, 32 `groups`), rows so many apart, times rows in pairs, added to (32, d) sums. */
INLINE void gather(float *to, const half *factors, const half *pairs, int64_t groups, int64_t dim) {
    for (int64_t d = 0; d < dim; d += 32) {
        begin_sums(to + d, dim);
        for (int64_t g = 0; g < groups; g++) {
            const half *tiles = pairs + g * GROUP * dim + d * GROUP;
            add_products(factors + g * GROUP, MANY * GROUP, tiles, tiles + TILE, 0);
        }
        store_sums(to + d, dim);
    }
}

/* (dQ)ᵀ = Kᵀ (dS)ᵀ of 32 queries, of which `rows` are there -> their rows of dQ. */
UNITS static void finish_queries(room *r, int64_t dim, int64_t count, int64_t g, half *out, int64_t out_row,
                                 int64_t rows) {
    half *turned = r->block + GROUP * GROUP;
    for (int64_t d = 0; d < dim; d += 32) {
        clear_sums();
        for (int64_t s = 0; s < count; s++) {
            const half *pairs = r->slant_pairs + (s * MANY + g) * 2 * TILE;
            add_products(r->groups[s].of.turned + d * GROUP, GROUP, pairs, pairs + TILE, 0);
        }
        store_sums(r->sums, GROUP);
        for (int64_t i = 0; i < GROUP; i++)
            v_round(r->block + i * GROUP, v_load(r->sums + i * GROUP), v_load(r->sums + i * GROUP + 16));
        turn(turned, GROUP, r->block, GROUP, GROUP);
        for (int64_t i = 0; i < rows; i++) memcpy(out + i * out_row + d, turned + i * GROUP, 64);
    }
}

/* Queries `first` to `end`, at most MANY groups, against the listed keys. */
UNITS static void some_queries(room *r, const attention_gradient_job *job, int64_t b, int64_t h, int64_t count,
                               int64_t first, int64_t end) {
    int64_t dim = job->dim, groups = whole(end - first);
    for (int64_t g = 0; g < groups; g++)
        begin_queries(r, job, b, h, first + g * GROUP, least(GROUP, end - first - g * GROUP), g);
    for (int64_t s = 0; s < count; s++) {
        const group *own = r->groups + s;
        vec total = v_all(0.0f);
        for (int64_t g = 0; g < groups; g++) {
            multiply(own->of.keys, dim, r->query + g * GROUP * dim, r->logits);
            multiply(own->of.values, dim, r->slope + g * GROUP * dim, r->rises);
            total = weigh(r, own->bias, g, r->slant_pairs + (s * MANY + g) * 2 * TILE, job->scale, total);
        }
        if (own->is_far) r->total += v_sum(total);
        gather(own->of.d_values, r->weights, r->slope_pairs, groups, dim);
        gather(own->of.d_keys, r->slants, r->query_pairs, groups, dim);
    }
    half *out = job->d_query.data + b * job->d_query.batch + h * job->d_query.head + first * job->d_query.row;
    for (int64_t g = 0; g < groups; g++)
        finish_queries(r, dim, count, g, out + g * GROUP * job->d_query.row, job->d_query.row,
                       least(GROUP, end - first - g * GROUP));
}

/* Lists the groups of a block of `rows` keys; the last one hides what fills it up. */
static int64_t list_near(room *r, int64_t count, const store *keys, int64_t rows, int64_t dim, float *edge) {
    for (int64_t g = 0; g < whole(rows); g++) {
        int64_t left = rows - g * GROUP;
        for (int64_t i = 0; left < GROUP && i < GROUP; i++) edge[i] = i < left ? 0.0f : -INFINITY;
        r->groups[count++] = (group){store_at(keys, g, dim), left < GROUP ? edge : 0, 0};
    }
    return count;
}

/* Lists the groups of slots of which any is seen. */
static int64_t list_slots(room *r, int64_t count, const attention_gradient_job *job, const float *bias, float added) {
    for (int64_t g = 0; g < whole(job->slots); g++) {
        float *own = r->bias + g * GROUP;
        int seen = 0;
        for (int64_t i = 0; i < GROUP; i++) {
            int64_t slot = g * GROUP + i;
            own[i] = slot >= job->slots ? -INFINITY : ((bias ? bias[slot] : 0.0f) + added) * LOG2_E;
            seen |= !(own[i] == -INFINITY);
        }
        if (seen) r->groups[count++] = (group){store_at(&r->slots, g, job->dim), own, 1};
    }
    return count;
}

/* The gradients of a block of keys, which are complete. */
UNITS static void write_near(const store *keys, const attention_gradient_job *job, int64_t b, int64_t h, int64_t first,
                             int64_t rows) {
    half *d_key = job->d_key.data + b * job->d_key.batch + h * job->d_key.head + first * job->d_key.row;
    half *d_value = job->d_value.data + b * job->d_value.batch + h * job->d_value.head + first * job->d_value.row;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < job->dim; d += 32) {
            const float *x = keys->d_keys + i * job->dim + d, *y = keys->d_values + i * job->dim + d;
            v_round(d_key + i * job->d_key.row + d, v_load(x), v_load(x + 16));
            v_round(d_value + i * job->d_value.row + d, v_load(y), v_load(y + 16));
        }
}

/* Queries `first` to `end` of one head; all of them with a window. */
UNITS static void one_task(room *r, const attention_gradient_job *job, int64_t b, int64_t h, int64_t part,
                           int64_t first, int64_t end) {
    int64_t dim = job->dim, window = job->window, step = window ? window : end - first;
    int64_t blocks = window ? (job->queries + window - 1) / window : 0, filled = 0;
    float added = job->head_bias ? job->head_bias[h] : 0.0f;
#define AT(x) (job->x.data + b * job->x.batch + h * job->x.head)
    fill(&r->slots, AT(slot_key), job->slot_key.row, AT(slot_value), job->slot_value.row, job->slots, dim);
    r->total = 0.0f;
    for (int64_t i = 0; first < end; i++, first += step) {
        int64_t count = 0, stop = least(first + step, end);
        for (; filled < least(i + 2, blocks); filled++) {
            store *own = &r->near[filled % AT_HAND];
            int64_t at = filled * window;
            if (filled >= AT_HAND) write_near(own, job, b, h, at - AT_HAND * window, window);
            fill(own, AT(key) + at * job->key.row, job->key.row, AT(value) + at * job->value.row, job->value.row,
                 least(window, job->queries - at), dim);
        }
        for (int64_t j = i ? i - 1 : 0; j < filled; j++) {
            int64_t rows = least(window, job->queries - j * window);
            count = list_near(r, count, &r->near[j % AT_HAND], rows, dim, r->edge + (rows < window ? GROUP : 0));
        }
        const float *bias = job->bias ? job->bias + b * job->bias_batch + h * job->bias_head + i * job->bias_block : 0;
        count = list_slots(r, count, job, bias, added);
        for (int64_t at = first; at < stop; at += MANY * GROUP)
            some_queries(r, job, b, h, count, at, least(at + MANY * GROUP, stop));
    }
#undef AT
    for (int64_t j = blocks > AT_HAND ? blocks - AT_HAND : 0; j < blocks; j++)
        write_near(&r->near[j % AT_HAND], job, b, h, j * window, least(window, job->queries - j * window));
    int64_t task = (b * job->heads + h) * job->parts + part, all = job->slots * dim;
    memcpy(job->d_slot_key + task * all, r->slots.d_keys, (size_t)all * sizeof(float));
    memcpy(job->d_slot_value + task * all, r->slots.d_values, (size_t)all * sizeof(float));
    if (job->d_head_bias) job->d_head_bias[task] = r->total / job->scale;
}

static int64_t tasks_of(const attention_gradient_job *job) { return job->batch * job->heads * job->parts; }

UNITS static void do_task(room *r, const attention_gradient_job *job, int64_t task) {
    int64_t each = whole((job->queries + job->parts - 1) / job->parts) * GROUP;
    int64_t part = task % job->parts, head = task / job->parts;
    one_task(r, job, head / job->heads, head % job->heads, part, part * each, least((part + 1) * each, job->queries));
}

#define JOB attention_gradient_job
#include "tasks.h"
