/* kernels/schedule.h piece by piece: rows against dealing, both orders against nested loops, counters against what the tasks add,
 * and what is refused. tests/unit/schedule.c looks for cycles in the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/schedule_error.h"
#include "schedule_cases.h"

enum { CASES = 400 };

/* --- rows ------------------------------------------------------------------------------------------------------------ */

static void rows_are_dealt_round_robin(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct random_source source = random_seeded(seed);
        int32_t ranks = pick(&source, 1, SCHEDULE_RANKS_MAX), counts[SCHEDULE_RANKS_MAX], row = 0;
        for (int32_t peer = 0; peer < ranks; peer++) counts[peer] = random_below(&source, 4) ? pick(&source, 0, 20) : 0;
        for (int32_t ordinal = 0; ordinal < 20; ordinal++)
            for (int32_t peer = 0; peer < ranks; peer++)
                if (ordinal < counts[peer]) assert_int_equal(schedule_row_in_expert(counts, ranks, peer, ordinal), row++);
    }
}

/* Experts of 3, 0, 8 and 1 rows in tiles of 4: 4, 0, 8 and 4 rows, ends 4, 4, 12, 16. */
static void rows_are_padded_to_tiles(void **state) {
    (void)state;
    static const int32_t begins[] = {0, 4, 4, 12, 16}, failed_at[] = {0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, -1};
    struct schedule s = {.shape = {.rank_count = 1, .experts_per_rank = 3, .shared_experts = 1}, .tile = {.rows = 4}};
    for (int32_t capacity = 0; capacity <= 16; capacity++) {
        struct schedule_rows rows = {.expert_rows = {3, 0, 8, 1}};
        int32_t failed = -1;
        s.knobs.capacity_rows = capacity;
        enum schedule_error result = schedule_rows_prefix(&s, &rows, &failed);
        assert_int_equal(result, capacity < 16 ? SCHEDULE_OVERFLOW : SCHEDULE_OK);
        assert_int_equal(failed, failed_at[capacity]);
        assert_memory_equal(rows.expert_row_begin, begins, sizeof begins);
        assert_int_equal(schedule_total_rows(&s, &rows), 16);
    }
}

/* No routing needs more: all routes at one rank, its experts filled so that each pads as much as it can. */
static void safe_capacity_cannot_overflow(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct random_source source = random_seeded(seed);
        struct schedule s = {0};
        struct schedule_rows rows = {0};
        case_shape(&source, &s);
        int64_t capacity = schedule_capacity_rows_safe(&s.shape, &s.tile);
        int32_t left = s.shape.rank_count * s.shape.tokens * s.shape.top_k, failed;
        s.knobs.capacity_rows = (int32_t)capacity;
        for (int32_t e = 0; e < schedule_local_experts(&s.shape); e++) {
            int32_t own = e - s.shape.shared_experts, last = own == s.shape.experts_per_rank - 1;
            rows.expert_rows[e] = own < 0 ? s.shape.tokens : last ? left : schedule_minimum(left, 1 + s.tile.rows * pick(&source, 0, 3));
            if (own >= 0) left -= rows.expert_rows[e];
        }
        assert_int_equal(schedule_rows_prefix(&s, &rows, &failed), SCHEDULE_OK);
        assert_int_equal(capacity % s.tile.rows, 0);
    }
}

/* --- orders ---------------------------------------------------------------------------------------------------------- */

/* An order written out: tasks, the step of each, and where each block begins (tasks of one stage in one step, or of one matrix). */
struct model {
    struct schedule_task *tasks;
    int32_t *steps, *block_begins;
    int32_t task_count, block_count, capacity;
};

static void model_add(struct model *m, int32_t step, struct schedule_task task) {
    if (m->task_count == m->capacity) {
        m->capacity = 2 * m->capacity + 64;
        m->tasks = realloc(m->tasks, (size_t)m->capacity * sizeof *m->tasks);
        m->steps = realloc(m->steps, (size_t)m->capacity * sizeof *m->steps);
        m->block_begins = realloc(m->block_begins, ((size_t)m->capacity + 1) * sizeof *m->block_begins);
    }
    m->steps[m->task_count] = step;
    m->tasks[m->task_count++] = task;
}

