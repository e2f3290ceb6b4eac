/* Load role: draws tasks, waits for their input rows, and feeds operand stages by TMA. One thread. */
#ifndef LOAD_CUH
#define LOAD_CUH

#include "ptx/tma.cuh"
#include "roles/compute_shared.cuh"

struct load_state {
    struct ring_position task, stage;
    uint32_t stages_filled; /* stages ever filled, up to STAGE_COUNT: those whose last load must land before the CTA exits */
};

/* Hands a task (or the end) to the other roles. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t task_put(const struct cta_view *v, struct mokscope_lane *lane,
                                                    struct compute_shared *shared, struct ring_position *position,
                                                    const struct task_slot *slot) {
    uint64_t *empty = &shared->task_empty[position->slot];
    uint32_t ready = wait_barrier_thread(v, lane, empty, position->parity ^ 1u, EDGE_TASK_EMPTY, position->slot);
    if (!ready) return 0;
    shared->task[position->slot] = *slot;
    mbarrier_arrive_shared(&shared->task_full[position->slot]);
    ring_advance(position, TASK_SLOTS);
    return 1;
}

/* First token of a shared expert's tile. */
static __device__ __forceinline__ int32_t shared_token(const struct cta_view *v, const struct task_slot *slot) {
    return slot->task.tile_row * TILE_ROWS - slot->expert * (schedule_shared_rows(&v->a->schedule) / v->a->schedule.shape.shared_experts);
}

/* Operands of k block k of a forward tile: A rows of the x or h ring (of x itself for a shared expert), B rows of the weights. */
static __device__ __forceinline__ void load_forward_block(const struct cta_view *v, const struct task_slot *slot, int32_t k,
                                                          struct operand_stage *stage, uint64_t *full) {
    const struct schedule *s = &v->a->schedule;
    int32_t a_row = schedule_ring_row(s, slot->task.tile_row * TILE_ROWS);
    bool shared = slot->expert < s->shape.shared_experts;
    int32_t expert = shared ? slot->expert : slot->expert - s->shape.shared_experts;
    if (slot->task.phase == PHASE_GATE_UP) {
        int32_t b_row = expert * s->shape.intermediate + slot->task.tile_column * GATE_UP_TILE_COLUMNS;
        if (shared)
            tma_load_2d_shared(stage->a, &v->r->x_map, k * K_BLOCK, shared_token(v, slot), full);
        else
            tma_load_2d_shared(stage->a, &v->r->x_ring_map, k * K_BLOCK, a_row, full);
        tma_load_2d_shared(stage->b, shared ? &v->r->shared_gate_map : &v->r->w_gate_map, k * K_BLOCK, b_row, full);
        tma_load_2d_shared(stage->b + GATE_UP_TILE_COLUMNS * K_BLOCK, shared ? &v->r->shared_up_map : &v->r->w_up_map, k * K_BLOCK,
                           b_row, full);
    } else {
        int32_t b_row = expert * s->shape.hidden + slot->task.tile_column * DOWN_TILE_COLUMNS;
        tma_load_2d_shared(stage->a, &v->r->h_ring_map, k * K_BLOCK, a_row, full);
        tma_load_2d_shared(stage->b, shared ? &v->r->shared_down_map : &v->r->w_down_map, k * K_BLOCK, b_row, full);
    }
}

/* Boxes first, first + step, ... of an operand, 8 KiB each. */
template <int count> static __device__ __forceinline__ void load_boxes(uint16_t *target, const CUtensorMap *map, int32_t column,
                                                                       int32_t row, int32_t column_step, int32_t row_step,
                                                                       uint64_t *full) {
#pragma unroll
    for (int i = 0; i < count; i++)
        tma_load_2d_shared(target + i * BOX_COLUMNS * BOX_ROWS, map, column + i * column_step, row + i * row_step, full);
}

/* Operands of k block k of a backward tile:
 *   replay         A x rows, B W_gate and W_up rows, both K-major over H
 *   dgrad down     A dY rows, K-major over H; B W_down [H, I], MN-major
 *   dgrad gate+up  A dGU rows, K-major over 2 I, where blocks of dG and dU alternate; B W_gate or W_up [I, H], MN-major
 *   wgrad          A and B rows of the expert, both MN-major, K over the rows: dY and s h; dG or dU, and x
 * A shared expert reads the rank's own x and dY, which have zeros past their last row for TMA. */
