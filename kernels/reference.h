/* The MoE layer in plain C, to compare the megakernel with: sums in double precision, rounded to BF16 only where the kernel rounds.
 * Pure and thread safe; scratch memory is its own, everything else the caller's, on the host. Plain pointers throughout, so that
 * scripts can call it through a foreign-function interface. Formulas: mok.h and kernels/backward.cu. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "mok.h"

/* Inputs of all ranks. Arrays of pointers are [ranks]; what they point to is laid out as mok_layer_bind takes it. */
struct mok_reference {
    int32_t ranks, experts_per_rank, tokens, hidden, intermediate, top_k;
    int32_t shared_experts;
    float swiglu_clamp;                /* 0: no limit */
    const uint16_t *const *x;          /* [tokens, H] BF16 */
    const int32_t *const *expert_ids;  /* [tokens, k]; an id out of range is a dropped route */
    const float *const *weights;       /* [tokens, k] */
    const uint16_t *const *w_gate, *const *w_up;     /* [experts_per_rank, I, H] BF16 */
    const uint16_t *const *w_down;                   /* [experts_per_rank, H, I] BF16 */
    const uint16_t *const *shared_gate, *const *shared_up, *const *shared_down; /* [shared_experts, ...]; NULL without them */
};

/* Output rows of some tokens of one rank, rounded as the kernel rounds: h and each y_j to BF16, the sum over slots in FP32 in their
 * order, then BF16. Only the experts that these tokens visit are computed: 3 H I multiplications a route.
 *   sample_tokens  [sample_count] tokens of the rank; NULL: 0 .. sample_count - 1
 *   output         [sample_count, H] BF16
 * Errors: ERROR_USAGE for a shape or token out of range, ERROR_FAILURE without memory. */
MOK_API int mok_reference_forward(const struct mok_reference *layer, int32_t rank, const int32_t *sample_tokens, int32_t sample_count,
                                  uint16_t *output, struct error *error);

/* The same without any rounding: what the mathematics gives. output [sample_count, H]. */
MOK_API int mok_reference_forward_exact(const struct mok_reference *layer, int32_t rank, const int32_t *sample_tokens,
                                        int32_t sample_count, double *output, struct error *error);

/* Gradients of all ranks; arrays of pointers are [ranks], what they point to is overwritten. In double precision for either kind of
 * rounding: where the kernel stores BF16 (dx) the value is a BF16 number. Weight gradients and those of the router weights are not
 * rounded: the kernel keeps FP32 sums and may round once, at the end. */
struct mok_reference_gradients {
    double *const *dx;                              /* [tokens, H] */
    double *const *d_weights;                       /* [tokens, k]; 0 for dropped routes */
    double *const *dw_gate, *const *dw_up;          /* [experts_per_rank, I, H] */
    double *const *dw_down;                         /* [experts_per_rank, H, I] */
    double *const *d_shared_gate, *const *d_shared_up, *const *d_shared_down; /* NULL without shared experts */
};

/* Gradients of the sum over all outputs of output * dy. For small shapes: every route of every rank, 9 H I multiplications each.
 *   dy       [ranks] of [tokens, H] BF16
 *   rounded  1: as the kernel: g, u, dG, dU, s h and the dX_j in their slots to BF16, dX summed in FP32; 0: not at all */
MOK_API int mok_reference_backward(const struct mok_reference *layer, const uint16_t *const *dy, int32_t rounded,
                                   const struct mok_reference_gradients *gradients, struct error *error);

#endif
