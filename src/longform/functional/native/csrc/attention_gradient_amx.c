/* Gradients of attention by AMX, for x86 on Linux; elsewhere there are none. */
#include "attention_gradient.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#include "units_amx.h"
#define ENTRY longform_attention_gradient_amx
#define ROOM longform_attention_gradient_amx_room
#include "attention_gradient_body.h"
#else
void longform_attention_gradient_amx(const attention_gradient_job *job) { (void)job; }

int64_t longform_attention_gradient_amx_room(const attention_gradient_job *job) { return (void)job, 0; }
#endif
