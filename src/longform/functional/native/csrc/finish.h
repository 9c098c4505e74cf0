/* What follows a product: GELU, a residual, rounding; included after units.h and tiles.h. */

/* P(X > size) for X from a normal distribution, size >= 0: off by 2e-4 of itself at most where it is over 1e-7. Its
 * logarithm to base 2 is the polynomial. */
INLINE vec v_normal_tail(vec size) {
    vec power = v_fma(size, v_all(-1.50745136e-06f), v_all(5.54163497e-05f));
    power = v_fma(power, size, v_all(-8.87634815e-04f));
    power = v_fma(power, size, v_all(8.37159288e-03f));
    power = v_fma(power, size, v_all(-5.37566869e-02f));
    power = v_fma(power, size, v_all(-4.58591541e-01f));
    power = v_fma(power, size, v_all(-1.15123010e+00f));
    power = v_fma(power, size, v_all(-9.99993901e-01f));
    return v_exp2(power);
}

/* max(x, 0) - |x| P(X > |x|), off by 3e-7 at most. */
INLINE vec v_gelu(vec x) {
    vec size = v_min(v_abs(x), v_all(12.0f));
    return v_sub(v_max(v_all(0.0f), x), v_mul(size, v_normal_tail(size)));
}

/* Pieces of 32 sums on their way to `out`, so many rows of so many panels; `row` and `panel` come next. */
typedef struct {
    const float *sums;
    const bf16 *residual; /* or missing */
    bf16 *out;
    int64_t residual_row, out_row, rows, panels, row, panel;
} finish;

/* The next piece. */
INLINE void finish_piece(finish *f, int gelu) {
    const float *sums = f->sums + (f->panel * GROUP + f->row) * GROUP;
    int64_t column = f->panel * GROUP;
    vec low = v_load(sums), high = v_load(sums + 16);
    if (gelu) low = v_gelu(low), high = v_gelu(high);
    if (f->residual) {
        const bf16 *added = f->residual + f->row * f->residual_row + column;
        low = v_add(low, v_widen(added)), high = v_add(high, v_widen(added + 16));
    }
    v_round(f->out + f->row * f->out_row + column, low, high);
    if (++f->panel == f->panels) f->panel = 0, f->row++;
}
