/* Reduce role: out[t] = sum over slots j of weight[t, j] * combine[t * slots + j], FP32, in that order, rounded to BF16; in the
 * backward pass, whose slots hold scaled gradients, without the weight. Dropped routes (expert id < 0 or out of range) have no
 * slot and contribute nothing; the gradient of their weight is 0. A token a warp, strided over the warps
 * of the rank that take part. Memory bound: k rows read, one written. */
#ifndef REDUCE_CUH
#define REDUCE_CUH

#include "roles/wait.cuh"

/* Until every peer has pushed everything; every lane acquires for itself. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t reduce_wait_peers(const struct cta_view *v, struct mokscope_lane *lane) {
    for (int32_t peer = 0; peer < v->a->schedule.shape.rank_count; peer++) {
        const uint32_t *flag = v->r->rank_done[v->rank] + peer;
        uint32_t first = ld_acquire_sys_global_u32(flag) >= v->epoch;
        if (__all_sync(0xffffffffu, first)) continue;
        uint32_t begin = mokscope_clock();
        uint32_t done = poll_counter(v, *lane, flag, EDGE_RANK_DONE, (uint32_t)peer, v->epoch, 1, -1);
        done = __all_sync(0xffffffffu, done);
        mokscope_span(lane, MOKSCOPE_LEVEL_TASK, begin, EVENT_WAIT_RANK_DONE, v->epoch, (uint32_t)peer);
        (void)begin;
        if (!done) return 0;
    }
    /* Slots were written by bulk stores (async proxy of the pusher, fenced there before its release). */
    fence_proxy_async_global();
    return 1;
}

static __device__ __forceinline__ void fma_bf16x2(float *low, float *high, uint32_t packed, float weight) {
    *low = fmaf(weight, __uint_as_float(packed << 16), *low);
    *high = fmaf(weight, __uint_as_float(packed & 0xffff0000u), *high);
}

/* Slots of token t that count, as a mask; lane j holds slot j's weight. */
template <int pass>
static __device__ __forceinline__ uint32_t reduce_routes(const struct cta_view *v, int32_t token, float *weight) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    int32_t slot = threadIdx.x % 32u, j = slot - shape->shared_experts;
    int32_t experts = shape->experts_per_rank * shape->rank_count;
    bool valid = false;
    *weight = 0.0f;
    if (j < 0) {
        valid = true;
        *weight = 1.0f;
    } else if (j < shape->top_k) {
        int32_t id = v->r->expert_ids[v->rank][token * shape->top_k + j];
        valid = id >= 0 && id < experts;
        if (pass == PASS_FORWARD)
            *weight = v->r->weights[v->rank][token * shape->top_k + j];
        else if (!valid)
            v->b->ranks[v->rank].d_weights[v->rank][token * shape->top_k + j] = 0.0f;
    }
    return __ballot_sync(0xffffffffu, valid);
}

template <int pass>
static __device__ __forceinline__ void reduce_token(const struct cta_view *v, int32_t token) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    int32_t lane_index = threadIdx.x % 32u;
    float weight;
    uint32_t routes = reduce_routes<pass>(v, token, &weight);
    const uint16_t *slots = v->r->combine[v->rank] + (int64_t)token * schedule_slots(shape) * shape->hidden;
    uint16_t *output = v->r->output + (int64_t)token * shape->hidden;
    for (int32_t column = lane_index * 8; column < shape->hidden; column += 32 * 8) {
        float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (int32_t first = 0; first < schedule_slots(shape); first += 8) {
            uint4 rows[8];
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (routes >> (first + i) & 1u)
                    rows[i] = ld_global_stream_v4(slots + (int64_t)(first + i) * shape->hidden + column);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float w = pass == PASS_FORWARD ? __shfl_sync(0xffffffffu, weight, first + i) : 1.0f;
                if (routes >> (first + i) & 1u) {
                    fma_bf16x2(&sum[0], &sum[1], rows[i].x, w);
                    fma_bf16x2(&sum[2], &sum[3], rows[i].y, w);
                    fma_bf16x2(&sum[4], &sum[5], rows[i].z, w);
                    fma_bf16x2(&sum[6], &sum[7], rows[i].w, w);
                }
            }
        }
        uint4 packed;
        packed.x = pack_bf16(sum[0], sum[1]);
        packed.y = pack_bf16(sum[2], sum[3]);
        packed.z = pack_bf16(sum[4], sum[5]);
        packed.w = pack_bf16(sum[6], sum[7]);
        *(uint4 *)(output + column) = packed;
    }
}

/* worker of worker_count: the rank's warps that reduce, numbered. H is a multiple of 256, so a warp's lanes stay together. */
template <int pass>
static __device__ __forceinline__ void reduce_role(const struct cta_view *v, struct mokscope_lane *lane, int32_t worker,
                                                   int32_t worker_count) {
    if (!reduce_wait_peers(v, lane)) return;
    uint32_t begin = mokscope_clock(), tokens = 0;
    for (int32_t token = worker; token < v->a->schedule.shape.tokens; token += worker_count, tokens++) reduce_token<pass>(v, token);
    __syncwarp();
    if (tokens > 0) mokscope_span(lane, MOKSCOPE_LEVEL_PHASE, begin, EVENT_REDUCE_ROWS, tokens, (uint32_t)worker);
    (void)begin;
}

#endif
