/* Exact GELU and its slope; included after a kind of units. */

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
    vec size = v_least(v_size(x), v_all(12.0f));
    return v_sub(v_max(v_all(0.0f), x), v_mul(size, v_normal_tail(size)));
}

/* P(X < x) + x exp(-x² / 2) / sqrt(2 pi), off by 1e-6 at most; of no number, none. */
INLINE vec v_gelu_slope(vec x) {
    vec size = v_least(v_all(12.0f), v_size(x)), tail = v_normal_tail(size);
    vec density = v_mul(v_exp2(v_mul(v_mul(size, size), v_all(-0.721347520f))), v_all(0.398942280f));
    vec above = v_fma(size, density, v_sub(v_all(1.0f), tail)); /* of |x|; of -x it is 1 less that */
    return v_by_sign(x, above, v_sub(v_all(1.0f), above));
}
