/* Store role: one warp for each MMA warpgroup takes staged tiles out of shared memory by bulk stores, a row each: h tiles to
 * the h ring, y tiles straight to their owners' combine slots (combine path direct) or to the y ring (ring).
 * Completion: every lane waits for its own bulk stores, fences the proxy, the warp meets, and lane 0 releases the counter. */
#ifndef STORE_CUH
#define STORE_CUH

#include "ptx/tma.cuh"
#include "roles/epilogue_backward.cuh"

enum { STORE_ROWS_PER_LANE = 2, STORE_ROWS = 64, STORE_PART_BYTES = STAGING_COLUMNS * sizeof(uint16_t) };

/* A tile leaves in parts of 64 rows by 128 columns (epilogue.cuh), in this order:
 *   gate+up         h; with saved rows also g and u of two 64-column blocks
 *   replay          g and u of two blocks
 *   down            two halves of y, to the combine slots of the rows' owners or to the y ring
 *   dgrad down      dG and dU of four blocks, then two halves of s h
 *   dgrad gate+up   two halves of dX, to the combine slots of the rows' owners
 *   wgrad           two halves; none when they are accumulated */
template <int pass>
static __device__ __forceinline__ int32_t store_part_count(const struct cta_view *v, const struct task_slot *slot) {
    switch (slot->task.phase) {
    case PHASE_GATE_UP: return task_saves(v, slot) ? 3 : 1;
    case PHASE_DGRAD_DOWN: return 6;
    case PHASE_WGRAD_DOWN:
    case PHASE_WGRAD_GATE:
    case PHASE_WGRAD_UP: return v->b->accumulate ? 0 : 2;
    default: return 2;
    }
}

/* Where one of the task's rows goes: the matrix row that holds part 0 and how far the next part is. NULL: padding, not sent. */
static __device__ __forceinline__ uint16_t *store_slot(const struct cta_view *v, const struct task_slot *slot, int32_t row, int32_t part) {
    const struct schedule *s = &v->a->schedule;
    int32_t peer = v->r->row_peer[row];
    int64_t column = slot->task.tile_column * DOWN_TILE_COLUMNS + part * STAGING_COLUMNS;
    return peer < 0 ? NULL : v->r->combine[peer] + (int64_t)v->r->row_route[row] * s->shape.hidden + column;
}

static __device__ __forceinline__ uint16_t *store_forward_target(const struct cta_view *v, const struct task_slot *slot, int32_t row,
                                                                 int32_t part) {
    const struct schedule *s = &v->a->schedule;
    int64_t ring_row = schedule_ring_row(s, row);
    if (slot->task.phase == PHASE_DOWN) {
        if (s->knobs.combine == COMBINE_DIRECT) return store_slot(v, slot, row, part);
        return v->r->y_ring + ring_row * s->shape.hidden + slot->task.tile_column * DOWN_TILE_COLUMNS + part * STAGING_COLUMNS;
    }
    if (part == 0) return v->r->h_ring + ring_row * s->shape.intermediate + slot->task.tile_column * GATE_UP_TILE_COLUMNS;
    return v->r->gu_rows + 2 * (int64_t)row * s->shape.intermediate + slot->task.tile_column * TILE_N + (part - 1) * STAGING_COLUMNS;
}

/* row: of the rank, or of the weight matrix for weight gradients. */
static __device__ __forceinline__ uint16_t *store_backward_target(const struct cta_view *v, const struct task_slot *slot, int32_t row,
                                                                  int32_t part) {
    const struct backward_rank *b = &v->b->ranks[v->rank];
    int64_t intermediate = v->a->schedule.shape.intermediate, column = slot->task.tile_column;
    switch (slot->task.phase) {
    case PHASE_REPLAY: return v->r->gu_rows + 2 * row * intermediate + column * TILE_N + part * STAGING_COLUMNS;
    case PHASE_DGRAD_DOWN:
        if (part < 4) return b->dgu_rows + 2 * row * intermediate + column * 2 * TILE_N + part * STAGING_COLUMNS;
        return b->sh_rows + row * intermediate + column * TILE_N + (part - 4) * STAGING_COLUMNS;
    case PHASE_DGRAD_GATE_UP: return store_slot(v, slot, row, part);
    default: {
        int32_t columns;
        uint16_t *matrix = (uint16_t *)wgrad_matrix(v, slot, sizeof(uint16_t), &columns);
        return matrix + (int64_t)row * columns + column * TILE_N + part * STAGING_COLUMNS;
    }
    }
}

