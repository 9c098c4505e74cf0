/* The weights of some panels, made ready unit by unit while those before them are multiplied; included after a kind of
 * units, linear.h and tiles.h. Tiles are only fetched, a line a unit. Of rows of W a unit is two of them of a panel, of
 * rows of its transpose it is 16 of them of a pair of tiles. */
#define AHEAD 16 /* units whose floats are fetched before they are read */

typedef struct {
    const half *ready; /* the tiles */
    half *to;
    const char *from;
    int64_t kind, row, rows, inputs, unit, units; /* `row` in bytes; `rows` that are there */
    int64_t side, at, many; /* the next unit: of which panel or 16 rows, and which of so many */
} panels;

static panels panels_of(const linear_job *job, half *packed, int64_t panel, int64_t many) {
    int64_t steps = job->inputs / GROUP, kind = job->kind, size = kind == TILES || kind == HALVES ? 2 : 4;
    panels p = {.ready = packed, .to = packed, .kind = kind, .row = job->weight_row * size, .inputs = job->inputs,
                .rows = kind == HALVES ? job->weight_rows : job->inputs, .from = job->weight};
    if (kind == TILES) {
        p.from += panel * steps * 2 * TILE * size, p.ready = (const half *)p.from;
        p.units = many * steps * 2 * TILE / GROUP;
    } else if (kind == TURNED_FLOATS) {
        p.from += panel * GROUP * p.row, p.many = steps, p.units = many * steps * 2;
    } else {
        p.from += panel * GROUP * size, p.many = job->inputs / 2, p.units = many * p.many;
    }
    return p;
}

/* Two rows, of a panel, as floats. */
UNITS static void round_pair(panels *p, int64_t panel, int64_t row, half *to) {
    const float *upper = (const float *)(p->from + panel * GROUP * 4 + row * p->row), *lower = upper + p->row / 4;
    half rounded[2 * GROUP];
    for (int64_t i = 0; i < 4; i++) FETCH((const char *)upper + 2 * AHEAD * p->row + (i & 1) * 64 + (i >> 1) * p->row);
    v_round(rounded, v_load(upper), v_load(upper + 16));
    v_round(rounded + GROUP, v_load(lower), v_load(lower + 16));
    pack_values(to, to + TILE, rounded, rounded + GROUP);
}

/* 16 rows of a transpose, from a column on. */
UNITS static void round_turned(panels *p, int64_t row, int64_t column, half *to) {
    half rounded[TILE];
    for (int64_t i = 0; i < 16; i++) {
        const float *from = (const float *)(p->from + (row + i) * p->row) + column;
        FETCH(from + 4 * GROUP);
        FETCH(from + 4 * GROUP + 16);
        v_round(rounded + i * GROUP, v_load(from), v_load(from + 16));
    }
    pack_keys(to, rounded, GROUP, 16);
}

INLINE void pack_unit(panels *p) {
    int64_t steps = p->inputs / GROUP, row = 2 * p->at, half_way = p->side % 2 * TILE;
    if (p->kind == TURNED_FLOATS) {
        round_turned(p, p->side * 16, p->at * GROUP, p->to + (p->side / 2 * steps + p->at) * 2 * TILE + half_way);
    } else {
        half *to = p->to + (p->side * steps + row / GROUP) * 2 * TILE + row % GROUP * 16;
        const half *upper = (const half *)(p->from + p->side * GROUP * 2 + row * p->row);
        if (p->kind == FLOATS) round_pair(p, p->side, row, to);
        else pack_values(to, to + TILE, row < p->rows ? upper : 0, row + 1 < p->rows ? upper + p->row / 2 : 0);
    }
    if (++p->at == p->many) p->at = 0, p->side++;
}

/* So many units more, where there are any. */
INLINE void make_ready(panels *p, int64_t units) {
    int64_t end = least(p->unit + units, p->units);
    for (; p->unit < end; p->unit++)
        if (p->kind == TILES) FETCH(p->from + p->unit * 64);
        else pack_unit(p);
}
