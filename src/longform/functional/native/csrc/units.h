/* The units that a kernel is compiled for: with USE_AMX tiles of 16 x 16 floats by AMX, with USE_AVX512 the same tiles by
 * AVX512-bf16, and vectors by AVX512 in both; without either loops that run anywhere, which the tests hold the others
 * against. Each kernel's file is compiled all three ways; its functions are then longform_<kernel>_amx, _avx512 and
 * _portable. */
#include "jobs.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#if defined(USE_AMX)
#include "units_amx.h"
#elif defined(USE_AVX512)
#include "units_avx512.h"
#endif
#endif
#ifndef UNITS
#include "units_portable.h"
#endif

#if defined(USE_AMX)
#define NAMED(kernel) longform_##kernel##_amx
#elif defined(USE_AVX512)
#define NAMED(kernel) longform_##kernel##_avx512
#else
#define NAMED(kernel) longform_##kernel##_portable
#endif
