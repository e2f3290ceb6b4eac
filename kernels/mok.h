/* mok.h: the MoE layer as a C library. One mok_layer holds the ranks of an expert-parallel group that live in this process,
 * all on one GPU for now; it owns rings, tables, flags, combine buffers and saved activations, never inputs, weights, outputs
 * or gradients.
 *
 * Use: mok_options_init, mok_layer_create, mok_layer_bind for each rank, then per pass mok_layer_forward (enqueues only) and,
 * after the stream is synchronised, mok_layer_check. For training set options.backward, call mok_layer_bind_backward too, and
 * mok_layer_backward after a forward pass of the same inputs. A layer is not thread safe; different layers share nothing.
 *
 * Forward of one rank: y[t] = sum over j of s[t,j] * W_down[e] (silu(W_gate[e] x[t]) * (W_up[e] x[t])), e = expert_ids[t,j];
 * plus the shared experts' outputs. BF16 in and out, FP32 accumulation, h and each y_j rounded to BF16, final sum in FP32 in the order j = 0..k-1. The result
 * has the same bits for any knob below and any timing. */
#ifndef MOK_H
#define MOK_H

#include <stddef.h>
#include <stdint.h>

#include "../probes/host/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOK_API __attribute__((visibility("default")))

struct mok_layer;

/* 0 = default, where a default is given. */
struct mok_options {
    size_t size;             /* sizeof(struct mok_options), set by mok_options_init */
    /* Shape */
    int32_t ranks;           /* expert-parallel ranks, 1..8 */
    int32_t experts_per_rank; /* 1..64; expert e of the model lives on rank e / experts_per_rank */
    int32_t tokens;          /* a rank */
    int32_t hidden;          /* H, multiple of 256 */
    int32_t intermediate;    /* I, multiple of 128 */
    int32_t top_k;           /* 1..16 */
    int32_t shared_experts;  /* 0..4, of the routed experts' I (a shared expert of width m I is m of them); see mok_layer_bind_shared */
    float swiglu_clamp;      /* > 0: limits g from above to this, u to +- this; 0: no limit */
    /* Schedule knobs: none changes a bit of the result */
    int32_t rank_ctas;       /* CTAs a rank, one an SM, even; default: SMs of the GPU / ranks */
    int32_t comm_sms;        /* of these, CTAs that communicate, 1..rank_ctas - 2, better even; default: rank_ctas / 8, even */
    int32_t minibatch_rows;  /* rows between two signals, multiple of 128; default 2048, less for small problems */
    int32_t ring_rows;       /* physical rows of each ring, multiple of minibatch_rows; default: what a rank gets on average, at least 4 minibatches */
    int32_t lag;             /* minibatches by which down trails gate+up, 0..ring minibatches - 1; default 1, -1 means 0 */
    int32_t combine_ring;    /* 0: the down epilogue pushes straight to the owners; 1: through the y ring and comm_sms */
    int32_t saved_rows;      /* of a rank, whose g and u forward keeps for backward, which recomputes the others'; multiple of 128;
                                default with backward: all; -1: none */
    int32_t capacity_rows;   /* padded rows a rank can hold, multiple of 128; default: no routing can overflow it */
    /* Backward pass */
    int32_t backward;        /* 1: make room for it (about 4 capacity_rows * (H + 2 I) bytes a rank); I a multiple of 256 */
    int32_t accumulate;      /* 0: weight gradients are BF16 and overwritten; 1: FP32 main gradients, added to */
    /* Launch */
    int32_t one_launch;      /* 1: all ranks in one cooperative launch (tools, graphs); 0: one launch a rank, co-resident */
    int64_t wait_limit_ns;   /* a wait in the kernel that takes longer aborts the launch; default 2 s */
    uint32_t delay_seed;     /* test knobs: random pauses before tasks, by role, up to ... */
    uint32_t delay_limit_ns; /* ... this long; 0: none */
};

MOK_API void mok_options_init(struct mok_options *options);

/* Fills defaults in (needs the device's SM count) and checks every knob. ERROR_USAGE names the knob, its value and range. */
MOK_API int mok_options_resolve(struct mok_options *options, struct error *error);

/* Allocates on the current device. Resolves a copy of options. */
MOK_API int mok_layer_create(const struct mok_options *options, struct mok_layer **layer, struct error *error);