static void model_begin_block(struct model *m) {
    if (m->task_count > 0 && (m->block_count == 0 || m->block_begins[m->block_count - 1] != m->task_count))
        m->block_begins[m->block_count++] = m->task_count;
}

static void model_free(struct model *m) {
    free(m->tasks);
    free(m->steps);
    free(m->block_begins);
}

struct model_stage {
    int32_t phase, columns, lag, unit_begin;
};

/* Step n: of each stage, minibatch n - lag, column by column, its units fastest. */
static void model_steps(struct model *m, int32_t units, int32_t per, const struct model_stage *stages, int32_t stage_count) {
    int32_t minibatches = (units + per - 1) / per;
    for (int32_t n = 0; n < 3 * minibatches + 3; n++)
        for (const struct model_stage *stage = stages; stage < stages + stage_count; stage++) {
            int32_t minibatch = n - (stage->lag < minibatches ? stage->lag : minibatches);
            if (minibatch < 0 || minibatch >= minibatches) continue;
            model_begin_block(m);
            for (int32_t column = 0; column < stage->columns; column++)
                for (int32_t unit = minibatch * per; unit < (minibatch + 1) * per; unit++)
                    if (unit < units && unit >= stage->unit_begin)
                        model_add(m, n, (struct schedule_task){stage->phase, minibatch, unit, column, -1});
        }
}

static struct model model_compute(const struct schedule *s, int32_t total_rows) {
    struct model m = {0};
    int32_t lag = s->knobs.lag, rows = s->tile.rows, per = s->knobs.minibatch_rows / rows;
    int32_t gate_up = s->shape.intermediate / s->tile.gate_up_columns, down = s->shape.hidden / s->tile.down_columns;
    int32_t dgrad = s->shape.intermediate / s->tile.down_columns;
    if (s->pass == PASS_FORWARD) {
        struct model_stage stages[] = {{PHASE_GATE_UP, gate_up, 0, 0}, {PHASE_DOWN, down, lag, 0}};
        model_steps(&m, total_rows / rows, per, stages, 2);
        return m;
    }
    struct model_stage stages[] = {{PHASE_REPLAY, gate_up, 0, s->knobs.saved_rows / rows},
                                   {PHASE_DGRAD_DOWN, dgrad, lag, 0},
                                   {PHASE_DGRAD_GATE_UP, down, 2 * lag, 0}};
    model_steps(&m, total_rows / rows, per, stages, 3);
    for (int32_t expert = 0; expert < s->shape.shared_experts + s->shape.experts_per_rank; expert++)
        for (int32_t matrix = 0; matrix < 3; matrix++) {
            static const int32_t phases[] = {PHASE_WGRAD_DOWN, PHASE_WGRAD_GATE, PHASE_WGRAD_UP};
            model_begin_block(&m);
            for (int32_t column = 0; column < (matrix == 0 ? dgrad : down); column++)
                for (int32_t row = 0; row < (matrix == 0 ? s->shape.hidden : s->shape.intermediate) / rows; row++)
                    model_add(&m, INT32_MAX, (struct schedule_task){phases[matrix], -1, row, column, expert});
        }
    return m;
}

static struct model model_comm(const struct schedule *s, int32_t total_rows) {
    struct model m = {0};
    struct model_stage stages[] = {{PHASE_DISPATCH, 1, 0, 0}, {PHASE_COMBINE, 1, s->knobs.lag + 1, 0}};
    model_steps(&m, total_rows / s->tile.unit_rows, s->knobs.minibatch_rows / s->tile.unit_rows, stages,
                s->pass == PASS_FORWARD && s->knobs.combine == COMBINE_RING ? 2 : 1);
    return m;
}

static void check_task(struct schedule_task task, struct schedule_task expected, uint64_t seed, int32_t index) {
    if (memcmp(&task, &expected, sizeof task) != 0)
        fail_msg("seed %llu, task %d: phase %d minibatch %d row %d column %d expert %d, expected %d %d %d %d %d", (unsigned long long)seed,
                 index, task.phase, task.minibatch, task.tile_row, task.tile_column, task.expert, expected.phase, expected.minibatch,
                 expected.tile_row, expected.tile_column, expected.expert);
}

