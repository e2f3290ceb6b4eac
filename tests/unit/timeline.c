/* Levels of detail of the timeline against the definition, on random lanes; runs of a swept pass against its figures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../analyzer/analysis.h"
#include "../../analyzer/timeline.h"
#include "trace_build.h"

enum { RUNS = 24, TIME = 240 };

static uint64_t random_state;

static uint32_t random_below(uint32_t limit) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)(random_state * 0x2545f4914f6cdd1du >> 33) % limit;
}

struct sample {
    struct timeline_run runs[RUNS];
    struct timeline_lane lane;
    int64_t lane_end, begin, end;
    int32_t columns;
};

/* Windows are multiples of the columns, so that columns have whole nanoseconds. */
static void make_sample(uint64_t seed, struct sample *s) {
    random_state = seed * 2 + 1;
    for (int i = 0; i < 8; i++) random_below(2);
    int64_t at = random_below(40);
    s->lane = (struct timeline_lane){NULL, s->runs, 0};
    for (int i = 0; i < (int)random_below(RUNS); i++) {
        s->runs[s->lane.count++] = (struct timeline_run){at, (uint8_t)random_below(TIMELINE_CATEGORY_COUNT)};
        at += 1 + random_below(random_below(3) == 0 ? 60 : 6);
    }
    s->lane_end = at;
    s->columns = 1 + (int32_t)random_below(20);
    s->begin = random_below(30);
    s->end = s->begin + (int64_t)s->columns * (1 + random_below(9));
}

static int category_at(const struct sample *s, int64_t at) {
    int category = TIMELINE_IDLE;
    if (at >= s->lane_end) return TIMELINE_IDLE;
    for (size_t i = 0; i < s->lane.count && s->runs[i].begin_ns <= at; i++) category = s->runs[i].category;
    return category;
}

struct drawn {
    uint8_t columns[512];
    int32_t last;
    int wrong;
};

static void draw(void *context, struct timeline_column_run run) {
    struct drawn *drawn = context;
    if (run.begin < drawn->last || run.end <= run.begin || run.category == TIMELINE_IDLE) drawn->wrong = 1;
    for (int32_t c = run.begin; c < run.end; c++) drawn->columns[c] = run.category;
    drawn->last = run.end;
}

static void columns_show_most(void **state) {
    (void)state;
    uint64_t first = getenv("MOKSCOPE_SEED") != NULL ? strtoull(getenv("MOKSCOPE_SEED"), NULL, 10) : (uint64_t)time(NULL) << 20;
    for (uint64_t seed = first; seed < first + 30000; seed++) {
        struct sample s;
        struct drawn drawn = {.last = 0};
        make_sample(seed, &s);
        for (int32_t c = 0; c < s.columns; c++) drawn.columns[c] = TIMELINE_IDLE;
        timeline_quantise(&s.lane, s.lane_end, s.begin, s.end, s.columns, draw, &drawn);
        int64_t width = (s.end - s.begin) / s.columns;
        for (int32_t c = 0; c < s.columns; c++) {
            int64_t ns[TIMELINE_CATEGORY_COUNT] = {0};
            int best = 0;
            for (int64_t at = s.begin + c * width; at < s.begin + (c + 1) * width; at++) ns[category_at(&s, at)]++;
            for (int k = 1; k < TIMELINE_CATEGORY_COUNT; k++)
                if (ns[k] > ns[best]) best = k;
            if (drawn.wrong || drawn.columns[c] != best)
                fail_msg("MOKSCOPE_SEED=%llu column %d: %s, expected %s", (unsigned long long)seed, c,
                         timeline_category_name((enum timeline_category)drawn.columns[c]), timeline_category_name((enum timeline_category)best));
        }
    }
}

static void bins_add_up(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 20000; seed++) {
        struct sample s;
        double bins[32 * TIMELINE_CATEGORY_COUNT] = {0};
        make_sample(seed, &s);
        timeline_add_to_bins(&s.lane, s.lane_end, s.begin, s.end, s.columns, bins);
        int64_t width = (s.end - s.begin) / s.columns;
        for (int32_t c = 0; c < s.columns; c++) {
            double ns[TIMELINE_CATEGORY_COUNT] = {0};
            for (int64_t at = s.begin + c * width; at < s.begin + (c + 1) * width; at++) ns[category_at(&s, at)]++;
            for (int k = 0; k < TIMELINE_IDLE; k++) assert_true(fabs(bins[c * TIMELINE_CATEGORY_COUNT + k] - ns[k]) < 1e-6);
        }
    }
}

/* A matrix lane that waits for its load role, which waits for rows: the picture shows it as a wait for communication. */
static void waits_by_owner(void **state) {
    (void)state;
    struct trace_build b;
    struct trace_file file = {0};
    struct trace trace = {0};
    struct analysis analysis = {0};
    struct pass_sweep sweep = {0};
    struct timeline timeline;
    struct arena arena = {0};
    struct error error = {0};
    const struct iteration_choice choice = {-1, -1};
    build_open(&b);
    build_role(&b, "load", "support");
    build_role(&b, "mma", "compute");
    build_role(&b, "dispatch", "communicate");
    build_event(&b, "mma", "compute", "");
    build_edge(&b, "X", "dispatch", "load", "gpu", false);
    build_edge(&b, "STAGE", "load", "mma", "cta", false);
    build_launch(&b, 1);
    build_lane(&b, "load", 0, 0, 0, 0, 0, 100);
    build_wait(&b, "X", 20, 60, 0);
    build_lane_end(&b);
    build_lane(&b, "mma", 0, 0, 4, 0, 0, 100);
    build_wait(&b, "STAGE", 10, 70, 0);
    build_span(&b, "mma", 70, 90, 0, 0);
    build_close(&b);
    assert_int_equal(trace_file_open(&file, b.path, &error), 0);
    assert_int_equal(trace_read(&file, &trace, &error), 0);
    assert_int_equal(analysis_run(&trace, &choice, &analysis, &error), 0);
    assert_int_equal(pass_sweep_run(&trace, &analysis.iterations.passes[0], &arena, &sweep, &error), 0);
    assert_int_equal(timeline_make(&sweep, analysis.carries, &arena, &timeline, &error), 0);
    static const struct timeline_run expected[] = {{0, TIMELINE_IDLE},  {10, TIMELINE_WAIT},    {20, TIMELINE_EXPOSED},
                                                   {60, TIMELINE_WAIT}, {70, TIMELINE_COMPUTE}, {90, TIMELINE_IDLE}};
    const struct timeline_lane *lane = &timeline.lanes[1];
    assert_int_equal(lane->count, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(lane->runs[i].begin_ns - BUILD_BASE_TICKS, expected[i].begin_ns);
        assert_int_equal(lane->runs[i].category, expected[i].category);
    }
    assert_int_equal(timeline.lanes[0].count, 3);
    pass_sweep_release(&sweep);
    arena_release(&arena);
    analysis_release(&analysis);
    trace_release(&trace);
    trace_file_close(&file);
    build_remove(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(columns_show_most), cmocka_unit_test(bins_add_up), cmocka_unit_test(waits_by_owner)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
