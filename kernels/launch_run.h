/* A layer with inputs of its own, run and timed: what `mokscope run` does on the GPU. Weights and inputs are random normals
 * made on the device from a seed; routes come from the caller. Outputs are poisoned with NaN before each pass. */
#ifndef LAUNCH_RUN_H
#define LAUNCH_RUN_H

#include "mok.h"

struct mok_run;

/* expert_ids, weights  host memory, [ranks][tokens * top_k], copied. Allocates on the current device; options as
 * mok_layer_create takes them. */
int mok_run_create(const struct mok_options *options, const int32_t *expert_ids, const float *weights, uint64_t seed,
                   struct mok_run **run, struct error *error);

void mok_run_destroy(struct mok_run *run);

/* Enqueues `passes` passes, forward and then backward if the layer has that, an NVTX range `label N` round each pair, and checks
 * them (mok_layer_check: the last one's counters, every one's hangs). forward_ms, backward_ms [passes] receive GPU times between
 * two events round each pass; NULL: not wanted. */
int mok_run_passes(struct mok_run *run, const char *label, int32_t passes, float *forward_ms, float *backward_ms, struct error *error);

const struct mok_layer *mok_run_layer(const struct mok_run *run);

/* Device tensors of one rank, for checks; see mok_layer_bind. */
struct mok_run_rank {
    void *x, *expert_ids, *weights, *w_gate, *w_up, *w_down, *output;
    void *shared_gate, *shared_up, *shared_down;                  /* NULL without shared experts */
    void *dy, *dx, *d_weights, *dw_gate, *dw_up, *dw_down;        /* NULL without a backward pass */
    void *d_shared_gate, *d_shared_up, *d_shared_down;            /* NULL without both */
};

const struct mok_run_rank *mok_run_rank(const struct mok_run *run, int32_t rank);

/* Copies device memory to the host. */
int mok_run_read(const void *device, size_t bytes, void *host, struct error *error);

#endif
