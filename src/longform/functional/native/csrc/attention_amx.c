/* Attention by AMX, for x86 on Linux; elsewhere there is none. */
#include "attention.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#include "units_amx.h"
#define ENTRY longform_attention_amx
#define ROOM longform_attention_amx_room
#include "attention_body.h"

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

int longform_grants_amx(void) { return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0; }
#else
void longform_attention_amx(const attention_job *job) { (void)job; }

int64_t longform_attention_amx_room(const attention_job *job) { return (void)job, 0; }

int longform_grants_amx(void) { return 0; }
#endif
