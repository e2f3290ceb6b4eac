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
#include "roles/cta.cuh"

MOKSCOPE_MODULE("mok forward", mok_role_rows, mok_event_rows, mok_edge_rows)

static __global__ __cluster_dims__(PAIR_CTAS, 1, 1) __launch_bounds__(CTA_THREADS, 1) void mok_forward_kernel(const __grid_constant__ struct layer_arguments a) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    layer_cta<PASS_FORWARD>(&a, NULL, (union cta_shared *)shared_bytes);
}

int forward_launch(const struct layer_arguments *arguments, int32_t rank_count, void *stream) {
    void *parameters[] = {(void *)arguments};
    return launch_kernel((const void *)mok_forward_kernel, parameters, rank_count * arguments->rank_ctas, rank_count > 1, stream);
}

int forward_describe(int *registers, int *shared_bytes) {
    struct cudaFuncAttributes attributes;
    cudaError_t status = cudaFuncGetAttributes(&attributes, (const void *)mok_forward_kernel);
    if (status != cudaSuccess) return (int)status;
    *registers = attributes.numRegs;
    *shared_bytes = (int)sizeof(union cta_shared);
    return 0;
}
