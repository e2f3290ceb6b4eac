/* The schedule of the MoE layer as data and pure functions, for host and device: row placement, task order, tile decode
 * and the readiness edges with their targets. The megakernel executes it, the executor (kernels/executor.c) runs it on the
 * CPU, tests prove it; nobody keeps a second copy.
 *
 * Rows. Each rank gathers the rows of its own experts. An expert's rows stand together, ordered round-robin over the
 * source ranks, and are padded to the tile height, so that a tile row belongs to one expert. Minibatches cut the rank's
 * rows into equal parts (the last may be shorter); a minibatch is what one X_READY signal covers. The x, h and y rings hold
 * ring_rows rows; minibatch m uses slot m mod (ring_rows / minibatch_rows), after minibatch m - ring_minibatches has been read.
 *
 * Order. Two interleaved sequences of the same form (schedule_step_*): compute tasks are gate+up tiles, trailed by down
 * tiles `lag` minibatches behind; communication tasks are dispatch, trailed on the combine path ring by combine, lag + 1
 * minibatches behind. Compute tasks are drawn from a ticket counter; communication tasks are strided over the rank's
 * communication warps. Both orders are total, and every executor takes its tasks in increasing order.
 *
 * No deadlock: edges, program order of each executor, slot reuse and rank barriers together have no cycle if
 * lag < ring_rows / minibatch_rows; schedule_check refuses anything else, tests/unit/schedule.c searches the whole graph
 * for cycles, and the executor runs it from one CTA up.
 *
 * Owns nothing, allocates nothing, calls nothing. Errors are enum values with the numbers beside them. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "schedule_shape.h"

/* --- tasks --------------------------------------------------------------------------------------------------------- */

SCHEDULE_FUNCTION int32_t schedule_minibatch_count(const struct schedule *s, int32_t total_rows) {
    return schedule_divide_up(total_rows, s->knobs.minibatch_rows);
}

SCHEDULE_FUNCTION int32_t schedule_ring_minibatches(const struct schedule *s) {
    return s->knobs.ring_rows / s->knobs.minibatch_rows;
}

/* Rows of minibatch m, padding included; 0 past the end. */
SCHEDULE_FUNCTION int32_t schedule_minibatch_rows(const struct schedule *s, int32_t total_rows, int32_t minibatch) {
    int32_t left = total_rows - minibatch * s->knobs.minibatch_rows;
    return schedule_maximum(0, schedule_minimum(left, s->knobs.minibatch_rows));
}

SCHEDULE_FUNCTION int32_t schedule_gate_up_tile_columns(const struct schedule *s) {
    return s->shape.intermediate / s->tile.gate_up_columns;
}

SCHEDULE_FUNCTION int32_t schedule_down_tile_columns(const struct schedule *s) {
    return s->shape.hidden / s->tile.down_columns;
}

/* Tiles of dgrad through down, and of dW_down: N tiles of the width of down tiles, over I. */
SCHEDULE_FUNCTION int32_t schedule_dgrad_tile_columns(const struct schedule *s) {
    return s->shape.intermediate / s->tile.down_columns;
}

/* Row of a ring (x, h or y) that holds this row of the rank. */
SCHEDULE_FUNCTION int32_t schedule_ring_row(const struct schedule *s, int32_t row) { return row % s->knobs.ring_rows; }

enum { SCHEDULE_STAGES_MAX = 3 };

/* One phase of an interleaved order: all its tasks of minibatch n - lag stand in step n. */
struct schedule_stage {
    int32_t phase;
    int32_t columns;    /* tasks a row unit */
    int32_t lag;        /* not less than the lag of the stage before */
    int32_t unit_begin; /* first row unit it works on */
};

/* An interleaved order: step n holds the tasks of each stage's minibatch n - lag, stage by stage. After the last step come
 * the weight gradients, expert by expert. */
struct schedule_order {
    int32_t units;               /* row units (tile rows or unit rows) of the whole rank */
    int32_t units_per_minibatch;
    int32_t stage_count;
    struct schedule_stage stages[SCHEDULE_STAGES_MAX];
    int32_t wgrad_experts;                       /* 0: no weight gradients */
    int32_t wgrad_rows[3], wgrad_columns[3];     /* tiles of one expert's gradient: down, gate, up */
};

