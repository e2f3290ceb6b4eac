/* What each role does, as small state machines. A state that cannot go on blocks the actor; whoever changes something wakes all.
 *
 * The kernel's protocols in short (kernels/roles/): the load role draws tickets (member 0 of a pair for both), hands tasks on and
 * waits for input rows; MMA groups compute half a tile each, in step with the pair's other CTA, and publish a tile a little into the
 * next one, or before they would block; store warps wait for ring rows, and signal what their group has published. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bf16.h"
#include "executor_internal.h"

static struct executor_cta *cta_of(struct executor *x, const struct actor *a) { return &x->ctas[a->cta]; }
static struct executor_rank *rank_of(struct executor *x, const struct actor *a) { return &x->ranks[a->rank]; }

static void block(struct executor *x, struct actor *a, int32_t edge, int32_t index, uint32_t target, uint32_t seen) {
    if (!a->blocked) a->since = x->now;
    a->blocked = 1;
    a->wait_edge = edge;
    a->wait_index = index;
    a->wait_target = target;
    a->wait_seen = seen;
}

/* The actor goes on to `state` after a random time, mostly short. */
static void go(struct executor *x, struct actor *a, int32_t state) {
    uint32_t longest = executor_random(x, 16) == 0 ? 2000 : 100;
    a->state = state;
    a->time = x->now + 1 + executor_random(x, longest);
    executor_wake(x);
}

static void finish(struct executor *x, struct actor *a) {
    a->done = 1;
    a->closed = x->now;
    executor_wake(x);
}

/* --- counters and flags, with planted faults ------------------------------------------------------------------------- */

static int faulty(const struct executor *x, enum executor_fault fault, int32_t edge) {
    return x->options.fault == fault && (int32_t)x->options.fault_edge == edge;
}

/* Value that a (possibly faulty) consumer waits for; 0: goes on at once. */
static uint32_t awaited(const struct executor *x, int32_t edge, uint32_t target) {
    if (faulty(x, EXECUTOR_FAULT_WAIT_REMOVED, edge)) return 0;
    if (faulty(x, EXECUTOR_FAULT_TARGET_LOW, edge) && target > 0) return target - 1;
    if (faulty(x, EXECUTOR_FAULT_TARGET_HIGH, edge)) return target + 1;
    return target;
}

/* Acquires a counter if it has what the consumer waits for; else blocks. */
static int acquire(struct executor *x, struct actor *a, struct schedule_wait wait) {
    const struct schedule *s = &x->options.schedule;
    struct executor_rank *rank = rank_of(x, a);
    if (wait.edge < 0) return 1;
    if (faulty(x, EXECUTOR_FAULT_SLOT_EARLY, wait.edge) && --wait.index < 0) return 1;
    uint32_t target = awaited(x, wait.edge, schedule_edge_target(s, rank->total_rows, (enum edge)wait.edge, wait.index, 1));
    int32_t place = schedule_edge_counter_begin(s, wait.edge) + wait.index;
    uint32_t value = rank->counters[place];
    if (value < target) {
        block(x, a, wait.edge, wait.index, target, value);
        return 0;
    }
    if (a->blocked) actor_record(x, a, EVENT_WAIT_FIRST + (uint32_t)wait.edge, a->since, target, (uint32_t)wait.index);
    a->blocked = 0;
    if (target > 0 && cta_of(x, a)->known[place] < value) cta_of(x, a)->known[place] = value;
    return 1;
}

/* Adds to a counter; returns its value, 0 if a fault kept it from signalling. */
static uint32_t signal(struct executor *x, struct actor *a, struct schedule_wait to, uint32_t amount) {
    struct executor_rank *rank = rank_of(x, a);
    if (to.edge < 0 || faulty(x, EXECUTOR_FAULT_SIGNAL_MISSING, to.edge)) return 0;
    int32_t place = schedule_edge_counter_begin(&x->options.schedule, to.edge) + to.index;
    rank->counters[place] += amount;
    actor_record(x, a, EVENT_SIGNAL_FIRST + (uint32_t)to.edge, x->now, amount, (uint32_t)to.index);
    executor_wake(x);
    return rank->counters[place];
}

