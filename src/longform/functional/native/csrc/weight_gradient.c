/* The gradient of a linear layer's weight by products of tiles.
 *
 * A task is some outputs. Of some rows at a time it transposes their gradients, which stay in the second cache, and
 * adds up the bias's; then panels of 32 inputs, laid out in pairs of rows, meet all of them. */
#include <string.h>

#include "units.h"
#include "tiles.h"

#define CHUNK 2048        /* rows at a time, at most */
#define PART_BYTES 800000 /* of transposed gradients */
#define STRIDE 16         /* steps of 32 rows for which rows of these stay in the nearest cache */
#define TOGETHER 2        /* panels at a time */
#define ASIDE 32          /* so that rows begin in different sets of a cache */
#define BLOCK (GROUP * GROUP)

typedef struct {
    bf16 *transposed, *packed;
    float *sums[2]; /* of panels at a time, in turn */
} workspace;

/* Sums on their way to `out`: of 32 rows and some panels; `row` and `panel` come next. */
typedef struct {
    const float *sums;
    float *out;
    int64_t out_row, panels, row, panel;
    int more;
} leaving;

/* Rows at a time: as even as can be. */
static int64_t chunk_of(const weight_gradient_job *job) {
    int64_t rows = divided(job->rows, divided(job->rows, CHUNK));
    return rows ? rounded_up(rows, GROUP) : GROUP;
}

/* As many for each thread, and as few as the cache allows. */
static int64_t tasks_of(const weight_gradient_job *job) {
    int64_t groups = job->outputs / GROUP, most = PART_BYTES / (GROUP * chunk_of(job) * (int64_t)sizeof(bf16));
    int64_t rounds = divided(groups, most * job->threads);
    return least(rounds * job->threads, groups);
}

static int64_t lay_out(workspace *w, const weight_gradient_job *job, char *memory) {
    int64_t chunk = chunk_of(job), tasks = tasks_of(job), groups = divided(job->outputs / GROUP, tasks);
    for (int i = 0; i < 2; i++) w->sums[i] = (float *)memory + i * TOGETHER * BLOCK;
    w->transposed = (bf16 *)(w->sums[1] + TOGETHER * BLOCK);
    w->packed = w->transposed + groups * GROUP * (chunk + ASIDE);
    return (char *)(w->packed + TOGETHER * GROUP * chunk) - memory;
}

/* So many rows of the gradients of `groups` of 32 outputs -> transposed; their sums. */
UNITS static void transpose_some(bf16 *to, int64_t pitch, float *sums, const bf16 *from, int64_t row, int64_t rows,
                            int64_t groups) {
    for (int64_t first = 0; first < rows; first += GROUP)
        for (int64_t g = 0; g < groups; g++) {
            const bf16 *block = from + first * row + g * GROUP;
            int64_t there = least(GROUP, rows - first);
            transpose(to + g * GROUP * pitch + first, pitch, block, row, there);
            if (!sums) continue;
            vec low = v_load(sums + g * GROUP), high = v_load(sums + g * GROUP + 16);
            for (int64_t i = 0; i < there; i++, block += row)
                low = v_add(low, v_widen(block)), high = v_add(high, v_widen(block + 16));
            v_store(sums + g * GROUP, low), v_store(sums + g * GROUP + 16, high);
        }
}

/* So many rows of `panels` of 32 inputs -> tiles, panel by panel. */
UNITS static void pack_some(bf16 *to, const bf16 *from, int64_t row, int64_t rows, int64_t panels) {
    for (int64_t i = 0; i < whole(rows) * GROUP; i += 2)
        for (int64_t p = 0; p < panels; p++) {
            bf16 *tile = to + (p * whole(rows) + i / GROUP) * 2 * TILE + i % GROUP * 16;
            const bf16 *upper = from + i * row + p * GROUP;
            pack_values(tile, tile + TILE, i < rows ? upper : 0, i + 1 < rows ? upper + row : 0);
        }
}

/* Puts rows of sums to `out`, past the caches: it is read when all of a step's gradients are there. */
INLINE void leave(leaving *l, int64_t pieces) {
    for (int64_t i = 0; i < pieces && l->row < GROUP; i++) {
        const float *sums = l->sums + (l->panel * GROUP + l->row) * GROUP;
        float *out = l->out + l->row * l->out_row + l->panel * GROUP;
        vec low = v_load(sums), high = v_load(sums + 16);
        if (l->more) low = v_add(low, v_load(out)), high = v_add(high, v_load(out + 16));
        v_store_past(out, low), v_store_past(out + 16, high);
        if (++l->panel == l->panels) l->panel = 0, l->row++;
    }
}

/* 32 outputs times `panels` of inputs -> `sums`, while those of `before` are put away. */
UNITS static void one_group(float *sums, const bf16 *transposed, int64_t pitch, const bf16 *packed, int64_t steps,
                            int64_t panels, leaving *before) {
    int64_t pieces = divided(GROUP * TOGETHER, steps * panels);
    for (int64_t first = 0; first < steps; first += STRIDE)
        for (int64_t p = 0; p < panels; p++) {
            const bf16 *tiles = packed + (p * steps + first) * 2 * TILE, *own = transposed + first * GROUP;
            if (first) begin_sums(sums + p * BLOCK, GROUP);
            else clear_sums();
            for (int64_t s = 0; s < least(STRIDE, steps - first); s++, own += GROUP, tiles += 2 * TILE) {
                add_products(own, pitch, tiles, tiles + TILE, 1);
                leave(before, pieces);
            }
            store_sums(sums + p * BLOCK, GROUP);
        }
    leave(before, GROUP * TOGETHER);
}

UNITS static void do_task(workspace *w, const weight_gradient_job *job, int64_t task) {
    int64_t groups = job->outputs / GROUP, all = tasks_of(job);
    int64_t first = groups * task / all, end = groups * (task + 1) / all; /* of groups of 32 outputs */
    int64_t chunk = chunk_of(job), pitch = chunk + ASIDE, panels = job->inputs / GROUP, buffer = 0;
    leaving before = {.row = GROUP};
    float *sums = job->d_bias ? job->d_bias + first * GROUP : 0;
    size_t outputs = (size_t)((end - first) * GROUP) * sizeof(float);
    if (sums) memset(sums, 0, outputs);
    if (!job->rows) memset(job->d_weight + first * GROUP * job->inputs, 0, outputs * (size_t)job->inputs);
    for (int64_t row = 0; row < job->rows; row += chunk) {
        int64_t rows = least(chunk, job->rows - row);
        const bf16 *d_out = job->d_out + row * job->d_out_row + first * GROUP;
        transpose_some(w->transposed, pitch, sums, d_out, job->d_out_row, rows, end - first);
        for (int64_t some = 0; some < panels; some += TOGETHER) {
            int64_t many = least(TOGETHER, panels - some);
            pack_some(w->packed, job->x + row * job->x_row + some * GROUP, job->x_row, rows, many);
            for (int64_t g = first; g < end; g++, buffer ^= 1) {
                one_group(w->sums[buffer], w->transposed + (g - first) * GROUP * pitch, pitch, w->packed, whole(rows),
                          many, &before);
                before = (leaving){.sums = w->sums[buffer], .out = job->d_weight + (g * job->inputs + some) * GROUP,
                                   .out_row = job->inputs, .panels = many, .more = row > 0};
            }
        }
        leave(&before, GROUP * TOGETHER);
    }
}

#define JOB weight_gradient_job
#define ENTRY NAMED(weight_gradient)
#define WORKSPACE NAMED(weight_gradient_workspace)
#include "tasks.h"