/* By index, by a cursor that walks through all, and by one that skips at random. */
static void check_order(const struct schedule_order *order, const struct model *m, uint64_t seed) {
    struct random_source source = random_seeded(seed);
    struct schedule_cursor walk = schedule_cursor_begin(), skip = schedule_cursor_begin();
    int32_t next = 0, step_begin = 0;
    assert_int_equal(schedule_order_task_count(order), m->task_count);
    for (int32_t i = 0; i < m->task_count; i++) {
        check_task(schedule_order_task(order, i), m->tasks[i], seed, i);
        check_task(schedule_cursor_seek_task(order, &walk, i), m->tasks[i], seed, i);
        if (i < next) continue;
        check_task(schedule_cursor_seek_task(order, &skip, i), m->tasks[i], seed, i);
        next = i + pick(&source, 0, 60);
    }
    for (int32_t n = 0; n <= schedule_order_step_count(order); n++) {
        while (step_begin < m->task_count && m->steps[step_begin] < n) step_begin++;
        assert_int_equal(schedule_order_step_begin(order, n), step_begin);
    }
}

/* Tasks of a block two by two, an odd one alone. */
static void check_pairs(const struct schedule_order *order, struct model *m) {
    struct schedule_cursor cursor = schedule_cursor_begin();
    int32_t begin = 0, index = 0;
    if (m->task_count > 0) model_begin_block(m);
    for (int32_t block = 0; block < m->block_count; block++) {
        for (; begin < m->block_begins[block]; index++) {
            int32_t count = begin + 2 <= m->block_begins[block] ? 2 : 1;
            struct schedule_pair pair = schedule_order_pair(order, index), walked = schedule_cursor_seek_pair(order, &cursor, index);
            assert_int_equal(pair.first, begin);
            assert_int_equal(pair.count, count);
            assert_int_equal(walked.first, begin);
            assert_int_equal(walked.count, count);
            begin += count;
        }
    }
    assert_int_equal(begin, m->task_count);
    assert_int_equal(schedule_order_pair_count(order), index);
}

static void orders_are_nested_loops(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct schedule_case c = case_make(seed, seed % 2 ? PASS_BACKWARD : PASS_FORWARD);
        for (int32_t rank = 0; rank < c.schedule.shape.rank_count; rank++) {
            struct schedule_order compute = schedule_compute_order(&c.schedule, c.total_rows[rank]);
            struct schedule_order comm = schedule_comm_order(&c.schedule, c.total_rows[rank]);
            struct model compute_model = model_compute(&c.schedule, c.total_rows[rank]);
            struct model comm_model = model_comm(&c.schedule, c.total_rows[rank]);
            check_order(&compute, &compute_model, seed);
            check_order(&comm, &comm_model, seed);
            check_pairs(&compute, &compute_model);
            model_free(&compute_model);
            model_free(&comm_model);
        }
    }
}

/* Every tile of every phase once: the tasks, marked in a table of the work that there is. */
static void every_tile_is_one_task(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct schedule_case c = case_make(seed, seed % 2 ? PASS_BACKWARD : PASS_FORWARD);
        const struct schedule *s = &c.schedule;
        struct schedule_order order = schedule_compute_order(s, c.total_rows[0]);
        int32_t tile_rows = c.total_rows[0] / s->tile.rows, experts = schedule_local_experts(&s->shape), forward = s->pass == PASS_FORWARD;
        int32_t replayed = schedule_maximum(0, tile_rows - s->knobs.saved_rows / s->tile.rows);
        int32_t area = s->shape.hidden * s->shape.intermediate / s->tile.rows / s->tile.down_columns;
        int32_t expected = forward ? tile_rows * (s->shape.intermediate / s->tile.gate_up_columns + s->shape.hidden / s->tile.down_columns)
                                   : replayed * (s->shape.intermediate / s->tile.gate_up_columns) + 3 * experts * area +
                                         tile_rows * (s->shape.intermediate + s->shape.hidden) / s->tile.down_columns;
        assert_int_equal(schedule_order_task_count(&order), expected);
        size_t rows = (size_t)schedule_maximum(tile_rows, (s->shape.hidden + s->shape.intermediate) / s->tile.rows), columns = 16;
        uint8_t *seen = calloc((size_t)PHASE_NONE * (size_t)experts * rows * columns, 1);
        for (int32_t i = 0; i < expected; i++) {
            struct schedule_task task = schedule_order_task(&order, i);
            int32_t expert = task.expert < 0 ? 0 : task.expert;
            assert_true(task.tile_column < (int32_t)columns);
            size_t at = (((size_t)task.phase * (size_t)experts + (size_t)expert) * rows + (size_t)task.tile_row) * columns;
            assert_int_equal(seen[at + (size_t)task.tile_column]++, 0);
        }
        free(seen);
    }
}

