/* An empty Python module: what walks over packages imports it; library.py reads the library's own functions. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", "Kernels, for library.py.", 0, NULL,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
