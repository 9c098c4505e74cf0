/* The extension module: empty for Python; library.py loads it as a library, and asks it first for what is here. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "jobs.h"

/* Whether the system grants AMX to this process; whether the machine has it is for the caller to know. */
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18
int longform_grants_amx(void) { return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0; }
#else
int longform_grants_amx(void) { return 0; }
#endif

/* What a library of other sources would have otherwise; the sizes are in the order of JOBS in ../jobs.py. */
const int64_t longform_built_for[] = {
    JOBS_VERSION, JOBS_DIGEST, sizeof(attention_job), sizeof(attention_gradient_job), sizeof(linear_job),
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", "Compiled kernels, read by library.py.", 0, NULL,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
