/* See edge_carry.h. */
#include "edge_carry.h"

struct votes {
    int64_t compute, communicate;
};

static enum trace_event_class class_of(const struct trace *trace, const struct trace_record *record) {
    return record->event == TRACE_EVENT_UNKNOWN ? TRACE_EVENT_OVERHEAD : trace->events[record->event].event_class;
}

/* Signals, spans and waits of a lane are ordered by begin: three cursors walk along. */
static void count_lane(const struct trace *trace, const struct trace_lane *lane, struct votes *votes) {
    const struct trace_record *signals = trace->records[TRACE_SIGNAL] + lane->first[TRACE_SIGNAL];
    const struct trace_record *spans = trace->records[TRACE_SPAN] + lane->first[TRACE_SPAN];
    const struct trace_record *waits = trace->records[TRACE_WAIT] + lane->first[TRACE_WAIT];
    const struct trace_record *span = NULL;
    size_t next_span = 0, next_wait = 0;
    for (size_t i = 0; i < lane->count[TRACE_SIGNAL]; i++) {
        int64_t at_ns = signals[i].begin_ns;
        for (; next_span < lane->count[TRACE_SPAN] && spans[next_span].begin_ns <= at_ns; next_span++)
            if (class_of(trace, &spans[next_span]) != TRACE_EVENT_CONTAINER) span = &spans[next_span];
        while (next_wait < lane->count[TRACE_WAIT] && waits[next_wait].begin_ns <= at_ns) next_wait++;
        if (signals[i].event == TRACE_EVENT_UNKNOWN || span == NULL) continue;
        int32_t edge = trace->events[signals[i].event].edge;
        if (edge < 0 || (next_wait > 0 && waits[next_wait - 1].begin_ns > span->begin_ns)) continue;
        if (class_of(trace, span) == TRACE_EVENT_COMPUTE) votes[edge].compute++;
        if (class_of(trace, span) == TRACE_EVENT_COMMUNICATE) votes[edge].communicate++;
    }
}

int edge_carry_find(const struct trace *trace, struct arena *arena, bool *carries, struct error *error) {
    struct votes *votes = arena_allocate(arena, (size_t)trace->edge_count + 1, sizeof *votes);
    if (votes == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; i < trace->lane_count; i++) count_lane(trace, &trace->lanes[i], votes);
    for (int32_t e = 0; e < trace->edge_count; e++) {
        const struct trace_edge *edge = &trace->edges[e];
        carries[e] = trace->roles[edge->producer].role_class == TRACE_ROLE_COMMUNICATE && !edge->slot_reuse &&
                     votes[e].compute <= votes[e].communicate;
    }
    return 0;
}
