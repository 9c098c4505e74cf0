/* Gradients of weights by plain loops: for tests. */
#include "weight_gradient.h"
#include "units_portable.h"
#define ENTRY longform_weight_gradient_portable
#define ROOM longform_weight_gradient_portable_room
#include "weight_gradient_body.h"
