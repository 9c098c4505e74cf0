#define USE_AMX
#include "norm_of_sum.c"
