/* A linear layer by products of tiles.
 *
 * A task is some rows and some panels of 32 outputs. Some panels at a time meet all rows, 32 by 32, while the next
 * panels are made ready. What follows a product (GELU, a residual, rounding) is done while the next ones are
 * multiplied: tiles and vectors are units of their own, and work at once. What streams from the second cache to the
 * nearest one decides the speed: rows meet `STRIDE` steps of inputs at a time, so that they stay there, and panels pass
 * it by. */
#include <string.h>

#include "units.h"
#include "tiles.h"
#include "finish.h"
#include "panels.h"

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
    bf16 *filled, *packed[2];
    cut cut;
} workspace;

/* 32 rows times a part of a panel. */
typedef struct {
    const bf16 *x, *panel, *later; /* `later`: rows that come next, to be fetched, or none */
    const float *begin; /* one row of sums to begin with, or 32 of them */
    float *sums;
    int64_t x_row, steps, begin_row;
} part;

/* Many rows are divided among the threads, few are not: then panels are, and those that are packed here. */
static cut cut_of(const linear_job *job) {
    int64_t panels = job->outputs / GROUP, rows = TASK_BYTES / (job->inputs * (int64_t)sizeof(bf16)), sides = 1;
    int by_rows = job->rows >= MANY_ROWS && job->kind == TILES, floats = job->kind != TILES;
    rows = least(rows < 4 * GROUP ? 4 * GROUP : rows, TASK_ROWS);
    if (by_rows) rows = least(rows, divided(job->rows, job->threads));
    int64_t blocks = divided(job->rows, rows);
    while (!by_rows && !floats && blocks * sides < TASKS * job->threads && panels / sides > LEAST_PANELS) sides++;
    if (floats) sides = least(job->threads, divided(panels, TOGETHER));
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
    bf16 *packed = w->filled + GROUP * job->inputs;
    int64_t some = job->kind == TILES ? 0 : TOGETHER * GROUP * job->inputs;
    for (int i = 0; i < 2; i++, packed += some) w->packed[i] = packed;
    return (char *)packed - memory;
}

/* Steps at a time. */
static int64_t stride_of(int64_t steps) {
    return divided(steps, divided(steps, STRIDE));
}

/* The part -> its sums, while in each step `each` pieces of `before` are finished, as many `after` are fetched, and
 * `units` of `next` made ready. */
INLINE void multiply(const part *p, finish *before, finish *after, int64_t each, panels *next, int64_t units,
                     epilogue end) {
    begin_sums(p->begin, p->begin_row);
    for (int64_t s = 0; s < p->steps; s++) {
        const bf16 *tiles = p->panel + s * 2 * TILE;
        add_products(p->x + s * GROUP, p->x_row, tiles, tiles + TILE, 1);
        make_ready(next, units);
        for (int64_t i = 0; i < GROUP / TOGETHER && p->later; i++) FETCH(p->later + i * p->x_row + s * GROUP);
        for (int64_t i = 0; i < each && before->row < before->rows; i++) finish_piece(before, end);
        for (int64_t i = 0; i < each && after->row < after->rows; i++) fetch_piece(after, end);
    }
    store_sums(p->sums, GROUP);
}

/* The last rows of a task, which are no 32: with zeros. */
static void fill(bf16 *to, const linear_job *job, int64_t end, int64_t rows) {
    memset(to, 0, (size_t)(GROUP * job->inputs) * sizeof(bf16));
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * job->inputs, job->x + (end - rows + i) * job->x_row, (size_t)job->inputs * sizeof(bf16));
}

/* The bias of some columns, or zeros. */
INLINE void read_bias(float *to, const linear_job *job, int64_t column, int64_t many) {
    for (int64_t i = 0; i < many; i += 16)
        if (!job->bias) v_store(to + i, v_all(0.0f));
        else if (job->kind != TILES) v_store(to + i, v_load((const float *)job->bias + column + i));
        else v_store(to + i, v_widen((const bf16 *)job->bias + column + i));
}

