/* Epilogues of the MMA role: the accumulator of a tile, 64 rows a warpgroup, 16 a warp, becomes BF16 parts of STAGING_COLUMNS
 * columns. Each warp stages a part in its own shared memory and stores it row by row in bulk, asynchronously; the tile is published
 * later (mma.cuh, PROTOCOL publication).
 *
 * Accumulator layout: wgmma.cuh. A thread holds, of two rows 8 apart, columns 8 j + 2 (t mod 4) + {0, 1} in d[4 j .. 4 j + 3]. */
#ifndef EPILOGUE_CUH
#define EPILOGUE_CUH

#include "ptx/tma.cuh"
#include "roles/compute_shared.cuh"

struct mma_state {
    struct ring_position task, stage;
    uint32_t target_parity; /* of target_free */
};

/* Owner and slot of one of the warp's rows (row lane mod 16); peer -1: padding, or the tile is not pushed. Looked up before the K
 * loop, which hides the latency. */
struct pushed_row {
    int32_t peer, route;
};

/* What an epilogue works with; begin and part belong to the current part. */
struct epilogue {
    const struct cta_view *v;
    struct mokscope_lane *lane;
    struct compute_shared *shared;
    const struct task_slot *slot;
    int32_t warp;               /* of the MMA warps */
    uint32_t gu_parity;         /* of gu_full */
    int32_t row;                /* of the rank (wgrad: of the matrix): first of the warp's 16 */
    uint32_t staging;           /* of the warp, shared address */
    struct pushed_row pushed;
    uint32_t begin, part;
    uint32_t first_issue; /* clock at the first part's stores */
};

/* A matrix of this rank that a part is stored to: the warp's first row at the part's first column, and the row length. */
struct part_target {
    uint16_t *base;
    int32_t pitch;
};

/* Until the part before has left the staging. */
static __device__ __forceinline__ void epilogue_part_begin(struct epilogue *e) {
    if (threadIdx.x % 32 < STAGING_ROWS) bulk_wait_group_read<0>();
    __syncwarp();
    e->begin = mokscope_clock();
}

/* Stores the staged part: a row a lane. to: the lane's row, NULL: none. */
static __device__ __forceinline__ void epilogue_part_copy(struct epilogue *e, uint16_t *to, int32_t columns) {
    uint32_t row = threadIdx.x % 32;
    fence_proxy_async_shared_cta();
    __syncwarp();
    if (row < STAGING_ROWS && to != NULL)
        bulk_store_global_from(to, e->staging + row * STAGING_PITCH * (uint32_t)sizeof(uint16_t), (uint32_t)columns * (uint32_t)sizeof(uint16_t));
    bulk_commit_group();
    if (e->part == 0) e->first_issue = mokscope_clock();
    mokscope_span(e->lane, MOKSCOPE_LEVEL_PHASE, e->begin, EVENT_EPILOGUE, e->part, (uint32_t)e->slot->id);
    e->part += 1;
}

/* Stores the staged part into this rank's memory. */
static __device__ __forceinline__ void epilogue_part_store(struct epilogue *e, struct part_target target) {
    epilogue_part_copy(e, target.base + (int64_t)(threadIdx.x % STAGING_ROWS) * target.pitch, STAGING_COLUMNS);
}

/* Stores the staged part to the rows' owners, at this column of their slots. */
static __device__ __forceinline__ void epilogue_part_push(struct epilogue *e, int32_t column) {
    const struct pushed_row *p = &e->pushed;
    epilogue_part_copy(e, p->peer < 0 ? NULL : e->v->r->combine[p->peer] + (int64_t)p->route * e->v->a->schedule.shape.hidden + column,
                       STAGING_COLUMNS);
}

static __device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    uint32_t packed;
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&packed, &pair, sizeof packed);
    return packed;
}

static __device__ __forceinline__ float silu(float g) { return __fdividef(g, 1.0f + __expf(-g)); }

/* Two neighbouring columns of the two rows a thread holds, into the warp's staging: `column` on from thread_staging. */
static __device__ __forceinline__ void stage_columns(uint32_t thread_staging, int32_t column, uint32_t upper, uint32_t lower) {
    uint32_t address = thread_staging + (uint32_t)(column * 2);
    st_shared_u32(address, upper);
    st_shared_u32(address + 8 * STAGING_PITCH * sizeof(uint16_t), lower);
}

/* Where a thread's first two columns of its upper row go. */
static __device__ __forceinline__ uint32_t thread_staging(uint32_t staging) {
    return staging + (threadIdx.x % 32 / 4) * STAGING_PITCH * (uint32_t)sizeof(uint16_t) + threadIdx.x % 4 * 4u;
}

/* The optional limits of the activation: g from above, u on both sides. */
static __device__ __forceinline__ float clamp_gate(float g, float limit) { return fminf(g, limit); }
static __device__ __forceinline__ float clamp_up(float u, float limit) { return fminf(fmaxf(u, -limit), limit); }

