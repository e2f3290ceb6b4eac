/* Store role: one warp for each MMA warpgroup takes staged tiles out of shared memory by bulk stores, a row each: h tiles to
 * the h ring, y tiles straight to their owners' combine slots (combine path direct) or to the y ring (ring).
 * Completion: every lane waits for its own bulk stores, fences the proxy, the warp meets, and lane 0 releases the counter. */
#ifndef STORE_CUH
#define STORE_CUH

#include "ptx/tma.cuh"
#include "roles/compute_shared.cuh"

enum { STORE_ROWS_PER_LANE = 2, STORE_ROWS = 64, STORE_PART_BYTES = STAGING_COLUMNS * sizeof(uint16_t) };

/* Where the lane's rows go: address of column 0 of the tile, or NULL for a padding row of a direct push. */
struct store_target {
    uint16_t *row[STORE_ROWS_PER_LANE];
};

static __device__ __forceinline__ struct store_target store_target_find(const struct cta_view *v, const struct task_slot *slot,
                                                                        int32_t group) {
    const struct schedule *s = &v->a->schedule;
    struct store_target target;
#pragma unroll
    for (int i = 0; i < STORE_ROWS_PER_LANE; i++) {
        int32_t row = slot->task.tile_row * TILE_ROWS + group * STORE_ROWS + i * 32 + (int32_t)(threadIdx.x % 32u);
        int64_t ring_row = schedule_ring_row(s, row);
        if (slot->task.phase == PHASE_GATE_UP) {
            target.row[i] = v->r->h_ring + ring_row * s->shape.intermediate + slot->task.tile_column * GATE_UP_TILE_COLUMNS;
        } else if (s->knobs.combine == COMBINE_RING) {
            target.row[i] = v->r->y_ring + ring_row * s->shape.hidden + slot->task.tile_column * DOWN_TILE_COLUMNS;
        } else {
            int32_t peer = v->r->row_peer[row];
            target.row[i] = peer < 0 ? NULL
                                     : v->r->combine[peer] + (int64_t)v->r->row_route[row] * s->shape.hidden +
                                           slot->task.tile_column * DOWN_TILE_COLUMNS;
        }
    }
    return target;
}

/* One part of a tile: waits for the staging tile, stores it, gives it back. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t store_part(const struct cta_view *v, struct mokscope_lane *lane,
                                                      struct compute_shared *shared, const struct store_target *target,
                                                      int32_t group, int32_t part, uint32_t *full_parity, uint32_t *begin) {
    uint32_t lane_index = threadIdx.x % 32u;
    const uint16_t *staging = shared->staging[group];
    uint32_t unused = 0;
    if (!__all_sync(0xffffffffu, wait_barrier_stall(v, &shared->staging_full[group], *full_parity, EDGE_STAGING_FULL,
                                                    (uint32_t)group, &unused)))
        return 0;
    *full_parity ^= 1u;
    if (part == 0) *begin = mokscope_clock();
#pragma unroll
    for (int i = 0; i < STORE_ROWS_PER_LANE; i++) {
        if (target->row[i] != NULL)
            bulk_store_global(target->row[i] + part * STAGING_COLUMNS, staging + (i * 32 + lane_index) * STAGING_PITCH,
                              STORE_PART_BYTES);
    }
    bulk_commit_group();
    bulk_wait_group_read<0>();
    __syncwarp();
    if (lane_index == 0) mbarrier_arrive_shared(&shared->staging_empty[group]);
    (void)lane;
    return 1;
}

static __device__ __forceinline__ void store_record(const struct cta_view *v, struct mokscope_lane *lane,
                                                    const struct task_slot *slot, uint32_t begin) {
    bool gate_up = slot->task.phase == PHASE_GATE_UP;
    int32_t event = gate_up ? EVENT_STORE_H : v->a->schedule.knobs.combine == COMBINE_RING ? EVENT_STORE_Y : EVENT_PUSH_Y;
    mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, begin, event, STORE_ROWS, (uint32_t)slot->id);
    (void)event, (void)begin;
}

/* Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t store_task(const struct cta_view *v, struct mokscope_lane *lane,
                                                      struct compute_shared *shared, const struct task_slot *slot, int32_t group,
                                                      uint32_t *full_parity) {
    const struct schedule *s = &v->a->schedule;
    struct store_target target = store_target_find(v, slot, group);
    struct schedule_wait reuse = schedule_task_slot(s, &slot->task);
    uint32_t ready = 1, begin = 0;
    if (reuse.edge >= 0) {
        uint32_t awaited = schedule_edge_target(s, v->total_rows, (enum edge)reuse.edge, reuse.index, v->epoch);
        if (threadIdx.x % 32u == 0) ready = wait_counter_thread(v, lane, reuse.edge, reuse.index, awaited, slot->id);
        if (!__shfl_sync(0xffffffffu, ready, 0)) return 0;
        /* Readers of the slot read it by TMA; the acquire ordered lane 0, the warp barrier in the shuffle orders the rest. */
        fence_proxy_async_global();
    }
    int32_t parts = slot->task.phase == PHASE_GATE_UP ? 1 : DOWN_TILE_COLUMNS / STAGING_COLUMNS;
    for (int32_t part = 0; part < parts; part++)
        if (!store_part(v, lane, shared, &target, group, part, full_parity, &begin)) return 0;
    bulk_wait_group_all();
    fence_proxy_async_global();
    __syncwarp();
    if (threadIdx.x % 32u == 0) {
        struct schedule_wait output = schedule_task_output(s, &slot->task);
        red_add_release_gpu_global_u32(counter_address(v, output.edge, output.index), 1);
        store_record(v, lane, slot, begin);
        mokscope_instant_thread(lane, MOKSCOPE_LEVEL_TASK, EVENT_SIGNAL_FIRST + output.edge, 1, (uint32_t)output.index);
        mokscope_sync_if_due_thread(lane);
    }
    __syncwarp();
    return 1;
}

static __device__ __forceinline__ void store_role(const struct cta_view *v, struct mokscope_lane *lane,
                                                  struct compute_shared *shared, int32_t group) {
    struct ring_position position = {0, 0};
    uint32_t full_parity = 0;
    for (;;) {
        struct task_slot slot = task_take(v, lane, shared, &position, false);
        if (slot.task.phase == PHASE_NONE) break;
        random_delay(v, ROLE_STORE, (uint32_t)slot.id * 2u + (uint32_t)group);
        if (!store_task(v, lane, shared, &slot, group, &full_parity)) break;
    }
    bulk_wait_group_all();
}

#endif
