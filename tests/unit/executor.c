/* The executor: random configurations keep the protocol and give the reference's bits; every planted fault is caught. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../kernels/bf16.h"
#include "../../kernels/executor.h"
#include "../../kernels/reference.h"
#include "random_source.h"

enum { SEEDS = 500, TOKENS_MOST = 9, HIDDEN_MOST = 12, INTERMEDIATE_MOST = 12, EXPERTS_MOST = 3 };

struct run_case {
    struct executor_options options;
    struct executor_inputs inputs;
    struct routes routes;
    uint16_t *memory;
};

static int32_t between(struct random_source *source, int32_t low, int32_t high) { return (int32_t)random_between(source, low, high); }

/* Small integers: all sums are exact, so that their order cannot show. */
static void fill(struct random_source *source, uint16_t *values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = bf16_from_float((float)between(source, -2, 2) * 0.5f);
}

static void random_schedule(struct random_source *source, struct executor_options *o) {
    struct schedule *s = &o->schedule;
    int32_t minibatches;
    memset(o, 0, sizeof *o);
    s->tile = (struct schedule_tile){4, 4, 4, between(source, 0, 1) ? 1 : 2};
    s->shape.rank_count = between(source, 1, 8);
    s->shape.experts_per_rank = between(source, 1, EXPERTS_MOST);
    s->shape.tokens = between(source, 1, TOKENS_MOST);
    s->shape.hidden = 4 * between(source, 1, HIDDEN_MOST / 4);
    s->shape.intermediate = 4 * between(source, 1, INTERMEDIATE_MOST / 4);
    s->shape.top_k = between(source, 1, 3);
    o->rank_ctas = between(source, 2, 7);
    s->knobs.comm_sms = between(source, 1, o->rank_ctas > 2 ? o->rank_ctas - 2 : 1);
    s->knobs.minibatch_rows = 4 * between(source, 1, 3);
    minibatches = between(source, 1, 3);
    s->knobs.ring_rows = minibatches * s->knobs.minibatch_rows;
    s->knobs.lag = between(source, 0, minibatches - 1);
    s->knobs.combine = between(source, 0, 1) ? COMBINE_RING : COMBINE_DIRECT;
    s->knobs.capacity_rows = (int32_t)schedule_capacity_rows_safe(&s->shape, &s->tile);
    o->comm_warps = between(source, 1, 3);
    o->launches = between(source, 2, 3);
}

static void make_inputs(struct random_source *source, struct run_case *c) {
    const struct layer_shape *shape = &c->options.schedule.shape;
    size_t x = (size_t)shape->tokens * (size_t)shape->hidden, ranks = (size_t)shape->rank_count;
    size_t matrix = (size_t)shape->experts_per_rank * (size_t)shape->hidden * (size_t)shape->intermediate;
    size_t count = ranks * (2 * x + 3 * matrix);
    uint16_t *at = c->memory = malloc(count * sizeof *c->memory);
    assert_non_null(at);
    fill(source, at, count);
    c->inputs.x_versions = 2;
    c->inputs.routes = &c->routes;
    for (size_t r = 0; r < ranks; r++) {
        c->inputs.x[0][r] = at, at += x;
        c->inputs.x[1][r] = at, at += x;
        c->inputs.w_gate[r] = at, at += matrix;
        c->inputs.w_up[r] = at, at += matrix;
        c->inputs.w_down[r] = at, at += matrix;
    }
}

static void make_case(struct run_case *c, uint64_t seed) {
    struct random_source source = random_seeded(seed);
    struct error error = {0};
    memset(c, 0, sizeof *c);
    random_schedule(&source, &c->options);
    c->options.seed = seed;
    const struct layer_shape *shape = &c->options.schedule.shape;
    struct routing_request request = {shape->rank_count, shape->tokens, shape->top_k, shape->experts_per_rank,
                                      shape->rank_count * shape->experts_per_rank + 4, (enum routing_kind)between(&source, 0, ROUTING_KIND_COUNT - 1),
                                      1.2, between(&source, 0, 3) == 0 ? 0.3 : 0.0, seed};
    if (routes_draw(&c->routes, &request, &error) != ERROR_NONE) fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
    make_inputs(&source, c);
}

static void free_case(struct run_case *c) {
    routes_free(&c->routes);
    free(c->memory);
}

