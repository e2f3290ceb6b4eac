/* The layer object, shared by launch.c (memory and launches), launch_options.c (defaults and checks) and launch_describe.c
 * (what the recorder is told). */
#ifndef LAUNCH_INTERNAL_H
#define LAUNCH_INTERNAL_H

#include <cuda_runtime_api.h>

#include "layer.h"
#include "mok.h"

/* Device allocations of one rank, all owned by the layer. */
struct rank_memory {
    uint16_t *combine, *x_ring, *h_ring, *y_ring;
    int32_t *row_peer, *row_route, *tile_expert;
    uint32_t *counters, *ticket, *flags; /* flags: [2][ranks] rank_start, rank_done */
    struct layer_control *control;
    struct routing_table *table;
    cudaStream_t stream;
    cudaEvent_t done;
    int bound;
};

struct mok_layer {
    struct mok_options options; /* resolved */
    int device;
    struct forward_arguments arguments;
    struct rank_memory memory[SCHEDULE_RANKS_MAX];
    cudaEvent_t begin;
    /* Of the last checked pass, on the host. */
    struct routing_table tables[SCHEDULE_RANKS_MAX];
    int checked;
};

/* The schedule that options stand for. */
struct schedule launch_schedule(const struct mok_options *options);

/* A CUDA call failed: library, code's name and text into error; clears the sticky error. Returns ERROR_FAILURE. */
int launch_cuda_error(struct error *error, cudaError_t status, const char *operation);

#endif
