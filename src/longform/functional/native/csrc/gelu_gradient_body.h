/* The gradient of GELU; included once for each kind of units. */
#include "gelu.h"

#define PIECE 32

UNITS static void some_pieces(const gelu_gradient_job *job, int64_t first, int64_t end) {
    for (int64_t i = first * PIECE; i < end * PIECE; i += PIECE) {
        vec low = v_mul(v_widen(job->d_out + i), v_gelu_slope(v_widen(job->x + i)));
        vec high = v_mul(v_widen(job->d_out + i + 16), v_gelu_slope(v_widen(job->x + i + 16)));
        v_round(job->d_x + i, low, high);
    }
}

void ENTRY(const gelu_gradient_job *job) {
    int64_t pieces = job->count / PIECE;
#pragma omp parallel for num_threads((int)job->threads) schedule(static)
    for (int64_t t = 0; t < job->threads; t++)
        some_pieces(job, pieces * t / job->threads, pieces * (t + 1) / job->threads);
}

int64_t ROOM(const gelu_gradient_job *job) { return (void)job, 0; }