static void check_outputs(const struct run_case *c, const struct executor *x, uint64_t seed) {
    const struct layer_shape *shape = &c->options.schedule.shape;
    int32_t version = (c->options.launches - 1) % c->inputs.x_versions;
    size_t per_rank = (size_t)shape->tokens * (size_t)shape->top_k, outputs = (size_t)shape->tokens * (size_t)shape->hidden;
    const int32_t *ids[SCHEDULE_RANKS_MAX];
    const float *weights[SCHEDULE_RANKS_MAX];
    uint16_t *expected = malloc(outputs * sizeof *expected);
    struct error error = {0};
    for (int32_t r = 0; r < shape->rank_count; r++) {
        ids[r] = c->routes.expert_ids + (size_t)r * per_rank;
        weights[r] = c->routes.weights + (size_t)r * per_rank;
    }
    struct mok_reference layer = {.ranks = shape->rank_count, .experts_per_rank = shape->experts_per_rank, .tokens = shape->tokens,
                                  .hidden = shape->hidden, .intermediate = shape->intermediate, .top_k = shape->top_k,
                                  .x = c->inputs.x[version], .expert_ids = ids, .weights = weights, .w_gate = c->inputs.w_gate,
                                  .w_up = c->inputs.w_up, .w_down = c->inputs.w_down};
    for (int32_t r = 0; r < shape->rank_count; r++) {
        assert_int_equal(mok_reference_forward(&layer, r, NULL, shape->tokens, expected, &error), 0);
        if (memcmp(expected, executor_output(x, r), outputs * sizeof *expected) != 0)
            fail_msg("seed %llu: outputs of rank %d differ from the reference", (unsigned long long)seed, r);
    }
    free(expected);
}

static void random_configurations_keep_the_protocol(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct run_case c;
        struct executor *x;
        struct error error = {0};
        make_case(&c, seed);
        if (executor_create(&c.options, &c.inputs, &x, &error) != ERROR_NONE)
            fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
        if (executor_run(x, &error) != ERROR_NONE) fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
        check_outputs(&c, x, seed);
        executor_destroy(x);
        free_case(&c);
    }
}

/* A configuration in which every edge is used again and again: several minibatches, two of them in the rings, unit rows of one. */
static void make_busy_case(struct run_case *c, enum schedule_combine combine, uint64_t seed) {
    struct random_source source = random_seeded(seed);
    struct error error = {0};
    memset(c, 0, sizeof *c);
    struct schedule *s = &c->options.schedule;
    s->tile = (struct schedule_tile){4, 4, 4, 1};
    s->shape = (struct layer_shape){.rank_count = 2, .experts_per_rank = 2, .tokens = 16, .hidden = 8, .intermediate = 8, .top_k = 2};
    s->knobs = (struct schedule_knobs){.comm_sms = 2, .minibatch_rows = 8, .ring_rows = 16, .lag = 1, .combine = (int32_t)combine};
    s->knobs.capacity_rows = (int32_t)schedule_capacity_rows_safe(&s->shape, &s->tile);
    c->options.rank_ctas = 6;
    c->options.comm_warps = 2;
    c->options.launches = 3;
    c->options.seed = seed;
    struct routing_request request = {2, 16, 2, 2, 8, ROUTING_UNIFORM, 1.2, 0.0, seed};
    assert_int_equal(routes_draw(&c->routes, &request, &error), 0);
    make_inputs(&source, c);
}

static int run_busy(enum schedule_combine combine, enum executor_fault fault, enum edge edge, uint64_t seed, struct error *error) {
    struct run_case c;
    struct executor *x;
    make_busy_case(&c, combine, seed);
    c.options.fault = fault;
    c.options.fault_edge = edge;
    assert_int_equal(executor_create(&c.options, &c.inputs, &x, error), 0);
    int code = executor_run(x, error);
    if (fault == EXECUTOR_FAULT_NONE && code == ERROR_NONE) check_outputs(&c, x, seed);
    executor_destroy(x);
    free_case(&c);
    return code;
}

static void planted_faults_are_caught(void **state) {
    (void)state;
    enum { TRIES = 20 };
    int planted = 0;
    for (int combine = COMBINE_DIRECT; combine <= COMBINE_RING; combine++) {
        for (int fault = EXECUTOR_FAULT_NONE; fault < EXECUTOR_FAULT_COUNT; fault++) {
            for (int edge = 0; edge < EDGE_COUNT; edge++) {
                struct schedule s = {.knobs = {.combine = combine}};
                if (fault != EXECUTOR_FAULT_NONE && !executor_fault_applies(&s, (enum executor_fault)fault, (enum edge)edge)) continue;
                int caught = 0;
                for (uint64_t seed = 1; seed <= TRIES; seed++) {
                    struct error error = {0};
                    caught += run_busy((enum schedule_combine)combine, (enum executor_fault)fault, (enum edge)edge, seed, &error) != ERROR_NONE;
                    if (fault == EXECUTOR_FAULT_NONE && caught) fail_msg("without a fault, seed %d: %s", (int)seed, error.message);
                }
                if (fault == EXECUTOR_FAULT_NONE) break;
                planted++;
                if (caught == 0)
                    fail_msg("combine %d: %s on edge %d was never caught", combine, executor_fault_name((enum executor_fault)fault), edge);
            }
        }
    }
    assert_true(planted > 60);
}

