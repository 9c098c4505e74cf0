/* A linear layer by products of tiles.
 *
 * A task is some rows and some panels of 32 outputs. Some panels at a time meet all rows, 32 by 32, while the next
 * panels are fetched. What follows a product (GELU, a residual, rounding) is done while the next ones are
 * multiplied: tiles and vectors are units of their own, and work at once. What streams from the second cache to the
 * nearest one decides the speed: rows meet `STRIDE` steps of inputs at a time, so that they stay there, and panels pass
 * it by. */
#include <string.h>

#include "units.h"
#include "tiles.h"
#include "finish.h"

#define MANY_ROWS 256
#define TASK_ROWS 512     /* at most */
#define TASK_BYTES 800000 /* of x, which stay in the second cache while panels pass by */
#define TASKS 2           /* of each thread, at least */
#define LEAST_PANELS 4    /* of a task */
#define STRIDE 12         /* steps, of 32 inputs each */
#define TOGETHER 2        /* panels at a time */
#define BLOCK (GROUP * GROUP)

/* Of a task: so many rows, in `blocks` of them, and panels, in `sides` of them. */
typedef struct {
    int64_t rows, panels, blocks, sides;
} cut;

/* What a thread works in. */
typedef struct {
    float *sums[2], *bias; /* of panels at a time, in buffer */
    bf16 *filled;
    cut cut;
} workspace;

/* 32 rows times a part of a panel. */
typedef struct {
    const bf16 *x, *panel;
    const float *begin; /* one row of sums to begin with, or 32 of them */
    float *sums;
    int64_t x_row, steps, begin_row;
} part;

/* Weights of the next panels, to be fetched: so many lines from `at` on, `each` in a step. */
typedef struct {
    const char *at;
    int64_t lines, each;
} coming;

/* Many rows are divided among the threads, few are not: then panels are. */
static cut cut_of(const linear_job *job) {
    int64_t panels = job->outputs / GROUP, rows = TASK_BYTES / (job->inputs * (int64_t)sizeof(bf16)), sides = 1;
    int by_rows = job->rows >= MANY_ROWS;
    rows = least(rows < 4 * GROUP ? 4 * GROUP : rows, TASK_ROWS);
    if (by_rows) rows = least(rows, divided(job->rows, job->threads));
    int64_t blocks = divided(job->rows, rows);
    while (!by_rows && blocks * sides < TASKS * job->threads && panels / sides > LEAST_PANELS) sides++;
    int64_t each = rounded_up(divided(job->rows, blocks), GROUP);
    int64_t many = rounded_up(divided(panels, sides), TOGETHER);
    return (cut){each, many, divided(job->rows, each), divided(panels, many)};
}

/* Puts `w` into `memory`; returns the bytes that it takes. */
static int64_t lay_out(workspace *w, const linear_job *job, char *memory) {
    float *floats = (float *)memory;
    w->cut = cut_of(job);
    for (int i = 0; i < 2; i++, floats += TOGETHER * BLOCK) w->sums[i] = floats;
    w->bias = floats;
    w->filled = (bf16 *)(floats + TOGETHER * GROUP);
    return (char *)(w->filled + GROUP * job->inputs) - memory;
}

/* Steps at a time. */
static int64_t stride_of(int64_t steps) {
    return divided(steps, divided(steps, STRIDE));
}

/* The part -> its sums, while in each step `each` pieces of `before` are finished and some of `next` fetched. */
INLINE void multiply(const part *p, finish *before, int64_t each, coming *next, int gelu) {
    begin_sums(p->begin, p->begin_row);
    for (int64_t s = 0; s < p->steps; s++) {
        const bf16 *tiles = p->panel + s * 2 * TILE;
        add_products(p->x + s * GROUP, p->x_row, tiles, tiles + TILE, 1);
        for (int64_t i = 0; i < next->each && next->lines > 0; i++, next->lines--, next->at += 64) FETCH(next->at);
        for (int64_t i = 0; i < each && before->row < before->rows; i++) finish_piece(before, gelu);
    }
    store_sums(p->sums, GROUP);
}

/* The last rows of a task, which are no 32: with zeros. */
static void fill(bf16 *to, const linear_job *job, int64_t end, int64_t rows) {
    memset(to, 0, (size_t)(GROUP * job->inputs) * sizeof(bf16));
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * job->inputs, job->x + (end - rows + i) * job->x_row, (size_t)job->inputs * sizeof(bf16));
}

/* Some rows of some panels. */
INLINE void one_task(workspace *w, const linear_job *job, int64_t task, int gelu) {
    int64_t first = task / w->cut.sides * w->cut.rows, last = least(first + w->cut.rows, job->rows);
    int64_t low = task % w->cut.sides * w->cut.panels, high = least(low + w->cut.panels, job->outputs / GROUP);
    int64_t steps = job->inputs / GROUP, stride = stride_of(steps), buffer = 0, panel = steps * 2 * TILE;
    finish before = {0};
    if ((last - first) % GROUP) fill(w->filled, job, last, (last - first) % GROUP);
    for (int64_t some = low; some < high; some += TOGETHER) {
        int64_t many = least(TOGETHER, high - some), column = some * GROUP, all_steps = many * steps;
        const bf16 *weight = job->weight + some * panel;
        coming next = {(const char *)(weight + many * panel), least(TOGETHER, high - some - many) * panel / GROUP, 0};
        next.each = divided(next.lines, all_steps * whole(last - first));
        for (int64_t i = 0; i < many * GROUP; i += 16)
            v_store(w->bias + i, job->bias ? v_widen(job->bias + column + i) : v_all(0.0f));
        for (int64_t row = first; row < last; row += GROUP, buffer ^= 1) {
            int64_t rows = least(GROUP, last - row), x_row = rows < GROUP ? job->inputs : job->x_row;
            int64_t each = divided(GROUP * TOGETHER, all_steps);
            const bf16 *x = rows < GROUP ? w->filled : job->x + row * job->x_row;
            finish after = {.sums = w->sums[buffer], .rows = rows, .panels = many,
                            .out = job->out + row * job->out_row + column, .out_row = job->out_row,
                            .residual = job->residual, .residual_row = job->residual_row};
            if (after.residual) after.residual += row * job->residual_row + column;
            for (int64_t s = 0; s < steps; s += stride)
                for (int64_t p = 0; p < many; p++) {
                    float *own = w->sums[buffer] + p * BLOCK;
                    part todo = {.x = x + s * GROUP, .x_row = x_row, .steps = least(stride, steps - s), .sums = own,
                                 .panel = weight + (p * steps + s) * 2 * TILE, .begin = own, .begin_row = GROUP};
                    if (s == 0) todo.begin = w->bias + p * GROUP, todo.begin_row = 0;
                    multiply(&todo, &before, each, &next, gelu);
                }
            before = after;
        }
    }
    while (before.row < before.rows) finish_piece(&before, gelu);
}

/* One copy of the code with GELU, and one without. */
UNITS static void gelu_task(workspace *w, const linear_job *job, int64_t task) { one_task(w, job, task, 1); }
UNITS static void plain_task(workspace *w, const linear_job *job, int64_t task) { one_task(w, job, task, 0); }

static int64_t tasks_of(const linear_job *job) { return cut_of(job).blocks * cut_of(job).sides; }

UNITS static void do_task(workspace *w, const linear_job *job, int64_t task) {
    (job->gelu ? gelu_task : plain_task)(w, job, task);
}

#define JOB linear_job
#define ENTRY NAMED(linear)
#define WORKSPACE NAMED(linear_workspace)
#include "tasks.h"
