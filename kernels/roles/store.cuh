/* Store role: one warp beside each MMA warpgroup. It waits until ring rows that a tile goes to may be overwritten, and signals when
 * the warpgroup has stored the tile, so that the MMA warps neither wait nor fence. The signal: a thread of each warp of the warpgroup
 * arrived on target_done after its stores were complete, lane 0 waited for that, and its release at GPU scope is cumulative. */
#ifndef STORE_CUH
#define STORE_CUH

#include "roles/epilogue_backward.cuh"

enum { STORE_ROWS_PER_LANE = 2, STORE_ROWS = 64 };

/* Gradient of the router weights of the warp's rows, to their owners: the partials of all tile columns, in order. Their
 * writers released H_READY, which the load role acquired before the tile's loads, which the stores of the tile followed. */
static __device__ __forceinline__ void store_weight_gradients(const struct cta_view *v, const struct task_slot *slot, int32_t group) {
    const struct backward_rank *b = &v->b->ranks[v->rank];
    int32_t columns = schedule_dgrad_tile_columns(&v->a->schedule);
    for (int i = 0; i < STORE_ROWS_PER_LANE; i++) {
        int32_t row = slot->task.tile_row * TILE_ROWS + group * STORE_ROWS + i * 32 + (int32_t)(threadIdx.x % 32u);
        int32_t peer = v->r->row_peer[row];
        if (peer < 0) continue;
        int32_t slots = schedule_slots(&v->a->schedule.shape), slot_index = v->r->row_route[row] % slots - v->a->schedule.shape.shared_experts;
        if (slot_index < 0) continue; /* shared experts have no router weight */
        float sum = 0.0f;
        for (int32_t c = 0; c < columns; c++) sum += b->ds_partial[(int64_t)row * columns + c];
        b->d_weights[peer][v->r->row_route[row] / slots * v->a->schedule.shape.top_k + slot_index] = sum;
    }
}

static __device__ __forceinline__ void store_signal(const struct cta_view *v, struct mokscope_lane *lane, int32_t edge, int32_t index) {
    if (edge < 0) return;
    red_add_release_gpu_global_u32(counter_address(v, edge, index), 1);
    mokscope_instant_thread(lane, MOKSCOPE_LEVEL_TASK, EVENT_SIGNAL_FIRST + edge, 1, (uint32_t)index);
}

/* Until the ring slot has been read. Readers read it by TMA; the acquire orders lane 0, the warp barrier in the shuffle the
 * rest. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t store_wait_slot(const struct cta_view *v, struct mokscope_lane *lane,
                                                           const struct task_slot *slot) {
    struct schedule_wait reuse = schedule_task_slot(&v->a->schedule, &slot->task);
    uint32_t ready = 1;
    if (reuse.edge < 0) return 1;
    uint32_t awaited = schedule_edge_target(&v->a->schedule, v->total_rows, (enum edge)reuse.edge, reuse.index, v->epoch);
    if (threadIdx.x % 32u == 0) ready = wait_counter_thread(v, lane, reuse.edge, reuse.index, awaited, slot->id);
    ready = __shfl_sync(0xffffffffu, ready, 0);
    fence_proxy_async_global();
    return ready;
}

/* Waits for the warpgroup to have stored the tile, then signals what it wrote and what it has read. Returns 0 after an abort. */
template <int pass>
static __device__ __forceinline__ uint32_t store_publish(const struct cta_view *v, struct mokscope_lane *lane,
                                                         struct compute_shared *shared, const struct task_slot *slot, int32_t group,
                                                         uint32_t done_parity) {
    uint32_t unused = 0;
    if (!__all_sync(0xffffffffu, wait_barrier_stall(v, &shared->target_done[group], done_parity, EDGE_TILE_STORED, (uint32_t)group,
                                                    &unused)))
        return 0;
    uint32_t issued = mokscope_clock_taken_over(&shared->issue_clock[group]);
    if (pass == PASS_BACKWARD && slot->task.phase == PHASE_DGRAD_GATE_UP && slot->task.tile_column == 0)
        store_weight_gradients(v, slot, group);
    __syncwarp();
    if (threadIdx.x % 32u == 0) {
        struct schedule_wait output = schedule_task_output(&v->a->schedule, &slot->task);
        struct schedule_wait release = schedule_task_release(&v->a->schedule, &slot->task);
        fence_proxy_async_global(); /* the rows' readers may use TMA */
        store_signal(v, lane, output.edge, output.index);
        if (slot->task.phase == PHASE_DGRAD_DOWN) store_signal(v, lane, EDGE_EXPERT_READY, slot->expert);
        if (group == 0) store_signal(v, lane, release.edge, release.index);
        bool pushed = slot->task.phase == PHASE_DGRAD_GATE_UP ||
                      (slot->task.phase == PHASE_DOWN && v->a->schedule.knobs.combine == COMBINE_DIRECT);
        mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, issued, pushed ? EVENT_PUSH_Y : EVENT_STORE_TILE, STORE_ROWS,
                             (uint32_t)slot->id);
        mokscope_sync_if_due_thread(lane);
        (void)pushed;
    }
    __syncwarp();
    (void)issued;
    return 1;
}

/* Publishes a task as soon as the next one is known, whatever that is: waits of the next one, for its input by the load role or
 * for ring rows here, may depend on it. */
template <int pass>
static __device__ __forceinline__ void store_role(const struct cta_view *v, struct mokscope_lane *lane,
                                                  struct compute_shared *shared, int32_t group) {
    struct ring_position position = {0, 0};
    uint32_t done_parity = 0;
    struct task_slot before;
    before.task.phase = PHASE_NONE;
    for (;;) {
        struct task_slot slot = task_take(v, lane, shared, &position, false);
        bool own = slot.task.phase != PHASE_NONE && !slot.echo;
        if (before.task.phase != PHASE_NONE) {
            if (!store_publish<pass>(v, lane, shared, &before, group, done_parity)) break;
            done_parity ^= 1u;
        }
        before.task.phase = PHASE_NONE;
        if (slot.task.phase == PHASE_NONE) break;
        if (!own) continue;
        random_delay(v, ROLE_STORE, (uint32_t)slot.id * 2u + (uint32_t)group);
        if (!store_wait_slot(v, lane, &slot)) break;
        if (threadIdx.x % 32u == 0) mbarrier_arrive_shared(&shared->target_free[group]);
        before = slot;
    }
}

#endif
