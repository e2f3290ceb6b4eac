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
    uint16_t *x_rows, *dy_rows, *gu_rows, *dgu_rows, *sh_rows; /* backward pass */
    float *row_weight, *ds_partial;
    int32_t *row_peer, *row_route, *tile_expert;
    int32_t *chunk_counts;
    uint32_t *counters, *flags; /* flags: [2][ranks] rank_start, rank_done */
    struct layer_control *control;
    struct routing_table *table;
    cudaStream_t stream;
    cudaEvent_t done;
    int bound, bound_backward, bound_shared;
    void *output, *dx; /* bound by the caller */
};

struct mok_layer {
    struct mok_options options; /* resolved */
    int device;
    struct layer_arguments arguments;
    struct backward_arguments *backward; /* NULL without a backward pass */
    struct rank_memory memory[SCHEDULE_RANKS_MAX];
    cudaEvent_t begin;
    /* Of the last checked pass, on the host. */
    struct routing_table tables[SCHEDULE_RANKS_MAX];
    int checked;
};

/* The schedule that options stand for. */
struct schedule launch_schedule(const struct mok_options *options);

/* Device memory, zeroed or poisoned with BF16 NaN. The name is for the error. */
int launch_allocate(void **pointer, size_t count, size_t size, const char *name, struct error *error);
int launch_allocate_poisoned(uint16_t **pointer, size_t count, const char *name, struct error *error);

/* Tensor map of a row-major BF16 matrix [rows, columns] read in boxes of [box_rows, 64 columns], 128-byte swizzle. */
int launch_encode_map(CUtensorMap *map, const void *matrix, int64_t rows, int64_t columns, int32_t box_rows, const char *name,
                      struct error *error);

/* Enqueues one pass of all ranks behind and before the caller's stream. */
int launch_pass(struct mok_layer *layer, enum schedule_pass pass, void *stream, struct error *error);

/* Memory of one rank's backward pass, and the addresses that do not depend on the binding. */
int launch_backward_allocate(struct mok_layer *layer, int32_t rank, struct error *error);
void launch_backward_release(struct rank_memory *memory);
void launch_backward_fill(struct mok_layer *layer);
/* Maps over the weights that mok_layer_bind or mok_layer_bind_shared was given. */
int launch_backward_bind_weights(struct mok_layer *layer, int32_t rank, int shared, const void *w_gate, const void *w_up,
                                 const void *w_down, struct error *error);

/* A CUDA call failed: library, code's name and text into error; clears the sticky error. Returns ERROR_FAILURE. */
int launch_cuda_error(struct error *error, cudaError_t status, const char *operation);

#endif
