/* wait_cause against its definition, nanosecond by nanosecond, on random CTAs; owners sum to the waits. Planted cases with
 * known owners are in tests/analysis. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../analyzer/wait_cause.h"

enum { ROLES = 4, EDGES = 6, CTAS = 2, LANES_MAX = CTAS * ROLES * 2, SEGMENTS = 24, TIME = 60 };

static uint64_t random_state;

static uint32_t random_below(uint32_t limit) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)(random_state * 0x2545f4914f6cdd1du >> 33) % limit;
}

struct sample {
    struct trace trace;
    struct trace_edge edges[EDGES];
    struct trace_role roles[ROLES];
    struct trace_lane lanes[LANES_MAX];
    struct lane_segment segments[LANES_MAX][SEGMENTS];
    struct cause_lane cause[LANES_MAX];
    int32_t count;
};

/* Every role has one lane a CTA, or every role two: the producer's lane is then known without looking at times. */
static void make_sample(uint64_t seed, struct sample *s) {
    random_state = seed * 2 + 1;
    for (int i = 0; i < 8; i++) random_below(2);
    memset(s, 0, sizeof *s);
    s->trace.edges = s->edges;
    s->trace.edge_count = EDGES;
    s->trace.roles = s->roles;
    s->trace.role_count = ROLES;
    for (int32_t e = 0; e < EDGES; e++)
        s->edges[e] = (struct trace_edge){.producer = (int32_t)random_below(ROLES), .consumer = (int32_t)random_below(ROLES),
                                          .scope = random_below(3) ? TRACE_SCOPE_CTA : TRACE_SCOPE_GPU};
    int32_t each = 1 + (int32_t)random_below(2);
    for (int32_t role = 0; role < ROLES; role++) {
        if (random_below(5) == 0) continue; /* a role without lanes */
        for (int32_t cta = 0; cta < CTAS; cta++) {
            for (int32_t i = 0; i < each; i++) {
                int32_t l = s->count++;
                size_t used = 0;
                s->lanes[l] = (struct trace_lane){.role = role, .cta = cta, .warp = i};
                for (int64_t at = 0; at < TIME && used < SEGMENTS; at += 1 + random_below(8)) {
                    bool wait = random_below(2) == 0;
                    s->segments[l][used] = (struct lane_segment){.begin_ns = at, .record = (uint32_t)used, .state = wait ? STATE_WAIT : STATE_COMPUTE,
                                                                 .edge = wait ? (int16_t)((int)random_below(EDGES + 1) - 1) : (int16_t)-1};
                    used++;
                }
                s->cause[l] = (struct cause_lane){&s->lanes[l], s->segments[l], used};
            }
        }
    }
}

static const struct lane_segment *segment_at(const struct sample *s, int32_t lane, int64_t at) {
    const struct lane_segment *found = NULL;
    for (size_t i = 0; i < s->cause[lane].count && s->segments[lane][i].begin_ns <= at; i++) found = &s->segments[lane][i];
    return found;
}

static int32_t model_owner(const struct sample *s, int32_t lane, int64_t at, uint32_t visited) {
    int32_t edge = segment_at(s, lane, at)->edge;
    if (edge < 0 || s->edges[edge].scope != TRACE_SCOPE_CTA) return edge;
    int32_t producer_role = s->edges[edge].producer, producer = -1;
    visited |= 1u << s->lanes[lane].role;
    if (visited >> producer_role & 1u) return edge;
    for (int32_t l = 0; l < s->count; l++)
        if (s->lanes[l].cta == s->lanes[lane].cta && s->lanes[l].role == producer_role && s->lanes[l].warp == s->lanes[lane].warp) producer = l;
    if (producer < 0) return edge;
    const struct lane_segment *there = segment_at(s, producer, at);
    if (there->state != STATE_WAIT || there->edge < 0) return edge;
    return model_owner(s, producer, at, visited);
}

static void agrees_with_model(void **state) {
    (void)state;
    uint64_t first = getenv("MOKSCOPE_SEED") != NULL ? strtoull(getenv("MOKSCOPE_SEED"), NULL, 10) : (uint64_t)time(NULL) << 20;
    for (uint64_t seed = first; seed < first + 6000; seed++) {
        struct sample s;
        struct arena arena = {0};
        struct wait_table table = {0};
        struct error error = {0};
        int64_t expected[ROLES][EDGES + 1][EDGES + 1] = {0}; /* edge -1 at EDGES */
        make_sample(seed, &s);
        for (int32_t l = 0; l < s.count; l++) {
            for (int64_t at = 0; at < TIME; at++) {
                const struct lane_segment *segment = segment_at(&s, l, at);
                if (segment->state != STATE_WAIT) continue;
                int32_t edge = segment->edge < 0 ? EDGES : segment->edge, owner = model_owner(&s, l, at, 0);
                expected[s.lanes[l].role][edge][owner < 0 ? EDGES : owner]++;
            }
        }
        assert_int_equal(wait_cause_add(&s.trace, s.cause, s.count, TIME, &arena, &table, &error), 0);
        for (int32_t i = 0; i < table.count; i++) {
            const struct wait_row *row = &table.rows[i];
            int64_t *cell = &expected[row->role][row->edge < 0 ? EDGES : row->edge][row->owner < 0 ? EDGES : row->owner];
            if (*cell != row->total_ns)
                fail_msg("MOKSCOPE_SEED=%llu role %d edge %d owner %d: %lld ns, expected %lld", (unsigned long long)seed, row->role, row->edge,
                         row->owner, (long long)row->total_ns, (long long)*cell);
            *cell = 0;
        }
        for (size_t i = 0; i < sizeof expected / sizeof(int64_t); i++)
            if (((int64_t *)expected)[i] != 0) fail_msg("MOKSCOPE_SEED=%llu: a row is missing", (unsigned long long)seed);
        wait_table_release(&table);
        arena_release(&arena);
    }
}

/* Merging adds counts and totals and keeps the largest maximum; order is by total. */
static void merges(void **state) {
    (void)state;
    struct wait_row a[] = {{0, 1, 2, 3, 10, 1, 10}, {1, 1, 2, 3, 50, 2, 40}}, b[] = {{0, 1, 2, 3, 45, 3, 20}, {0, 1, 2, 2, 5, 1, 5}};
    struct wait_table table = {0}, first = {a, 2, 2}, second = {b, 2, 2};
    struct error error = {0};
    assert_int_equal(wait_table_merge(&table, &first, &error), 0);
    assert_int_equal(wait_table_merge(&table, &second, &error), 0);
    wait_table_order(&table);
    assert_int_equal(table.count, 3);
    assert_int_equal(table.rows[0].rank, 0);
    assert_int_equal(table.rows[0].total_ns, 55);
    assert_int_equal(table.rows[0].count, 4);
    assert_int_equal(table.rows[0].max_ns, 20);
    assert_int_equal(table.rows[1].total_ns, 50);
    assert_int_equal(table.rows[2].owner, 2);
    wait_table_release(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(agrees_with_model), cmocka_unit_test(merges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
