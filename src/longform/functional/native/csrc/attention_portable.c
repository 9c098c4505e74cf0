/* Attention by plain loops: for tests. */
#include "attention.h"
#include "units_portable.h"
#define ENTRY longform_attention_portable
#define ROOM longform_attention_portable_room
#include "attention_body.h"
