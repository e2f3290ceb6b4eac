/* MMA role: one warpgroup, 64 rows of the tile. wgmma over the K loop, activation or rounding, staging for the store role.
 * Only warp 0 of the warpgroup carries a probe lane; the others' lanes are null. */
#ifndef MMA_CUH
#define MMA_CUH

#include "ptx/wgmma.cuh"
#include "roles/compute_shared.cuh"

struct mma_state {
    struct ring_position task, stage;
    uint32_t staging_parity; /* of staging_empty; the waiter of empty starts at 1 */
};

/* Stages of one tile: D [64, 256] += A [64, K] B [256, K]^T. A stage is released when the wgmma that read it has retired,
 * one k block late. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t mma_tile(const struct cta_view *v, struct compute_shared *shared,
                                                    struct mma_state *state, int32_t group, int32_t k_blocks, float (&d)[128],
                                                    uint32_t *stall) {
    uint32_t previous = 0;
#pragma unroll
    for (int i = 0; i < 128; i++) d[i] = 0.0f; /* also tells the compiler that nothing is live between tasks */
    for (int32_t k = 0; k < k_blocks; k++) {
        uint32_t stage = state->stage.slot;
        if (!wait_barrier_stall(v, &shared->stage_full[stage], state->stage.parity, EDGE_STAGE_FULL, stage, stall)) {
            wgmma_wait_group<0>();
            return 0;
        }
        uint64_t a = wgmma_descriptor_k_major_swizzle_128(shared->stage[stage].a + group * 64 * K_BLOCK);
        uint64_t b = wgmma_descriptor_k_major_swizzle_128(shared->stage[stage].b);
        wgmma_pin_accumulator(d);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < K_BLOCK / 16; i++)
            wgmma_m64n256k16_f32_bf16(d, a + (uint64_t)(2 * i), b + (uint64_t)(2 * i));
        wgmma_commit_group();
        wgmma_pin_accumulator(d);
        wgmma_wait_group<1>();
        if (k > 0 && threadIdx.x % WARPGROUP_THREADS == 0) mbarrier_arrive_shared(&shared->stage_empty[previous]);
        previous = stage;
        ring_advance(&state->stage, STAGE_COUNT);
    }
    wgmma_wait_group<0>();
    wgmma_pin_accumulator(d);
    if (threadIdx.x % WARPGROUP_THREADS == 0) mbarrier_arrive_shared(&shared->stage_empty[previous]);
    return 1;
}

static __device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    uint32_t packed;
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&packed, &pair, sizeof packed);
    return packed;
}

static __device__ __forceinline__ float silu(float g) { return __fdividef(g, 1.0f + __expf(-g)); }

/* Two neighbouring columns of the two rows a thread holds, into the staging tile. */
static __device__ __forceinline__ void stage_columns(uint16_t *staging, int32_t column, uint32_t upper, uint32_t lower) {
    int32_t thread = threadIdx.x % WARPGROUP_THREADS;
    int32_t row = thread / 32 * 16 + thread % 32 / 4;
    uint16_t *target = staging + row * STAGING_PITCH + column + thread % 4 * 2;
    *(uint32_t *)target = upper;
    *(uint32_t *)(target + 8 * STAGING_PITCH) = lower;
}

/* h = silu(g) * u: g in columns 0..127 of the accumulator, u of the same element in the same thread 128 columns on. */
static __device__ __forceinline__ void stage_swiglu(uint16_t *staging, const float (&d)[128]) {
#pragma unroll
    for (int j = 0; j < STAGING_COLUMNS / 8; j++) {
        const float *g = d + 4 * j, *u = d + 4 * (j + GATE_UP_TILE_COLUMNS / 8);
        stage_columns(staging, 8 * j, pack_bf16(silu(g[0]) * u[0], silu(g[1]) * u[1]),
                      pack_bf16(silu(g[2]) * u[2], silu(g[3]) * u[3]));
    }
}

