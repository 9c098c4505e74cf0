/* Gradients of attention by tiles; included once for each kind of units, which gives v_*, TILE_*, pack_* and UNITS.
 *
 * A task is one head and a part of its queries, of which it takes some at a time. Weights are formed transposed, a row
 * for each slot: so they are the first factor of Pᵀ dO and dSᵀ Q as they stand, what belongs to a query (its total, its
 * rowsum) is a vector, and dS, with slots in pairs, is the second factor of (dQ)ᵀ = Kᵀ (dS)ᵀ. */
#include <stddef.h>

#include "tiles.h"

#define MANY 4 /* groups of 32 queries at a time */
#define LOG2_E 1.44269504f

/* What a thread works in. */
typedef struct {
    half *keys, *values, *turned_keys;                              /* (S, d), (S, d), (d, S) */
    half *query, *query_pairs, *slope, *slope_pairs;                /* second factors, of each group of queries */
    half *weights, *slants, *slant_pairs, *block;                   /* Pᵀ and dSᵀ of 32 slots; dSᵀ in pairs, of all */
    float *logits, *rises, *sums, *bias, *d_key, *d_value;
    float less[MANY * GROUP], mean[MANY * GROUP];                   /* log_total and rowsum(dO o O) */
    half turned[2 * TILE];
} room;

static int64_t whole(int64_t rows) { return (rows + GROUP - 1) / GROUP; }

static char *take(char **at, size_t bytes) {
    char *out = *at;
    *at += (bytes + 63) / 64 * 64;
    return out;
}

/* Puts `r` into `memory`; returns the bytes that it takes. */
static int64_t lay_out(room *r, const attention_gradient_job *job, char *memory) {
    int64_t slots = whole(job->slots) * GROUP;
    size_t all = (size_t)(slots * job->dim) * sizeof(half), some = (size_t)(MANY * GROUP * job->dim) * sizeof(half);
    char *at = memory;
    r->keys = (half *)take(&at, all), r->values = (half *)take(&at, all), r->turned_keys = (half *)take(&at, all);
    r->query = (half *)take(&at, some), r->query_pairs = (half *)take(&at, some);
    r->slope = (half *)take(&at, some), r->slope_pairs = (half *)take(&at, some);
    r->weights = (half *)take(&at, MANY * GROUP * GROUP * sizeof(half));
    r->slants = (half *)take(&at, MANY * GROUP * GROUP * sizeof(half));
    r->slant_pairs = (half *)take(&at, (size_t)slots * MANY * GROUP * sizeof(half));
    r->block = (half *)take(&at, GROUP * GROUP * sizeof(half));
    r->logits = (float *)take(&at, GROUP * GROUP * sizeof(float));
    r->rises = (float *)take(&at, GROUP * GROUP * sizeof(float));
    r->sums = (float *)take(&at, GROUP * GROUP * sizeof(float));
    r->bias = (float *)take(&at, (size_t)slots * sizeof(float));
    r->d_key = (float *)take(&at, 2 * all), r->d_value = (float *)take(&at, 2 * all);
    return at - memory;
}

