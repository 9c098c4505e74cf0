#define USE_AVX512
#include "attention.c"
