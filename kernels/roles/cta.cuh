/* A CTA of either pass: which roles its warps play. CTAs come in pairs (clusters of two), one CTA an SM. The first comm_sms CTAs of
 * a rank communicate, the others compute; a pair that has no more to communicate joins the computing ones. A launch holds one
 * rank, or all of them (cooperative): rank = first rank + CTA / rank_ctas. Ranks that share a GPU as separate launches must be
 * co-resident.
 *
 * PROTOCOL pair
 *   Shared memory of the other CTA is touched (multicast loads, stage and ticket barriers) only while both compute: between a
 *   cluster barrier after the barriers' initialisation and the one at the end of the kernel, which every thread reaches. */
#ifndef CTA_CUH
#define CTA_CUH

#include "roles/comm.cuh"
#include "roles/load.cuh"
#include "roles/mma.cuh"
#include "roles/plan.cuh"
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
    PLAN_WARP = 1,
    STORE_WARP_FIRST = 2, /* warps 2 and 3 of the first warpgroup */
    COMPUTE_REDUCE_WARPS = MMA_WARPGROUPS * WARPGROUP_THREADS / 32
};

static_assert(sizeof(union cta_shared) <= SHARED_BYTES_MAXIMUM, "shared memory of a CTA");
static_assert(STAGE_BYTES % 1024 == 0, "a swizzled tile starts on 1,024 bytes");

/* The same warps of every CTA reduce, whatever its other roles. */
template <int pass>
static __device__ __forceinline__ void reduce_warp(const struct cta_view *v, struct mokscope_lane *lane) {
    int32_t worker = v->cta * COMPUTE_REDUCE_WARPS + (int32_t)(threadIdx.x - WARPGROUP_THREADS) / 32;
    reduce_role<pass>(v, lane, worker, v->a->rank_ctas * COMPUTE_REDUCE_WARPS);
}

template <int pass>
static __device__ __forceinline__ void feed_warp(const struct cta_view *v, struct compute_shared *shared, int32_t warp) {
    if (warp == LOAD_WARP) {
        struct mokscope_lane lane = mokscope_lane_open(v->rank, ROLE_LOAD, blockIdx.x / PAIR_CTAS);
        if (threadIdx.x == 0) load_role<pass>(v, &lane, shared);
        if (threadIdx.x == 0) mokscope_lane_close_thread(&lane);
    } else if (warp >= STORE_WARP_FIRST) {
        struct mokscope_lane lane = mokscope_lane_open(v->rank, ROLE_STORE, blockIdx.x / PAIR_CTAS);
        store_role<pass>(v, &lane, shared, warp - STORE_WARP_FIRST);
        mokscope_lane_close(&lane);
    } else if (warp == PLAN_WARP) {
        struct mokscope_lane lane = mokscope_lane_open(v->rank, ROLE_PLAN, blockIdx.x / PAIR_CTAS);
        if (threadIdx.x % 32 == 0) plan_role<pass>(v, &lane, shared);
        if (threadIdx.x % 32 == 0) mokscope_lane_close_thread(&lane);
        __syncwarp();
        if (v->cta != 0) return;
        lane = mokscope_lane_open(v->rank, ROLE_FINISH, blockIdx.x / PAIR_CTAS);
        if (threadIdx.x % 32 == 0) finish_role(v, &lane);
        if (threadIdx.x % 32 == 0) mokscope_lane_close_thread(&lane);
    }
}

template <int pass>
static __device__ __forceinline__ void mma_warpgroup(const struct cta_view *v, struct compute_shared *shared) {
    int32_t warp = threadIdx.x / 32, group = threadIdx.x / WARPGROUP_THREADS - 1;
    struct mokscope_lane lane = mokscope_lane_null();
    if (warp % 4 == 0) lane = mokscope_lane_open(v->rank, ROLE_MMA, blockIdx.x / PAIR_CTAS);
    mma_role<pass>(v, &lane, shared, group);
    reduce_warp<pass>(v, &lane);
    mokscope_lane_close(&lane);
}

/* Computes to the end of the kernel. If paired, both CTAs come here. */
template <int pass>
static __device__ __forceinline__ void compute_cta(const struct cta_view *v, struct compute_shared *shared) {
    if (threadIdx.x == 0) compute_barriers_init(shared, v->paired);
    __syncthreads();
    if (v->paired) {
        cluster_arrive();
        cluster_wait();
    }
    if (threadIdx.x < WARPGROUP_THREADS)
        feed_warp<pass>(v, shared, (int32_t)threadIdx.x / 32);
    else
        mma_warpgroup<pass>(v, shared);
    __syncwarp();
}

/* Whether a communication CTA computes afterwards: not on the combine path ring, which keeps it busy to the end, nor if its
 * neighbour is a computing CTA, which then has no partner either. */
template <int pass> static __device__ __forceinline__ bool comm_cta_joins(const struct cta_view *v) {
    return (pass == PASS_BACKWARD || v->a->schedule.knobs.combine == COMBINE_DIRECT) && (v->cta | 1) < v->a->schedule.knobs.comm_sms;
}

/* Communicates; without joining the computing CTAs afterwards, it also finishes (CTA 0) and reduces. A call, because in line before
 * the computing roles it makes them spill (1,168 bytes, nvcc 13.0). */
template <int pass>
static __device__ __noinline__ void comm_cta(const struct cta_view *v, union cta_shared *shared, bool joins) {
    comm_shared_init(&shared->comm);
    __syncthreads();
    struct mokscope_lane lane = mokscope_lane_open(v->rank, ROLE_DISPATCH, blockIdx.x / PAIR_CTAS);
    uint32_t running = comm_role<pass>(v, &lane, &shared->comm);
    if (!joins && v->cta == 0 && threadIdx.x == 0 && running) running = finish_role(v, &lane);
    running = __shfl_sync(0xffffffffu, running, 0);
    mokscope_lane_adopt(&lane);
    if (!joins && running && threadIdx.x >= WARPGROUP_THREADS) reduce_warp<pass>(v, &lane);
    mokscope_lane_close(&lane);
    __syncthreads();
}

/* Routing table and rank barrier. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t enter(struct cta_view *v, struct route_shared *shared) {
    struct mokscope_lane lane = mokscope_lane_null();
    if (threadIdx.x < 32) lane = mokscope_lane_open(v->rank, ROLE_ENTRY, blockIdx.x / PAIR_CTAS);
    uint32_t running = entry_role(v, &lane, shared);
    if (threadIdx.x == 0) mokscope_lane_close_thread(&lane);
    return running;
}

/* Body of the kernels. backward: NULL in the forward pass. */
template <int pass>
static __device__ __forceinline__ void layer_cta(const struct layer_arguments *a, const struct backward_arguments *backward,
                                                 union cta_shared *shared) {
    int32_t rank = a->rank_first + (int32_t)blockIdx.x / a->rank_ctas, cta = (int32_t)blockIdx.x % a->rank_ctas;
    const struct rank_arguments *r = &a->ranks[rank];
    struct cta_view view = {a, r, rank, cta, 0, r->control[rank]->epoch + 1, NULL, cluster_cta_rank(), false, backward};
    view.counters = r->counters + view.epoch % 2 * counter_words(a);
    if (enter(&view, &shared->route)) {
        bool communicates = view.cta < a->schedule.knobs.comm_sms, joins = comm_cta_joins<pass>(&view);
        view.paired = communicates ? joins : (view.cta & ~1) >= a->schedule.knobs.comm_sms;
        if (communicates) comm_cta<pass>(&view, shared, joins);
        if (!communicates || joins) compute_cta<pass>(&view, &shared->compute);
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
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
