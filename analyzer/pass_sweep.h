/* All lanes of one pass (a rank's lanes in one launch) swept over the rank's window. Shared by the figures and by the
 * timeline of the report, so that a picture and a number cannot disagree. */
#ifndef PASS_SWEEP_H
#define PASS_SWEEP_H

#include "iterations.h"
#include "partition.h"

struct pass_sweep {
    const struct trace *trace;
    const struct pass *pass;
    struct segment_list segments; /* owned; of all lanes, one lane after the other */
    size_t *first;                /* [lane_count + 1] where each lane's segments begin */
    struct lane_view *views;      /* [lane_count] */
    struct lane_sums *sums;       /* [lane_count] */
    int32_t lane_count;
};

/* Sweeps trace.lanes[pass.lane_first ..]. The struct may be used again for another pass; its arrays are in the arena, its
 * segments are released by pass_sweep_release. O(records). Errors: out of memory, a broken invariant. */
int pass_sweep_run(const struct trace *trace, const struct pass *pass, struct arena *arena, struct pass_sweep *sweep,
                   struct error *error);
void pass_sweep_release(struct pass_sweep *sweep);

/* The pass's i-th lane, and its segments. */
const struct trace_lane *pass_sweep_lane(const struct pass_sweep *sweep, int32_t i);
const struct lane_segment *pass_sweep_segments(const struct pass_sweep *sweep, int32_t i, size_t *count);

#endif