static void messages_say_who_and_what(void **state) {
    (void)state;
    struct error error = {0};
    assert_int_equal(run_busy(COMBINE_DIRECT, EXECUTOR_FAULT_TARGET_HIGH, EDGE_H_READY, 1, &error), ERROR_FAILURE);
    assert_non_null(strstr(error.message, "deadlock"));
    assert_non_null(strstr(error.message, "H_READY["));
    memset(&error, 0, sizeof error);
    assert_int_equal(run_busy(COMBINE_DIRECT, EXECUTOR_FAULT_WAIT_REMOVED, EDGE_X_READY, 1, &error), ERROR_FAILURE);
    assert_non_null(strstr(error.message, "x ring"));
    memset(&error, 0, sizeof error);
    assert_int_equal(run_busy(COMBINE_DIRECT, EXECUTOR_FAULT_SIGNAL_MISSING, EDGE_RANK_DONE, 1, &error), ERROR_FAILURE);
    assert_non_null(strstr(error.message, "RANK_DONE["));
}

static void options_are_checked(void **state) {
    (void)state;
    struct run_case c;
    struct executor *x;
    struct error error = {0};
    make_busy_case(&c, COMBINE_DIRECT, 1);
    c.options.schedule.knobs.ring_rows = 4;
    assert_int_equal(executor_create(&c.options, &c.inputs, &x, &error), ERROR_USAGE);
    assert_null(x);
    assert_non_null(strstr(error.message, "ring of 4 rows is smaller than a minibatch of 8 rows"));
    memset(&error, 0, sizeof error);
    c.options.schedule.knobs.ring_rows = 16;
    c.options.schedule.knobs.capacity_rows = 8;
    assert_int_equal(executor_create(&c.options, &c.inputs, &x, &error), ERROR_USAGE);
    assert_non_null(strstr(error.message, "capacity 8"));
    free_case(&c);
}

static int64_t number(sqlite3 *db, const char *sql) {
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return value;
}

static void trace_holds_the_run(void **state) {
    (void)state;
    struct run_case c;
    struct executor *x;
    struct error error = {0};
    char path[] = "/tmp/mokscope-executor-XXXXXX";
    sqlite3 *db;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    remove(path);
    make_busy_case(&c, COMBINE_RING, 3);
    assert_int_equal(executor_create(&c.options, &c.inputs, &x, &error), 0);
    assert_int_equal(executor_run(x, &error), 0);
    if (executor_write_trace(x, path, 0, "test", &error) != ERROR_NONE) fail_msg("%s", error.message);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(number(db, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    assert_int_equal(number(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    assert_int_equal(number(db, "SELECT count(*) FROM launch"), 2 * 3);
    assert_int_equal(number(db, "SELECT count(*) FROM launch JOIN kernel USING (kernel_id)"), 2 * 3);
    /* Every compute task has one MMA span a group and launch, every communication task a container span a launch. */
    assert_int_equal(number(db, "SELECT count(*) FROM v_span WHERE event = 'mma'"),
                     3 * 2 * number(db, "SELECT count(*) FROM task WHERE phase IN ('gate+up', 'down')"));
    assert_int_equal(number(db, "SELECT count(*) FROM v_span WHERE event IN ('task dispatch', 'task combine')"),
                     3 * number(db, "SELECT count(*) FROM task WHERE phase IN ('dispatch', 'combine')"));
    assert_true(number(db, "SELECT count(*) FROM wait") > 0);
    assert_int_equal(number(db, "SELECT count(*) FROM loss"), 0);
    sqlite3_close(db);
    assert_int_equal(executor_write_trace(x, path, 0, "test", &error), ERROR_USAGE); /* it is there */
    remove(path);
    executor_destroy(x);
    free_case(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_configurations_keep_the_protocol), cmocka_unit_test(planted_faults_are_caught),
        cmocka_unit_test(messages_say_who_and_what), cmocka_unit_test(options_are_checked), cmocka_unit_test(trace_holds_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