/* Waits for a flag of every peer; known[] takes what was seen. */
static int acquire_flags(struct executor *x, struct actor *a, int32_t edge, const uint32_t *flags, uint32_t *flags_known) {
    uint32_t epoch = (uint32_t)rank_of(x, a)->launch + 1, target = awaited(x, edge, epoch);
    for (int32_t peer = 0; peer < x->options.schedule.shape.rank_count; peer++) {
        if (flags[peer] < target) {
            block(x, a, edge, peer, target, flags[peer]);
            return 0;
        }
    }
    if (a->blocked) actor_record(x, a, EVENT_WAIT_FIRST + (uint32_t)edge, a->since, target, (uint32_t)a->wait_index);
    a->blocked = 0;
    for (int32_t peer = 0; peer < x->options.schedule.shape.rank_count; peer++)
        flags_known[peer] = target >= epoch ? flags[peer] : flags_known[peer];
    return 1;
}

static void tell_peers(struct executor *x, struct actor *a, int32_t edge) {
    if (faulty(x, EXECUTOR_FAULT_SIGNAL_MISSING, edge)) return;
    for (int32_t peer = 0; peer < x->options.schedule.shape.rank_count; peer++) {
        uint32_t *flags = edge == EDGE_RANK_START ? x->ranks[peer].started : x->ranks[peer].pushed;
        flags[a->rank] += 1;
        actor_record(x, a, EVENT_SIGNAL_FIRST + (uint32_t)edge, x->now, flags[a->rank], (uint32_t)a->rank);
    }
    executor_wake(x);
}

/* --- entry, finish, reduce ------------------------------------------------------------------------------------------- */

static void entry_step(struct executor *x, struct actor *a) {
    struct executor_rank *rank = rank_of(x, a);
    if (a->state == 0) {
        tell_peers(x, a, EDGE_RANK_START);
        go(x, a, 1);
    } else if (acquire_flags(x, a, EDGE_RANK_START, rank->started, rank->started_known)) {
        rank->active = 1;
        finish(x, a);
    }
}

static void finish_step(struct executor *x, struct actor *a) {
    struct executor_rank *rank = rank_of(x, a);
    struct schedule_wait pushed = {EDGE_PUSHED, 0};
    if (!faulty(x, EXECUTOR_FAULT_SIGNAL_EARLY, EDGE_RANK_DONE) && !acquire(x, a, pushed)) return;
    rank->pushed_cover = cta_of(x, a)->known[schedule_edge_counter_begin(&x->options.schedule, EDGE_PUSHED)];
    tell_peers(x, a, EDGE_RANK_DONE);
    finish(x, a);
}

static void reduce_token(struct executor *x, struct actor *a, int32_t token) {
    const struct layer_shape *shape = &x->options.schedule.shape;
    struct executor_rank *rank = rank_of(x, a);
    const struct routes *routes = x->inputs->routes;
    float *sums = calloc((size_t)shape->hidden, sizeof *sums);
    for (int32_t j = 0; sums != NULL && j < shape->top_k; j++) {
        size_t route = ((size_t)a->rank * (size_t)shape->tokens + (size_t)token) * (size_t)shape->top_k + (size_t)j;
        int32_t id = routes->expert_ids[route];
        if (id < 0) continue;
        const uint16_t *y = memory_read_slot(x, a, id / shape->experts_per_rank, token * shape->top_k + j);
        for (int32_t c = 0; y != NULL && c < shape->hidden; c++) sums[c] = fmaf(routes->weights[route], bf16_to_float(y[c]), sums[c]);
    }
    for (int32_t c = 0; sums != NULL && c < shape->hidden; c++)
        rank->output[(size_t)token * (size_t)shape->hidden + (size_t)c] = bf16_from_float(sums[c]);
    for (int32_t j = 0; j < shape->top_k; j++) rank->slots_reduced[token * shape->top_k + j] = rank->launch;
    free(sums);
}

