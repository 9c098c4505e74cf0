/* Products of tiles; included after units.h. Tiles 0 to 3 are 32 rows of 32 sums. */
#define GROUP 32 /* rows, and columns, at a time */
#define TILE 512 /* bf16 numbers of a tile */

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* x / by rounded up; 0 by anything is 0, so that a job without rows divides by nothing. */
static inline int64_t divided(int64_t x, int64_t by) { return x ? (x + by - 1) / by : 0; }
static inline int64_t rounded_up(int64_t x, int64_t to) { return divided(x, to) * to; }

/* The next `bytes` of the memory `at`, from the start of a cache line. */
static inline char *take(char **at, size_t bytes) {
    char *out = *at;
    *at += (bytes + 63) / 64 * 64;
    return out;
}

/* Groups of 32 that hold so many rows. */
static inline int64_t whole(int64_t rows) { return divided(rows, GROUP); }

INLINE void clear_sums(void) {
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
}

/* The sums to 32 floats of each row, which are so many apart: 0 for one row that all have. */
INLINE void begin_sums(const float *from, int64_t row) {
    TILE_LOAD(0, from, row * 4);
    TILE_LOAD(1, from + 16, row * 4);
    TILE_LOAD(2, from + 16 * row, row * 4);
    TILE_LOAD(3, from + 16 * row + 16, row * 4);
}

/* 32 rows of 32 bf16 numbers times two tiles, added to the sums. `once`: the tiles will not be met again soon, and are
 * read past the nearest cache. */
INLINE void add_products(const bf16 *rows, int64_t row, const bf16 *first, const bf16 *second, int once) {
    TILE_LOAD(4, rows, row * 2);
    if (once) TILE_STREAM(6, first, 64);
    else TILE_LOAD(6, first, 64);
    TILE_LOAD(5, rows + 16 * row, row * 2);
    if (once) TILE_STREAM(7, second, 64);
    else TILE_LOAD(7, second, 64);
    TILE_DOT(0, 4, 6);
    TILE_DOT(1, 4, 7);
    TILE_DOT(2, 5, 6);
    TILE_DOT(3, 5, 7);
}

INLINE void store_sums(float *to, int64_t row) {
    TILE_STORE(0, to, row * 4);
    TILE_STORE(1, to + 16, row * 4);
    TILE_STORE(2, to + 16 * row, row * 4);
    TILE_STORE(3, to + 16 * row + 16, row * 4);
}

/* 32 x 32 bf16 numbers -> transposed; `rows` are there, the others 0. */
UNITS static inline void transpose(bf16 *to, int64_t to_row, const bf16 *from, int64_t from_row, int64_t rows) {
    bf16 pairs[2 * TILE], transposed[TILE];
    for (int64_t i = 0; i < GROUP; i += 2)
        pack_values(pairs + i * 16, pairs + TILE + i * 16, i < rows ? from + i * from_row : 0,
                    i + 1 < rows ? from + (i + 1) * from_row : 0);
    for (int64_t side = 0; side < 2; side++) {
        pack_keys(transposed, pairs + side * TILE, 32, 16);
        for (int64_t i = 0; i < 16; i++) memcpy(to + (16 * side + i) * to_row, transposed + 32 * i, 64);
    }
}