/* Some rows of some panels. */
INLINE void one_task(workspace *w, const linear_job *job, int64_t task, epilogue end) {
    int64_t first = task / w->cut.sides * w->cut.rows, last = least(first + w->cut.rows, job->rows);
    int64_t low = task % w->cut.sides * w->cut.panels, high = least(low + w->cut.panels, job->outputs / GROUP);
    int64_t steps = job->inputs / GROUP, stride = stride_of(steps), buffer = 0;
    int64_t groups = whole(last - first);
    finish before = {0};
    panels next = panels_of(job, w->packed[0], low, least(TOGETHER, high - low));
    if ((last - first) % GROUP) fill(w->filled, job, last, (last - first) % GROUP);
    if (job->kind != TILES) make_ready(&next, units_of(&next));
    for (int64_t some = low, side = 1; some < high; some += TOGETHER, side ^= 1) {
        int64_t many = least(TOGETHER, high - some), column = some * GROUP, all_steps = many * steps;
        const bf16 *weight = next.tiles;
        next = panels_of(job, w->packed[side], some + many, least(TOGETHER, high - some - many));
        int64_t units = divided(units_of(&next), all_steps * groups);
        read_bias(w->bias, job, column, many * GROUP);
        for (int64_t row = first; row < last; row += GROUP, buffer ^= 1) {
            int64_t rows = least(GROUP, last - row), x_row = rows < GROUP ? job->inputs : job->x_row;
            int64_t each = divided(GROUP * TOGETHER, all_steps);
            const bf16 *x = rows < GROUP ? w->filled : job->x + row * job->x_row;
            finish after = {.sums = w->sums[buffer], .rows = rows, .panels = many,
                            .out = job->out + row * job->out_row + column, .out_row = job->out_row,
                            .residual = job->residual, .residual_row = job->residual_row,
                            .before_gelu = job->before_gelu, .before_row = job->before_row};
            if (after.residual) after.residual += row * job->residual_row + column;
            if (after.before_gelu) after.before_gelu += row * job->before_row + column;
            finish ahead = after;
            if (job->kind == TILES) ahead.rows = 0; /* in inference fetching these brings nothing */
            for (int64_t s = 0; s < steps; s += stride)
                for (int64_t p = 0; p < many; p++) {
                    float *own = w->sums[buffer] + p * BLOCK;
                    part todo = {.x = x + s * GROUP, .x_row = x_row, .steps = least(stride, steps - s), .sums = own,
                                 .panel = weight + (p * steps + s) * 2 * TILE, .begin = own, .begin_row = GROUP};
                    if (job->kind != TILES && some == low && row + 2 * GROUP <= last)
                        todo.later = todo.x + (GROUP + p * GROUP / TOGETHER) * x_row;
                    if (s == 0) todo.begin = w->bias + p * GROUP, todo.begin_row = 0;
                    multiply(&todo, &before, &ahead, each, &next, units, end);
                }
            before = after;
        }
    }
    while (before.row < before.rows) finish_piece(&before, end);
}

/* One copy of the code for each epilogue. */
UNITS static void gelu_task(workspace *w, const linear_job *job, int64_t task) { one_task(w, job, task, GELU); }
UNITS static void slope_task(workspace *w, const linear_job *job, int64_t task) { one_task(w, job, task, GELU_SLOPE); }
UNITS static void plain_task(workspace *w, const linear_job *job, int64_t task) { one_task(w, job, task, NO_EPILOGUE); }

static int64_t tasks_of(const linear_job *job) { return cut_of(job).blocks * cut_of(job).sides; }

UNITS static void do_task(workspace *w, const linear_job *job, int64_t task) {
    (job->epilogue == GELU ? gelu_task : job->epilogue == GELU_SLOPE ? slope_task : plain_task)(w, job, task);
}

#define JOB linear_job
#define ENTRY NAMED(linear)
#define WORKSPACE NAMED(linear_workspace)
#include "tasks.h"
