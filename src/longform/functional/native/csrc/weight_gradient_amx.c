#define USE_AMX
#include "weight_gradient.c"
