#define USE_AVX512
#include "norm_of_sum.c"