/* One part of a tile: waits for the staging tile, stores it, gives it back. Returns 0 after an abort. */
template <int pass>
static __device__ __forceinline__ uint32_t store_part(const struct cta_view *v, struct compute_shared *shared,
                                                      const struct task_slot *slot, int32_t group, int32_t part,
                                                      uint32_t *full_parity, uint32_t *begin) {
    int32_t lane_index = threadIdx.x % 32u, first = slot->task.tile_row * TILE_ROWS + group * STORE_ROWS + lane_index;
    const uint16_t *staging = shared->staging[group] + lane_index * STAGING_PITCH;
    uint16_t *target[STORE_ROWS_PER_LANE];
    uint32_t unused = 0;
#pragma unroll
    for (int i = 0; i < STORE_ROWS_PER_LANE; i++)
        target[i] = pass == PASS_FORWARD ? store_forward_target(v, slot, first + i * 32, part)
                                         : store_backward_target(v, slot, first + i * 32, part);
    if (!__all_sync(0xffffffffu, wait_barrier_stall(v, &shared->staging_full[group], *full_parity, EDGE_STAGING_FULL,
                                                    (uint32_t)group, &unused)))
        return 0;
    *full_parity ^= 1u;
    if (part == 0) *begin = mokscope_clock();
#pragma unroll
    for (int i = 0; i < STORE_ROWS_PER_LANE; i++)
        if (target[i] != NULL) bulk_store_global(target[i], staging + i * 32 * STAGING_PITCH, STORE_PART_BYTES);
    bulk_commit_group();
    bulk_wait_group_read<0>();
    __syncwarp();
    if (lane_index == 0) mbarrier_arrive_shared(&shared->staging_empty[group]);
    return 1;
}

/* Gradient of the router weights of the warp's rows, to their owners: the partials of all tile columns, in order. Their
 * writers released H_READY, which the load role acquired before the tile's loads, which the parts above followed. */
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

static __device__ __forceinline__ uint32_t store_event(const struct cta_view *v, const struct task_slot *slot) {
    switch (slot->task.phase) {
    case PHASE_GATE_UP: return EVENT_STORE_H;
    case PHASE_DOWN: return v->a->schedule.knobs.combine == COMBINE_RING ? EVENT_STORE_Y : EVENT_PUSH_Y;
    case PHASE_DGRAD_GATE_UP: return EVENT_PUSH_Y;
    default: return EVENT_STORE_GRAD;
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

/* Returns 0 after an abort. */
template <int pass>
static __device__ __forceinline__ uint32_t store_task(const struct cta_view *v, struct mokscope_lane *lane,
                                                      struct compute_shared *shared, const struct task_slot *slot, int32_t group,
                                                      uint32_t *full_parity) {
    uint32_t begin = 0;
    int32_t parts = store_part_count<pass>(v, slot);
    if (!store_wait_slot(v, lane, slot)) return 0;
    for (int32_t part = 0; part < parts; part++)
        if (!store_part<pass>(v, shared, slot, group, part, full_parity, &begin)) return 0;
    if (pass == PASS_BACKWARD && slot->task.phase == PHASE_DGRAD_GATE_UP && slot->task.tile_column == 0)
        store_weight_gradients(v, slot, group);
    bulk_wait_group_all();
    fence_proxy_async_global();
    __syncwarp();
    if (threadIdx.x % 32u == 0) {
        struct schedule_wait output = schedule_task_output(&v->a->schedule, &slot->task);
        store_signal(v, lane, output.edge, output.index);
        if (slot->task.phase == PHASE_DGRAD_DOWN) store_signal(v, lane, EDGE_EXPERT_READY, slot->expert);
        if (parts > 0)
            mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, begin, store_event(v, slot), STORE_ROWS, (uint32_t)slot->id);
        mokscope_sync_if_due_thread(lane);
    }
    __syncwarp();
    (void)begin;
    return 1;
}

template <int pass>
static __device__ __forceinline__ void store_role(const struct cta_view *v, struct mokscope_lane *lane,
                                                  struct compute_shared *shared, int32_t group) {
    struct ring_position position = {0, 0};
    uint32_t full_parity = 0;
    for (;;) {
        struct task_slot slot = task_take(v, lane, shared, &position, false);
        if (slot.task.phase == PHASE_NONE) break;
        if (slot.echo) continue;
        random_delay(v, ROLE_STORE, (uint32_t)slot.id * 2u + (uint32_t)group);
        if (!store_task<pass>(v, lane, shared, &slot, group, &full_parity)) break;
    }
    bulk_wait_group_all();
}

#endif
