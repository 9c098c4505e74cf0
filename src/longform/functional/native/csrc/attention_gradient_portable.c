/* Gradients of attention by plain loops: for tests. */
#include "attention_gradient.h"
#include "units_portable.h"
#define ENTRY longform_attention_gradient_portable
#define ROOM longform_attention_gradient_portable_room
#include "attention_gradient_body.h"
