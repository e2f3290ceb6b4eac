/* Backward megakernel of the MoE layer, BF16, Hopper (sm_90a), the forward kernel's structure with other tasks. FLOPs: twice the
 * forward pass's, and half as many again for rows that are replayed. Given dY:
 *
 *   dH' = dY W_down                     unscaled; d weight[t, j] = <dH', h> (SonicMoE, 2512.14080: no saved y, right for s <= 0)
 *   dG, dU                              SwiGLU backward of s dH' (epilogue_backward.cuh)
 *   dX_j = dG W_gate + dU W_up          one GEMM over 2 I; pushed to the owners' slots, dX = sum over j in order, FP32
 *   dW_down = dY^T (s h), dW_gate = dG^T x, dW_up = dU^T x    over the expert's rows in order, FP32 accumulators
 *
 * Rows of dY and x are pulled as the forward pass pulls x, into arrays that stay for the weight gradients; there are no rings.
 * g and u come from the forward pass for the first saved_rows rows of a rank and are computed again for the others. */
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define MOK_EVENTS_ROWS
#include "roles/cta.cuh"

MOKSCOPE_MODULE("mok backward", mok_role_rows, mok_event_rows, mok_edge_rows)

static __global__ __cluster_dims__(PAIR_CTAS, 1, 1) __launch_bounds__(CTA_THREADS, 1) void mok_backward_kernel(const __grid_constant__ struct layer_arguments a,
                                                                           const __grid_constant__ struct backward_arguments b) {
    extern __shared__ __align__(1024) uint8_t shared_bytes[];
    layer_cta<PASS_BACKWARD>(&a, &b, (union cta_shared *)shared_bytes);
}

int backward_launch(const struct layer_arguments *arguments, const struct backward_arguments *backward, int32_t rank_count,
                    void *stream) {
    void *parameters[] = {(void *)arguments, (void *)backward};
    return launch_kernel((const void *)mok_backward_kernel, parameters, rank_count * arguments->rank_ctas, rank_count > 1, stream);
}
