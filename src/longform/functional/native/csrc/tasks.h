/* What all kernels of tiles have in common: threads that take task after task until none is left. Included at the end
 * of a body, which gives JOB, `workspace`, `lay_out`, `tasks_of` and `do_task`. */
UNITS static void take_tasks(const JOB *job, int64_t *threads, int64_t *tasks) {
    int64_t all = tasks_of(job), task;
    workspace w;
    tile_setting before;
    lay_out(&w, job, (char *)job->workspace + __atomic_fetch_add(threads, 1, __ATOMIC_RELAXED) * job->workspace_bytes);
    units_begin(&before);
    while ((task = __atomic_fetch_add(tasks, 1, __ATOMIC_RELAXED)) < all) do_task(&w, job, task);
    units_end(&before);
}

void ENTRY(const JOB *job) {
    int64_t threads = 0, tasks = 0;
#pragma omp parallel num_threads((int)job->threads)
    take_tasks(job, &threads, &tasks);
}

int64_t WORKSPACE(const JOB *job) {
    workspace w;
    return lay_out(&w, job, 0);
}