static void reduce_step(struct executor *x, struct actor *a) {
    struct executor_rank *rank = rank_of(x, a);
    if (a->state == 0) {
        if (!acquire_flags(x, a, EDGE_RANK_DONE, rank->pushed, rank->pushed_known)) return;
        a->since = x->now;
        a->count = 0;
        go(x, a, 1);
        return;
    }
    reduce_token(x, a, a->count++);
    if (a->count < x->options.schedule.shape.tokens) {
        go(x, a, 1);
        return;
    }
    actor_record(x, a, EVENT_REDUCE_ROWS, a->since, (uint32_t)a->count, 0);
    finish(x, a);
}

/* --- communication --------------------------------------------------------------------------------------------------- */

static void copy_rows(struct executor *x, struct actor *a, const struct schedule_task *task) {
    const struct schedule *s = &x->options.schedule;
    struct executor_rank *rank = rank_of(x, a);
    int32_t hidden = s->shape.hidden;
    uint16_t *zeros = calloc((size_t)hidden, sizeof *zeros);
    for (int32_t i = 0; i < s->tile.unit_rows && zeros != NULL; i++) {
        int32_t row = task->tile_row * s->tile.unit_rows + i, peer = rank->row_peer[row], route = rank->row_route[row];
        if (task->phase == PHASE_DISPATCH) {
            if (peer >= 0 && rank->started_known[peer] < (uint32_t)rank->launch + 1)
                executor_report(x, a, "pulls from rank %d without having seen it start launch %d", peer, rank->launch);
            if (peer >= 0 && x->ranks[peer].launch != rank->launch)
                executor_report(x, a, "pulls inputs of launch %d from rank %d, which is in launch %d", rank->launch, peer, x->ranks[peer].launch);
            const uint16_t *source = zeros;
            int32_t version = peer >= 0 ? x->ranks[peer].launch % x->inputs->x_versions : 0;
            if (peer >= 0) source = x->inputs->x[version][peer] + (size_t)(route / s->shape.top_k) * (size_t)hidden;
            memory_write_ring(x, a, &rank->x_ring, row, EDGE_X_FREE, 0, source, hidden);
        } else {
            const uint16_t *source = memory_read(x, a, &rank->y_ring, row);
            if (source != NULL && peer >= 0) memory_write_slot(x, a, peer, route, 0, source, hidden);
        }
    }
    free(zeros);
}

static void publish_rows(struct executor *x, struct actor *a, const struct schedule_task *task, uint32_t value) {
    const struct schedule *s = &x->options.schedule;
    struct executor_rank *rank = rank_of(x, a);
    struct schedule_wait output = schedule_task_output(s, task);
    for (int32_t i = 0; i < s->tile.unit_rows; i++) {
        int32_t row = task->tile_row * s->tile.unit_rows + i, peer = rank->row_peer[row];
        if (task->phase == PHASE_DISPATCH)
            memory_publish(&rank->x_ring, schedule_ring_row(s, row), s->shape.hidden, output.edge, output.index, value);
        else if (peer >= 0)
            memory_publish(&x->ranks[peer].slots, rank->row_route[row], s->shape.hidden, output.edge, output.index, value);
    }
}

/* Readers of the rows of a combine task, +1 or -1. */
static void mark_readers(struct executor *x, const struct actor *a, struct row_array *array, int32_t first, int32_t count, int32_t by) {
    (void)a;
    for (int32_t i = 0; i < count; i++) array->rows[schedule_ring_row(&x->options.schedule, first + i)].readers += by;
}

static void comm_signals(struct executor *x, struct actor *a, const struct schedule_task *task) {
    const struct schedule *s = &x->options.schedule;
    uint32_t rows = (uint32_t)s->tile.unit_rows;
    signal(x, a, schedule_task_release(s, task), rows);
    publish_rows(x, a, task, signal(x, a, schedule_task_output(s, task), rows));
}