/* Columns 128 * part .. of y, rounded. */
template <int part> static __device__ __forceinline__ void stage_down(uint16_t *staging, const float (&d)[128]) {
#pragma unroll
    for (int j = 0; j < STAGING_COLUMNS / 8; j++) {
        const float *y = d + 4 * (j + part * STAGING_COLUMNS / 8);
        stage_columns(staging, 8 * j, pack_bf16(y[0], y[1]), pack_bf16(y[2], y[3]));
    }
}

static __device__ __forceinline__ uint32_t staging_wait(const struct cta_view *v, struct mokscope_lane *lane,
                                                        struct compute_shared *shared, struct mma_state *state, int32_t group) {
    uint32_t ready = wait_barrier_warp(v, lane, &shared->staging_empty[group], state->staging_parity, EDGE_STAGING_EMPTY,
                                       (uint32_t)group);
    state->staging_parity ^= 1u;
    return ready;
}

static __device__ __forceinline__ void staging_publish(struct compute_shared *shared, int32_t group) {
    fence_proxy_async_shared_cta();
    mbarrier_arrive_shared(&shared->staging_full[group]);
}

static __device__ __forceinline__ void mma_role(const struct cta_view *v, struct mokscope_lane *lane,
                                                struct compute_shared *shared, int32_t group) {
    const struct schedule *s = &v->a->schedule;
    struct mma_state state = {{0, 0}, {0, 0}, 1};
    uint16_t *staging = shared->staging[group];
    float d[128];
    for (;;) {
        struct task_slot slot = task_take(v, lane, shared, &state.task, true);
        if (slot.task.phase == PHASE_NONE) return;
        bool gate_up = slot.task.phase == PHASE_GATE_UP;
        random_delay(v, ROLE_MMA, (uint32_t)slot.id * 2u + (uint32_t)group);
        uint32_t begin = mokscope_clock(), stall = 0;
        /* The first stage's wait is a record of its own: it is the time the load role needed to find its input. */
        if (!wait_barrier_warp(v, lane, &shared->stage_full[state.stage.slot], state.stage.parity, EDGE_STAGE_FULL,
                               state.stage.slot))
            return;
        uint32_t mma_begin = mokscope_clock();
        if (!mma_tile(v, shared, &state, group, (gate_up ? s->shape.hidden : s->shape.intermediate) / K_BLOCK, d, &stall)) return;
        mokscope_span(lane, MOKSCOPE_LEVEL_PHASE, mma_begin, EVENT_MMA_TILE, stall >> 6, (uint32_t)slot.id);
        if (group == 0) {
            /* All stages of the tile have landed, so its ring rows have been read (by TMA, observed through the barriers). */
            struct schedule_wait release = schedule_task_release(s, &slot.task);
            if (threadIdx.x % WARPGROUP_THREADS == 0)
                red_add_release_gpu_global_u32(counter_address(v, release.edge, release.index), 1);
            __syncwarp();
            mokscope_instant(lane, MOKSCOPE_LEVEL_TASK, EVENT_SIGNAL_FIRST + release.edge, 1, (uint32_t)release.index);
        }
        if (!staging_wait(v, lane, shared, &state, group)) return;
        uint32_t epilogue_begin = mokscope_clock();
        if (gate_up) {
            stage_swiglu(staging, d);
            staging_publish(shared, group);
        } else {
            stage_down<0>(staging, d);
            staging_publish(shared, group);
            mokscope_span(lane, MOKSCOPE_LEVEL_PHASE, epilogue_begin, EVENT_EPILOGUE, 0, (uint32_t)slot.id);
            if (!staging_wait(v, lane, shared, &state, group)) return;
            epilogue_begin = mokscope_clock();
            stage_down<1>(staging, d);
            staging_publish(shared, group);
        }
        mokscope_span(lane, MOKSCOPE_LEVEL_PHASE, epilogue_begin, EVENT_EPILOGUE, gate_up ? 0 : 1, (uint32_t)slot.id);
        mokscope_span(lane, MOKSCOPE_LEVEL_TASK, begin, gate_up ? EVENT_TASK_GATE_UP : EVENT_TASK_DOWN, slot.expert,
                      (uint32_t)slot.id);
        mokscope_sync_if_due(lane);
        (void)begin, (void)mma_begin, (void)epilogue_begin, (void)stall;
    }
}

#endif
