/* The normalisation of a sum and its gradients. A row is read once, and stays in the nearest
 * cache until it is written. */
#include <math.h>
#include <string.h>
#include "units.h"

#define STEP 32 /* features at a time */

/* What a thread works in: a row, another one, and the sums over its rows. */
typedef struct {
    float *row, *gradient, *d_weight, *d_bias;
} workspace;

static workspace workspace_of(const norm_of_sum_job *job, int64_t thread) {
    float *at = (float *)((char *)job->workspace + thread * job->workspace_bytes);
    return (workspace){at, at + job->features, at + 2 * job->features, at + 3 * job->features};
}

/* s of one row. */
INLINE void add_row(float *to, const norm_of_sum_job *job, int64_t row) {
    const float *residual = job->residual + row * job->features;
    const bf16 *branch = job->branch + row * job->features;
    for (int64_t i = 0; i < job->features; i += 16)
        v_store(to + i, v_add(v_load(residual + i), v_widen(branch + i)));
}

UNITS static void one_norm(const norm_of_sum_job *job, workspace w, int64_t row) {
    int64_t features = job->features, at = row * features;
    vec sums[2] = {v_all(0.0f), v_all(0.0f)}, squares[2] = {v_all(0.0f), v_all(0.0f)};
    add_row(w.row, job, row);
    for (int64_t i = 0; i < features; i += STEP)
        for (int side = 0; side < 2; side++) sums[side] = v_add(sums[side], v_load(w.row + i + 16 * side));
    float mean = v_sum(v_add(sums[0], sums[1])) / (float)features;
    for (int64_t i = 0; i < features; i += STEP)
        for (int side = 0; side < 2; side++) {
            vec x = v_sub(v_load(w.row + i + 16 * side), v_all(mean));
            v_store(w.row + i + 16 * side, x);
            squares[side] = v_fma(x, x, squares[side]);
        }
    float scale = 1.0f / sqrtf(v_sum(v_add(squares[0], squares[1])) / (float)features + job->epsilon);
    for (int64_t i = 0; i < features; i += STEP) {
        vec low = v_mul(v_load(w.row + i), v_all(scale)), high = v_mul(v_load(w.row + i + 16), v_all(scale));
        low = v_fma(low, v_load(job->weight + i), v_load(job->bias + i));
        high = v_fma(high, v_load(job->weight + i + 16), v_load(job->bias + i + 16));
        v_store(job->out + at + i, low), v_store(job->out + at + i + 16, high);
        if (job->rounded) v_round(job->rounded + at + i, low, high);
    }
    job->mean[row] = mean, job->scale[row] = scale;
}

/* z of 16 features and their g; sums over rows grow. */
INLINE vec gradient_of(const norm_of_sum_job *job, workspace w, int64_t at, int64_t i, vec z) {
    vec d = job->d_out ? v_load(job->d_out + at + i) : v_all(0.0f);
    if (job->d_rounded) d = v_add(d, v_widen(job->d_rounded + at + i));
    v_store(w.d_weight + i, v_fma(d, z, v_load(w.d_weight + i)));
    v_store(w.d_bias + i, v_add(d, v_load(w.d_bias + i)));
    return v_mul(d, v_load(job->weight + i));
}

UNITS static void one_gradient(const norm_of_sum_job *job, workspace w, int64_t row) {
    int64_t features = job->features, at = row * features;
    vec mean = v_all(job->mean[row]), scale = v_all(job->scale[row]), sum = v_all(0.0f), along = v_all(0.0f);
    add_row(w.row, job, row);
    for (int64_t i = 0; i < features; i += 16) {
        vec z = v_mul(v_sub(v_load(w.row + i), mean), scale), g = gradient_of(job, w, at, i, z);
        v_store(w.row + i, z), v_store(w.gradient + i, g);
        sum = v_add(sum, g), along = v_fma(g, z, along);
    }
    vec less = v_all(v_sum(sum) / (float)features), along_z = v_all(v_sum(along) / (float)features);
    for (int64_t i = 0; i < features; i += STEP) {
        vec low = v_sub(v_sub(v_load(w.gradient + i), less), v_mul(v_load(w.row + i), along_z));
        vec high = v_sub(v_sub(v_load(w.gradient + i + 16), less), v_mul(v_load(w.row + i + 16), along_z));
        low = v_mul(low, scale), high = v_mul(high, scale);
        v_store(job->d_residual + at + i, low), v_store(job->d_residual + at + i + 16, high);
        v_round(job->d_branch + at + i, low, high);
    }
}

void NAMED(norm_of_sum)(const norm_of_sum_job *job) {
    int64_t pieces = job->threads < job->rows ? job->threads : job->rows;
#pragma omp parallel for num_threads((int)job->threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        workspace w = workspace_of(job, piece);
        if (job->d_weight) memset(w.d_weight, 0, 2 * (size_t)job->features * sizeof(float));
        for (int64_t row = job->rows * piece / pieces; row < job->rows * (piece + 1) / pieces; row++)
            (job->d_weight ? one_gradient : one_norm)(job, w, row);
    }
    for (int64_t i = 0; job->d_weight && i < job->features; i++) {
        job->d_weight[i] = job->d_bias[i] = 0.0f;
        for (int64_t piece = 0; piece < pieces; piece++) {
            workspace w = workspace_of(job, piece);
            job->d_weight[i] += w.d_weight[i], job->d_bias[i] += w.d_bias[i];
        }
    }
}

int64_t NAMED(norm_of_sum_workspace)(const norm_of_sum_job *job) { return 4 * job->features * (int64_t)sizeof(float); }
