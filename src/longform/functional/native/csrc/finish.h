/* What follows a product: its ending, a residual, rounding; included after a kind of units, linear.h and tiles.h. */
#include "gelu.h"

/* Pieces of 32 sums on their way to `out`, so many rows of so many panels; `row` and `panel` come next. */
typedef struct {
    const float *sums;
    const half *residual; /* or missing */
    half *out, *before_gelu;
    int64_t residual_row, out_row, before_row, rows, panels, row, panel;
} finish;

/* The next piece. */
INLINE void finish_piece(finish *f, ending end) {
    const float *sums = f->sums + (f->panel * GROUP + f->row) * GROUP;
    int64_t column = f->panel * GROUP;
    half *before = f->before_gelu ? f->before_gelu + f->row * f->before_row + column : 0;
    vec low = v_load(sums), high = v_load(sums + 16);
    if (end == GELU) {
        if (before) v_round(before, low, high);
        low = v_gelu(low), high = v_gelu(high);
    }
    if (end == SLOPE) {
        low = v_mul(low, v_gelu_slope(v_widen(before)));
        high = v_mul(high, v_gelu_slope(v_widen(before + 16)));
    }
    if (f->residual) {
        const half *added = f->residual + f->row * f->residual_row + column;
        low = v_add(low, v_widen(added)), high = v_add(high, v_widen(added + 16));
    }
    v_round(f->out + f->row * f->out_row + column, low, high);
    if (++f->panel == f->panels) f->panel = 0, f->row++;
}

/* Fetches what finishing a piece will touch. */
INLINE void fetch_piece(finish *f, ending end) {
    int64_t column = f->panel * GROUP;
    if (f->before_gelu && end == SLOPE) FETCH(f->before_gelu + f->row * f->before_row + column);
    if (f->before_gelu && end == GELU) FETCH_OUT(f->before_gelu + f->row * f->before_row + column);
    FETCH_OUT(f->out + f->row * f->out_row + column);
    if (++f->panel == f->panels) f->panel = 0, f->row++;
}