SCHEDULE_FUNCTION void schedule_order_add(struct schedule_order *o, int32_t phase, int32_t columns, int32_t lag,
                                          int32_t unit_begin) {
    int32_t minibatches = schedule_divide_up(o->units, o->units_per_minibatch);
    struct schedule_stage *stage = &o->stages[o->stage_count++];
    stage->phase = phase;
    stage->columns = columns;
    stage->lag = schedule_minimum(lag, minibatches);
    stage->unit_begin = schedule_minimum(unit_begin, o->units);
}

/* Compute order of the pass. Backward: dgrad through down trails replay, and dgrad through gate and up trails that, by `lag`. */
SCHEDULE_FUNCTION struct schedule_order schedule_compute_order(const struct schedule *s, int32_t total_rows) {
    struct schedule_order order = {0};
    int32_t lag = s->knobs.lag;
    order.units = total_rows / s->tile.rows;
    order.units_per_minibatch = s->knobs.minibatch_rows / s->tile.rows;
    if (s->pass == PASS_FORWARD) {
        schedule_order_add(&order, PHASE_GATE_UP, schedule_gate_up_tile_columns(s), 0, 0);
        schedule_order_add(&order, PHASE_DOWN, schedule_down_tile_columns(s), lag, 0);
        return order;
    }
    schedule_order_add(&order, PHASE_REPLAY, schedule_gate_up_tile_columns(s), 0, s->knobs.saved_rows / s->tile.rows);
    schedule_order_add(&order, PHASE_DGRAD_DOWN, schedule_dgrad_tile_columns(s), lag, 0);
    schedule_order_add(&order, PHASE_DGRAD_GATE_UP, schedule_down_tile_columns(s), 2 * lag, 0);
    order.wgrad_experts = schedule_local_experts(&s->shape);
    order.wgrad_rows[0] = s->shape.hidden / s->tile.rows;
    order.wgrad_columns[0] = schedule_dgrad_tile_columns(s);
    for (int32_t i = 1; i < 3; i++) {
        order.wgrad_rows[i] = s->shape.intermediate / s->tile.rows;
        order.wgrad_columns[i] = schedule_down_tile_columns(s);
    }
    return order;
}

/* Combine trails dispatch by lag + 1: combine(m) needs down(m), which stands after gate+up(m + lag) in the compute order,
 * which needs dispatch(m + lag). */
SCHEDULE_FUNCTION struct schedule_order schedule_comm_order(const struct schedule *s, int32_t total_rows) {
    struct schedule_order order = {0};
    order.units = total_rows / s->tile.unit_rows;
    order.units_per_minibatch = s->knobs.minibatch_rows / s->tile.unit_rows;
    schedule_order_add(&order, PHASE_DISPATCH, 1, 0, 0);
    if (s->pass == PASS_FORWARD && s->knobs.combine == COMBINE_RING)
        schedule_order_add(&order, PHASE_COMBINE, 1, s->knobs.lag + 1, 0);
    return order;
}

/* Tasks before step n. */
SCHEDULE_FUNCTION int32_t schedule_order_step_begin(const struct schedule_order *o, int32_t n) {
    int32_t tasks = 0;
    for (int32_t i = 0; i < o->stage_count; i++) {
        const struct schedule_stage *stage = &o->stages[i];
        int32_t units = schedule_minimum(schedule_maximum(n - stage->lag, 0) * o->units_per_minibatch, o->units);
        tasks += schedule_maximum(units - stage->unit_begin, 0) * stage->columns;
    }
    return tasks;
}

SCHEDULE_FUNCTION int32_t schedule_order_step_count(const struct schedule_order *o) {
    return schedule_divide_up(o->units, o->units_per_minibatch) + o->stages[o->stage_count - 1].lag;
}

