#define USE_AMX
#include "linear.c"