/* Ids of both kinds of tasks and both passes do not meet. */
static void task_ids_are_apart(void **state) {
    (void)state;
    struct schedule_case c = case_make(5, PASS_FORWARD);
    struct schedule_order compute = schedule_compute_order(&c.schedule, c.total_rows[0]);
    int32_t count = schedule_order_task_count(&compute);
    assert_int_equal(schedule_compute_task_id(&c.schedule, count - 1) + 1, schedule_comm_task_id(&c.schedule, &compute, 0));
    c.schedule.pass = PASS_BACKWARD;
    assert_int_equal(schedule_compute_task_id(&c.schedule, 0), SCHEDULE_BACKWARD_TASK_FIRST);
}

/* The full models' shapes: no product overflows, the last tasks are the last ones. */
static void large_shapes_stay_in_range(void **state) {
    (void)state;
    struct schedule s = {.shape = {8, 32, 1 << 17, 8192, 2048, 16, 1}, .tile = {128, 128, 256, 8}, .knobs = {16, 2048, 8192, 1, COMBINE_RING, 0, 0}};
    int64_t capacity = schedule_capacity_rows_safe(&s.shape, &s.tile);
    assert_true(capacity < INT32_MAX);
    s.knobs.capacity_rows = (int32_t)capacity;
    assert_int_equal(schedule_check(&s, 132), SCHEDULE_OK);
    struct schedule_order order = schedule_compute_order(&s, s.knobs.capacity_rows);
    int64_t tile_rows = capacity / 128;
    assert_int_equal(schedule_order_task_count(&order), tile_rows * (16 + 32));
    struct schedule_task last = schedule_order_task(&order, schedule_order_task_count(&order) - 1);
    assert_int_equal(last.phase, PHASE_DOWN);
    assert_int_equal(last.tile_row, tile_rows - 1);
    assert_int_equal(last.tile_column, 31);
    assert_int_equal(schedule_edge_target(&s, s.knobs.capacity_rows, EDGE_PUSHED, 0, 1), capacity);
    assert_true(schedule_edge_counter_begin(&s, EDGE_COUNT) > 0);
}

/* --- counters -------------------------------------------------------------------------------------------------------- */

/* What the tasks of one rank add to its counters. */
struct sums {
    const struct schedule *s;
    uint32_t *counters;
};

static void add(const struct sums *sums, int32_t edge, int32_t index, uint32_t value) {
    if (edge < 0) return;
    assert_in_range(edge, 0, EDGE_COUNT - 1);
    assert_in_range(index, 0, schedule_edge_counter_count(sums->s, (enum edge)edge) - 1);
    sums->counters[schedule_edge_counter_begin(sums->s, edge) + index] += value;
}

/* Both warpgroups signal what a tile wrote, one of them what it has read; communication signals rows. */
static void add_task(const struct sums *sums, const struct schedule_case *c, int32_t rank, const struct schedule_task *task) {
    struct schedule_wait output = schedule_task_output(sums->s, task), release = schedule_task_release(sums->s, task);
    int32_t rows = task->phase == PHASE_DISPATCH || task->phase == PHASE_COMBINE;
    add(sums, output.edge, output.index, rows ? (uint32_t)sums->s->tile.unit_rows : 2);
    add(sums, release.edge, release.index, rows ? (uint32_t)sums->s->tile.unit_rows : 1);
    if (task->phase == PHASE_DGRAD_DOWN) add(sums, EDGE_EXPERT_READY, case_tile_expert(c, rank, task->tile_row), 2);
}