/* NULL is fine. The caller has synchronised the streams it used. */
MOK_API void mok_layer_destroy(struct mok_layer *layer);

/* Device memory of one rank, owned by the caller, 16-byte aligned, valid until the layer is destroyed or bound again.
 *   x            [tokens, H] BF16 row-major
 *   expert_ids   [tokens, k] int32; -1 = dropped route
 *   weights      [tokens, k] FP32 router weights
 *   w_gate, w_up [experts_per_rank, I, H] BF16; w_down [experts_per_rank, H, I] BF16
 *   output       [tokens, H] BF16
 * Inputs of all ranks are complete before any rank's forward starts, and stay unchanged until it has ended on all ranks. */
MOK_API int mok_layer_bind(struct mok_layer *layer, int32_t rank, const void *x, const void *expert_ids, const void *weights,
                           const void *w_gate, const void *w_up, const void *w_down, void *output, struct error *error);

/* Shared experts of one rank, which every token of the rank visits with weight 1; their rows come first in the sum and in the
 * order of tasks. Only with options.shared_experts.
 *   w_gate, w_up     [shared_experts, I, H] BF16; w_down [shared_experts, H, I] BF16
 *   dw_gate, dw_up, dw_down  their gradients as in mok_layer_bind_backward; NULL without options.backward */
MOK_API int mok_layer_bind_shared(struct mok_layer *layer, int32_t rank, const void *w_gate, const void *w_up, const void *w_down,
                                  void *dw_gate, void *dw_up, void *dw_down, struct error *error);

/* Enqueues a forward pass of all ranks: after the work before it on `stream` (a cudaStream_t), and before what comes after. */
MOK_API int mok_layer_forward(struct mok_layer *layer, void *stream, struct error *error);

/* Gradients of one rank; device memory as for mok_layer_bind.
 *   dy                  [tokens, H] BF16 gradient of the output
 *   dx                  [tokens, H] BF16 gradient of x; must not be a buffer that another argument or binding names
 *   d_weights           [tokens, k] FP32 gradient of the router weights; 0 for dropped routes
 *   dw_gate, dw_up, dw_down  as the weights; BF16, or FP32 with options.accumulate. Experts without rows get zeros, or are
 *                       left as they are with accumulate */
MOK_API int mok_layer_bind_backward(struct mok_layer *layer, int32_t rank, const void *dy, void *dx, void *d_weights, void *dw_gate,
                                    void *dw_up, void *dw_down, struct error *error);

/* Enqueues a backward pass of all ranks, with the inputs of the last forward pass. Same bits for any schedule knob and timing,
 * for the same saved_rows. */
MOK_API int mok_layer_backward(struct mok_layer *layer, void *stream, struct error *error);

/* Waits for the layer's work, then reports the last pass: capacity overflow (rank, expert, rows, capacity), expert ids out of
 * range, waits that timed out (rank, CTA, edge, index, expected, observed), and counters that did not end on their targets. */
MOK_API int mok_layer_check(struct mok_layer *layer, struct error *error);

/* After a failed check: clears flags, so that the layer can run again. Waits for the layer's work. */
MOK_API int mok_layer_reset(struct mok_layer *layer, struct error *error);

/* Options as resolved. */
MOK_API const struct mok_options *mok_layer_options(const struct mok_layer *layer);

/* Useful FLOPs of a forward pass of all ranks: 6 * rows * H * I, a row a route or a shared expert's token, dropped routes not counted; twice that for a backward pass.
 * Valid after a checked pass. */
MOK_API double mok_layer_forward_flops(const struct mok_layer *layer);

/* Tells the recorder, if one is loaded, about shape, knobs, tasks and targets of the last pass (after a check). */
MOK_API void mok_layer_describe(const struct mok_layer *layer);

/* Changes test and schedule knobs that need no new memory: comm_sms, delay_seed, delay_limit_ns. */
MOK_API int mok_layer_adjust(struct mok_layer *layer, int32_t comm_sms, uint32_t delay_seed, uint32_t delay_limit_ns,
                             struct error *error);

/* Fills device memory with BF16 normal numbers of this standard deviation, the same for a seed on any run. */
MOK_API int mok_fill_normal(void *device_bf16, size_t count, float deviation, uint64_t seed, void *stream);

#ifdef __cplusplus
}
#endif

#endif