static __device__ __forceinline__ void load_backward_block(const struct cta_view *v, const struct task_slot *slot, int32_t k,
                                                           struct operand_stage *stage, uint64_t *full) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    const struct backward_rank *b = &v->b->ranks[v->rank];
    int32_t row = slot->task.tile_row * TILE_ROWS, column = slot->task.tile_column * TILE_N;
    bool shared = slot->expert < shape->shared_experts;
    int32_t expert = shared ? slot->expert : slot->expert - shape->shared_experts;
    const CUtensorMap *x_map = shared ? &b->shared_x_map : &b->x_map, *dy_map = shared ? &b->shared_dy_map : &b->dy_map;
    const CUtensorMap *gate_map = shared ? &b->shared_gate_map : &b->w_gate_map, *up_map = shared ? &b->shared_up_map : &b->w_up_map;
    int32_t input_row = shared ? shared_token(v, slot) : row;
    switch (slot->task.phase) {
    case PHASE_REPLAY: {
        int32_t weight_row = expert * shape->intermediate + slot->task.tile_column * GATE_UP_TILE_COLUMNS;
        load_boxes<2>(stage->a, x_map, k * K_BLOCK, input_row, 0, BOX_ROWS, full);
        load_boxes<2>(stage->b, gate_map, k * K_BLOCK, weight_row, 0, BOX_ROWS, full);
        load_boxes<2>(stage->b + GATE_UP_TILE_COLUMNS * K_BLOCK, up_map, k * K_BLOCK, weight_row, 0, BOX_ROWS, full);
        break;
    }
    case PHASE_DGRAD_DOWN:
        load_boxes<2>(stage->a, dy_map, k * K_BLOCK, input_row, 0, BOX_ROWS, full);
        load_boxes<4>(stage->b, shared ? &b->shared_down_map : &b->w_down_map, column, expert * shape->hidden + k * K_BLOCK, BOX_COLUMNS,
                      0, full);
        break;
    case PHASE_DGRAD_GATE_UP:
        load_boxes<2>(stage->a, &b->dgu_map, k * K_BLOCK, row, 0, BOX_ROWS, full);
        load_boxes<4>(stage->b, k % 2 == 0 ? gate_map : up_map, column, expert * shape->intermediate + k / 2 * K_BLOCK, BOX_COLUMNS, 0,
                      full);
        break;
    default: {
        int32_t k_row = v->r->table->rows.expert_row_begin[slot->expert] + k * K_BLOCK;
        int32_t k_input_row = shared ? k * K_BLOCK : k_row;
        if (slot->task.phase == PHASE_WGRAD_DOWN) {
            load_boxes<2>(stage->a, dy_map, row, k_input_row, BOX_COLUMNS, 0, full);
            load_boxes<4>(stage->b, &b->sh_map, column, k_row, BOX_COLUMNS, 0, full);
        } else {
            int32_t first = 2 * row + (slot->task.phase == PHASE_WGRAD_UP ? BOX_COLUMNS : 0);
            load_boxes<2>(stage->a, &b->dgu_map, first, k_row, 2 * BOX_COLUMNS, 0, full);
            load_boxes<4>(stage->b, x_map, column, k_input_row, BOX_COLUMNS, 0, full);
        }
    }
    }
}

/* K loop of one tile. Returns 0 after an abort. */
template <int pass> static __device__ __forceinline__ uint32_t load_tile(const struct cta_view *v, struct compute_shared *shared,
                                                                         struct load_state *state, const struct task_slot *slot,
                                                                         uint32_t *stall) {
    int32_t k_blocks = task_k_blocks<pass>(v, slot);
    for (int32_t k = 0; k < k_blocks; k++) {
        uint32_t stage = state->stage.slot;
        if (!wait_barrier_stall(v, &shared->stage_empty[stage], state->stage.parity ^ 1u, EDGE_STAGE_EMPTY, stage, stall))
            return 0;
        uint64_t *full = &shared->stage_full[stage];
        mbarrier_arrive_expect_tx_shared(full, STAGE_BYTES);
        if (pass == PASS_FORWARD)
            load_forward_block(v, slot, k, &shared->stage[stage], full);
        else
            load_backward_block(v, slot, k, &shared->stage[stage], full);
        if (state->stages_filled < STAGE_COUNT) state->stages_filled++;
        ring_advance(&state->stage, STAGE_COUNT);
    }
    return 1;
}