/* States: 0 next task, 1 input, 2 slot, 3 copy, 4 signal. */
static void comm_step(struct executor *x, struct actor *a) {
    const struct schedule *s = &x->options.schedule;
    struct executor_rank *rank = rank_of(x, a);
    struct executor_cta *cta = cta_of(x, a);
    const struct schedule_task *task = &a->task.task;
    int combine = task->phase == PHASE_COMBINE;
    uint32_t id = (uint32_t)schedule_comm_task_id(s, &rank->compute, a->ticket);
    switch (a->state) {
    case 0:
        a->ticket = a->count++ * s->knobs.comm_sms * x->options.comm_warps + cta->cta * x->options.comm_warps + a->index;
        if (a->ticket >= schedule_order_task_count(&rank->comm)) {
            cta->comm_left -= 1;
            finish(x, a);
            return;
        }
        a->task.task = schedule_cursor_seek_task(&rank->comm, &a->cursor, a->ticket);
        go(x, a, 1);
        return;
    case 1:
        if (acquire(x, a, schedule_task_input(s, task))) go(x, a, 2);
        return;
    case 2:
        if (!acquire(x, a, schedule_task_slot(s, task))) return;
        a->since = x->now;
        if (combine) mark_readers(x, a, &rank->y_ring, task->tile_row * s->tile.unit_rows, s->tile.unit_rows, 1);
        if (faulty(x, EXECUTOR_FAULT_SIGNAL_EARLY, schedule_task_output(s, task).edge) ||
            faulty(x, EXECUTOR_FAULT_SIGNAL_EARLY, schedule_task_release(s, task).edge))
            comm_signals(x, a, task);
        go(x, a, 3);
        return;
    case 3:
        copy_rows(x, a, task);
        if (combine) mark_readers(x, a, &rank->y_ring, task->tile_row * s->tile.unit_rows, s->tile.unit_rows, -1);
        go(x, a, 4);
        return;
    default:
        if (!faulty(x, EXECUTOR_FAULT_SIGNAL_EARLY, schedule_task_output(s, task).edge) &&
            !faulty(x, EXECUTOR_FAULT_SIGNAL_EARLY, schedule_task_release(s, task).edge))
            comm_signals(x, a, task);
        actor_record(x, a, combine ? EVENT_PUSH_Y : EVENT_PULL_X, a->since, (uint32_t)s->tile.unit_rows, id);
        actor_record(x, a, combine ? EVENT_TASK_COMBINE : EVENT_TASK_DISPATCH, a->since, (uint32_t)s->tile.unit_rows, id);
        x->counts.tasks += 1;
        go(x, a, 0);
    }
}

/* --- load ------------------------------------------------------------------------------------------------------------ */

/* Next ticket for this CTA, or blocks. */
static int draw_ticket(struct executor *x, struct actor *a, int32_t *ticket) {
    struct executor_cta *cta = cta_of(x, a), *partner = cta->paired ? &x->ctas[cta->partner] : NULL;
    if (cta->paired && cta->cta % 2 == 1) {
        if (cta->tickets_given == cta->tickets_taken) {
            block(x, a, EDGE_TASK_FULL, 0, (uint32_t)cta->tickets_taken + 1, (uint32_t)cta->tickets_given);
            return 0;
        }
        *ticket = cta->tickets[cta->tickets_taken++ % EXECUTOR_TICKET_SLOTS];
    } else {
        if (partner != NULL && partner->tickets_given - partner->tickets_taken == EXECUTOR_TICKET_SLOTS) {
            block(x, a, EDGE_TASK_EMPTY, 0, (uint32_t)partner->tickets_given, (uint32_t)partner->tickets_taken);
            return 0;
        }
        *ticket = rank_of(x, a)->ticket++;
        if (partner != NULL) partner->tickets[partner->tickets_given++ % EXECUTOR_TICKET_SLOTS] = *ticket;
    }
    a->blocked = 0;
    executor_wake(x);
    return 1;
}

static struct executor_task make_task(struct executor *x, const struct actor *a) {
    const struct executor_cta *cta = &x->ctas[a->cta];
    struct schedule_pair pair = {a->own, a->count};
    struct executor_task t;
    int32_t member = cta->paired ? cta->cta % 2 : a->member, own = schedule_minimum(member, pair.count - 1);
    t.index = pair.first + own;
    t.task = schedule_cursor_task(&a->cursor, t.index);
    t.expert = x->ranks[a->rank].tile_expert[t.task.tile_row];
    t.echo = own != member;
    return t;
}

