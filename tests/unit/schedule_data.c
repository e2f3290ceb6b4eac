/* The schedule's waits are enough: tasks run in any order and overlap in any way that their waits alone allow, without any executor's
 * program order, and every read still finds the rows it means, from its begin to its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule_cases.h"

enum { CASES = 400, WRITING = -1 };

/* What tasks hand to each other. Forward: rings; backward: arrays of the rank's rows, HIDDEN holding dG, dU and s h. */
enum buffer { BUFFER_X, BUFFER_HIDDEN, BUFFER_Y, BUFFER_GATE_UP, BUFFER_COUNT };

/* Who runs next: anyone, the newest possible task, or the newest with reads that take as long as they can. */
enum bias { BIAS_NONE, BIAS_AHEAD, BIAS_AHEAD_SLOW, BIAS_COUNT };

struct access {
    enum buffer buffer;
    int32_t row, rows, column, columns;
};

struct run {
    const struct schedule_case *c;
    int32_t rank, total_rows;
    struct random_source source;
    int32_t *cells[BUFFER_COUNT]; /* [rows, columns] logical row that a cell holds; WRITING while it is written */
    int32_t rows[BUFFER_COUNT], columns[BUFFER_COUNT];
    uint32_t *counters;
    struct schedule_task *tasks;  /* waiting, then running */
    int32_t task_count, running;  /* running ones stand at the end */
    int64_t pushed;               /* cells of results that have reached their owners */
};

static int32_t *cell_of(const struct run *r, enum buffer buffer, int32_t row, int32_t column) {
    return &r->cells[buffer][row % r->rows[buffer] * r->columns[buffer] + column];
}

static void fail_at(const struct run *r, const struct schedule_task *task, const char *what, int32_t row, int32_t found) {
    fail_msg("seed %llu rank %d: phase %d of minibatch %d, tile row %d, column %d %s row %d, but finds %d", (unsigned long long)r->c->seed,
             r->rank, task->phase, task->minibatch, task->tile_row, task->tile_column, what, row, found);
}

static void check_read(const struct run *r, const struct schedule_task *task, struct access a) {
    for (int32_t row = a.row; row < a.row + a.rows; row++)
        for (int32_t column = a.column; column < a.column + a.columns; column++)
            if (*cell_of(r, a.buffer, row, column) != row) fail_at(r, task, "reads", row, *cell_of(r, a.buffer, row, column));
}

static void write_cells(const struct run *r, const struct schedule_task *task, struct access a, int end) {
    for (int32_t row = a.row; row < a.row + a.rows; row++)
        for (int32_t column = a.column; column < a.column + a.columns; column++) {
            int32_t *cell = cell_of(r, a.buffer, row, column);
            if ((*cell == WRITING) != end) fail_at(r, task, "writes", row, *cell);
            *cell = end ? row : WRITING;
        }
}

/* Rows of a weight gradient: its expert's. */
static struct access expert_rows(const struct run *r, const struct schedule_task *task, enum buffer buffer) {
    const int32_t *begins = r->c->rows[r->rank].expert_row_begin;
    return (struct access){buffer, begins[task->expert], begins[task->expert + 1] - begins[task->expert], 0, r->columns[buffer]};
}

/* What the task reads. Returns how many accesses. */
static int32_t reads_of(const struct run *r, const struct schedule_task *task, struct access *reads) {
    int32_t rows = r->c->schedule.tile.rows, row = task->tile_row * rows, unit = r->c->schedule.tile.unit_rows;
    struct access x = {BUFFER_X, row, rows, 0, 1}, hidden = {BUFFER_HIDDEN, row, rows, 0, r->columns[BUFFER_HIDDEN]};
    switch (task->phase) {
    case PHASE_DISPATCH: return 0;
    case PHASE_COMBINE: reads[0] = (struct access){BUFFER_Y, task->tile_row * unit, unit, 0, r->columns[BUFFER_Y]}; return 1;
    case PHASE_GATE_UP:
    case PHASE_REPLAY: reads[0] = x; return 1;
    case PHASE_DOWN:
    case PHASE_DGRAD_GATE_UP: reads[0] = hidden; return 1;
    case PHASE_DGRAD_DOWN: /* as wide as two tiles of gate and up */
        reads[0] = x;
        reads[1] = (struct access){BUFFER_GATE_UP, row, rows, 2 * task->tile_column, 2};
        return 2;
    default: reads[0] = expert_rows(r, task, BUFFER_X); reads[1] = expert_rows(r, task, BUFFER_HIDDEN); return 2;
    }
}