/* Every load that was issued has landed: no copy outlives the CTA. The last fill of a stage is the one before the position. */
static __device__ __forceinline__ void load_drain(struct compute_shared *shared, const struct load_state *state) {
    struct ring_position p = state->stage;
    if (state->stages_filled < STAGE_COUNT) p.slot = 0, p.parity = 1;
    for (uint32_t i = 0; i < state->stages_filled; i++) {
        while (!mbarrier_try_wait_parity_shared(&shared->stage_full[p.slot], p.parity ^ 1u)) {}
        ring_advance(&p, STAGE_COUNT);
    }
}

static __device__ __forceinline__ uint32_t load_wait(const struct cta_view *v, struct mokscope_lane *lane, struct schedule_wait wait,
                                                     int32_t task_id) {
    if (wait.edge < 0) return 1;
    const struct schedule *s = &v->a->schedule;
    uint32_t target = wait.edge == EDGE_EXPERT_READY
                          ? schedule_expert_target(s, &v->r->table->rows, wait.index)
                          : schedule_edge_target(s, v->total_rows, (enum edge)wait.edge, wait.index, v->epoch);
    return wait_counter_thread(v, lane, wait.edge, wait.index, target, task_id);
}

template <int pass>
static __device__ __forceinline__ uint32_t load_task(const struct cta_view *v, struct mokscope_lane *lane,
                                                     struct compute_shared *shared, struct load_state *state,
                                                     const struct task_slot *slot) {
    const struct schedule *s = &v->a->schedule;
    uint32_t begin = mokscope_clock();
    if (!task_put(v, lane, shared, &state->task, slot)) return 0;
    if (!load_wait(v, lane, schedule_task_input(s, &slot->task), slot->id)) return 0;
    if (pass == PASS_BACKWARD && !load_wait(v, lane, schedule_task_second_input(s, &slot->task), slot->id)) return 0;
    /* The rows were written by bulk stores or plain stores of other SMs, ordered by the acquire above for this thread's
     * generic accesses; TMA reads through the async proxy. */
    fence_proxy_async_global();
    uint32_t load_begin = mokscope_clock(), stall = 0;
    if (!load_tile<pass>(v, shared, state, slot, &stall)) return 0;
    mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, load_begin, EVENT_LOAD_TILE, stall >> 6, (uint32_t)slot->id);
    mokscope_span_thread(lane, MOKSCOPE_LEVEL_TASK, begin, task_event(slot->task.phase), slot->expert, (uint32_t)slot->id);
    mokscope_sync_if_due_thread(lane);
    (void)begin, (void)load_begin, (void)stall;
    return 1;
}

/* The ticket of the next task is drawn while the current one loads, so that its latency is hidden. A CTA takes its tasks in
 * increasing order, which is what keeps the schedule free of deadlock. */
template <int pass>
static __device__ __forceinline__ void load_role(const struct cta_view *v, struct mokscope_lane *lane,
                                                 struct compute_shared *shared) {
    struct schedule_order order = schedule_compute_order(&v->a->schedule, v->total_rows);
    int32_t task_count = schedule_order_task_count(&order);
    struct load_state state = {{0, 0}, {0, 0}, 0};
    struct task_slot slot;
    int32_t ticket = (int32_t)atom_add_relaxed_gpu_global_u32(word_address(v, WORD_TICKET), 1);
    uint32_t running = 1;
    while (running && ticket < task_count) {
        int32_t next = (int32_t)atom_add_relaxed_gpu_global_u32(word_address(v, WORD_TICKET), 1);
        slot.task = schedule_order_task(&order, ticket);
        slot.id = schedule_compute_task_id(&v->a->schedule, ticket);
        slot.expert = slot.task.expert >= 0 ? slot.task.expert : v->r->tile_expert[slot.task.tile_row];
        random_delay(v, ROLE_LOAD, (uint32_t)ticket);
        running = load_task<pass>(v, lane, shared, &state, &slot);
        ticket = next;
    }
    if (running) {
        slot.task.phase = PHASE_NONE;
        task_put(v, lane, shared, &state.task, &slot);
    }
    load_drain(shared, &state);
}

#endif
