/* What a picture of one rank's lanes shows: each lane as runs of a category, and the same at a level of detail. Categories are
 * the states of lane_sweep, with waits split by whether they are exposed communication (wait_cause.h). */
#ifndef TIMELINE_H
#define TIMELINE_H

#include "pass_sweep.h"

enum timeline_category {
    TIMELINE_COMPUTE,
    TIMELINE_COMMUNICATE,
    TIMELINE_EXPOSED, /* wait whose owner edge carries communication */
    TIMELINE_WAIT,    /* any other wait */
    TIMELINE_OVERHEAD,
    TIMELINE_UNKNOWN,
    TIMELINE_IDLE, /* last: not drawn */
    TIMELINE_CATEGORY_COUNT
};

const char *timeline_category_name(enum timeline_category category);

struct timeline_run {
    int64_t begin_ns; /* until the next run's begin, the last one until the pass' end */
    uint8_t category;
};

struct timeline_lane {
    const struct trace_lane *lane;
    struct timeline_run *runs;
    size_t count;
};

struct timeline {
    int32_t rank;
    int64_t begin_ns, end_ns;
    struct timeline_lane *lanes; /* [lane_count] ordered by role, cta, warp */
    int32_t lane_count;
};

/* Runs of a swept pass; everything in the arena, the sweep may go. carries: edge_carry_find. O(segments). */
int timeline_make(const struct pass_sweep *sweep, const bool *carries, struct arena *arena, struct timeline *timeline,
                  struct error *error);

/* A run of columns of one category. */
struct timeline_column_run {
    int32_t begin, end; /* half-open */
    uint8_t category;
};

/* The lane at `columns` columns over [begin_ns, end_ns): each column shows the category that fills most of it (ties: the
 * first of the enum). columns <= end_ns - begin_ns. Calls visit for each run of equal columns, idle ones left out. Returns how many. O(runs + columns). */
typedef void timeline_visit(void *context, struct timeline_column_run run);
int64_t timeline_quantise(const struct timeline_lane *lane, int64_t lane_end_ns, int64_t begin_ns, int64_t end_ns, int32_t columns,
                          timeline_visit *visit, void *context);

/* Adds the lane's time in each category to bins [bin_count * TIMELINE_CATEGORY_COUNT] over [begin_ns, end_ns), in ns;
 * outside the pass it is idle. */
void timeline_add_to_bins(const struct timeline_lane *lane, int64_t lane_end_ns, int64_t begin_ns, int64_t end_ns, int32_t bin_count,
                          double *bins);

#endif