/* What it writes for other tasks. Returns 0 if it writes to the owners' slots instead, or weight gradients. */
static int32_t write_of(const struct run *r, const struct schedule_task *task, struct access *a) {
    const struct schedule *s = &r->c->schedule;
    int32_t rows = s->tile.rows, unit = s->tile.unit_rows;
    *a = (struct access){BUFFER_COUNT, task->tile_row * rows, rows, task->tile_column, 1};
    switch (task->phase) {
    case PHASE_DISPATCH: *a = (struct access){BUFFER_X, task->tile_row * unit, unit, 0, 1}; break;
    case PHASE_GATE_UP:
    case PHASE_DGRAD_DOWN: a->buffer = BUFFER_HIDDEN; break;
    case PHASE_DOWN: a->buffer = s->knobs.combine == COMBINE_RING ? BUFFER_Y : BUFFER_COUNT; break;
    case PHASE_REPLAY: a->buffer = BUFFER_GATE_UP; break;
    default: break;
    }
    return a->buffer != BUFFER_COUNT;
}

static uint32_t *counter_of(const struct run *r, int32_t edge, int32_t index) {
    return &r->counters[schedule_edge_counter_begin(&r->c->schedule, edge) + index];
}

static int reached(const struct run *r, struct schedule_wait wait) {
    if (wait.edge < 0) return 1;
    const struct schedule *s = &r->c->schedule;
    uint32_t target = wait.edge == EDGE_EXPERT_READY ? schedule_expert_target(s, &r->c->rows[r->rank], wait.index)
                                                     : schedule_edge_target(s, r->total_rows, (enum edge)wait.edge, wait.index, 1);
    return *counter_of(r, wait.edge, wait.index) >= target;
}

static int may_begin(const struct run *r, const struct schedule_task *task) {
    const struct schedule *s = &r->c->schedule;
    return reached(r, schedule_task_input(s, task)) && reached(r, schedule_task_second_input(s, task)) && reached(r, schedule_task_slot(s, task));
}

static void begin_task(const struct run *r, const struct schedule_task *task) {
    struct access reads[2], write;
    for (int32_t i = reads_of(r, task, reads); i > 0; i--) check_read(r, task, reads[i - 1]);
    if (write_of(r, task, &write)) write_cells(r, task, write, 0);
}

static void signal(const struct run *r, struct schedule_wait signal, uint32_t value) {
    if (signal.edge >= 0) *counter_of(r, signal.edge, signal.index) += value;
}

static void end_task(struct run *r, const struct schedule_task *task) {
    const struct schedule *s = &r->c->schedule;
    struct access reads[2], write;
    int32_t comm = task->phase == PHASE_DISPATCH || task->phase == PHASE_COMBINE;
    for (int32_t i = reads_of(r, task, reads); i > 0; i--) check_read(r, task, reads[i - 1]);
    if (write_of(r, task, &write)) write_cells(r, task, write, 1);
    if (task->phase == PHASE_COMBINE) r->pushed += s->tile.unit_rows * schedule_down_tile_columns(s);
    if (task->phase == PHASE_DGRAD_GATE_UP || (task->phase == PHASE_DOWN && s->knobs.combine == COMBINE_DIRECT)) r->pushed += s->tile.rows;
    signal(r, schedule_task_output(s, task), comm ? (uint32_t)s->tile.unit_rows : 2);
    signal(r, schedule_task_release(s, task), comm ? (uint32_t)s->tile.unit_rows : 1);
    if (task->phase == PHASE_DGRAD_DOWN) signal(r, (struct schedule_wait){EDGE_EXPERT_READY, case_tile_expert(r->c, r->rank, task->tile_row)}, 2);
    /* Peers reduce as soon as PUSHED is on its target. */
    int64_t all = (int64_t)r->total_rows * schedule_down_tile_columns(s);
    struct schedule_wait pushed = {EDGE_PUSHED, 0};
    if (reached(r, pushed) && r->pushed != all) fail_at(r, task, "lets peers reduce; pushed", (int32_t)r->pushed, (int32_t)all);
}

static void buffer_make(struct run *r, enum buffer buffer, int32_t rows, int32_t columns) {
    r->rows[buffer] = rows;
    r->columns[buffer] = columns;
    r->cells[buffer] = malloc((size_t)rows * (size_t)columns * sizeof(int32_t));
    for (int32_t i = 0; i < rows * columns; i++) r->cells[buffer][i] = INT32_MIN;
}

