/* The units that a kernel is compiled for: with USE_AMX tiles of 16 x 16 floats by AMX and vectors by AVX512, without
 * it loops that run anywhere, which the tests hold the others against. Each kernel's file is compiled both ways; its
 * functions are then longform_<kernel>_amx and longform_<kernel>_portable. */
#include "jobs.h"

#if defined(USE_AMX) && defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#include "units_amx.h"
#else
#include "units_portable.h"
#endif

#ifdef USE_AMX
#define NAMED(kernel) longform_##kernel##_amx
#else
#define NAMED(kernel) longform_##kernel##_portable
#endif
