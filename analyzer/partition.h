/* Lane time by state, summed over lanes: by role, rank, SM, and in total (lanes.partition, lanes.stalled).
 * Rows are sums over iterations. The invariant holds for every row: the states sum to lane_ns. */
#ifndef PARTITION_H
#define PARTITION_H

#include "lane_sweep.h"

/* What one lane did in its window. */
struct lane_sums {
    int64_t ns[STATE_COUNT];
    int64_t stalled_ns;       /* part of compute and communicate that the spans report as stalled */
    int64_t window_ns;
    int64_t first_compute_ns; /* begin of its first compute, or TRACE_TIME_NONE */
    int64_t work_end_ns;      /* end of its last container, else of its last work, or TRACE_TIME_NONE */
    int64_t zero_count;       /* records of zero length */
};

/* Sums of a lane's partition of a window that ends at end_ns. segments [count] as lane_sweep made them from view.
 * A span's stall is counted once, where the span begins, and never more than the span's
 * length, nor in sum than the state's time. Containers that end past the
 * window are clipped. O(segments + records). */
struct lane_sums lane_sums_of(const struct lane_view *view, const struct lane_segment *segments, size_t count,
                              int64_t end_ns, double ns_per_tick);

/* rank, role, sm: -1 where the row is a sum over them. */
struct partition_row {
    int32_t rank, role, device, sm;
    int64_t lane_count; /* lanes, over all iterations */
    int64_t lane_ns;    /* sum of the lanes' windows */
    int64_t ns[STATE_COUNT];
    int64_t stalled_ns;
};

enum partition_by { PARTITION_TOTAL, PARTITION_ROLE, PARTITION_RANK, PARTITION_RANK_ROLE, PARTITION_SM, PARTITION_BY_COUNT };

const char *partition_by_name(enum partition_by by); /* total, role, rank, rank_role, sm */

/* Rows of one grouping; keys are found by hashing. The struct lives in an arena. */
struct partition_group {
    struct partition_row *rows;
    int32_t count, capacity;
    int32_t *slots; /* hash of keys: row + 1, 0 free */
    int32_t slot_count;
};

struct partition {
    struct arena *arena;
    struct partition_group groups[PARTITION_BY_COUNT];
};

void partition_init(struct partition *partition, struct arena *arena);

/* Adds a lane to every grouping. Errors: out of memory. */
int partition_add(struct partition *partition, const struct trace_lane *lane, int32_t device, const struct lane_sums *sums,
                  struct error *error);

/* Orders the rows by key and checks the invariant. Errors: states do not sum to the windows (a bug). */
int partition_finish(struct partition *partition, struct error *error);

#endif