SCHEDULE_FUNCTION int32_t schedule_order_wgrad_tiles(const struct schedule_order *o) {
    int32_t tiles = 0;
    if (o->wgrad_experts == 0) return 0;
    for (int32_t i = 0; i < 3; i++) tiles += o->wgrad_rows[i] * o->wgrad_columns[i];
    return tiles;
}

SCHEDULE_FUNCTION int32_t schedule_order_task_count(const struct schedule_order *o) {
    return schedule_order_step_begin(o, schedule_order_step_count(o)) + o->wgrad_experts * schedule_order_wgrad_tiles(o);
}

/* Weight gradient `index` of those after the last step. */
SCHEDULE_FUNCTION struct schedule_task schedule_order_wgrad_task(const struct schedule_order *o, int32_t index) {
    struct schedule_task task;
    int32_t tiles = schedule_order_wgrad_tiles(o), matrix = 0;
    task.expert = index / tiles;
    index -= task.expert * tiles;
    while (matrix < 2 && index >= o->wgrad_rows[matrix] * o->wgrad_columns[matrix]) {
        index -= o->wgrad_rows[matrix] * o->wgrad_columns[matrix];
        matrix++;
    }
    task.phase = PHASE_WGRAD_DOWN + matrix;
    task.minibatch = -1;
    task.tile_row = index % o->wgrad_rows[matrix];
    task.tile_column = index / o->wgrad_rows[matrix];
    return task;
}

/* Task `index` of an order, 0 <= index < task count: the step by bisection, then the stage inside the step.
 * Inside a minibatch row units run fastest, so that neighbouring executors share a weight column tile in L2. */
SCHEDULE_FUNCTION struct schedule_task schedule_order_task(const struct schedule_order *o, int32_t index) {
    int32_t low = 0, high = schedule_order_step_count(o), stage = 0, units = 0, first = 0;
    int32_t steps_end = schedule_order_step_begin(o, high);
    if (index >= steps_end) return schedule_order_wgrad_task(o, index - steps_end);
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (schedule_order_step_begin(o, middle) <= index)
            low = middle;
        else
            high = middle;
    }
    int32_t inside = index - schedule_order_step_begin(o, low);
    struct schedule_task task;
    for (;; stage++) {
        task.minibatch = low - o->stages[stage].lag;
        first = schedule_maximum(task.minibatch * o->units_per_minibatch, o->stages[stage].unit_begin);
        units = schedule_minimum((task.minibatch + 1) * o->units_per_minibatch, o->units) - first;
        int32_t tasks = task.minibatch < 0 ? 0 : schedule_maximum(units, 0) * o->stages[stage].columns;
        if (inside < tasks || stage == o->stage_count - 1) break;
        inside -= tasks;
    }
    task.phase = o->stages[stage].phase;
    task.tile_row = first + inside % units;
    task.tile_column = inside / units;
    task.expert = -1;
    return task;
}

/* Pairs. Two neighbouring CTAs of a rank draw a ticket together and take two neighbouring tasks of one step and phase (or of one
 * expert's weight gradient), which mostly share a column, hence the weights they read. An odd task at the end of a phase's part
 * of a step is a pair of its own. */
struct schedule_pair {
    int32_t first; /* task */
    int32_t count; /* 1 or 2 */
};

/* Pairs of a stage's first `minibatches` minibatches. */
SCHEDULE_FUNCTION int32_t schedule_stage_pairs(const struct schedule_order *o, const struct schedule_stage *stage,
                                               int32_t minibatches) {
    int32_t per = o->units_per_minibatch, whole = o->units / per, first = stage->unit_begin / per;
    if (minibatches <= first || stage->unit_begin >= o->units) return 0;
    int32_t first_units = schedule_minimum((first + 1) * per, o->units) - stage->unit_begin;
    int32_t pairs = schedule_divide_up(first_units * stage->columns, 2);
    int32_t between = schedule_maximum(0, schedule_minimum(minibatches, whole) - first - 1);
    pairs += between * schedule_divide_up(per * stage->columns, 2);
    if (minibatches > whole && whole > first) pairs += schedule_divide_up(o->units % per * stage->columns, 2);
    return pairs;
}

