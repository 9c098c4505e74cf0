/* The norm of a sum by the vectors of machines with AMX, for x86 on Linux; elsewhere there is none. */
#include "norm_of_sum.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#include "units_amx.h"
#define ENTRY longform_norm_of_sum_amx
#define ROOM longform_norm_of_sum_amx_room
#include "norm_of_sum_body.h"
#else
void longform_norm_of_sum_amx(const norm_of_sum_job *job) { (void)job; }

int64_t longform_norm_of_sum_amx_room(const norm_of_sum_job *job) { return (void)job, 0; }
#endif
