#define USE_AVX512
#include "linear.c"