/* Pairs before step n. */
SCHEDULE_FUNCTION int32_t schedule_order_step_pairs(const struct schedule_order *o, int32_t n) {
    int32_t pairs = 0, minibatches = schedule_divide_up(o->units, o->units_per_minibatch);
    for (int32_t i = 0; i < o->stage_count; i++)
        pairs += schedule_stage_pairs(o, &o->stages[i], schedule_minimum(schedule_maximum(n - o->stages[i].lag, 0), minibatches));
    return pairs;
}

/* Weight gradients come in even numbers an expert: H / tile.rows is even. */
SCHEDULE_FUNCTION int32_t schedule_order_pair_count(const struct schedule_order *o) {
    return schedule_order_step_pairs(o, schedule_order_step_count(o)) + o->wgrad_experts * schedule_order_wgrad_tiles(o) / 2;
}

/* Pair `index`, 0 <= index < pair count. */
SCHEDULE_FUNCTION struct schedule_pair schedule_order_pair(const struct schedule_order *o, int32_t index) {
    struct schedule_pair pair = {0, 2};
    int32_t low = 0, high = schedule_order_step_count(o);
    int32_t steps_end = schedule_order_step_pairs(o, high);
    if (index >= steps_end) {
        pair.first = schedule_order_step_begin(o, high) + 2 * (index - steps_end);
        return pair;
    }
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (schedule_order_step_pairs(o, middle) <= index)
            low = middle;
        else
            high = middle;
    }
    int32_t inside = index - schedule_order_step_pairs(o, low);
    pair.first = schedule_order_step_begin(o, low);
    for (int32_t stage = 0; stage < o->stage_count; stage++) {
        int32_t minibatch = low - o->stages[stage].lag;
        int32_t begin = schedule_maximum(minibatch * o->units_per_minibatch, o->stages[stage].unit_begin);
        int32_t end = schedule_minimum((minibatch + 1) * o->units_per_minibatch, o->units);
        int32_t tasks = minibatch < 0 ? 0 : schedule_maximum(end - begin, 0) * o->stages[stage].columns;
        if (inside < schedule_divide_up(tasks, 2)) {
            pair.first += 2 * inside;
            pair.count = schedule_minimum(2, tasks - 2 * inside);
            break;
        }
        inside -= schedule_divide_up(tasks, 2);
        pair.first += tasks;
    }
    return pair;
}

/* Executors take tasks in increasing order, so they walk: a cursor stands on one block, the tasks of one stage in one step or of
 * one weight gradient matrix, and moves forward. Decoding a task costs one division, where schedule_order_task costs tens. */
struct schedule_cursor {
    int32_t step, stage;            /* past the steps: expert and matrix of a weight gradient */
    int32_t task_begin, task_end;
    int32_t pair_begin, pair_end;
    int32_t units;                  /* of the block: its tasks run over units first */
    struct schedule_task first;
};

SCHEDULE_FUNCTION struct schedule_cursor schedule_cursor_begin(void) {
    struct schedule_cursor cursor = {0, -1, 0, 0, 0, 0, 1, {PHASE_NONE, -1, 0, 0, -1}};
    return cursor;
}

/* To the next block, which may be empty. */
SCHEDULE_FUNCTION void schedule_cursor_advance(const struct schedule_order *o, struct schedule_cursor *c) {
    int32_t steps = schedule_order_step_count(o), columns;
    if (++c->stage >= (c->step < steps ? o->stage_count : 3)) {
        c->stage = 0;
        c->step += 1;
    }
    c->task_begin = c->task_end;
    c->pair_begin = c->pair_end;
    if (c->step < steps) {
        const struct schedule_stage *stage = &o->stages[c->stage];
        int32_t minibatch = c->step - stage->lag;
        int32_t begin = schedule_maximum(minibatch * o->units_per_minibatch, stage->unit_begin);
        int32_t end = schedule_minimum((minibatch + 1) * o->units_per_minibatch, o->units);
        c->units = minibatch < 0 ? 0 : schedule_maximum(end - begin, 0);
        columns = stage->columns;
        c->first.phase = stage->phase;
        c->first.minibatch = minibatch;
        c->first.tile_row = begin;
        c->first.expert = -1;
    } else {
        c->units = o->wgrad_rows[c->stage];
        columns = o->wgrad_columns[c->stage];
        c->first.phase = PHASE_WGRAD_DOWN + c->stage;
        c->first.minibatch = -1;
        c->first.tile_row = 0;
        c->first.expert = c->step - steps;
    }
    c->task_end = c->task_begin + c->units * columns;
    c->pair_end = c->pair_begin + schedule_divide_up(c->units * columns, 2);
}

