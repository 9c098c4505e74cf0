/* A linear layer by tiles; included once for each kind of units, which gives v_*, TILE_* and UNITS.
 *
 * A task is some rows and some panels of 32 outputs. Some panels at a time meet all rows, 32 by 32, while the next
 * panels are fetched. What follows a product (GELU, a residual, rounding) is done while the next ones are multiplied:
 * tiles and vectors are units of their own, and work at once. What streams from the second cache to the nearest one
 * decides the speed: rows meet `STRIDE` steps of inputs at a time, so that they stay there, and panels pass it by. */
#include <string.h>

#include "gelu.h"
#include "tiles.h"

#define MANY_ROWS 256
#define TASK_ROWS 512     /* at most */
#define TASK_BYTES 800000 /* of x, which stay in the second cache while panels pass by */
#define TASKS 2           /* of each thread, at least */
#define LEAST_PANELS 4    /* of a task */
#define STRIDE 12         /* steps, of 32 inputs each */
#define TOGETHER 2        /* panels at a time */
#define BLOCK (GROUP * GROUP)

typedef struct {
    int64_t rows, panels, sides, all;
} cut;

/* What a thread works in. */
typedef struct {
    float *sums[2], *bias; /* of panels at a time, turn by turn */
    half *filled, *packed;
} room;

/* Pieces of 32 sums on their way to `out`, so many rows of so many panels; `row` and `panel` come next. */
typedef struct {
    const float *sums;
    const half *residual; /* or missing */
    half *out;
    int64_t residual_row, out_row, rows, panels, row, panel;
} finish;

/* 32 rows times a part of a panel; `lines` of `next` are fetched meanwhile, in each step. */
typedef struct {
    const half *x, *panel, *next;
    const float *begin; /* one row of sums to begin with, or 32 of them */
    float *sums;
    int64_t x_row, steps, begin_row, lines;
} part;

static int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/* Many rows are divided among the threads, few are not: then panels are. */
static cut cut_of(const linear_job *job) {
    int64_t panels = job->outputs / GROUP, rows = TASK_BYTES / (job->inputs * (int64_t)sizeof(half)), sides = 1;
    int by_rows = job->rows >= MANY_ROWS && !job->weight_row;
    rows = least(rows < 4 * GROUP ? 4 * GROUP : rows, TASK_ROWS);
    rows = by_rows ? least(rows, (job->rows + job->threads - 1) / job->threads) : job->weight_row ? job->rows : rows;
    int64_t blocks = (job->rows + rows - 1) / rows;
    while (!by_rows && blocks * sides < TASKS * job->threads && panels / sides > LEAST_PANELS) sides++;
    int64_t each = rounded_up((job->rows + blocks - 1) / blocks, GROUP);
    int64_t many = rounded_up((panels + sides - 1) / sides, TOGETHER);
    sides = (panels + many - 1) / many;
    return (cut){each, many, sides, (job->rows + each - 1) / each * sides};
}

/* Puts `r` into `memory`; returns the bytes that it takes. */
static int64_t lay_out(room *r, const linear_job *job, char *memory) {
    float *floats = (float *)memory;
    for (int i = 0; i < 2; i++, floats += TOGETHER * BLOCK) r->sums[i] = floats;
    r->bias = floats;
    r->filled = (half *)(floats + TOGETHER * GROUP);
    r->packed = r->filled + GROUP * job->inputs;
    return (char *)(r->packed + (job->weight_row ? TOGETHER * GROUP * job->inputs : 0)) - memory;
}

/* Steps at a time. */
static int64_t stride_of(int64_t steps) {
    int64_t parts = (steps + STRIDE - 1) / STRIDE;
    return (steps + parts - 1) / parts;
}

INLINE void finish_piece(finish *f, int with_gelu) {
    const float *sums = f->sums + (f->panel * GROUP + f->row) * GROUP;
    int64_t column = f->panel * GROUP;
    vec low = v_load(sums), high = v_load(sums + 16);
    if (with_gelu) low = v_gelu(low), high = v_gelu(high);
    if (f->residual) {
        const half *added = f->residual + f->row * f->residual_row + column;
        low = v_add(low, v_widen(added)), high = v_add(high, v_widen(added + 16));
    }
    v_round(f->out + f->row * f->out_row + column, low, high);
    if (++f->panel == f->panels) f->panel = 0, f->row++;
}

/* The part -> its sums, while `each` pieces of `before` are finished in a step. */
INLINE void multiply(const part *p, finish *before, int64_t each, int with_gelu) {
    begin_sums(p->begin, p->begin_row);
    for (int64_t s = 0; s < p->steps; s++) {
        const half *tiles = p->panel + s * 2 * TILE;
        add_products(p->x + s * GROUP, p->x_row, tiles, tiles + TILE, 1);
        for (int64_t i = 0; i < p->lines; i++) FETCH(p->next + (s * p->lines + i) * GROUP);
        for (int64_t i = 0; i < each && before->row < before->rows; i++) finish_piece(before, with_gelu);
    }
    store_sums(p->sums, GROUP);
}