static void check_sums(const struct sums *sums, const struct schedule_case *c, int32_t rank) {
    for (int32_t edge = 0; edge < EDGE_COUNT; edge++)
        for (int32_t index = 0; index < schedule_edge_counter_count(sums->s, (enum edge)edge); index++) {
            uint32_t target = edge == EDGE_EXPERT_READY ? schedule_expert_target(sums->s, &c->rows[rank], index)
                                                        : schedule_edge_target(sums->s, c->total_rows[rank], (enum edge)edge, index, 1);
            uint32_t sum = sums->counters[schedule_edge_counter_begin(sums->s, edge) + index];
            if (sum != target)
                fail_msg("seed %llu rank %d: %s[%d] ends on %u, its target is %u", (unsigned long long)c->seed, rank,
                         schedule_edge_name((enum edge)edge), index, sum, target);
        }
}

static void counters_end_on_their_targets(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct schedule_case c = case_make(seed, seed % 2 ? PASS_BACKWARD : PASS_FORWARD);
        const struct schedule *s = &c.schedule;
        for (int32_t rank = 0; rank < s->shape.rank_count; rank++) {
            struct sums sums = {s, calloc((size_t)schedule_edge_counter_begin(s, EDGE_COUNT), sizeof(uint32_t))};
            struct schedule_order orders[2] = {schedule_compute_order(s, c.total_rows[rank]), schedule_comm_order(s, c.total_rows[rank])};
            for (int32_t o = 0; o < 2; o++)
                for (int32_t i = 0; i < schedule_order_task_count(&orders[o]); i++) {
                    struct schedule_task task = schedule_order_task(&orders[o], i);
                    add_task(&sums, &c, rank, &task);
                }
            for (int32_t cta = 0; cta < s->rank_ctas; cta++) add(&sums, EDGE_ROUTES_COUNTED, 0, 1), add(&sums, EDGE_ROUTES_PLACED, 0, 1);
            for (int32_t peer = 0; peer < s->shape.rank_count; peer++) add(&sums, EDGE_RANK_START, peer, 1), add(&sums, EDGE_RANK_DONE, peer, 1);
            check_sums(&sums, &c, rank);
            free(sums.counters);
        }
    }
}

/* System scope exactly where another rank signals or waits; counters where the scope is not a CTA's. */
static void edges_have_scopes_and_counters(void **state) {
    (void)state;
    struct schedule_case c = case_make(1, PASS_FORWARD);
    for (int32_t edge = 0; edge < EDGE_COUNT; edge++) {
        int in_cta = schedule_edge_scope((enum edge)edge) == EDGE_SCOPE_CTA;
        assert_int_equal(in_cta, schedule_edge_granularity((enum edge)edge) == EDGE_PER_CTA_SLOT);
        assert_int_equal(in_cta, schedule_edge_counter_count(&c.schedule, (enum edge)edge) == 0);
        assert_int_equal(schedule_edge_scope((enum edge)edge) == EDGE_SCOPE_SYS, schedule_edge_granularity((enum edge)edge) == EDGE_PER_PEER);
        assert_true(schedule_edge_name((enum edge)edge)[0] != '?');
    }
    assert_string_equal(schedule_edge_name(EDGE_COUNT), "?");
}

/* --- refusals -------------------------------------------------------------------------------------------------------- */

static struct schedule good_schedule(void) {
    return (struct schedule){.shape = {2, 4, 100, 1024, 512, 4, 1}, .tile = {128, 128, 256, 8}, .knobs = {4, 256, 1024, 1, COMBINE_DIRECT, 2048, 0}};
}

struct refusal {
    size_t field; /* offset of an int32_t in struct schedule; SIZE_MAX: the CTAs of a rank */
    int32_t value;
    enum schedule_error expected;
    const char *message, *hint;
};

#define FIELD(name) offsetof(struct schedule, name)