/* Task of the block that the cursor stands on. */
SCHEDULE_FUNCTION struct schedule_task schedule_cursor_task(const struct schedule_cursor *c, int32_t index) {
    struct schedule_task task = c->first;
    int32_t inside = index - c->task_begin;
    task.tile_column = inside / c->units;
    task.tile_row += inside - task.tile_column * c->units;
    return task;
}

/* Moves to task `index` of the order, at or after the block it stands on, and below the task count. */
SCHEDULE_FUNCTION struct schedule_task schedule_cursor_seek_task(const struct schedule_order *o, struct schedule_cursor *c,
                                                                 int32_t index) {
    while (index >= c->task_end) schedule_cursor_advance(o, c);
    return schedule_cursor_task(c, index);
}

/* The same for a pair; both its tasks are in the block. */
SCHEDULE_FUNCTION struct schedule_pair schedule_cursor_seek_pair(const struct schedule_order *o, struct schedule_cursor *c,
                                                                 int32_t index) {
    while (index >= c->pair_end) schedule_cursor_advance(o, c);
    struct schedule_pair pair;
    pair.first = c->task_begin + 2 * (index - c->pair_begin);
    pair.count = schedule_minimum(2, c->task_end - pair.first);
    return pair;
}

enum { SCHEDULE_BACKWARD_TASK_FIRST = 1 << 24 };

/* Task ids in a trace: compute tasks 0..n-1 in ticket order, communication tasks from n on; those of the backward pass
 * from SCHEDULE_BACKWARD_TASK_FIRST on. */
SCHEDULE_FUNCTION int32_t schedule_compute_task_id(const struct schedule *s, int32_t index) {
    return (s->pass == PASS_BACKWARD ? SCHEDULE_BACKWARD_TASK_FIRST : 0) + index;
}

SCHEDULE_FUNCTION int32_t schedule_comm_task_id(const struct schedule *s, const struct schedule_order *compute, int32_t index) {
    return schedule_compute_task_id(s, schedule_order_task_count(compute) + index);
}

/* --- edges --------------------------------------------------------------------------------------------------------- */

SCHEDULE_FUNCTION enum edge_granularity schedule_edge_granularity(enum edge edge) {
    switch (edge) {
#define EDGE(name, producer, consumer, granularity, scope, slot_reuse, target, description) \
    case EDGE_##name: return EDGE_PER_##granularity;
#include "edges.def"
#undef EDGE
    default: return EDGE_PER_CTA_SLOT;
    }
}

SCHEDULE_FUNCTION enum edge_scope schedule_edge_scope(enum edge edge) {
    switch (edge) {
#define EDGE(name, producer, consumer, granularity, scope, slot_reuse, target, description) \
    case EDGE_##name: return EDGE_SCOPE_##scope;
#include "edges.def"
#undef EDGE
    default: return EDGE_SCOPE_CTA;
    }
}

/* Counters of an edge in one rank's global memory, sized by capacity; 0 for edges inside a CTA. */
SCHEDULE_FUNCTION int32_t schedule_edge_counter_count(const struct schedule *s, enum edge edge) {
    switch (schedule_edge_granularity(edge)) {
    case EDGE_PER_PEER: return s->shape.rank_count;
    case EDGE_PER_MINIBATCH: return schedule_divide_up(s->knobs.capacity_rows, s->knobs.minibatch_rows);
    case EDGE_PER_TILE_ROW: return s->knobs.capacity_rows / s->tile.rows;
    case EDGE_PER_RANK: return 1;
    case EDGE_PER_EXPERT: return schedule_local_experts(&s->shape);
    default: return 0;
    }
}

