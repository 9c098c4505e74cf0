/* The gradient of GELU by plain loops: for tests. */
#include "gelu_gradient.h"
#include "units_portable.h"
#define ENTRY longform_gelu_gradient_portable
#define ROOM longform_gelu_gradient_portable_room
#include "gelu_gradient_body.h"
