/* Linear layers by AMX, for x86 on Linux; elsewhere there are none. */
#include "linear.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#include "units_amx.h"
#define ENTRY longform_linear_amx
#define ROOM longform_linear_amx_room
#include "linear_body.h"
#else
void longform_linear_amx(const linear_job *job) { (void)job; }

int64_t longform_linear_amx_room(const linear_job *job) { return (void)job, 0; }
#endif
