#define USE_AMX
#include "attention.c"
