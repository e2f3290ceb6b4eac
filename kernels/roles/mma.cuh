/* MMA role: one warpgroup, 64 rows of the tile. wgmma over the K loop, then an epilogue (epilogue.cuh, epilogue_backward.cuh)
 * that stores the tile. Only warp 0 of the warpgroup carries a probe lane; the others' lanes are null.
 *
 * PROTOCOL publication
 *   The epilogue's bulk stores run on while the next tile's K loop starts. Each thread waits for its own to complete a few k blocks
 *   into that loop, when it costs nothing, and the warp arrives on the tile's target_done; or at once where the next tile's first operands
 *   are not there yet, since they may depend on this tile; or at the end. Store warps signal then. */
#ifndef MMA_CUH
#define MMA_CUH

#include "ptx/wgmma.cuh"
#include "roles/epilogue.cuh"
#include "roles/epilogue_backward.cuh"

/* Descriptor of the warpgroup's rows of A, or of B, at the start of a stage, and what moves it 16 along K. */
template <int mn_major> static __device__ __forceinline__ uint64_t operand_descriptor(const uint16_t *tile) {
    return mn_major ? wgmma_descriptor_mn_major_swizzle_128(tile, BOX_COLUMNS * BOX_ROWS * sizeof(uint16_t))
                    : wgmma_descriptor_k_major_swizzle_128(tile);
}

template <int mn_major> static __device__ __forceinline__ constexpr uint64_t operand_step(int i) {
    return (uint64_t)((mn_major ? 16 * 128 / 16 : 16 * 2 / 16) * i);
}

/* Gives a stage back to whoever fills it: both CTAs of a pair. One thread of the warpgroup. remote: the other CTA's stage_empty,
 * 0 without one. */
static __device__ __forceinline__ void stage_release(struct compute_shared *shared, uint32_t stage, uint32_t remote) {
    mbarrier_arrive_shared(&shared->stage_empty[stage]);
    if (remote != 0) mbarrier_arrive_cluster(remote + stage * (uint32_t)sizeof(uint64_t));
}

/* Stages of one tile: D [64, 256] += A [64, K] B [256, K]^T. A stage is released when the wgmma that read it has retired,
 * one k block late. Returns 0 after an abort. */
/* Not later: the first STAGE_COUNT k blocks of a tile need nothing of the other CTA's current tile, whose operands may depend on
 * what is published here. */
enum { PUBLISH_K_BLOCK = STAGE_COUNT - 1 };

/* Publishes the tile before, if that is still to be done. */
static __device__ __forceinline__ void mma_publish(uint64_t **pending) {
    if (*pending == NULL) return;
    bulk_wait_group_all();
    fence_proxy_async_global();
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive_shared(*pending);
    *pending = NULL;
}

template <int a_mn_major, int b_mn_major>
static __device__ __forceinline__ uint32_t mma_tile(const struct cta_view *v, struct compute_shared *shared,
                                                    struct mma_state *state, int32_t group, int32_t k_blocks, float (&d)[128],
                                                    uint64_t **pending, uint32_t *stall) {
    uint32_t previous = 0;
    const uint32_t remote = v->paired ? cluster_address(shared->stage_empty, v->pair_member ^ 1u) : 0;
    const bool releases = threadIdx.x % WARPGROUP_THREADS == 0;
    struct ring_position position = state->stage;
#pragma unroll
    for (int i = 0; i < 128; i++) d[i] = 0.0f; /* also tells the compiler that nothing is live between tasks */
    for (int32_t k = 0; k < k_blocks; k++) {
        uint32_t stage = position.slot;
        if (!wait_barrier_stall(v, &shared->stage_full[stage], position.parity, EDGE_STAGE_FULL, stage, stall)) {
            wgmma_wait_group<0>();
            return 0;
        }
        /* Half of A either way: 64 rows of K-major, one box of MN-major. */
        uint64_t a = operand_descriptor<a_mn_major>(shared->stage[stage].a + group * 64 * K_BLOCK);
        uint64_t b = operand_descriptor<b_mn_major>(shared->stage[stage].b);
        wgmma_pin_accumulator(d);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < K_BLOCK / 16; i++)
            wgmma_m64n256k16_f32_bf16<a_mn_major, b_mn_major>(d, a + operand_step<a_mn_major>(i), b + operand_step<b_mn_major>(i));
        wgmma_commit_group();
        wgmma_pin_accumulator(d);
        wgmma_wait_group<1>();
        if (k > 0 && releases) stage_release(shared, previous, remote);
        if (k == PUBLISH_K_BLOCK) mma_publish(pending);
        previous = stage;
        ring_advance(&position, STAGE_COUNT);
    }
    state->stage = position;
    wgmma_wait_group<0>();
    wgmma_pin_accumulator(d);
    if (k_blocks > 0 && releases) stage_release(shared, previous, remote);
    return 1;
}

