/* Epilogues of the backward pass. Dgrad through down holds dH' = dY W_down (unscaled) and makes, with the row's router weight s
 * and the g, u of the element:
 *   sigma = 1 / (1 + exp(-g)), h = g sigma u
 *   ds partial = sum over the tile's columns of dH' h       (so that s = 0 and s < 0 are right)
 *   dG = s dH' u sigma (1 + g (1 - sigma)), dU = s dH' g sigma, and s h, the operand of dW_down
 * With a clamp, g and u are limited first, and the gradient of a limited one is 0.
 * Rounding: g, u and all outputs BF16, arithmetic FP32; h is not rounded before it enters ds and s h. */
#ifndef EPILOGUE_BACKWARD_CUH
#define EPILOGUE_BACKWARD_CUH

#include "roles/epilogue.cuh"

/* The thread's two rows (8 apart). */
struct dgrad_rows {
    int32_t row[2];
    float weight[2];
    float limit; /* of the clamp */
};

static __device__ __forceinline__ struct dgrad_rows dgrad_rows_find(const struct epilogue *e) {
    struct dgrad_rows r;
    r.limit = e->v->a->swiglu_clamp;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        r.row[i] = e->row + (int32_t)(threadIdx.x % 32 / 4) + 8 * i;
        r.weight[i] = e->v->r->row_weight[r.row[i]];
    }
    return r;
}

static __device__ __forceinline__ float bf16_low(uint32_t packed) { return __uint_as_float(packed << 16); }
static __device__ __forceinline__ float bf16_high(uint32_t packed) { return __uint_as_float(packed & 0xffff0000u); }

static __device__ __forceinline__ float sigmoid(float g) { return __fdividef(1.0f, 1.0f + __expf(-g)); }

/* One element: adds to *ds, returns dG and dU. */
static __device__ __forceinline__ void swiglu_backward(float dh, float g, float u, float limit, float weight, float *ds, float *dg,
                                                       float *du) {
    float g_limited = clamp_gate(g, limit), u_limited = clamp_up(u, limit);
    float s = sigmoid(g_limited), gate = g_limited * s, scaled = weight * dh;
    *ds = fmaf(dh, gate * u_limited, *ds);
    *dg = g > limit ? 0.0f : scaled * u_limited * (s + gate * (1.0f - s));
    *du = fabsf(u) > limit ? 0.0f : scaled * gate;
}

/* g and u of 64 columns from gu_rows into the warp's staging. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t load_gate_up(struct epilogue *e, int quarter) {
    uint64_t *full = &e->shared->gu_full[e->warp];
    uint32_t row = threadIdx.x % 32, unused = 0;
    int64_t pitch = 2 * e->v->a->schedule.shape.intermediate;
    if (row == 0) mbarrier_arrive_expect_tx_shared(full, STAGING_ROWS * STAGING_COLUMNS * sizeof(uint16_t));
    __syncwarp();
    if (row < STAGING_ROWS)
        bulk_load_shared_to(e->staging + row * STAGING_PITCH * (uint32_t)sizeof(uint16_t),
                            e->v->r->gu_rows + (e->row + (int64_t)row) * pitch + e->slot->task.tile_column * 2 * TILE_N + quarter * STAGING_COLUMNS,
                            STAGING_COLUMNS * sizeof(uint16_t), full);
    uint32_t landed = wait_barrier_stall(e->v, full, e->gu_parity, EDGE_STAGE_FULL, (uint32_t)e->warp, &unused);
    e->gu_parity ^= 1u;
    return landed;
}

/* dG and dU of columns 64 * quarter .., side by side (the layout of dgu_rows), over the g and u that they are made from; and s h of
 * these columns, packed. */
template <int quarter> static __device__ __forceinline__ void stage_dgu(uint32_t staging, const struct dgrad_rows *r, const float (&d)[128],
                                                                        float (&ds)[2], uint32_t (&sh)[BOX_COLUMNS / 8][2]) {
#pragma unroll
    for (int j = 0; j < BOX_COLUMNS / 8; j++) {
        const float *dh = d + 4 * (j + quarter * BOX_COLUMNS / 8);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t at = staging + (uint32_t)(16 * j) + (uint32_t)i * 8 * STAGING_PITCH * (uint32_t)sizeof(uint16_t);
            uint32_t g = ld_shared_u32(at), u = ld_shared_u32(at + BOX_COLUMNS * sizeof(uint16_t));
            float dg[2], du[2];
            swiglu_backward(dh[2 * i], bf16_low(g), bf16_low(u), r->limit, r->weight[i], &ds[i], &dg[0], &du[0]);
            swiglu_backward(dh[2 * i + 1], bf16_high(g), bf16_high(u), r->limit, r->weight[i], &ds[i], &dg[1], &du[1]);
            st_shared_u32(at, pack_bf16(dg[0], dg[1]));
            st_shared_u32(at + BOX_COLUMNS * sizeof(uint16_t), pack_bf16(du[0], du[1]));
            sh[j][i] = pack_bf16(r->weight[i] * swiglu(bf16_low(g), bf16_low(u), r->limit),
                                 r->weight[i] * swiglu(bf16_high(g), bf16_high(u), r->limit));
        }
    }
}

/* Sums of the four threads that share a row, in a fixed order, to ds_partial [row, tile column]. */
static __device__ __forceinline__ void store_ds_partial(const struct epilogue *e, const struct dgrad_rows *r, float (&ds)[2]) {
    const struct backward_rank *b = &e->v->b->ranks[e->v->rank];
    int32_t columns = schedule_dgrad_tile_columns(&e->v->a->schedule);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = ds[i] + __shfl_xor_sync(0xffffffffu, ds[i], 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (threadIdx.x % 4 == 0) b->ds_partial[(int64_t)r->row[i] * columns + e->slot->task.tile_column] = sum;
    }
}