static const struct refusal refusals[] = {
    {FIELD(shape.rank_count), 0, SCHEDULE_BAD_RANKS, "ranks 0 is out of range", "allowed: 1 to 8"},
    {FIELD(shape.rank_count), 9, SCHEDULE_BAD_RANKS, "ranks 9 is out of range", "allowed: 1 to 8"},
    {FIELD(shape.experts_per_rank), 0, SCHEDULE_BAD_EXPERTS, "experts per rank 0 is out of range", "allowed: 1 to 64"},
    {FIELD(shape.experts_per_rank), 65, SCHEDULE_BAD_EXPERTS, "experts per rank 65 is out of range", "allowed: 1 to 64"},
    {FIELD(shape.shared_experts), -1, SCHEDULE_BAD_SHARED, "shared experts -1 is out of range", "allowed: 0 to 4"},
    {FIELD(shape.shared_experts), 5, SCHEDULE_BAD_SHARED, "shared experts 5 is out of range", "allowed: 0 to 4"},
    {FIELD(shape.tokens), 0, SCHEDULE_BAD_TOKENS, "tokens 0 is out of range", "allowed: 1 to 1048576"},
    {FIELD(shape.tokens), 1048577, SCHEDULE_BAD_TOKENS, "tokens 1048577 is out of range", "allowed: 1 to 1048576"},
    {FIELD(shape.top_k), 0, SCHEDULE_BAD_TOP_K, "top-k 0 is out of range", "allowed: 1 to 16"},
    {FIELD(shape.top_k), 17, SCHEDULE_BAD_TOP_K, "top-k 17 is out of range", "allowed: 1 to 16"},
    {FIELD(shape.hidden), 1000, SCHEDULE_BAD_HIDDEN, "hidden 1000 is not a positive multiple of 256", "nearest: 768"},
    {FIELD(shape.hidden), 0, SCHEDULE_BAD_HIDDEN, "hidden 0 is not a positive multiple of 256", "nearest: 256"},
    {FIELD(shape.intermediate), 500, SCHEDULE_BAD_INTERMEDIATE, "intermediate 500 is not a positive multiple of 128", "nearest: 384"},
    {FIELD(tile.rows), 0, SCHEDULE_BAD_TILE, "tile of 0 rows", "must be positive"},
    {FIELD(tile.unit_rows), 9, SCHEDULE_BAD_TILE, "units of 9 rows", "the unit divide the rows"},
    {FIELD(knobs.comm_sms), 0, SCHEDULE_BAD_COMM_SMS, "communication SMs 0 is out of range", "allowed: 1 to 14"},
    {FIELD(knobs.comm_sms), 15, SCHEDULE_BAD_COMM_SMS, "communication SMs 15 is out of range", "allowed: 1 to 14"},
    {SIZE_MAX, 1, SCHEDULE_BAD_COMM_SMS, "SMs a rank 1 is out of range", "allowed: 2 to"},
    {FIELD(knobs.minibatch_rows), 200, SCHEDULE_BAD_MINIBATCH, "minibatch 200 is not a positive multiple of 128", "nearest: 128"},
    {FIELD(knobs.minibatch_rows), 0, SCHEDULE_BAD_MINIBATCH, "minibatch 0 is not a positive multiple of 128", "nearest: 128"},
    {FIELD(knobs.ring_rows), 128, SCHEDULE_BAD_RING, "ring of 128 rows is smaller than a minibatch of 256 rows", "e.g. 512 rows"},
    {FIELD(knobs.ring_rows), 1000, SCHEDULE_BAD_RING, "ring 1000 is not a positive multiple of 256", "nearest: 768"},
    {FIELD(knobs.lag), -1, SCHEDULE_BAD_LAG, "lag -1 is out of range", "allowed: 0 to 3"},
    {FIELD(knobs.lag), 4, SCHEDULE_BAD_LAG, "lag 4 is out of range", "allowed: 0 to 3"},
    {FIELD(knobs.combine), 2, SCHEDULE_BAD_COMBINE, "combine path 2 is out of range", "allowed: 0 to 1"},
    {FIELD(knobs.capacity_rows), 2000, SCHEDULE_BAD_CAPACITY, "capacity 2000 is not a positive multiple of 128", "nearest: 1920"},
    {FIELD(knobs.capacity_rows), 0, SCHEDULE_BAD_CAPACITY, "capacity 0 is not a positive multiple of 128", "nearest: 128"},
    {FIELD(knobs.saved_rows), 100, SCHEDULE_BAD_SAVED, "saved rows 100 are not a multiple of 128 between 0 and the capacity 2048", "save all"},
    {FIELD(knobs.saved_rows), 2176, SCHEDULE_BAD_SAVED, "saved rows 2176 are not", "save all"},
    {FIELD(knobs.saved_rows), -128, SCHEDULE_BAD_SAVED, "saved rows -128 are not", "save all"},
};