/* Rows that the task's tile reads, marked, and whether they may be read. An echo reads rows that may be overwritten meanwhile: its
 * tile is dropped. */
static void begin_load(struct executor *x, struct actor *a, const struct executor_task *t) {
    if (t->echo) return;
    const struct schedule *s = &x->options.schedule;
    struct executor_rank *rank = rank_of(x, a);
    struct row_array *array = t->task.phase == PHASE_GATE_UP ? &rank->x_ring : &rank->h_ring;
    for (int32_t i = 0; i < s->tile.rows; i++) (void)memory_read(x, a, array, t->task.tile_row * s->tile.rows + i);
    mark_readers(x, a, array, t->task.tile_row * s->tile.rows, s->tile.rows, 1);
}

static int slot_taken(const struct executor_cta *cta) {
    int32_t least = cta->tasks_taken[0];
    for (int i = 1; i < 2 * EXECUTOR_GROUPS; i++) least = schedule_minimum(least, cta->tasks_taken[i]);
    return cta->tasks_put - least < EXECUTOR_TASK_SLOTS;
}

/* States: 0 first ticket, 1 next ticket, 2 hand on a task, 3 input, 4 load, 5 the MMA groups have begun with it, 6 end. */
static void load_step(struct executor *x, struct actor *a) {
    struct executor_rank *rank = rank_of(x, a);
    struct executor_cta *cta = cta_of(x, a);
    switch (a->state) {
    case 0:
        if (draw_ticket(x, a, &a->ticket)) go(x, a, 1);
        return;
    case 1:
        if (a->ticket >= schedule_order_pair_count(&rank->compute)) {
            a->state = 6;
        } else if (draw_ticket(x, a, &a->next_ticket)) {
            struct schedule_pair pair = schedule_cursor_seek_pair(&rank->compute, &a->cursor, a->ticket);
            a->own = pair.first;
            a->count = pair.count;
            a->member = 0;
            a->task = make_task(x, a);
            go(x, a, 2);
            return;
        } else {
            return;
        }
        /* fall through */
    case 6:
        if (!slot_taken(cta)) {
            block(x, a, EDGE_TASK_EMPTY, 0, 0, 0);
            return;
        }
        cta->ended = 1;
        finish(x, a);
        return;
    case 2:
        if (!slot_taken(cta)) {
            block(x, a, EDGE_TASK_EMPTY, 0, 0, 0);
            return;
        }
        a->blocked = 0;
        cta->tasks[cta->tasks_put % EXECUTOR_TASK_SLOTS] = a->task;
        cta->tasks_put += 1;
        go(x, a, 3);
        return;
    case 3:
        if (acquire(x, a, schedule_task_input(&x->options.schedule, &a->task.task))) go(x, a, 4);
        return;
    case 4:
        a->since = x->now;
        begin_load(x, a, &a->task);
        cta->loads_begun += 1;
        go(x, a, 5);
        return;
    default:
        if (cta->mma_begun[0] < cta->loads_begun || cta->mma_begun[1] < cta->loads_begun) {
            block(x, a, EDGE_STAGE_EMPTY, 0, (uint32_t)cta->loads_begun, (uint32_t)schedule_minimum(cta->mma_begun[0], cta->mma_begun[1]));
            return;
        }
        a->blocked = 0;
        actor_record(x, a, EVENT_LOAD_TILE, a->since, 0, (uint32_t)a->task.index);
        if (!cta->paired && ++a->member < a->count) {
            a->task = make_task(x, a);
            go(x, a, 2);
        } else {
            a->ticket = a->next_ticket;
            go(x, a, 1);
        }
    }
}

/* --- MMA ------------------------------------------------------------------------------------------------------------- */

static int32_t operand_columns(const struct schedule *s) { return schedule_maximum(s->shape.hidden, s->shape.intermediate); }