/* Panels of a weight that is given by rows: `rows` of them, then zeros. */
UNITS static void pack_panels(half *to, const half *weight, int64_t row, int64_t rows, int64_t inputs, int64_t panels) {
    for (int64_t p = 0; p < panels; p++, weight += GROUP)
        for (int64_t s = 0; s < inputs; s += GROUP, to += TILE)
            for (int64_t i = s; i < s + GROUP; i += 2, to += GROUP) {
                const half *upper = i < rows ? weight + i * row : 0, *lower = i + 1 < rows ? weight + (i + 1) * row : 0;
                pack_values(to, to + TILE, upper, lower);
            }
}

/* The last rows of a task, which are no 32: with zeros. */
static void fill(half *to, const linear_job *job, int64_t end, int64_t rows) {
    memset(to, 0, (size_t)(GROUP * job->inputs) * sizeof(half));
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * job->inputs, job->x + (end - rows + i) * job->x_row, (size_t)job->inputs * sizeof(half));
}

/* bias times each row's own factor -> the sums of a panel. */
INLINE void scale_bias(float *sums, const float *bias, const float *times, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < GROUP; j += 16)
            v_store(sums + i * GROUP + j, v_mul(v_load(bias + j), v_all(times[i])));
}

/* Rows `first` to `end` of panels `low` to `high`. */
INLINE void one_task(const linear_job *job, room r, int64_t first, int64_t end, int64_t low, int64_t high,
                     int with_gelu) {
    int64_t steps = job->inputs / GROUP, stride = stride_of(steps), turn = 0;
    finish before = {0};
    if ((end - first) % GROUP) fill(r.filled, job, end, (end - first) % GROUP);
    for (int64_t some = low; some < high; some += TOGETHER) {
        int64_t panels = least(TOGETHER, high - some), column = some * GROUP, all_steps = panels * steps, lines = 0;
        const half *weight = r.packed, *next = 0;
        if (job->weight_row) {
            pack_panels(r.packed, job->weight + column, job->weight_row, job->weight_rows, job->inputs, panels);
        } else {
            int64_t rounds = all_steps * (rounded_up(end - first, GROUP) / GROUP);
            int64_t to_come = least(TOGETHER, high - some - panels) * steps * 2 * TILE / GROUP;
            weight = job->weight + some * steps * 2 * TILE, next = weight + all_steps * 2 * TILE;
            lines = (to_come + rounds - 1) / rounds;
        }
        for (int64_t i = 0; i < panels * GROUP; i += 16)
            v_store(r.bias + i, job->bias ? v_widen(job->bias + column + i) : v_all(0.0f));
        for (int64_t row = first; row < end; row += GROUP, turn ^= 1) {
            int64_t rows = least(GROUP, end - row), x_row = rows < GROUP ? job->inputs : job->x_row;
            int64_t each = (before.rows * before.panels + all_steps - 1) / all_steps;
            const half *x = rows < GROUP ? r.filled : job->x + row * job->x_row;
            for (int64_t s = 0; s < steps; s += stride)
                for (int64_t p = 0; p < panels; p++) {
                    float *own = r.sums[turn] + p * BLOCK;
                    part todo = {.x = x + s * GROUP, .x_row = x_row, .steps = least(stride, steps - s), .sums = own,
                                 .panel = weight + (p * steps + s) * 2 * TILE, .next = next, .lines = lines,
                                 .begin = own, .begin_row = GROUP};
                    if (s == 0 && job->bias_times) scale_bias(own, r.bias + p * GROUP, job->bias_times + row, rows);
                    if (s == 0 && !job->bias_times) todo.begin = r.bias + p * GROUP, todo.begin_row = 0;
                    multiply(&todo, &before, each, with_gelu);
                    next += todo.steps * lines * GROUP;
                }
            before = (finish){.sums = r.sums[turn], .rows = rows, .panels = panels,
                              .out = job->out + row * job->out_row + column, .out_row = job->out_row,
                              .residual = job->residual, .residual_row = job->residual_row};
            if (before.residual) before.residual += row * job->residual_row + column;
        }
    }
    while (before.row < before.rows) finish_piece(&before, with_gelu);
}

/* One copy of the code for each end. */
UNITS static void task_with_gelu(const linear_job *job, room r, int64_t first, int64_t end, int64_t low, int64_t high) {
    one_task(job, r, first, end, low, high, 1);
}

UNITS static void plain_task(const linear_job *job, room r, int64_t first, int64_t end, int64_t low, int64_t high) {
    one_task(job, r, first, end, low, high, 0);
}

UNITS static void all_tasks(const linear_job *job, cut c, int64_t *threads, int64_t *tasks) {
    room r;
    tile_setting before;
    lay_out(&r, job, (char *)job->room + __atomic_fetch_add(threads, 1, __ATOMIC_RELAXED) * job->room_bytes);
    units_begin(&before);
    for (;;) {
        int64_t task = __atomic_fetch_add(tasks, 1, __ATOMIC_RELAXED);
        if (task >= c.all) break;
        int64_t first = task / c.sides * c.rows, low = task % c.sides * c.panels;
        int64_t end = least(first + c.rows, job->rows), high = least(low + c.panels, job->outputs / GROUP);
        (job->with_gelu ? task_with_gelu : plain_task)(job, r, first, end, low, high);
    }
    units_end(&before);
}

void ENTRY(const linear_job *job) {
    cut c = cut_of(job);
    int64_t threads = 0, tasks = 0;
#pragma omp parallel num_threads((int)job->threads)
    all_tasks(job, c, &threads, &tasks);
}

int64_t ROOM(const linear_job *job) {
    room r;
    return lay_out(&r, job, 0);
}
