/* Forward megakernel of the MoE layer, BF16, Hopper (sm_90a): dispatch, gate+up with SwiGLU, down, combine, final sum and the
 * rank barriers in one persistent kernel a rank. FLOPs: 6 * rows * H * I (rows without padding).
 *
 *   y[t] = sum_j s[t,j] * (silu(x W_gate^T) * (x W_up^T)) W_down^T of the token's j-th expert
 *
 * The schedule (kernels/schedule.h) says what is done in which order and who waits for whom; edges.def names the counters.
 * The first comm_sms CTAs of a rank communicate, the others compute; one CTA an SM. A launch holds one rank, or all of them
 * (cooperative): rank = first rank + CTA / rank_ctas. Ranks that share a GPU as separate launches must be co-resident.
 *
 * Registers: 168 a thread (65,536 / 384) hold the 64 x 256 accumulator (128) and everything around it without a spill, so
 * registers are not moved between roles (setmaxnreg at 40 / 232 failed to allocate, nvcc 13.0). Shared memory: compute_shared.cuh or comm.cuh, the larger of the two.
 * Called by launch.c through forward_launch. */
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define MOK_EVENTS_ROWS
#include "roles/compute_shared.cuh"
#include "roles/load.cuh"
#include "roles/mma.cuh"
#include "roles/store.cuh"
#include "roles/comm.cuh"
#include "roles/reduce.cuh"

MOKSCOPE_MODULE("mok forward", mok_role_rows, mok_event_rows, mok_edge_rows)

union cta_shared {
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

static __device__ __forceinline__ void comm_cta(const struct cta_view *v, union cta_shared *shared) {
    int32_t warp = threadIdx.x / 32;
    comm_shared_init(&shared->comm);
    __syncthreads();
    struct mokscope_lane lane = mokscope_lane_open(v->rank, ROLE_DISPATCH, 0);
    bool first_thread = v->cta == 0 && threadIdx.x == 0;
    if (first_thread) tell_peers(v, &lane, v->r->rank_start, EDGE_RANK_START);
    uint32_t running = comm_role(v, &lane, &shared->comm);
    if (first_thread && running) running = finish_role(v, &lane);
    running = __shfl_sync(0xffffffffu, running, 0);
    mokscope_lane_adopt(&lane);
    if (running) reduce_role(v, &lane, v->cta * CTA_WARPS + warp, reduce_worker_count(v));
    mokscope_lane_close(&lane);
}

static __device__ __forceinline__ void feed_warp(const struct cta_view *v, struct compute_shared *shared, int32_t warp) {
    if (warp == LOAD_WARP) {
        struct mokscope_lane lane = mokscope_lane_open(v->rank, ROLE_LOAD, 0);
        if (threadIdx.x == 0) load_role(v, &lane, shared);
        if (threadIdx.x == 0) mokscope_lane_close_thread(&lane);
    } else if (warp >= STORE_WARP_FIRST) {
        struct mokscope_lane lane = mokscope_lane_open(v->rank, ROLE_STORE, 0);
        store_role(v, &lane, shared, warp - STORE_WARP_FIRST);
        mokscope_lane_close(&lane);
    }
}

static __device__ __forceinline__ void mma_warpgroup(const struct cta_view *v, struct compute_shared *shared) {
    int32_t warp = threadIdx.x / 32, group = threadIdx.x / WARPGROUP_THREADS - 1;
    int32_t comm = v->a->schedule.knobs.comm_sms;
    struct mokscope_lane lane = mokscope_lane_null();
    if (warp % 4 == 0) lane = mokscope_lane_open(v->rank, ROLE_MMA, 0);
    mma_role(v, &lane, shared, group);
    reduce_role(v, &lane, comm * CTA_WARPS + (v->cta - comm) * COMPUTE_REDUCE_WARPS + warp - 4, reduce_worker_count(v));
    mokscope_lane_close(&lane);
}

static __global__ __launch_bounds__(CTA_THREADS, 1) void mok_forward_kernel(const __grid_constant__ struct forward_arguments a) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    union cta_shared *shared = (union cta_shared *)shared_bytes;
    int32_t rank = a.rank_first + (int32_t)blockIdx.x / a.rank_ctas;
    const struct rank_arguments *r = &a.ranks[rank];
    struct cta_view view = {&a, r, rank, (int32_t)blockIdx.x % a.rank_ctas, r->table->total_rows, r->control[rank]->epoch};
    if (view.cta < a.schedule.knobs.comm_sms) {
        comm_cta(&view, shared);
        return;
    }
    if (threadIdx.x == 0) compute_barriers_init(&shared->compute);
    __syncthreads();
    if (threadIdx.x < WARPGROUP_THREADS)
        feed_warp(&view, &shared->compute, (int32_t)threadIdx.x / 32);
    else
        mma_warpgroup(&view, &shared->compute);
}

int forward_launch(const struct forward_arguments *arguments, int32_t rank_count, void *stream) {
    const void *kernel = (const void *)mok_forward_kernel;
    cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(union cta_shared));
    if (status != cudaSuccess) return (int)status;
    void *parameters[] = {(void *)arguments};
    dim3 grid((unsigned)(rank_count * arguments->rank_ctas));
    if (rank_count > 1)
        status = cudaLaunchCooperativeKernel(kernel, grid, dim3(CTA_THREADS), parameters, sizeof(union cta_shared), (cudaStream_t)stream);
    else
        status = cudaLaunchKernel(kernel, grid, dim3(CTA_THREADS), parameters, sizeof(union cta_shared), (cudaStream_t)stream);
    return (int)status;
}

int forward_describe(int *registers, int *shared_bytes) {
    struct cudaFuncAttributes attributes;
    cudaError_t status = cudaFuncGetAttributes(&attributes, (const void *)mok_forward_kernel);
    if (status != cudaSuccess) return (int)status;
    *registers = attributes.numRegs;
    *shared_bytes = (int)sizeof(union cta_shared);
    return 0;
}
