/* The three functions of OpenMP that the kernels call, by POSIX threads: the thread sanitizer knows these. */
#include <pthread.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define MOST 64

static _Thread_local int number, count = 1;

typedef struct {
    void (*work)(void *);
    void *given;
    int number, count;
} member;

static void *begin(void *given) {
    member *own = given;
    number = own->number, count = own->count;
    own->work(own->given);
    number = 0, count = 1;
    return 0;
}

HIDDEN int omp_get_thread_num(void) { return number; }
HIDDEN int omp_get_num_threads(void) { return count; }
HIDDEN void GOMP_parallel(void (*work)(void *), void *given, unsigned threads, unsigned flags) {
    pthread_t others[MOST];
    member members[MOST];
    (void)flags;
    for (unsigned i = 0; i < threads; i++) members[i] = (member){work, given, (int)i, (int)threads};
    for (unsigned i = 1; i < threads; i++) pthread_create(&others[i], 0, begin, &members[i]);
    begin(&members[0]);
    for (unsigned i = 1; i < threads; i++) pthread_join(others[i], 0);
}