/* Puts the values that the hint names in place of the refused one: all of them must do. */
static void check_remedy(const struct refusal *r, const char *hint) {
    struct schedule s = good_schedule();
    int32_t values[2], count = 0;
    const char *nearest = strstr(hint, "nearest: "), *example = strstr(hint, "e.g. ");
    if (sscanf(hint, "allowed: %d to %d", &values[0], &values[1]) == 2) count = 2;
    if (nearest != NULL) count = sscanf(nearest, "nearest: %d", &values[0]);
    if (example != NULL) count = sscanf(example, "e.g. %d", &values[0]);
    for (int32_t i = 0; i < count; i++) {
        memcpy((char *)&s + r->field, &values[i], sizeof values[i]);
        assert_int_not_equal(schedule_check(&s, 16), r->expected);
    }
}

static void refusals_name_value_and_remedy(void **state) {
    (void)state;
    int provoked[SCHEDULE_OVERFLOW + 1] = {0};
    struct schedule good = good_schedule();
    assert_int_equal(schedule_check(&good, 16), SCHEDULE_OK);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *r = &refusals[i];
        struct schedule s = good;
        struct error error = {0};
        int32_t ctas = 16;
        memcpy(r->field == SIZE_MAX ? (char *)&ctas : (char *)&s + r->field, &r->value, sizeof r->value);
        assert_int_equal(schedule_check(&s, ctas), r->expected);
        assert_int_equal(schedule_error_describe(&s, r->expected, ctas, &error), ERROR_USAGE);
        if (strstr(error.message, r->message) == NULL || strstr(error.hint, r->hint) == NULL)
            fail_msg("'%s' (%s), expected '%s' (%s)", error.message, error.hint, r->message, r->hint);
        if (r->field != SIZE_MAX) check_remedy(r, error.hint);
        provoked[r->expected] = 1;
    }
    for (int bad = SCHEDULE_BAD_RANKS; bad <= SCHEDULE_BAD_SAVED; bad++)
        if (!provoked[bad]) fail_msg("no case provokes refusal %d", bad);
    struct error error = {0};
    assert_int_equal(schedule_error_describe(&good, SCHEDULE_OK, 16, &error), ERROR_NONE);
}

static void overflow_names_rank_expert_rows_and_capacity(void **state) {
    (void)state;
    struct schedule s = good_schedule(); /* one shared expert: local expert 3 is the rank's third own one, 1 * 4 + 2 of the model */
    struct error error = {0};
    assert_int_equal(schedule_error_overflow(&s, 1, 3, 4096, &error), ERROR_USAGE);
    assert_string_equal(error.message, "rank 1 overflows at expert 6: 4096 rows with padding, capacity 2048");
    assert_non_null(strstr(error.hint, "at least 4096"));
    error = (struct error){0};
    assert_int_equal(schedule_error_overflow(&s, 0, 0, 4096, &error), ERROR_USAGE);
    assert_string_equal(error.message, "rank 0 overflows at shared expert 0: 4096 rows with padding, capacity 2048");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_dealt_round_robin),
        cmocka_unit_test(rows_are_padded_to_tiles),
        cmocka_unit_test(safe_capacity_cannot_overflow),
        cmocka_unit_test(orders_are_nested_loops),
        cmocka_unit_test(every_tile_is_one_task),
        cmocka_unit_test(task_ids_are_apart),
        cmocka_unit_test(large_shapes_stay_in_range),
        cmocka_unit_test(counters_end_on_their_targets),
        cmocka_unit_test(edges_have_scopes_and_counters),
        cmocka_unit_test(refusals_name_value_and_remedy),
        cmocka_unit_test(overflow_names_rank_expert_rows_and_capacity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