static double dot(const uint16_t *a, const uint16_t *b, int32_t count) {
    double sum = 0.0;
    for (int32_t i = 0; i < count; i++) sum += (double)bf16_to_float(a[i]) * (double)bf16_to_float(b[i]);
    return sum;
}

/* h of one row: columns of the tile. */
static void gate_up_row(const struct executor *x, const struct actor *a, const struct executor_task *t, const uint16_t *row, uint16_t *out) {
    const struct schedule *s = &x->options.schedule;
    size_t hidden = (size_t)s->shape.hidden;
    for (int32_t c = 0; c < s->tile.gate_up_columns; c++) {
        size_t at = ((size_t)t->expert * (size_t)s->shape.intermediate + (size_t)(t->task.tile_column * s->tile.gate_up_columns + c)) * hidden;
        double g = dot(row, x->inputs->w_gate[a->rank] + at, s->shape.hidden), u = dot(row, x->inputs->w_up[a->rank] + at, s->shape.hidden);
        out[c] = bf16_from_double(g / (1.0 + exp(-g)) * u);
    }
}

static void down_row(const struct executor *x, const struct actor *a, const struct executor_task *t, const uint16_t *row, uint16_t *out) {
    const struct schedule *s = &x->options.schedule;
    size_t intermediate = (size_t)s->shape.intermediate;
    for (int32_t c = 0; c < s->tile.down_columns; c++) {
        size_t at = ((size_t)t->expert * (size_t)s->shape.hidden + (size_t)(t->task.tile_column * s->tile.down_columns + c)) * intermediate;
        out[c] = bf16_from_double(dot(row, x->inputs->w_down[a->rank] + at, s->shape.intermediate));
    }
}

/* The group's rows of the tile, computed from shared memory and stored, not yet published. */
static void compute_rows(struct executor *x, struct actor *a, const struct executor_task *t) {
    const struct schedule *s = &x->options.schedule;
    struct executor_rank *rank = rank_of(x, a);
    int gate_up = t->task.phase == PHASE_GATE_UP;
    int32_t half = s->tile.rows / EXECUTOR_GROUPS, columns = gate_up ? s->tile.gate_up_columns : s->tile.down_columns;
    uint16_t *out = malloc((size_t)columns * sizeof *out);
    for (int32_t i = 0; i < half && out != NULL; i++) {
        int32_t row = t->task.tile_row * s->tile.rows + a->index * half + i, first = t->task.tile_column * columns;
        const uint16_t *source = cta_of(x, a)->operands[a->ticket % 2] + (size_t)(row % s->tile.rows) * (size_t)operand_columns(s);
        if (gate_up) {
            gate_up_row(x, a, t, source, out);
            memory_write_ring(x, a, &rank->h_ring, row, EDGE_H_FREE, first, out, columns);
        } else {
            down_row(x, a, t, source, out);
            if (s->knobs.combine == COMBINE_RING)
                memory_write_ring(x, a, &rank->y_ring, row, EDGE_Y_FREE, first, out, columns);
            else if (rank->row_peer[row] >= 0)
                memory_write_slot(x, a, rank->row_peer[row], rank->row_route[row], first, out, columns);
        }
    }
    free(out);
}

/* The first group to end its K loop has waited for every stage, so all operands have been read out of the ring: they are what the
 * ring holds now at the latest. */
static void land(struct executor *x, struct actor *a) {
    const struct schedule *s = &x->options.schedule;
    struct executor_rank *rank = rank_of(x, a);
    struct executor_cta *cta = cta_of(x, a);
    struct row_array *array = a->task.task.phase == PHASE_GATE_UP ? &rank->x_ring : &rank->h_ring;
    int32_t first = a->task.task.tile_row * s->tile.rows;
    a->ticket = cta->mma_begun[a->index] - 1;
    if (cta->landed > a->ticket) return;
    cta->landed += 1;
    if (a->task.echo) return;
    for (int32_t i = 0; i < s->tile.rows; i++) {
        const uint16_t *row = memory_read(x, a, array, first + i);
        if (row != NULL)
            memcpy(cta->operands[a->ticket % 2] + (size_t)i * (size_t)operand_columns(s), row, (size_t)array->columns * sizeof *row);
    }
    mark_readers(x, a, array, first, s->tile.rows, -1);
}

