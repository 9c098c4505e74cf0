/* The gradient of GELU by the vectors of machines with AMX, for x86 on Linux; elsewhere there is none. */
#include "gelu_gradient.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#include "units_amx.h"
#define ENTRY longform_gelu_gradient_amx
#define ROOM longform_gelu_gradient_amx_room
#include "gelu_gradient_body.h"
#else
void longform_gelu_gradient_amx(const gelu_gradient_job *job) { (void)job; }

int64_t longform_gelu_gradient_amx_room(const gelu_gradient_job *job) { return (void)job, 0; }
#endif
