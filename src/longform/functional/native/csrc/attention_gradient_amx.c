#define USE_AMX
#include "attention_gradient.c"
