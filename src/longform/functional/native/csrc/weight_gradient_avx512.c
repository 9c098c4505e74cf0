#define USE_AVX512
#include "weight_gradient.c"
