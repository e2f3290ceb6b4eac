/* See lane_sweep.h. */
#include "lane_sweep.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

const char *lane_state_name(enum lane_state state) {
    static const char *const names[STATE_COUNT] = {"compute", "communicate", "wait", "overhead", "idle", "unknown"};
    return state < STATE_COUNT ? names[state] : "?";
}

void segment_list_release(struct segment_list *list) {
    free(list->rows);
    *list = (struct segment_list){0};
}

/* --- lost records ---------------------------------------------------------------------------------------------------- */

static bool is_container(const struct trace *trace, const struct trace_record *record) {
    return record->event != TRACE_EVENT_UNKNOWN && trace->events[record->event].event_class == TRACE_EVENT_CONTAINER;
}

/* Records are written at their ends and the oldest are overwritten first, so everything that ended after the first kept
 * record is there. Before that record's begin anything may be missing; if it is a container, also inside it. */
static int64_t known_from(const struct trace *trace, const struct trace_lane *lane) {
    int64_t first_end = INT64_MAX, result = lane->end_ns;
    for (int kind = 0; kind < TRACE_KIND_COUNT; kind++) {
        const struct trace_record *rows = trace->records[kind] + lane->first[kind];
        for (size_t i = 0; i < lane->count[kind]; i++) {
            if (rows[i].end_ns > first_end) continue;
            bool container = kind == TRACE_SPAN && is_container(trace, &rows[i]);
            if (rows[i].end_ns == first_end && container) continue;
            first_end = rows[i].end_ns;
            result = container ? rows[i].end_ns : rows[i].begin_ns;
        }
    }
    return result < lane->begin_ns ? lane->begin_ns : result;
}

struct lane_view lane_view_of(const struct trace *trace, const struct trace_lane *lane) {
    struct lane_view view = {
        .spans = trace->records[TRACE_SPAN] + lane->first[TRACE_SPAN],
        .waits = trace->records[TRACE_WAIT] + lane->first[TRACE_WAIT],
        .span_count = lane->count[TRACE_SPAN],
        .wait_count = lane->count[TRACE_WAIT],
        .events = trace->events,
        .begin_ns = lane->begin_ns,
        .end_ns = lane->end_ns,
        .known_from_ns = lane->lost_count > 0 ? known_from(trace, lane) : lane->begin_ns,
        .closed = lane->closed,
        .void_clock = lane->void_clock,
    };
    return view;
}

/* --- the sweep ------------------------------------------------------------------------------------------------------- */

/* A record that has begun. The stack is ordered by begin: its top is the record that decides, once those that have ended
 * are popped. Records below the top that have ended are popped when they come up. */
struct active {
    int64_t end_ns;
    uint32_t record;
    int16_t edge;
    uint8_t state;
};

struct sweep {
    const struct lane_view *lane;
    int64_t now_ns, window_end_ns;
    int64_t container_end_ns; /* latest end of the containers that have begun */
    struct active *stack;
    size_t depth, capacity;
    struct active small[64];
    struct segment_list *list;
    struct error *error;
    int status;
};

static int out_of_memory(struct sweep *s) {
    if (!s->status) s->status = error_set(s->error, ERROR_FAILURE, "out of memory for the states of a lane");
    return s->status;
}

static void emit(struct sweep *s, struct active what, int64_t end_ns) {
    if (end_ns <= s->now_ns || s->status) return;
    struct segment_list *list = s->list;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity + list->capacity / 2 + 256;
        struct lane_segment *grown = realloc(list->rows, capacity * sizeof *grown);
        if (grown == NULL) {
            out_of_memory(s);
            return;
        }
        list->rows = grown;
        list->capacity = capacity;
    }
    list->rows[list->count++] = (struct lane_segment){s->now_ns, what.record, what.edge, what.state, 0};
    s->now_ns = end_ns;
}

static int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }

/* State of the moments from now to `to` that no span and no wait covers. */
static void fill_uncovered(struct sweep *s, int64_t to) {
    const struct lane_view *lane = s->lane;
    const struct active idle = {0, 0, -1, STATE_IDLE}, unknown = {0, 0, -1, STATE_UNKNOWN}, overhead = {0, 0, -1, STATE_OVERHEAD};
    if (s->now_ns < lane->begin_ns) emit(s, idle, minimum(to, lane->begin_ns));
    int64_t known = minimum(lane->known_from_ns, lane->end_ns);
    if (s->now_ns < known) emit(s, unknown, minimum(to, known));
    if (s->now_ns < s->container_end_ns) emit(s, overhead, minimum(to, s->container_end_ns));
    if (s->now_ns < lane->end_ns) emit(s, idle, minimum(to, lane->end_ns));
    emit(s, lane->closed ? idle : unknown, to);
}