static void publish_tile(struct executor *x, struct actor *a) {
    if (!a->pending) return;
    cta_of(x, a)->tiles_stored[a->index] += 1;
    a->pending = 0;
    executor_wake(x);
}

/* States: 0 take a task, 1 first operands, 2 a few k blocks on, 3 in step with the partner, 4 ring rows, 5 epilogue. */
static void mma_step(struct executor *x, struct actor *a) {
    struct executor_cta *cta = cta_of(x, a), *partner = cta->paired ? &x->ctas[cta->partner] : NULL;
    int32_t g = a->index, taken = cta->tasks_taken[g];
    switch (a->state) {
    case 0:
        if (taken == cta->tasks_put) {
            if (cta->ended) {
                publish_tile(x, a);
                finish(x, a);
            } else {
                block(x, a, EDGE_TASK_FULL, 0, (uint32_t)taken + 1, (uint32_t)cta->tasks_put);
            }
            return;
        }
        a->blocked = 0;
        a->task = cta->tasks[taken % EXECUTOR_TASK_SLOTS];
        cta->tasks_taken[g] += 1;
        go(x, a, 1);
        return;
    case 1:
        if (cta->loads_begun <= cta->mma_begun[g]) {
            publish_tile(x, a);
            block(x, a, EDGE_STAGE_FULL, 0, (uint32_t)cta->mma_begun[g] + 1, (uint32_t)cta->loads_begun);
            return;
        }
        a->blocked = 0;
        cta->mma_begun[g] += 1;
        a->since = x->now;
        go(x, a, 2);
        return;
    case 2:
        publish_tile(x, a);
        go(x, a, 3);
        return;
    case 3:
        if (partner != NULL && partner->loads_begun < cta->mma_begun[g]) {
            block(x, a, EDGE_STAGE_EMPTY, 0, (uint32_t)cta->mma_begun[g], (uint32_t)partner->loads_begun);
            return;
        }
        a->blocked = 0;
        actor_record(x, a, EVENT_MMA_TILE, a->since, 0, (uint32_t)a->task.index);
        land(x, a);
        go(x, a, a->task.echo ? 0 : 4);
        return;
    case 4:
        if (cta->targets_free[g] <= a->own) {
            block(x, a, EDGE_TARGET_FREE, g, (uint32_t)a->own + 1, (uint32_t)cta->targets_free[g]);
            return;
        }
        a->blocked = 0;
        a->since = x->now;
        go(x, a, 5);
        return;
    default:
        compute_rows(x, a, &a->task);
        actor_record(x, a, EVENT_EPILOGUE, a->since, 0, (uint32_t)a->task.index);
        a->own += 1;
        a->pending = 1;
        x->counts.tasks += g == 0;
        go(x, a, 0);
    }
}

/* --- store ----------------------------------------------------------------------------------------------------------- */

static void publish_group_rows(struct executor *x, struct actor *a, const struct executor_task *t, uint32_t value) {
    const struct schedule *s = &x->options.schedule;
    struct executor_rank *rank = rank_of(x, a);
    struct schedule_wait output = schedule_task_output(s, &t->task);
    int gate_up = t->task.phase == PHASE_GATE_UP;
    int32_t half = s->tile.rows / EXECUTOR_GROUPS, columns = gate_up ? s->tile.gate_up_columns : s->tile.down_columns;
    for (int32_t i = 0; i < half; i++) {
        int32_t row = t->task.tile_row * s->tile.rows + a->index * half + i, place = schedule_ring_row(s, row);
        if (gate_up)
            memory_publish(&rank->h_ring, place, columns, output.edge, output.index, value);
        else if (s->knobs.combine == COMBINE_RING)
            memory_publish(&rank->y_ring, place, columns, output.edge, output.index, value);
        else if (rank->row_peer[row] >= 0)
            memory_publish(&x->ranks[rank->row_peer[row]].slots, rank->row_route[row], columns, output.edge, output.index, value);
    }
}

