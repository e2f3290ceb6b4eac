/* lane_sweep against its definition, nanosecond by nanosecond, on random lanes; a failing seed is printed and shrunk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../analyzer/lane_sweep.h"
#include "../../analyzer/partition.h"

enum { RECORDS = 12, TIME = 48, EVENTS = 6 };

static const struct trace_event events[EVENTS] = {
    {.event_class = TRACE_EVENT_COMPUTE, .edge = -1, .stall_cycles = 2}, {.event_class = TRACE_EVENT_COMMUNICATE, .edge = -1},
    {.event_class = TRACE_EVENT_OVERHEAD, .edge = -1},                   {.event_class = TRACE_EVENT_CONTAINER, .edge = -1},
    {.event_class = TRACE_EVENT_WAIT, .edge = 3, .kind = TRACE_WAIT},    {.event_class = TRACE_EVENT_WAIT, .edge = 5, .kind = TRACE_WAIT},
};

struct sample {
    struct trace_record spans[RECORDS], waits[RECORDS];
    struct lane_view view;
    int64_t window_begin, window_end;
};

static uint64_t random_state;

static uint32_t random_below(uint32_t limit) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)(random_state * 0x2545f4914f6cdd1du >> 33) % limit;
}

static int by_begin(const void *a, const void *b) {
    const struct trace_record *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
    return x->argument < y->argument ? -1 : x->argument > y->argument;
}

static size_t random_records(struct trace_record *rows, uint32_t limit, bool waits) {
    size_t count = random_below(limit + 1);
    for (size_t i = 0; i < count; i++) {
        int64_t begin = random_below(TIME);
        uint16_t event = waits ? (uint16_t)(4 + random_below(2)) : (uint16_t)random_below(5);
        if (!waits && event == 4) event = TRACE_EVENT_UNKNOWN;
        rows[i] = (struct trace_record){begin, begin + random_below(random_below(4) == 0 ? TIME : 8), (uint32_t)i, (uint16_t)random_below(5), event};
    }
    if (count > 0) qsort(rows, count, sizeof *rows, by_begin);
    return count;
}

static void make_sample(uint64_t seed, uint32_t limit, struct sample *s) {
    random_state = seed * 2 + 1;
    for (int i = 0; i < 8; i++) random_below(2);
    memset(s, 0, sizeof *s);
    s->view.spans = s->spans;
    s->view.waits = s->waits;
    s->view.span_count = random_records(s->spans, limit, false);
    s->view.wait_count = random_records(s->waits, limit, true);
    s->view.events = events;
    s->view.begin_ns = random_below(TIME / 2);
    s->view.end_ns = s->view.begin_ns + random_below(TIME);
    s->view.known_from_ns = random_below(3) == 0 ? s->view.begin_ns + random_below(TIME / 2) : s->view.begin_ns;
    s->view.closed = random_below(4) != 0;
    s->view.void_clock = random_below(16) == 0;
    s->window_begin = random_below(TIME / 2);
    s->window_end = s->window_begin + random_below(TIME);
}

/* The definition of lane_sweep.h, read off one nanosecond. */
struct moment {
    int state, edge;
};

static struct moment model(const struct sample *s, int64_t at) {
    static const int states[] = {STATE_COMPUTE, STATE_COMMUNICATE, STATE_OVERHEAD, -1};
    const struct lane_view *v = &s->view;
    struct moment best = {-1, -1};
    int64_t best_begin = -1, best_end = INT64_MAX;
    bool container = false;
    if (v->void_clock) return (struct moment){at >= v->begin_ns && at < v->end_ns ? STATE_UNKNOWN : at < v->end_ns || v->closed ? STATE_IDLE : STATE_UNKNOWN, -1};
    for (int wait = 0; wait < 2; wait++) {
        const struct trace_record *rows = wait ? v->waits : v->spans;
        for (size_t i = 0; i < (wait ? v->wait_count : v->span_count); i++) {
            if (at < rows[i].begin_ns || at >= rows[i].end_ns) continue;
            if (!wait && rows[i].event == 3) {
                container = true;
                continue;
            }
            /* began last; of those the shorter; of those the later in order, waits after spans */
            if (rows[i].begin_ns < best_begin || (rows[i].begin_ns == best_begin && rows[i].end_ns > best_end)) continue;
            best_begin = rows[i].begin_ns;
            best_end = rows[i].end_ns;
            best = (struct moment){wait ? STATE_WAIT : rows[i].event == TRACE_EVENT_UNKNOWN ? STATE_UNKNOWN : states[rows[i].event],
                                   wait ? events[rows[i].event].edge : -1};
        }
    }
    if (best.state >= 0) return best;
    if (at < v->begin_ns) return (struct moment){STATE_IDLE, -1};
    if (at < v->known_from_ns && at < v->end_ns) return (struct moment){STATE_UNKNOWN, -1};
    if (container) return (struct moment){STATE_OVERHEAD, -1};
    return (struct moment){at < v->end_ns || v->closed ? STATE_IDLE : STATE_UNKNOWN, -1};
}

/* 0 if sweep and model agree. */
static int disagree(const struct sample *s, bool print) {
    struct segment_list list = {0};
    struct error error = {0};
    int wrong = lane_sweep(&s->view, s->window_begin, s->window_end, &list, &error) != 0;
    if (wrong && print) fprintf(stderr, "%s\n", error.message);
    int64_t at = s->window_begin;
    for (size_t i = 0; i < list.count && !wrong; i++) {
        int64_t end = i + 1 < list.count ? list.rows[i + 1].begin_ns : s->window_end;
        wrong |= list.rows[i].begin_ns != at;
        for (; at < end && !wrong; at++) {
            struct moment expected = model(s, at);
            wrong = expected.state != list.rows[i].state || expected.edge != list.rows[i].edge;
            if (wrong && print)
                fprintf(stderr, "at %lld: %s edge %d, expected %s edge %d\n", (long long)at, lane_state_name((enum lane_state)list.rows[i].state),
                        list.rows[i].edge, lane_state_name((enum lane_state)expected.state), expected.edge);
        }
    }
    wrong |= s->window_end > s->window_begin && at != s->window_end;
    segment_list_release(&list);
    return wrong;
}

