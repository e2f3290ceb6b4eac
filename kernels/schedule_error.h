/* What a refused schedule is called: enum schedule_error as an error that names the knob, its value and the remedy. */
#ifndef SCHEDULE_ERROR_H
#define SCHEDULE_ERROR_H

#include "../probes/host/error.h"
#include "schedule.h"

/* Name of an edge as in edges.def. */
const char *schedule_edge_name(enum edge edge);

/* Fills error for a result of schedule_check other than SCHEDULE_OK. Returns ERROR_USAGE. */
int schedule_error_describe(const struct schedule *schedule, enum schedule_error bad, int32_t rank_ctas, struct error *error);

/* Capacity was passed: local expert `expert` is the first whose rows do not fit; rows: all of the rank, padding included.
 * Returns ERROR_USAGE. */
int schedule_error_overflow(const struct schedule *schedule, int32_t rank, int32_t expert, int32_t rows, struct error *error);

#endif