static void store_signals(struct executor *x, struct actor *a, const struct executor_task *t) {
    const struct schedule *s = &x->options.schedule;
    publish_group_rows(x, a, t, signal(x, a, schedule_task_output(s, &t->task), 1));
    if (a->index == 0) signal(x, a, schedule_task_release(s, &t->task), 1);
}

static int signals_early(const struct executor *x, const struct executor_task *t) {
    const struct schedule *s = &x->options.schedule;
    return faulty(x, EXECUTOR_FAULT_SIGNAL_EARLY, schedule_task_output(s, &t->task).edge) ||
           faulty(x, EXECUTOR_FAULT_SIGNAL_EARLY, schedule_task_release(s, &t->task).edge);
}

/* States: 0 take a task, 1 publish the one before, 2 ring rows of this one. */
static void store_step(struct executor *x, struct actor *a) {
    struct executor_cta *cta = cta_of(x, a);
    int32_t g = a->index, reader = EXECUTOR_GROUPS + g, taken = cta->tasks_taken[reader];
    switch (a->state) {
    case 0:
        if (taken == cta->tasks_put && !cta->ended) {
            block(x, a, EDGE_TASK_FULL, 0, (uint32_t)taken + 1, (uint32_t)cta->tasks_put);
            return;
        }
        a->blocked = 0;
        a->member = taken == cta->tasks_put; /* the end */
        if (!a->member) {
            a->task = cta->tasks[taken % EXECUTOR_TASK_SLOTS];
            cta->tasks_taken[reader] += 1;
        }
        go(x, a, 1);
        return;
    case 1:
        if (a->has_before && cta->tiles_stored[g] <= a->own && !signals_early(x, &a->before)) {
            block(x, a, EDGE_TILE_STORED, g, (uint32_t)a->own + 1, (uint32_t)cta->tiles_stored[g]);
            return;
        }
        a->blocked = 0;
        if (a->has_before) {
            if (!signals_early(x, &a->before)) store_signals(x, a, &a->before);
            a->own += 1;
        }
        a->has_before = 0;
        if (a->member)
            finish(x, a);
        else
            go(x, a, a->task.echo ? 0 : 2);
        return;
    default:
        if (!acquire(x, a, schedule_task_slot(&x->options.schedule, &a->task.task))) return;
        cta->targets_free[g] += 1;
        a->before = a->task;
        a->has_before = 1;
        if (signals_early(x, &a->before)) store_signals(x, a, &a->before);
        go(x, a, 0);
    }
}

/* --- all ------------------------------------------------------------------------------------------------------------- */

void actor_step(struct executor *x, struct actor *a) {
    struct executor_cta *cta = cta_of(x, a);
    if (a->kind == ACTOR_ENTRY) {
        entry_step(x, a);
        return;
    }
    if (!rank_of(x, a)->active) {
        block(x, a, EDGE_RANK_START, 0, 0, 0);
        return;
    }
    int computes = a->kind == ACTOR_LOAD || a->kind == ACTOR_MMA || a->kind == ACTOR_STORE;
    if (computes && !cta->computes) {
        /* A communication CTA computes when its pair has nothing more to communicate. */
        cta->computes = cta->comm_left == 0 && (!cta->paired || x->ctas[cta->partner].comm_left == 0);
        if (!cta->computes) {
            block(x, a, EDGE_TASK_FULL, 0, 0, 0);
            return;
        }
    }
    if (a->opened < 0) {
        a->opened = x->now;
        a->blocked = 0;
    }
    switch (a->kind) {
    case ACTOR_COMM: comm_step(x, a); break;
    case ACTOR_LOAD: load_step(x, a); break;
    case ACTOR_MMA: mma_step(x, a); break;
    case ACTOR_STORE: store_step(x, a); break;
    case ACTOR_FINISH: finish_step(x, a); break;
    case ACTOR_REDUCE: reduce_step(x, a); break;
    default: break;
    }
}
