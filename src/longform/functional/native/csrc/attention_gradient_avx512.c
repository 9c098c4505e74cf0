#define USE_AVX512
#include "attention_gradient.c"