static void add_tasks(struct run *r, const struct schedule_order *order) {
    int32_t count = schedule_order_task_count(order);
    r->tasks = realloc(r->tasks, (size_t)(r->task_count + count + 1) * sizeof *r->tasks);
    for (int32_t i = 0; i < count; i++) r->tasks[r->task_count++] = schedule_order_task(order, i);
}

static struct run run_make(const struct schedule_case *c, int32_t rank, uint64_t seed) {
    struct run r = {.c = c, .rank = rank, .total_rows = c->total_rows[rank], .source = random_seeded(seed)};
    const struct schedule *s = &c->schedule;
    int32_t backward = s->pass == PASS_BACKWARD, rows = backward ? s->knobs.capacity_rows : s->knobs.ring_rows;
    struct schedule_order comm = schedule_comm_order(s, r.total_rows), compute = schedule_compute_order(s, r.total_rows);
    buffer_make(&r, BUFFER_X, rows, 1);
    buffer_make(&r, BUFFER_HIDDEN, rows, backward ? schedule_dgrad_tile_columns(s) : schedule_gate_up_tile_columns(s));
    buffer_make(&r, BUFFER_Y, rows, schedule_down_tile_columns(s));
    buffer_make(&r, BUFFER_GATE_UP, rows, schedule_gate_up_tile_columns(s));
    for (int32_t row = 0; backward && row < s->knobs.saved_rows; row++) /* kept by the forward pass */
        for (int32_t column = 0; column < r.columns[BUFFER_GATE_UP]; column++) *cell_of(&r, BUFFER_GATE_UP, row, column) = row;
    r.counters = calloc((size_t)schedule_edge_counter_begin(s, EDGE_COUNT), sizeof(uint32_t));
    add_tasks(&r, &comm);
    add_tasks(&r, &compute);
    return r;
}

static void run_free(struct run *r) {
    for (int buffer = 0; buffer < BUFFER_COUNT; buffer++) free(r->cells[buffer]);
    free(r->counters);
    free(r->tasks);
}

static void swap_tasks(struct run *r, int32_t a, int32_t b) {
    struct schedule_task task = r->tasks[a];
    r->tasks[a] = r->tasks[b];
    r->tasks[b] = task;
}

/* Waiting task to begin now, -1: none may. */
static int32_t choose(struct run *r, enum bias bias) {
    int32_t waiting = r->task_count - r->running, chosen = -1;
    if (bias == BIAS_NONE && waiting > 0) { /* anyone, from a random place on */
        int32_t first = pick(&r->source, 0, waiting - 1);
        for (int32_t i = 0; i < waiting; i++)
            if (may_begin(r, &r->tasks[(first + i) % waiting])) return (first + i) % waiting;
        return -1;
    }
    for (int32_t i = 0; i < waiting; i++)
        if ((chosen < 0 || r->tasks[i].minibatch > r->tasks[chosen].minibatch) && may_begin(r, &r->tasks[i])) chosen = i;
    return chosen;
}

static void run_all(struct run *r, enum bias bias) {
    while (r->task_count > 0) {
        int32_t begins = r->running == 0 || random_below(&r->source, 3) > 0 || (bias == BIAS_AHEAD_SLOW && random_below(&r->source, 8) > 0);
        int32_t chosen = begins ? choose(r, bias) : -1;
        if (chosen >= 0) {
            begin_task(r, &r->tasks[chosen]);
            swap_tasks(r, chosen, r->task_count - 1 - r->running++);
        } else if (r->running > 0) {
            int32_t ended = r->task_count - 1 - pick(&r->source, 0, r->running - 1);
            swap_tasks(r, ended, r->task_count - 1);
            struct schedule_task task = r->tasks[--r->task_count];
            r->running--;
            end_task(r, &task);
        } else {
            fail_msg("seed %llu rank %d: %d tasks left, none may begin", (unsigned long long)r->c->seed, r->rank, r->task_count);
        }
    }
    assert_int_equal(r->pushed, (int64_t)r->total_rows * schedule_down_tile_columns(&r->c->schedule));
}

static void reads_find_their_rows(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct schedule_case c = case_make(5000 + seed, seed % 3 == 2 ? PASS_BACKWARD : PASS_FORWARD);
        for (int bias = 0; bias < BIAS_COUNT; bias++) {
            struct run r = run_make(&c, (int32_t)seed % c.schedule.shape.rank_count, seed);
            run_all(&r, (enum bias)bias);
            run_free(&r);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_find_their_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
