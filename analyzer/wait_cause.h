/* Who owns each nanosecond of waiting: waits by edge, and the part of them that is exposed communication.
 *
 * Definitions  wait.by_edge, exposed.in_kernel.
 * Every nanosecond in which a lane is in state wait has one owner edge, found at that nanosecond:
 *   1. the owner is the edge waited on, if its scope is gpu or sys;
 *   2. an edge inside the CTA (scope cta) hands on what its producer got: if the producer's lane in the same CTA is itself
 *      waiting at that moment, on edge f, the owner is f's owner by the same rules, never going back to a role already on
 *      the way (then f owns it: roles of the CTA wait for each other);
 *   3. if the producer is at work, or its state is not known, the edge waited on owns it: the producer is late by itself
 *      (for an operand stage: the load that was issued has not landed).
 * The producer's lane: the n-th lane of the producer role for the n-th lane of the consumer's role if the CTA has as many of
 * each, else the one of them that waited longest during the wait.
 * So a matrix role that waits for an operand stage while the load role of its CTA waits for dispatched rows waits for the
 * rows. The load role usually runs ahead; where it waits while the matrix role still computes, nothing is owned: only waits
 * of the lane asked about are counted. This is the direct cause at each moment; root causes across lanes come later.
 * A wait is exposed if its owner edge carries communication (edge_carry.h) and a compute lane waits. */
#ifndef WAIT_CAUSE_H
#define WAIT_CAUSE_H

#include "lane_sweep.h"

/* A lane of one rank in one launch with its partition of the rank's window. */
struct cause_lane {
    const struct trace_lane *lane;
    const struct lane_segment *segments;
    size_t count;
};

/* One row a (rank, role of the waiting lane, edge waited on, owner). Edges by position; -1: the wait names none. */
struct wait_row {
    int32_t rank, role, edge, owner;
    int64_t total_ns;
    int64_t count;  /* waits of which this owner has a part */
    int64_t max_ns; /* largest such part */
};

/* A piece of a wait with one owner: lane (position among the lanes given), edge waited on, owner edge. */
typedef void wait_cause_visit(void *context, int32_t lane, int32_t edge, int32_t owner, int64_t begin_ns, int64_t end_ns);

struct wait_table {
    struct wait_row *rows; /* owned by the table; wait_table_release */
    int32_t count, capacity;
};

void wait_table_release(struct wait_table *table);

/* Adds the rows of another table. Errors: out of memory. */
int wait_table_merge(struct wait_table *table, const struct wait_table *other, struct error *error);

/* Adds the waits of all lanes of one rank in one launch. lanes [lane_count] ordered by role, cta, warp; all partition the
 * window that ends at end_ns. Invariant, checked: the owners' parts sum to the lanes' time in state wait.
 * O(lanes log lanes + waits * (log segments + pieces)). Errors: out of memory; invariant broken (a bug). */
int wait_cause_add(const struct trace *trace, const struct cause_lane *lanes, int32_t lane_count, int64_t end_ns,
                   struct arena *arena, struct wait_table *table, struct error *error);

/* Calls visit for every piece of every wait of the lanes, lane by lane, in order of time; pieces cover the waits exactly.
 * For pictures; the same walk as wait_cause_add. */
int wait_cause_walk(const struct trace *trace, const struct cause_lane *lanes, int32_t lane_count, int64_t end_ns,
                    struct arena *arena, wait_cause_visit *visit, void *context, struct error *error);

/* Rows of all ranks added up, rank -1, ordered by total. out is empty before. Errors: out of memory. */
int wait_table_over_ranks(const struct wait_table *table, struct wait_table *out, struct error *error);

/* Orders rows by total, largest first, ties by rank, role, edge, owner. */
void wait_table_order(struct wait_table *table);

#endif