/* The K loop with the operands' major order that the phase has. */
template <int pass>
static __device__ __forceinline__ uint32_t mma_task_tile(const struct cta_view *v, struct compute_shared *shared,
                                                         struct mma_state *state, const struct task_slot *slot, int32_t group,
                                                         int32_t k_blocks, float (&d)[128], uint64_t **pending, uint32_t *stall) {
    if (pass == PASS_FORWARD || slot->task.phase == PHASE_REPLAY) return mma_tile<0, 0>(v, shared, state, group, k_blocks, d, pending, stall);
    if (slot->task.phase == PHASE_DGRAD_DOWN || slot->task.phase == PHASE_DGRAD_GATE_UP)
        return mma_tile<0, 1>(v, shared, state, group, k_blocks, d, pending, stall);
    return mma_tile<1, 1>(v, shared, state, group, k_blocks, d, pending, stall);
}

/* Until the ring rows that the tile goes to may be overwritten. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t mma_wait_target(const struct cta_view *v, struct mokscope_lane *lane,
                                                           struct compute_shared *shared, struct mma_state *state, int32_t group) {
    uint32_t ready = wait_barrier_warp(v, lane, &shared->target_free[group], state->target_parity, EDGE_TARGET_FREE, (uint32_t)group);
    state->target_parity ^= 1u;
    return ready;
}

static __device__ __forceinline__ struct pushed_row mma_look_up(const struct cta_view *v, const struct task_slot *slot, int32_t row) {
    struct pushed_row pushed = {-1, 0};
    if (slot->task.phase == PHASE_DGRAD_GATE_UP ||
        (slot->task.phase == PHASE_DOWN && v->a->schedule.knobs.combine == COMBINE_DIRECT)) {
        pushed.peer = v->r->row_peer[row + (int32_t)(threadIdx.x % STAGING_ROWS)];
        pushed.route = v->r->row_route[row + (int32_t)(threadIdx.x % STAGING_ROWS)];
    }
    return pushed;
}

template <int pass>
static __device__ __forceinline__ void mma_role(const struct cta_view *v, struct mokscope_lane *lane,
                                                struct compute_shared *shared, int32_t group) {
    struct mma_state state = {{0, 0}, {0, 0}, 0};
    const int32_t warp = threadIdx.x % WARPGROUP_THREADS / 32;
    uint64_t *pending = NULL;
    uint32_t gu_parity = 0;
    float d[128];
    for (;;) {
        struct task_slot slot = task_take(v, lane, shared, &state.task, true);
        if (slot.task.phase == PHASE_NONE) break;
        random_delay(v, ROLE_MMA, (uint32_t)slot.id * 2u + (uint32_t)group);
        int32_t k_blocks = slot.k_blocks, row = slot.task.tile_row * TILE_ROWS + group * 64 + warp * STAGING_ROWS;
        struct pushed_row pushed = mma_look_up(v, &slot, row);
        uint32_t begin = mokscope_clock(), stall = 0;
        if (k_blocks == 0 || !__all_sync(0xffffffffu, mbarrier_try_wait_parity_shared(&shared->stage_full[state.stage.slot], state.stage.parity)))
            mma_publish(&pending);
        /* The first stage's wait is a record of its own: it is the time the load role needed to find its input. */
        if (k_blocks > 0 && !wait_barrier_warp(v, lane, &shared->stage_full[state.stage.slot], state.stage.parity, EDGE_STAGE_FULL,
                                               state.stage.slot))
            break;
        uint32_t mma_begin = mokscope_clock();
        if (!mma_task_tile<pass>(v, shared, &state, &slot, group, k_blocks, d, &pending, &stall)) break;
        mokscope_span(lane, MOKSCOPE_LEVEL_PHASE, mma_begin, EVENT_MMA_TILE, stall >> 6, (uint32_t)slot.id);
        mma_publish(&pending);
        if (slot.echo) continue;
        if (!mma_wait_target(v, lane, shared, &state, group)) break;
        struct epilogue e = {v, lane, shared, &slot, group * 4 + warp, gu_parity, row, shared_address(shared->staging[group * 4 + warp]), pushed, 0, 0, 0};
        if (pass == PASS_FORWARD)
            epilogue_forward(&e, d);
        else
            epilogue_backward(&e, d);
        gu_parity = e.gu_parity;
        pending = &shared->target_done[group];
        if (threadIdx.x % WARPGROUP_THREADS == 0) mokscope_clock_hand_over(&shared->issue_clock[group], e.first_issue);
        mokscope_span(lane, MOKSCOPE_LEVEL_TASK, begin, task_event(slot.task.phase), slot.expert, (uint32_t)slot.id);
        mokscope_sync_if_due(lane);
        (void)begin, (void)mma_begin, (void)stall;
    }
    mma_publish(&pending);
    bulk_wait_group_all();
}

#endif
