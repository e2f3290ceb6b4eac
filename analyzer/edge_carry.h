/* Which edges carry communication: whose data is late when communication is late.
 *
 * Definition. An edge carries communication if its producer role is of class communicate, unless most of its signals follow a
 * compute span in their lanes: a store warp is a communication role, but the edge by which it hands a tile to the next matrix
 * product inside the GPU does not wait for a peer. A signal follows the span or wait of its lane that began last before it;
 * containers do not count. Slot-reuse edges carry none: they wait for a reader.
 * Needs records of level phase for the exception; without them the role's class decides. */
#ifndef EDGE_CARRY_H
#define EDGE_CARRY_H

#include "trace_read.h"

/* carries [trace->edge_count] out. O(records). Errors: out of memory. */
int edge_carry_find(const struct trace *trace, struct arena *arena, bool *carries, struct error *error);

#endif