static void advance(struct sweep *s, int64_t to) {
    to = minimum(to, s->window_end_ns);
    while (s->now_ns < to && !s->status) {
        while (s->depth > 0 && s->stack[s->depth - 1].end_ns <= s->now_ns) s->depth--;
        if (s->depth == 0) {
            fill_uncovered(s, to);
        } else {
            struct active top = s->stack[s->depth - 1];
            emit(s, top, minimum(to, top.end_ns));
        }
    }
}

static void push(struct sweep *s, struct active record) {
    while (s->depth > 0 && s->stack[s->depth - 1].end_ns <= s->now_ns) s->depth--;
    if (s->depth == s->capacity) {
        size_t capacity = s->capacity * 2;
        struct active *grown = realloc(s->stack == s->small ? NULL : s->stack, capacity * sizeof *grown);
        if (grown == NULL) {
            out_of_memory(s);
            return;
        }
        if (s->stack == s->small) memcpy(grown, s->small, sizeof s->small);
        s->stack = grown;
        s->capacity = capacity;
    }
    s->stack[s->depth++] = record;
}

static void begin_record(struct sweep *s, const struct trace_record *record, size_t position, bool wait) {
    static const uint8_t states[] = {[TRACE_EVENT_COMPUTE] = STATE_COMPUTE,
                                     [TRACE_EVENT_COMMUNICATE] = STATE_COMMUNICATE,
                                     [TRACE_EVENT_OVERHEAD] = STATE_OVERHEAD,
                                     [TRACE_EVENT_CONTAINER] = STATE_OVERHEAD,
                                     [TRACE_EVENT_WAIT] = STATE_WAIT};
    struct active active = {record->end_ns, (uint32_t)position, -1, STATE_UNKNOWN};
    if (record->event != TRACE_EVENT_UNKNOWN) {
        const struct trace_event *event = &s->lane->events[record->event];
        if (!wait && event->event_class == TRACE_EVENT_CONTAINER) {
            if (record->end_ns > s->container_end_ns) s->container_end_ns = record->end_ns;
            return;
        }
        active.state = wait ? STATE_WAIT : states[event->event_class];
        if (active.state == STATE_WAIT) active.edge = (int16_t)event->edge;
    }
    push(s, active);
}

static int check(const struct sweep *s, size_t first, int64_t window_begin_ns) {
    const struct lane_segment *rows = s->list->rows;
    int64_t sum = 0;
    for (size_t i = first; i < s->list->count; i++)
        sum += (i + 1 < s->list->count ? rows[i + 1].begin_ns : s->now_ns) - rows[i].begin_ns;
    if (s->now_ns == s->window_end_ns && sum == s->window_end_ns - window_begin_ns && rows[first].begin_ns == window_begin_ns)
        return 0;
    error_set(s->error, ERROR_FAILURE, "internal error: the states of a lane sum to %lld ns, its window is %lld ns",
              (long long)sum, (long long)(s->window_end_ns - window_begin_ns));
    return error_hint(s->error, "please report it with the trace");
}

int lane_sweep(const struct lane_view *lane, int64_t window_begin_ns, int64_t window_end_ns, struct segment_list *list,
               struct error *error) {
    if (window_end_ns <= window_begin_ns) return 0;
    struct sweep s = {.lane = lane, .now_ns = window_begin_ns, .window_end_ns = window_end_ns, .container_end_ns = INT64_MIN,
                      .list = list, .error = error};
    s.stack = s.small;
    s.capacity = sizeof s.small / sizeof s.small[0];
    size_t first = list->count, span = 0, wait = 0;
    struct lane_view whole_unknown = *lane;
    if (lane->void_clock) {
        whole_unknown.known_from_ns = lane->end_ns;
        whole_unknown.span_count = whole_unknown.wait_count = 0;
        s.lane = lane = &whole_unknown;
    }
    while (span < lane->span_count || wait < lane->wait_count) {
        bool take_wait = span == lane->span_count ||
                         (wait < lane->wait_count && (lane->waits[wait].begin_ns > lane->spans[span].begin_ns
                                                          ? false
                                                          : lane->waits[wait].begin_ns < lane->spans[span].begin_ns ||
                                                                lane->waits[wait].end_ns > lane->spans[span].end_ns));
        const struct trace_record *record = take_wait ? &lane->waits[wait] : &lane->spans[span];
        if (record->begin_ns >= window_end_ns) break;
        if (record->end_ns > record->begin_ns) {
            advance(&s, record->begin_ns);
            begin_record(&s, record, take_wait ? wait : span, take_wait);
        }
        take_wait ? wait++ : span++;
    }
    advance(&s, window_end_ns);
    if (s.stack != s.small) free(s.stack);
    return s.status ? s.status : check(&s, first, window_begin_ns);
}