/* First counter of an edge in the rank's counter array; with edge == EDGE_COUNT the array's length. */
SCHEDULE_FUNCTION int32_t schedule_edge_counter_begin(const struct schedule *s, int32_t edge) {
    int32_t begin = 0;
    for (int32_t e = 0; e < edge; e++) begin += schedule_edge_counter_count(s, (enum edge)e);
    return begin;
}

/* Value a counter must reach before its consumer goes on, and the exact value it must end on.
 * SYS edges count launches (epoch, from 1); edges inside a CTA have no counter and give 0. An edge that the pass or the
 * combine path doesn't use has target 0. EXPERT_READY needs the rows of the experts: schedule_expert_target. */
SCHEDULE_FUNCTION uint32_t schedule_edge_target(const struct schedule *s, int32_t total_rows, enum edge edge, int32_t index,
                                                uint32_t epoch) {
    int32_t backward = s->pass == PASS_BACKWARD;
    int32_t ring = !backward && s->knobs.combine == COMBINE_RING;
    int32_t minibatch_rows = schedule_minibatch_rows(s, total_rows, index);
    int32_t minibatch_tile_rows = minibatch_rows / s->tile.rows;
    int32_t gate_up_columns = schedule_gate_up_tile_columns(s);
    int32_t down_columns = schedule_down_tile_columns(s);
    int32_t h_columns = backward ? schedule_dgrad_tile_columns(s) : gate_up_columns;
    int32_t inside = index < total_rows / s->tile.rows;
    switch (edge) {
    case EDGE_RANK_START:
    case EDGE_RANK_DONE: return epoch;
    case EDGE_ROUTES_COUNTED:
    case EDGE_ROUTES_PLACED: return (uint32_t)s->rank_ctas;
    case EDGE_X_READY: return (uint32_t)minibatch_rows;
    case EDGE_X_FREE: return backward ? 0u : (uint32_t)(minibatch_tile_rows * gate_up_columns);
    case EDGE_H_READY: return inside ? (uint32_t)(2 * h_columns) : 0u;
    case EDGE_H_FREE: return backward ? 0u : (uint32_t)(minibatch_tile_rows * down_columns);
    case EDGE_Y_READY: return ring ? (uint32_t)(2 * minibatch_tile_rows * down_columns) : 0u;
    case EDGE_Y_FREE: return ring ? (uint32_t)minibatch_rows : 0u;
    case EDGE_PUSHED:
        return ring ? (uint32_t)total_rows : (uint32_t)(2 * (total_rows / s->tile.rows) * down_columns);
    case EDGE_GU_READY:
        return backward && inside && index >= s->knobs.saved_rows / s->tile.rows ? (uint32_t)(2 * gate_up_columns) : 0u;
    default: return 0u;
    }
}

/* Target of EXPERT_READY: both MMA warpgroups of every dgrad tile of the expert's rows. */
SCHEDULE_FUNCTION uint32_t schedule_expert_target(const struct schedule *s, const struct schedule_rows *rows, int32_t expert) {
    int32_t tile_rows = (rows->expert_row_begin[expert + 1] - rows->expert_row_begin[expert]) / s->tile.rows;
    return s->pass == PASS_BACKWARD ? (uint32_t)(2 * tile_rows * schedule_dgrad_tile_columns(s)) : 0u;
}

/* Counter index that a task waits for before it reads its input (the data edges), and whether it waits at all. */
struct schedule_wait {
    int32_t edge;  /* enum edge, or -1: no wait */
    int32_t index;
};

