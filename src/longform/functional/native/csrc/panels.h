/* The weights of some panels, made ready unit by unit while those before them are multiplied; included after units.h
 * and tiles.h. Tiles are only fetched, a line a unit. Of rows of W a unit is two of them of a panel, of rows of its
 * transpose it is 16 of them of a pair of tiles. */
#define AHEAD 16 /* units whose floats are fetched before they are read */

typedef struct {
    const bf16 *tiles;
    bf16 *to; /* the same, where they are made */
    const char *from;
    int64_t kind, row, steps; /* `row` in bytes */
    int64_t sides, many, side, at;  /* sides (panels, or 16 rows of a transpose) of so many units; the next unit */
} panels;

static panels panels_of(const linear_job *job, bf16 *packed, int64_t panel, int64_t count) {
    int64_t steps = job->inputs / GROUP, kind = job->kind;
    panels p = {.tiles = packed, .to = packed, .from = job->weight, .kind = kind, .row = job->weight_row * 4,
                .steps = steps, .sides = count, .many = job->inputs / 2};
    if (kind == TILES) {
        p.from += panel * steps * 2 * TILE * 2, p.tiles = (const bf16 *)p.from;
        p.many = steps * 2 * TILE / GROUP;
    } else if (kind == FLOAT32_TRANSPOSED) {
        p.from += panel * GROUP * p.row, p.sides = 2 * count, p.many = steps;
    } else {
        p.from += panel * GROUP * 4;
    }
    return p;
}

static inline int64_t units_of(const panels *p) { return p->sides * p->many; }

/* Two rows, of a panel, as floats. */
UNITS static void round_pair(panels *p, int64_t panel, int64_t row, bf16 *to) {
    const float *upper = (const float *)(p->from + panel * GROUP * 4 + row * p->row), *lower = upper + p->row / 4;
    bf16 rounded[2 * GROUP];
    for (int64_t i = 0; i < 4; i++) FETCH((const char *)upper + 2 * AHEAD * p->row + (i & 1) * 64 + (i >> 1) * p->row);
    v_round(rounded, v_load(upper), v_load(upper + 16));
    v_round(rounded + GROUP, v_load(lower), v_load(lower + 16));
    pack_values(to, to + TILE, rounded, rounded + GROUP);
}

/* 16 rows of a transpose, from a column on. */
UNITS static void round_transposed(panels *p, int64_t row, int64_t column, bf16 *to) {
    bf16 rounded[TILE];
    for (int64_t i = 0; i < 16; i++) {
        const float *from = (const float *)(p->from + (row + i) * p->row) + column;
        FETCH(from + 4 * GROUP);
        FETCH(from + 4 * GROUP + 16);
        v_round(rounded + i * GROUP, v_load(from), v_load(from + 16));
    }
    pack_keys(to, rounded, GROUP, 16);
}

INLINE void pack_unit(panels *p) {
    int64_t row = 2 * p->at;
    if (p->kind == FLOAT32_TRANSPOSED) {
        bf16 *to = p->to + (p->side / 2 * p->steps + p->at) * 2 * TILE + p->side % 2 * TILE;
        round_transposed(p, p->side * 16, p->at * GROUP, to);
    } else {
        round_pair(p, p->side, row, p->to + (p->side * p->steps + row / GROUP) * 2 * TILE + row % GROUP * 16);
    }
}

/* So many units more, where there are any. */
INLINE void make_ready(panels *p, int64_t units) {
    for (; units > 0 && p->side < p->sides; units--) {
        if (p->kind == TILES) FETCH(p->from + (p->side * p->many + p->at) * 64);
        else pack_unit(p);
        if (++p->at == p->many) p->at = 0, p->side++;
    }
}
