/* Load role: feeds operand stages by TMA, in the order of the planner's tasks. One thread. */
#ifndef LOAD_CUH
#define LOAD_CUH

#include "ptx/tma.cuh"
#include "roles/compute_shared.cuh"

struct load_state {
    struct ring_position task, stage;
    uint32_t stages_filled; /* stages ever filled, up to STAGE_COUNT: those whose last load must land before the CTA exits */
};

/* Issues the loads of one k block. share: this member of the pair loads its half of B for both. */
template <int pass>
static __device__ __forceinline__ void load_k_block(const struct tile_plan *p, int32_t k, bool share, uint32_t member,
                                                    struct operand_stage *stage, uint64_t *full) {
    enum { A_BOXES = pass == PASS_FORWARD ? 1 : 2, B_BOXES = pass == PASS_FORWARD ? 2 : 4 };
    int32_t a_column = p->a_walk.column + k * p->a_walk.column_k, a_row = p->a_walk.row + k * p->a_walk.row_k;
    int32_t b_k = p->b_alternates ? k >> 1 : k;
    int32_t b_column = p->b_walk.column + b_k * p->b_walk.column_k, b_row = p->b_walk.row + b_k * p->b_walk.row_k;
#pragma unroll
    for (int i = 0; i < A_BOXES; i++)
        tma_load_2d_shared(stage->a + i * (TILE_ROWS / A_BOXES) * K_BLOCK, p->a, a_column + i * p->a_walk.column_box,
                           a_row + i * p->a_walk.row_box, full);
#pragma unroll
    for (int i = 0; i < B_BOXES; i++) {
        int half = i / (B_BOXES / 2), box = p->b_by_half ? i % (B_BOXES / 2) : i;
        const CUtensorMap *map = p->b[p->b_alternates ? k & 1 : half];
        int32_t column = b_column + box * p->b_walk.column_box, row = b_row + box * p->b_walk.row_box;
        uint16_t *target = stage->b + i * (TILE_N / B_BOXES) * K_BLOCK;
        if (!share)
            tma_load_2d_shared(target, map, column, row, full);
        else if ((uint32_t)half == member)
            tma_load_2d_shared_multicast(target, map, column, row, full, (1u << PAIR_CTAS) - 1u);
    }
}

/* K loop of one tile. Returns 0 after an abort. */
template <int pass> static __device__ __forceinline__ uint32_t load_tile(const struct cta_view *v, struct compute_shared *shared,
                                                                         struct load_state *state, const struct task_slot *slot, const struct tile_plan *plan,
                                                                         uint32_t *stall) {
    const int32_t k_blocks = slot->k_blocks;
    const bool share = slot->share;
    const uint32_t member = v->pair_member;
    struct ring_position position = state->stage;
    for (int32_t k = 0; k < k_blocks; k++) {
        uint32_t stage = position.slot;
        if (!wait_barrier_stall(v, &shared->stage_empty[stage], position.parity ^ 1u, EDGE_STAGE_EMPTY, stage, stall)) {
            state->stages_filled = schedule_minimum((int32_t)state->stages_filled + k, STAGE_COUNT);
            state->stage = position;
            return 0;
        }
        uint64_t *full = &shared->stage_full[stage];
        mbarrier_arrive_expect_tx_shared(full, STAGE_BYTES);
        load_k_block<pass>(plan, k, share, member, &shared->stage[stage], full);
        ring_advance(&position, STAGE_COUNT);
    }
    state->stages_filled = schedule_minimum((int32_t)state->stages_filled + k_blocks, STAGE_COUNT);
    state->stage = position;
    return 1;
}

/* Every load that was issued has landed: no copy outlives the CTA. The last fill of a stage is the one before the position.
 * After an abort a stage may lack the half that the other CTA did not issue: what was issued lands within the grace period. */
static __device__ __forceinline__ void load_drain(struct compute_shared *shared, const struct load_state *state) {
    struct ring_position p = state->stage;
    uint64_t grace_end = global_timer_ns() + 10 * ABORT_GRACE_NS;
    if (state->stages_filled < STAGE_COUNT) p.slot = 0, p.parity = 1;
    for (uint32_t i = 0; i < state->stages_filled; i++) {
        while (!mbarrier_try_wait_parity_shared(&shared->stage_full[p.slot], p.parity ^ 1u) && global_timer_ns() < grace_end) {}
        ring_advance(&p, STAGE_COUNT);
    }
}

enum { LOAD_WAIT_CYCLES = 1000 }; /* shorter waits for the planner are hand-over, not worth a record each */

/* Next task and its plan, once its input rows are there. Returns 0 at the end and after an abort. */
static __device__ __forceinline__ uint32_t load_take(const struct cta_view *v, struct mokscope_lane *lane, struct compute_shared *shared,
                                                     struct load_state *state, struct task_slot *slot, struct tile_plan *plan) {
    uint32_t at = state->task.slot, parity = state->task.parity, stall = 0;
    if (!wait_barrier_stall(v, &shared->task_full[at], parity, EDGE_TASK_FULL, at, &stall)) return 0;
    *slot = shared->task[at];
    *plan = shared->plan[at];
    mbarrier_arrive_shared(&shared->task_empty[at]);
    ring_advance(&state->task, TASK_SLOTS);
    if (slot->task.phase == PHASE_NONE) return 0;
    uint32_t begin = mokscope_clock();
    uint32_t ready = wait_barrier_stall(v, &shared->task_input[at], parity, EDGE_INPUT_READY, at, &stall);
    if (stall > LOAD_WAIT_CYCLES) mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, begin, EVENT_WAIT_INPUT_READY, parity, at);
    (void)begin;
    return ready;
}

template <int pass>
static __device__ __forceinline__ void load_role(const struct cta_view *v, struct mokscope_lane *lane,
                                                 struct compute_shared *shared) {
    struct load_state state = {{0, 0}, {0, 0}, 0};
    struct task_slot slot;
    struct tile_plan plan;
    while (load_take(v, lane, shared, &state, &slot, &plan)) {
        /* The rows were written by bulk or plain stores of other SMs, ordered by the planner's acquire and the barrier for this
         * thread's generic accesses; TMA reads through the async proxy. */
        fence_proxy_async_global();
        random_delay(v, ROLE_LOAD, (uint32_t)slot.id);
        uint32_t load_begin = mokscope_clock(), stall = 0;
        if (!load_tile<pass>(v, shared, &state, &slot, &plan, &stall)) break;
        mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, load_begin, EVENT_LOAD_TILE, stall >> 6, (uint32_t)slot.id);
        mokscope_sync_if_due_thread(lane);
        (void)load_begin, (void)stall;
    }
    load_drain(shared, &state);
}

#endif