/* Data the task reads. RANK_START of every peer comes before all tasks. */
SCHEDULE_FUNCTION struct schedule_wait schedule_task_input(const struct schedule *s, const struct schedule_task *task) {
    struct schedule_wait wait = {-1, 0};
    (void)s;
    switch (task->phase) {
    case PHASE_GATE_UP:
    case PHASE_REPLAY:
    case PHASE_DGRAD_DOWN: wait.edge = EDGE_X_READY; wait.index = task->minibatch; break;
    case PHASE_DOWN:
    case PHASE_DGRAD_GATE_UP: wait.edge = EDGE_H_READY; wait.index = task->tile_row; break;
    case PHASE_COMBINE: wait.edge = EDGE_Y_READY; wait.index = task->minibatch; break;
    case PHASE_WGRAD_DOWN:
    case PHASE_WGRAD_GATE:
    case PHASE_WGRAD_UP: wait.edge = EDGE_EXPERT_READY; wait.index = task->expert; break;
    default: break;
    }
    return wait;
}

/* A second input: the epilogue of dgrad through down reads the g and u that replay computed. */
SCHEDULE_FUNCTION struct schedule_wait schedule_task_second_input(const struct schedule *s, const struct schedule_task *task) {
    struct schedule_wait wait = {-1, 0};
    wait.index = task->tile_row;
    if (task->phase == PHASE_DGRAD_DOWN && task->tile_row >= s->knobs.saved_rows / s->tile.rows) wait.edge = EDGE_GU_READY;
    return wait;
}

/* Ring slot the task overwrites: wait until minibatch - ring_minibatches has been read. The backward pass has no rings: its
 * rows stay for the weight gradients. */
SCHEDULE_FUNCTION struct schedule_wait schedule_task_slot(const struct schedule *s, const struct schedule_task *task) {
    struct schedule_wait wait = {-1, 0};
    if (s->pass == PASS_BACKWARD) return wait;
    int32_t reused = task->minibatch - schedule_ring_minibatches(s);
    if (reused < 0) return wait;
    wait.index = reused;
    switch (task->phase) {
    case PHASE_DISPATCH: wait.edge = EDGE_X_FREE; break;
    case PHASE_GATE_UP: wait.edge = EDGE_H_FREE; break;
    case PHASE_DOWN: wait.edge = s->knobs.combine == COMBINE_RING ? EDGE_Y_FREE : -1; break;
    default: break;
    }
    return wait;
}

/* Counter a task adds to when its output is complete (STORE adds 1 a warpgroup; DISPATCH and COMBINE add their rows). Dgrad
 * through down also adds 1 a warpgroup to EXPERT_READY of its expert. */
SCHEDULE_FUNCTION struct schedule_wait schedule_task_output(const struct schedule *s, const struct schedule_task *task) {
    struct schedule_wait signal = {-1, 0};
    switch (task->phase) {
    case PHASE_DISPATCH: signal.edge = EDGE_X_READY; signal.index = task->minibatch; break;
    case PHASE_GATE_UP: signal.edge = EDGE_H_READY; signal.index = task->tile_row; break;
    case PHASE_DOWN:
        signal.edge = s->knobs.combine == COMBINE_RING ? EDGE_Y_READY : EDGE_PUSHED;
        signal.index = s->knobs.combine == COMBINE_RING ? task->minibatch : 0;
        break;
    case PHASE_COMBINE:
    case PHASE_DGRAD_GATE_UP: signal.edge = EDGE_PUSHED; signal.index = 0; break;
    case PHASE_REPLAY: signal.edge = EDGE_GU_READY; signal.index = task->tile_row; break;
    case PHASE_DGRAD_DOWN: signal.edge = EDGE_H_READY; signal.index = task->tile_row; break;
    default: break;
    }
    return signal;
}

/* Counter a task adds to when it has read its ring rows (MMA adds 1 a tile; COMBINE adds its rows). */
SCHEDULE_FUNCTION struct schedule_wait schedule_task_release(const struct schedule *s, const struct schedule_task *task) {
    struct schedule_wait signal = {-1, 0};
    signal.index = task->minibatch;
    switch (task->phase) {
    case PHASE_GATE_UP: signal.edge = EDGE_X_FREE; break;
    case PHASE_DOWN: signal.edge = EDGE_H_FREE; break;
    case PHASE_COMBINE: signal.edge = s->knobs.combine == COMBINE_RING ? EDGE_Y_FREE : -1; break;
    default: break;
    }
    return signal;
}

#endif
