/* Linear layers by plain loops: for tests. */
#include "linear.h"
#include "units_portable.h"
#define ENTRY longform_linear_portable
#define ROOM longform_linear_portable_room
#include "linear_body.h"
