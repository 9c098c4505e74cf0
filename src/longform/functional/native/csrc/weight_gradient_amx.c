/* Gradients of weights by AMX, for x86 on Linux; elsewhere there are none. */
#include "weight_gradient.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#include "units_amx.h"
#define ENTRY longform_weight_gradient_amx
#define ROOM longform_weight_gradient_amx_room
#include "weight_gradient_body.h"
#else
void longform_weight_gradient_amx(const weight_gradient_job *job) { (void)job; }

int64_t longform_weight_gradient_amx_room(const weight_gradient_job *job) { return (void)job, 0; }
#endif
