/* The state of one lane at every moment of a window: the one partition of time that every other figure is a projection of.
 *
 * Definition (lanes.partition). A lane is at every moment in exactly one state:
 *   outside its life                        idle (before it opened, after it closed); unknown after the last record of a lane
 *                                           that had not closed when it was read
 *   a span or wait covers the moment        the class of the one that began last (of two that began together the shorter,
 *                                           of two alike the wait): compute, communicate, overhead, or wait with its edge;
 *                                           unknown if the trace does not describe its event
 *   nothing but lost records could be there unknown (a ring that overflowed lost the oldest records)
 *   only a container (task) covers it       overhead: decode, barriers, probes
 *   nothing covers it                       idle: no record of this lane is about this moment
 * The whole life of a lane whose CTA changed its SM is unknown: its ticks mean nothing.
 *
 * Time is half-open integer nanoseconds. Records of zero length are counted and give no state; crossing records (threads
 * that share a lane) follow the same rule as nested ones. Unfinished records do not exist: a record is written at its end. */
#ifndef LANE_SWEEP_H
#define LANE_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace_read.h"

enum lane_state {
    STATE_COMPUTE,
    STATE_COMMUNICATE,
    STATE_WAIT,
    STATE_OVERHEAD,
    STATE_IDLE,
    STATE_UNKNOWN,
    STATE_COUNT
};

const char *lane_state_name(enum lane_state state);

/* One piece of the partition; it ends where the next begins, the last one at the window's end. */
struct lane_segment {
    int64_t begin_ns;
    uint32_t record; /* which span (compute, communicate, overhead) or wait (wait) of the lane gives the state; else 0 */
    int16_t edge;    /* state wait: edge by position, -1: none known */
    uint8_t state;   /* enum lane_state */
    uint8_t reserved;
};

struct segment_list {
    struct lane_segment *rows; /* owned; segment_list_release */
    size_t count, capacity;
};

void segment_list_release(struct segment_list *list);

/* A lane's records and life. spans [span_count], waits [wait_count] ordered by begin, longer first. */
struct lane_view {
    const struct trace_record *spans, *waits;
    size_t span_count, wait_count;
    const struct trace_event *events;
    int64_t begin_ns, end_ns;   /* life */
    int64_t known_from_ns;      /* records that ended before may have been lost; begin_ns: none were */
    bool closed, void_clock;
};

/* View of a lane of a trace whose records were read. O(records) for a lane that lost some, else O(1). */
struct lane_view lane_view_of(const struct trace *trace, const struct trace_lane *lane);

/* Appends the lane's partition of [window_begin_ns, window_end_ns) to list; an empty window appends nothing.
 * Invariant, checked on every call: the segments lie one after the other from begin to end of the window.
 * O(records + segments), at most 2 * records + 4 segments. Errors: out of memory; invariant broken (a bug). */
int lane_sweep(const struct lane_view *lane, int64_t window_begin_ns, int64_t window_end_ns, struct segment_list *list,
               struct error *error);

#endif
