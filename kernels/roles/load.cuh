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

/* K loop of one tile. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t load_tile(const struct cta_view *v, struct compute_shared *shared,
                                                     struct load_state *state, const struct task_slot *slot, uint32_t *stall) {
    const struct schedule *s = &v->a->schedule;
    bool gate_up = slot->task.phase == PHASE_GATE_UP;
    int32_t a_row = schedule_ring_row(s, slot->task.tile_row * TILE_ROWS);
    int32_t k_blocks = (gate_up ? s->shape.hidden : s->shape.intermediate) / K_BLOCK;
    int32_t b_row = gate_up ? slot->expert * s->shape.intermediate + slot->task.tile_column * GATE_UP_TILE_COLUMNS
                            : slot->expert * s->shape.hidden + slot->task.tile_column * DOWN_TILE_COLUMNS;
    const CUtensorMap *a_map = gate_up ? &v->r->x_ring_map : &v->r->h_ring_map;
    for (int32_t k = 0; k < k_blocks; k++) {
        uint32_t stage = state->stage.slot;
        if (!wait_barrier_stall(v, &shared->stage_empty[stage], state->stage.parity ^ 1u, EDGE_STAGE_EMPTY, stage, stall))
            return 0;
        uint64_t *full = &shared->stage_full[stage];
        mbarrier_arrive_expect_tx_shared(full, STAGE_BYTES);
        tma_load_2d_shared(shared->stage[stage].a, a_map, k * K_BLOCK, a_row, full);
        uint16_t *b = shared->stage[stage].b;
        if (gate_up) {
            tma_load_2d_shared(b, &v->r->w_gate_map, k * K_BLOCK, b_row, full);
            tma_load_2d_shared(b + GATE_UP_TILE_COLUMNS * K_BLOCK, &v->r->w_up_map, k * K_BLOCK, b_row, full);
        } else {
            tma_load_2d_shared(b, &v->r->w_down_map, k * K_BLOCK, b_row, full);
        }
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

static __device__ __forceinline__ uint32_t load_task(const struct cta_view *v, struct mokscope_lane *lane,
                                                     struct compute_shared *shared, struct load_state *state,
                                                     const struct task_slot *slot) {
    const struct schedule *s = &v->a->schedule;
    uint32_t begin = mokscope_clock();
    if (!task_put(v, lane, shared, &state->task, slot)) return 0;
    struct schedule_wait input = schedule_task_input(s, &slot->task);
    uint32_t target = schedule_edge_target(s, v->total_rows, (enum edge)input.edge, input.index, v->epoch);
    if (!wait_counter_thread(v, lane, input.edge, input.index, target, slot->id)) return 0;
    /* The rows were written by bulk stores or plain stores of other SMs, ordered by the acquire above for this thread's
     * generic accesses; TMA reads through the async proxy. */
    fence_proxy_async_global();
    uint32_t load_begin = mokscope_clock(), stall = 0;
    if (!load_tile(v, shared, state, slot, &stall)) return 0;
    mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, load_begin, EVENT_LOAD_TILE, stall >> 6, (uint32_t)slot->id);
    mokscope_span_thread(lane, MOKSCOPE_LEVEL_TASK, begin,
                         slot->task.phase == PHASE_GATE_UP ? EVENT_TASK_GATE_UP : EVENT_TASK_DOWN, slot->expert,
                         (uint32_t)slot->id);
    mokscope_sync_if_due_thread(lane);
    (void)begin, (void)load_begin, (void)stall;
    return 1;
}

/* The ticket of the next task is drawn while the current one loads, so that its latency is hidden. A CTA takes its tasks in
 * increasing order, which is what keeps the schedule free of deadlock. */
static __device__ __forceinline__ void load_role(const struct cta_view *v, struct mokscope_lane *lane,
                                                 struct compute_shared *shared) {
    struct schedule_order order = schedule_compute_order(&v->a->schedule, v->total_rows);
    int32_t task_count = schedule_order_task_count(&order);
    struct load_state state = {{0, 0}, {0, 0}, 0};
    struct task_slot slot;
    int32_t ticket = (int32_t)atom_add_relaxed_gpu_global_u32(v->r->ticket, 1);
    uint32_t running = 1;
    while (running && ticket < task_count) {
        int32_t next = (int32_t)atom_add_relaxed_gpu_global_u32(v->r->ticket, 1);
        slot.task = schedule_order_task(&order, ticket);
        slot.id = ticket;
        slot.expert = v->r->tile_expert[slot.task.tile_row];
        random_delay(v, ROLE_LOAD, (uint32_t)ticket);
        running = load_task(v, lane, shared, &state, &slot);
        ticket = next;
    }
    if (running) {
        slot.task.phase = PHASE_NONE;
        task_put(v, lane, shared, &state.task, &slot);
    }
    load_drain(shared, &state);
}

#endif
