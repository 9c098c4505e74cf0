/* The norm of a sum by plain loops: for tests. */
#include "norm_of_sum.h"
#include "units_portable.h"
#define ENTRY longform_norm_of_sum_portable
#define ROOM longform_norm_of_sum_portable_room
#include "norm_of_sum_body.h"