/* One quarter, two parts: dG and dU, and s h. Returns 0 after an abort. */
template <int quarter> static __device__ __forceinline__ uint32_t dgrad_quarter(struct epilogue *e, const struct dgrad_rows *r,
                                                                                const float (&d)[128], float (&ds)[2]) {
    const struct backward_rank *b = &e->v->b->ranks[e->v->rank];
    int32_t intermediate = e->v->a->schedule.shape.intermediate, column = e->slot->task.tile_column * TILE_N + quarter * BOX_COLUMNS;
    int64_t row = e->row + (int32_t)(threadIdx.x % STAGING_ROWS);
    uint32_t sh[BOX_COLUMNS / 8][2];
    epilogue_part_begin(e);
    if (!__all_sync(0xffffffffu, load_gate_up(e, quarter))) return 0;
    stage_dgu<quarter>(thread_staging(e->staging), r, d, ds, sh);
    epilogue_part_copy(e, b->dgu_rows + 2 * (row * intermediate + column), STAGING_COLUMNS);
    epilogue_part_begin(e);
#pragma unroll
    for (int j = 0; j < BOX_COLUMNS / 8; j++) stage_columns(thread_staging(e->staging), 8 * j, sh[j][0], sh[j][1]);
    epilogue_part_copy(e, b->sh_rows + row * intermediate + column, BOX_COLUMNS);
    return 1;
}

/* Eight parts, and the partials of ds. After an abort the tile is not complete, and nobody will read it. */
static __device__ __forceinline__ void epilogue_dgrad_down(struct epilogue *e, const float (&d)[128]) {
    struct dgrad_rows r = dgrad_rows_find(e);
    float ds[2] = {0.0f, 0.0f};
    fence_proxy_async_global(); /* gu_rows may be new, by the planner's acquire; the loads below are in the async proxy */
    if (!dgrad_quarter<0>(e, &r, d, ds) || !dgrad_quarter<1>(e, &r, d, ds) || !dgrad_quarter<2>(e, &r, d, ds) ||
        !dgrad_quarter<3>(e, &r, d, ds))
        return;
    store_ds_partial(e, &r, ds);
}

/* Weight gradient matrix of the task's expert, and its row length. */
static __device__ __forceinline__ void *wgrad_matrix(const struct cta_view *v, const struct task_slot *slot, size_t element_bytes,
                                                     int32_t *columns) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    const struct backward_rank *b = &v->b->ranks[v->rank];
    bool shared = slot->expert < shape->shared_experts;
    int32_t expert = shared ? slot->expert : slot->expert - shape->shared_experts;
    void *down = shared ? b->d_shared_down : b->dw_down, *gate = shared ? b->d_shared_gate : b->dw_gate;
    void *up = shared ? b->d_shared_up : b->dw_up;
    void *matrix = slot->task.phase == PHASE_WGRAD_DOWN ? down : slot->task.phase == PHASE_WGRAD_GATE ? gate : up;
    *columns = slot->task.phase == PHASE_WGRAD_DOWN ? shape->intermediate : shape->hidden;
    return (uint8_t *)matrix + (size_t)expert * (size_t)shape->hidden * (size_t)shape->intermediate * element_bytes;
}

/* Adds the tile to FP32 main gradients; one owner an element, so in a fixed order. Nothing is staged. */
static __device__ __forceinline__ void accumulate_gradient(const struct epilogue *e, const float (&d)[128]) {
    int32_t columns;
    float *matrix = (float *)wgrad_matrix(e->v, e->slot, sizeof(float), &columns);
    int32_t row = e->row + (int32_t)(threadIdx.x % 32 / 4);
    float *target = matrix + (int64_t)row * columns + e->slot->task.tile_column * TILE_N + (int32_t)(threadIdx.x % 4) * 2;
#pragma unroll
    for (int j = 0; j < TILE_N / 8; j++) {
        float2 *upper = (float2 *)(target + 8 * j), *lower = (float2 *)(target + 8 * (int64_t)columns + 8 * j);
        float2 a = *upper, b = *lower;
        *upper = make_float2(a.x + d[4 * j], a.y + d[4 * j + 1]);
        *lower = make_float2(b.x + d[4 * j + 2], b.y + d[4 * j + 3]);
    }
}

static __device__ __forceinline__ void epilogue_wgrad(struct epilogue *e, const float (&d)[128]) {
    if (e->v->b->accumulate) {
        e->begin = mokscope_clock();
        accumulate_gradient(e, d);
        mokscope_span(e->lane, MOKSCOPE_LEVEL_PHASE, e->begin, EVENT_EPILOGUE, 0, (uint32_t)e->slot->id);
        return;
    }
    int32_t columns;
    uint16_t *matrix = (uint16_t *)wgrad_matrix(e->v, e->slot, sizeof(uint16_t), &columns);
    epilogue_plain(e, {matrix + (int64_t)e->row * columns + e->slot->task.tile_column * TILE_N, columns}, d);
}

static __device__ __forceinline__ void epilogue_backward(struct epilogue *e, const float (&d)[128]) {
    switch (e->slot->task.phase) {
    case PHASE_REPLAY: epilogue_gate_up(e, d); break;
    case PHASE_DGRAD_DOWN: epilogue_dgrad_down(e, d); break;
    case PHASE_DGRAD_GATE_UP: epilogue_push(e, d); break;
    default: epilogue_wgrad(e, d); break;
    }
}

#endif
