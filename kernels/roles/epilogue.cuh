/* Epilogues of the MMA role: the accumulator of a tile, 64 rows a warpgroup, becomes BF16 parts of STAGING_COLUMNS columns in
 * shared memory, which the store role takes one after the other in the order of store_part_target (store.cuh).
 *
 * Accumulator layout: wgmma.cuh. A thread holds, of two rows 8 apart, columns 8 j + 2 (t mod 4) + {0, 1} in d[4 j .. 4 j + 3]. */
#ifndef EPILOGUE_CUH
#define EPILOGUE_CUH

#include "roles/compute_shared.cuh"

struct mma_state {
    struct ring_position task, stage;
    uint32_t staging_parity; /* of staging_empty; the waiter of empty starts at 1 */
};

/* What an epilogue works with; begin and part belong to the current part. */
struct epilogue {
    const struct cta_view *v;
    struct mokscope_lane *lane;
    struct compute_shared *shared;
    struct mma_state *state;
    const struct task_slot *slot;
    int32_t group;
    uint32_t begin, part;
};

/* Until the store role has taken the part before. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t epilogue_part_begin(struct epilogue *e) {
    uint32_t ready = wait_barrier_warp(e->v, e->lane, &e->shared->staging_empty[e->group], e->state->staging_parity,
                                       EDGE_STAGING_EMPTY, (uint32_t)e->group);
    e->state->staging_parity ^= 1u;
    e->begin = mokscope_clock();
    return ready;
}

/* Hands the part to the store role. */
static __device__ __forceinline__ void epilogue_part_end(struct epilogue *e) {
    fence_proxy_async_shared_cta();
    mbarrier_arrive_shared(&e->shared->staging_full[e->group]);
    mokscope_span(e->lane, MOKSCOPE_LEVEL_PHASE, e->begin, EVENT_EPILOGUE, e->part, (uint32_t)e->slot->id);
    e->part += 1;
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

/* The optional limits of the activation: g from above, u on both sides. */
static __device__ __forceinline__ float clamp_gate(float g, float limit) { return fminf(g, limit); }
static __device__ __forceinline__ float clamp_up(float u, float limit) { return fminf(fmaxf(u, -limit), limit); }

static __device__ __forceinline__ float swiglu(float g, float u, float limit) { return silu(clamp_gate(g, limit)) * clamp_up(u, limit); }

/* h = silu(g) * u: g in columns 0..127 of the accumulator, u of the same element in the same thread 128 columns on. */
static __device__ __forceinline__ void stage_swiglu(uint16_t *staging, const float (&d)[128], float limit) {
#pragma unroll
    for (int j = 0; j < STAGING_COLUMNS / 8; j++) {
        const float *g = d + 4 * j, *u = d + 4 * (j + GATE_UP_TILE_COLUMNS / 8);
        stage_columns(staging, 8 * j, pack_bf16(swiglu(g[0], u[0], limit), swiglu(g[1], u[1], limit)),
                      pack_bf16(swiglu(g[2], u[2], limit), swiglu(g[3], u[3], limit)));
    }
}

/* Columns 128 * part .. of the tile, rounded. */
template <int part> static __device__ __forceinline__ void stage_plain(uint16_t *staging, const float (&d)[128]) {
#pragma unroll
    for (int j = 0; j < STAGING_COLUMNS / 8; j++) {
        const float *y = d + 4 * (j + part * STAGING_COLUMNS / 8);
        stage_columns(staging, 8 * j, pack_bf16(y[0], y[1]), pack_bf16(y[2], y[3]));
    }
}

/* value rounded to BF16 without crossing the limit, or the gradient's mask would differ from the activation's. */
static __device__ __forceinline__ float round_same_side(float value, float limit) {
    float rounded = __bfloat162float(__float2bfloat16_rn(value));
    if (value > limit && !(rounded > limit)) return __uint_as_float(__float_as_uint(rounded) + 0x10000u);
    if (!(value > limit) && rounded > limit) return __uint_as_float(__float_as_uint(rounded) - 0x10000u);
    return rounded;
}

static __device__ __forceinline__ uint32_t pack_gate(float low, float high, float limit) {
    return pack_bf16(round_same_side(low, limit), round_same_side(high, limit));
}

static __device__ __forceinline__ uint32_t pack_up(float low, float high, float limit) {
    return pack_bf16(copysignf(round_same_side(fabsf(low), limit), low), copysignf(round_same_side(fabsf(high), limit), high));
}

/* g and u of 64 columns, side by side: the layout of gu_rows. */
template <int part> static __device__ __forceinline__ void stage_gate_up(uint16_t *staging, const float (&d)[128], float limit) {
#pragma unroll
    for (int j = 0; j < BOX_COLUMNS / 8; j++) {
        const float *g = d + 4 * (j + part * BOX_COLUMNS / 8), *u = g + 4 * (GATE_UP_TILE_COLUMNS / 8);
        stage_columns(staging, 8 * j, pack_gate(g[0], g[1], limit), pack_gate(g[2], g[3], limit));
        stage_columns(staging, BOX_COLUMNS + 8 * j, pack_up(u[0], u[1], limit), pack_up(u[2], u[3], limit));
    }
}

/* Two parts: g and u of the tile. */
static __device__ __forceinline__ uint32_t epilogue_gate_up(struct epilogue *e, const float (&d)[128]) {
    uint16_t *staging = e->shared->staging[e->group];
    if (!epilogue_part_begin(e)) return 0;
    stage_gate_up<0>(staging, d, e->v->a->swiglu_clamp);
    epilogue_part_end(e);
    if (!epilogue_part_begin(e)) return 0;
    stage_gate_up<1>(staging, d, e->v->a->swiglu_clamp);
    epilogue_part_end(e);
    return 1;
}

/* Two parts: the tile as it is. */
static __device__ __forceinline__ uint32_t epilogue_plain(struct epilogue *e, const float (&d)[128]) {
    uint16_t *staging = e->shared->staging[e->group];
    if (!epilogue_part_begin(e)) return 0;
    stage_plain<0>(staging, d);
    epilogue_part_end(e);
    if (!epilogue_part_begin(e)) return 0;
    stage_plain<1>(staging, d);
    epilogue_part_end(e);
    return 1;
}

/* Gate+up: h, and g and u where they are saved; down: y. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t epilogue_forward(struct epilogue *e, const float (&d)[128]) {
    if (e->slot->task.phase == PHASE_DOWN) return epilogue_plain(e, d);
    if (!epilogue_part_begin(e)) return 0;
    stage_swiglu(e->shared->staging[e->group], d, e->v->a->swiglu_clamp);
    epilogue_part_end(e);
    return task_saves(e->v, e->slot) ? epilogue_gate_up(e, d) : 1;
}

#endif