/* 32 x 32 halves -> transposed. */
UNITS static void turn(half *to, int64_t to_row, const half *from, int64_t from_row) {
    half pairs[2 * TILE], turned[TILE];
    for (int64_t i = 0; i < GROUP; i += 2)
        pack_values(pairs + i * 16, pairs + TILE + i * 16, from + i * from_row, from + (i + 1) * from_row);
    for (int64_t side = 0; side < 2; side++) {
        pack_keys(turned, pairs + side * TILE, 32, 16);
        for (int64_t i = 0; i < 16; i++) memcpy(to + (16 * side + i) * to_row, turned + 32 * i, 64);
    }
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

/* One head's keys and values, with zeros behind the last slot, which nobody sees. */
UNITS static void begin_head(room *r, const attention_gradient_job *job, int64_t b, int64_t h) {
    int64_t dim = job->dim, slots = whole(job->slots) * GROUP;
    const half *key = job->key.data + b * job->key.batch + h * job->key.head;
    const half *value = job->value.data + b * job->value.batch + h * job->value.head;
    const float *bias = job->bias ? job->bias + b * job->bias_batch + h * job->bias_head : 0;
    for (int64_t i = 0; i < slots; i++) {
        int there = i < job->slots;
        if (there) memcpy(r->keys + i * dim, key + i * job->key.row, (size_t)dim * sizeof(half));
        else memset(r->keys + i * dim, 0, (size_t)dim * sizeof(half));
        if (there) memcpy(r->values + i * dim, value + i * job->value.row, (size_t)dim * sizeof(half));
        else memset(r->values + i * dim, 0, (size_t)dim * sizeof(half));
        r->bias[i] = !there ? -INFINITY : bias ? bias[i] * LOG2_E : 0.0f;
    }
    for (int64_t i = 0; i < slots; i += GROUP)
        for (int64_t d = 0; d < dim; d += 32) turn(r->turned_keys + d * slots + i, slots, r->keys + i * dim + d, dim);
    memset(r->d_key, 0, (size_t)(slots * dim) * sizeof(float));
    memset(r->d_value, 0, (size_t)(slots * dim) * sizeof(float));
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

/* Pᵀ and dSᵀ of 32 slots and 32 queries, from logits and dP = V dOᵀ. */
INLINE void weigh(room *r, const float *bias, int64_t g, half *pairs, float scale) {
    vec times = v_all(scale * LOG2_E), by = v_all(scale);
    const float *less = r->less + g * GROUP, *mean = r->mean + g * GROUP;
    vec less_low = v_load(less), less_high = v_load(less + 16), low_mean = v_load(mean), high_mean = v_load(mean + 16);
    for (int64_t i = 0; i < GROUP; i++) {
        const float *x = r->logits + i * GROUP, *rise = r->rises + i * GROUP;
        half *weights = r->weights + (i * MANY + g) * GROUP, *slants = r->slants + (i * MANY + g) * GROUP;
        vec own = v_all(bias[i]);
        vec low = v_exp2(v_fma(v_load(x), times, v_sub(own, less_low)));
        vec high = v_exp2(v_fma(v_load(x + 16), times, v_sub(own, less_high)));
        v_round(weights, low, high);
        v_round(slants, v_mul(v_mul(low, by), v_sub(v_load(rise), low_mean)),
                v_mul(v_mul(high, by), v_sub(v_load(rise + 16), high_mean)));
        if (i % 2) pack_values(pairs + (i - 1) * 16, pairs + TILE + (i - 1) * 16, slants - MANY * GROUP, slants);
    }
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
UNITS static void finish_queries(room *r, const attention_gradient_job *job, int64_t g, half *out, int64_t rows) {
    int64_t groups = whole(job->slots);
    for (int64_t d = 0; d < job->dim; d += 32) {
        clear_sums();
        for (int64_t s = 0; s < groups; s++) {
            const half *pairs = r->slant_pairs + (s * MANY + g) * 2 * TILE;
            add_products(r->turned_keys + d * groups * GROUP + s * GROUP, groups * GROUP, pairs, pairs + TILE, 0);
        }
        store_sums(r->sums, GROUP);
        for (int64_t i = 0; i < GROUP; i++)
            v_round(r->block + i * GROUP, v_load(r->sums + i * GROUP), v_load(r->sums + i * GROUP + 16));
        turn(r->turned, GROUP, r->block, GROUP);
        for (int64_t i = 0; i < rows; i++) memcpy(out + i * job->d_query.row + d, r->turned + i * GROUP, 64);
    }
}

/* Queries `first` to `end` of one head. */
UNITS static void one_task(room *r, const attention_gradient_job *job, int64_t b, int64_t h, int64_t part,
                           int64_t first, int64_t end) {
    int64_t dim = job->dim;
    begin_head(r, job, b, h);
    for (; first < end; first += MANY * GROUP) {
        int64_t groups = whole(least(MANY * GROUP, end - first));
        for (int64_t g = 0; g < groups; g++)
            begin_queries(r, job, b, h, first + g * GROUP, least(GROUP, end - first - g * GROUP), g);
        for (int64_t s = 0; s < whole(job->slots); s++) {
            int64_t at = s * GROUP * dim;
            for (int64_t g = 0; g < groups; g++) {
                multiply(r->keys + at, dim, r->query + g * GROUP * dim, r->logits);
                multiply(r->values + at, dim, r->slope + g * GROUP * dim, r->rises);
                weigh(r, r->bias + s * GROUP, g, r->slant_pairs + (s * MANY + g) * 2 * TILE, job->scale);
            }
            gather(r->d_value + at, r->weights, r->slope_pairs, groups, dim);
            gather(r->d_key + at, r->slants, r->query_pairs, groups, dim);
        }
        half *out = job->d_query.data + b * job->d_query.batch + h * job->d_query.head + first * job->d_query.row;
        for (int64_t g = 0; g < groups; g++)
            finish_queries(r, job, g, out + g * GROUP * job->d_query.row, least(GROUP, end - first - g * GROUP));
    }
    int64_t all = job->slots * dim, at = ((b * job->heads + h) * job->parts + part) * all;
    memcpy(job->d_key + at, r->d_key, (size_t)all * sizeof(float));
    memcpy(job->d_value + at, r->d_value, (size_t)all * sizeof(float));
}

UNITS static void all_tasks(const attention_gradient_job *job, int64_t *threads, int64_t *tasks) {
    int64_t each = whole((job->queries + job->parts - 1) / job->parts) * GROUP;
    room r;
    tile_setting before;
    lay_out(&r, job, (char *)job->room + __atomic_fetch_add(threads, 1, __ATOMIC_RELAXED) * job->room_bytes);
    units_begin(&before);
    for (;;) {
        int64_t task = __atomic_fetch_add(tasks, 1, __ATOMIC_RELAXED), part = task % job->parts;
        if (task >= job->batch * job->heads * job->parts) break;
        int64_t b = task / job->parts / job->heads, h = task / job->parts % job->heads;
        one_task(&r, job, b, h, part, part * each, least((part + 1) * each, job->queries));
    }
    units_end(&before);
}

void ENTRY(const attention_gradient_job *job) {
    int64_t threads = 0, tasks = 0;
#pragma omp parallel num_threads((int)job->threads)
    all_tasks(job, &threads, &tasks);
}

int64_t ROOM(const attention_gradient_job *job) {
    room r;
    return lay_out(&r, job, 0);
}