static __device__ __forceinline__ float swiglu(float g, float u, float limit) { return silu(clamp_gate(g, limit)) * clamp_up(u, limit); }

/* h = silu(g) * u: g in columns 0..127 of the accumulator, u of the same element in the same thread 128 columns on. */
static __device__ __forceinline__ void stage_swiglu(uint32_t staging, const float (&d)[128], float limit) {
#pragma unroll
    for (int j = 0; j < STAGING_COLUMNS / 8; j++) {
        const float *g = d + 4 * j, *u = d + 4 * (j + GATE_UP_TILE_COLUMNS / 8);
        stage_columns(staging, 8 * j, pack_bf16(swiglu(g[0], u[0], limit), swiglu(g[1], u[1], limit)),
                      pack_bf16(swiglu(g[2], u[2], limit), swiglu(g[3], u[3], limit)));
    }
}

/* Columns 128 * part .. of the tile, rounded. */
template <int part> static __device__ __forceinline__ void stage_plain(uint32_t staging, const float (&d)[128]) {
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
template <int part> static __device__ __forceinline__ void stage_gate_up(uint32_t staging, const float (&d)[128], float limit) {
#pragma unroll
    for (int j = 0; j < BOX_COLUMNS / 8; j++) {
        const float *g = d + 4 * (j + part * BOX_COLUMNS / 8), *u = g + 4 * (GATE_UP_TILE_COLUMNS / 8);
        stage_columns(staging, 8 * j, pack_gate(g[0], g[1], limit), pack_gate(g[2], g[3], limit));
        stage_columns(staging, BOX_COLUMNS + 8 * j, pack_up(u[0], u[1], limit), pack_up(u[2], u[3], limit));
    }
}

/* gu_rows of the warp, at the tile's columns. */
static __device__ __forceinline__ struct part_target gate_up_target(const struct epilogue *e, int32_t part) {
    int32_t pitch = 2 * e->v->a->schedule.shape.intermediate;
    return {e->v->r->gu_rows + (int64_t)e->row * pitch + e->slot->task.tile_column * TILE_N + part * STAGING_COLUMNS, pitch};
}

/* Two parts: g and u of the tile. */
static __device__ __forceinline__ void epilogue_gate_up(struct epilogue *e, const float (&d)[128]) {
    epilogue_part_begin(e);
    stage_gate_up<0>(thread_staging(e->staging), d, e->v->a->swiglu_clamp);
    epilogue_part_store(e, gate_up_target(e, 0));
    epilogue_part_begin(e);
    stage_gate_up<1>(thread_staging(e->staging), d, e->v->a->swiglu_clamp);
    epilogue_part_store(e, gate_up_target(e, 1));
}

/* Two parts: the tile as it is. */
static __device__ __forceinline__ void epilogue_plain(struct epilogue *e, struct part_target target, const float (&d)[128]) {
    epilogue_part_begin(e);
    stage_plain<0>(thread_staging(e->staging), d);
    epilogue_part_store(e, target);
    target.base += STAGING_COLUMNS;
    epilogue_part_begin(e);
    stage_plain<1>(thread_staging(e->staging), d);
    epilogue_part_store(e, target);
}

static __device__ __forceinline__ void epilogue_push(struct epilogue *e, const float (&d)[128]) {
    int32_t column = e->slot->task.tile_column * TILE_N;
    epilogue_part_begin(e);
    stage_plain<0>(thread_staging(e->staging), d);
    epilogue_part_push(e, column);
    epilogue_part_begin(e);
    stage_plain<1>(thread_staging(e->staging), d);
    epilogue_part_push(e, column + STAGING_COLUMNS);
}

/* Gate+up: h, and g and u where they are saved; down: y, to the owners' combine slots or to the y ring. */
static __device__ __forceinline__ void epilogue_forward(struct epilogue *e, const float (&d)[128]) {
    const struct schedule *s = &e->v->a->schedule;
    int64_t ring_row = schedule_ring_row(s, e->row);
    int32_t hidden = s->shape.hidden, intermediate = s->shape.intermediate;
    if (e->slot->task.phase == PHASE_DOWN) {
        if (s->knobs.combine == COMBINE_DIRECT)
            epilogue_push(e, d);
        else
            epilogue_plain(e, {e->v->r->y_ring + ring_row * hidden + e->slot->task.tile_column * TILE_N, hidden}, d);
        return;
    }
    epilogue_part_begin(e);
    stage_swiglu(thread_staging(e->staging), d, e->v->a->swiglu_clamp);
    epilogue_part_store(e, {e->v->r->h_ring + ring_row * intermediate + e->slot->task.tile_column * GATE_UP_TILE_COLUMNS, intermediate});
    if (task_saves(e->v, e->slot)) epilogue_gate_up(e, d);
}

#endif