static void print_sample(const struct sample *s) {
    const struct lane_view *v = &s->view;
    fprintf(stderr, "window %lld-%lld life %lld-%lld known %lld %s%s\n", (long long)s->window_begin, (long long)s->window_end, (long long)v->begin_ns,
            (long long)v->end_ns, (long long)v->known_from_ns, v->closed ? "closed" : "open", v->void_clock ? " void" : "");
    for (size_t i = 0; i < v->span_count; i++)
        fprintf(stderr, "  span %lld-%lld event %u\n", (long long)v->spans[i].begin_ns, (long long)v->spans[i].end_ns, v->spans[i].event);
    for (size_t i = 0; i < v->wait_count; i++)
        fprintf(stderr, "  wait %lld-%lld event %u\n", (long long)v->waits[i].begin_ns, (long long)v->waits[i].end_ns, v->waits[i].event);
}

static void drop(struct trace_record *rows, size_t *count, size_t at) {
    memmove(rows + at, rows + at + 1, (--*count - at) * sizeof *rows);
}

/* Drops records as long as the disagreement stays. */
static void shrink(struct sample *s) {
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (size_t i = 0; i < s->view.span_count + s->view.wait_count; i++) {
            struct sample copy = *s;
            copy.view.spans = copy.spans;
            copy.view.waits = copy.waits;
            if (i < copy.view.span_count)
                drop(copy.spans, &copy.view.span_count, i);
            else
                drop(copy.waits, &copy.view.wait_count, i - copy.view.span_count);
            if (!disagree(&copy, false)) continue;
            *s = copy;
            s->view.spans = s->spans;
            s->view.waits = s->waits;
            smaller = true;
            break;
        }
    }
}

static void agrees_with_model(void **state) {
    (void)state;
    uint64_t first = getenv("MOKSCOPE_SEED") != NULL ? strtoull(getenv("MOKSCOPE_SEED"), NULL, 10) : (uint64_t)time(NULL) << 20;
    for (uint64_t seed = first; seed < first + 60000; seed++) {
        struct sample sample;
        make_sample(seed, seed % 3 == 0 ? 3 : RECORDS, &sample);
        if (!disagree(&sample, false)) continue;
        shrink(&sample);
        disagree(&sample, true);
        print_sample(&sample);
        fail_msg("MOKSCOPE_SEED=%llu", (unsigned long long)seed);
    }
}

/* Sums against the model; stalls of a span never exceed it. */
static void sums_add_up(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 20000; seed++) {
        struct sample s;
        struct segment_list list = {0};
        struct error error = {0};
        int64_t expected[STATE_COUNT] = {0}, sum = 0;
        make_sample(seed, RECORDS, &s);
        assert_int_equal(lane_sweep(&s.view, s.window_begin, s.window_end, &list, &error), 0);
        struct lane_sums sums = lane_sums_of(&s.view, list.rows, list.count, s.window_end, 1.0);
        for (int64_t at = s.window_begin; at < s.window_end; at++) expected[model(&s, at).state]++;
        for (int i = 0; i < STATE_COUNT; i++) {
            assert_int_equal(sums.ns[i], expected[i]);
            sum += sums.ns[i];
        }
        assert_int_equal(sum, s.window_end - s.window_begin);
        assert_int_equal(sums.window_ns, sum);
        assert_true(sums.stalled_ns >= 0 && sums.stalled_ns <= sums.ns[STATE_COMPUTE]);
        segment_list_release(&list);
    }
}

static void deep_nesting(void **state) {
    (void)state;
    enum { DEPTH = 1000 };
    struct trace_record *spans = calloc(DEPTH, sizeof *spans);
    struct segment_list list = {0};
    struct error error = {0};
    assert_non_null(spans);
    for (int i = 0; i < DEPTH; i++) spans[i] = (struct trace_record){i, 2 * DEPTH - i, 0, 0, (uint16_t)(i % 2)};
    struct lane_view view = {.spans = spans, .span_count = DEPTH, .events = events, .begin_ns = 0, .end_ns = 2 * DEPTH, .known_from_ns = 0, .closed = true};
    assert_int_equal(lane_sweep(&view, 0, 2 * DEPTH, &list, &error), 0);
    assert_int_equal(list.count, 2 * DEPTH - 1);
    for (size_t i = 0; i < list.count; i++) assert_int_equal(list.rows[i].state, (i < DEPTH ? i : 2 * DEPTH - 2 - i) % 2);
    segment_list_release(&list);
    free(spans);
}

static void empty_window(void **state) {
    (void)state;
    struct segment_list list = {0};
    struct error error = {0};
    struct lane_view view = {.events = events, .closed = true};
    assert_int_equal(lane_sweep(&view, 10, 10, &list, &error), 0);
    assert_int_equal(lane_sweep(&view, 10, 5, &list, &error), 0);
    assert_int_equal(list.count, 0);
    assert_int_equal(lane_sweep(&view, 10, 20, &list, &error), 0);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.rows[0].state, STATE_IDLE);
    segment_list_release(&list);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(agrees_with_model), cmocka_unit_test(sums_add_up), cmocka_unit_test(deep_nesting),
                                       cmocka_unit_test(empty_window)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
