/* A CTA of either pass: which roles its warps play. The first comm_sms CTAs of a rank communicate, the others compute; one CTA
 * an SM. A launch holds one rank, or all of them (cooperative): rank = first rank + CTA / rank_ctas. Ranks that share a GPU as
 * separate launches must be co-resident. */
#ifndef CTA_CUH
#define CTA_CUH

#include "roles/comm.cuh"
#include "roles/load.cuh"
#include "roles/mma.cuh"
#include "roles/reduce.cuh"
#include "roles/store.cuh"

union cta_shared {
    struct route_shared route;
    struct compute_shared compute;
    struct comm_shared comm;
};

enum {
    SHARED_BYTES_MAXIMUM = 227 * 1024,
    LOAD_WARP = 0,
    STORE_WARP_FIRST = 2, /* warps 2 and 3 of the first warpgroup */
    COMPUTE_REDUCE_WARPS = MMA_WARPGROUPS * WARPGROUP_THREADS / 32
};

static_assert(sizeof(union cta_shared) <= SHARED_BYTES_MAXIMUM, "shared memory of a CTA");
static_assert(STAGE_BYTES % 1024 == 0, "a swizzled tile starts on 1,024 bytes");

/* Warps of the rank that reduce: all of the communication CTAs, the MMA warps of the others. */
static __device__ __forceinline__ int32_t reduce_worker_count(const struct cta_view *v) {
    int32_t comm = v->a->schedule.knobs.comm_sms;
    return comm * CTA_WARPS + (v->a->rank_ctas - comm) * COMPUTE_REDUCE_WARPS;
}

template <int pass>
static __device__ __forceinline__ void comm_cta(const struct cta_view *v, union cta_shared *shared) {
    int32_t warp = threadIdx.x / 32;
    comm_shared_init(&shared->comm);
    __syncthreads();
    struct mokscope_lane lane = mokscope_lane_open(v->rank, ROLE_DISPATCH, 0);
    uint32_t running = comm_role<pass>(v, &lane, &shared->comm);
    if (v->cta == 0 && threadIdx.x == 0 && running) running = finish_role(v, &lane);
    running = __shfl_sync(0xffffffffu, running, 0);
    mokscope_lane_adopt(&lane);
    if (running) reduce_role<pass>(v, &lane, v->cta * CTA_WARPS + warp, reduce_worker_count(v));
    mokscope_lane_close(&lane);
}

template <int pass>
static __device__ __forceinline__ void feed_warp(const struct cta_view *v, struct compute_shared *shared, int32_t warp) {
    if (warp == LOAD_WARP) {
        struct mokscope_lane lane = mokscope_lane_open(v->rank, ROLE_LOAD, 0);
        if (threadIdx.x == 0) load_role<pass>(v, &lane, shared);
        if (threadIdx.x == 0) mokscope_lane_close_thread(&lane);
    } else if (warp >= STORE_WARP_FIRST) {
        struct mokscope_lane lane = mokscope_lane_open(v->rank, ROLE_STORE, 0);
        store_role<pass>(v, &lane, shared, warp - STORE_WARP_FIRST);
        mokscope_lane_close(&lane);
    }
}

template <int pass>
static __device__ __forceinline__ void mma_warpgroup(const struct cta_view *v, struct compute_shared *shared) {
    int32_t warp = threadIdx.x / 32, group = threadIdx.x / WARPGROUP_THREADS - 1;
    int32_t comm = v->a->schedule.knobs.comm_sms;
    struct mokscope_lane lane = mokscope_lane_null();
    if (warp % 4 == 0) lane = mokscope_lane_open(v->rank, ROLE_MMA, 0);
    mma_role<pass>(v, &lane, shared, group);
    reduce_role<pass>(v, &lane, comm * CTA_WARPS + (v->cta - comm) * COMPUTE_REDUCE_WARPS + warp - 4, reduce_worker_count(v));
    mokscope_lane_close(&lane);
}

/* Routing table and rank barrier. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t enter(struct cta_view *v, struct route_shared *shared) {
    struct mokscope_lane lane = mokscope_lane_null();
    if (threadIdx.x < 32) lane = mokscope_lane_open(v->rank, ROLE_ENTRY, 0);
    uint32_t running = entry_role(v, &lane, shared);
    if (threadIdx.x == 0) mokscope_lane_close_thread(&lane);
    return running;
}

/* Body of the kernels. backward: NULL in the forward pass. */
template <int pass>
static __device__ __forceinline__ void layer_cta(const struct layer_arguments *a, const struct backward_arguments *backward,
                                                 union cta_shared *shared) {
    int32_t rank = a->rank_first + (int32_t)blockIdx.x / a->rank_ctas;
    const struct rank_arguments *r = &a->ranks[rank];
    struct cta_view view = {a, r, rank, (int32_t)blockIdx.x % a->rank_ctas, 0, r->control[rank]->epoch + 1, NULL, backward};
    view.counters = r->counters + view.epoch % 2 * counter_words(a);
    if (!enter(&view, &shared->route)) return;
    if (view.cta < a->schedule.knobs.comm_sms) {
        comm_cta<pass>(&view, shared);
        return;
    }
    if (threadIdx.x == 0) compute_barriers_init(&shared->compute);
    __syncthreads();
    if (threadIdx.x < WARPGROUP_THREADS)
        feed_warp<pass>(&view, &shared->compute, (int32_t)threadIdx.x / 32);
    else
        mma_warpgroup<pass>(&view, &shared->compute);
}

/* Enqueues a kernel of rank_count ranks; cooperative if there are several. Returns a cudaError_t as int. */
static int launch_kernel(const void *kernel, void **parameters, int32_t cta_count, int cooperative, void *stream) {
    cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(union cta_shared));
    dim3 grid((unsigned)cta_count), block(CTA_THREADS);
    if (status != cudaSuccess) return (int)status;
    if (cooperative) return (int)cudaLaunchCooperativeKernel(kernel, grid, block, parameters, sizeof(union cta_shared), (cudaStream_t)stream);
    return (int)cudaLaunchKernel(kernel, grid, block, parameters, sizeof(union cta_shared), (cudaStream_t)stream);
}

#endif
