/* What the launcher (launch.c) and the kernels (forward.cu, backward.cu) share: sizes, device structures and kernel arguments.
 * Private to kernels/; the public interface is mok.h. Device memory is owned by the layer object in launch.c. */
#ifndef LAYER_H
#define LAYER_H

#include <cuda.h>
#include <stdint.h>

#include "schedule.h"

/* Tile and thread geometry of the Hopper kernel. */
enum {
    TILE_ROWS = 128,            /* M tile: two MMA warpgroups of 64 rows */
    GATE_UP_TILE_COLUMNS = 128, /* g and u of 128 columns make one N = 256 tile */
    DOWN_TILE_COLUMNS = 256,
    TILE_N = 256,
    K_BLOCK = 64, /* one 128-byte swizzled row of BF16 */
    STAGE_COUNT = 4,
    UNIT_ROWS = 8,
    WARPGROUP_THREADS = 128,
    MMA_WARPGROUPS = 2,
    CTA_THREADS = (1 + MMA_WARPGROUPS) * WARPGROUP_THREADS,
    CTA_WARPS = CTA_THREADS / 32,
    TASK_SLOTS = 2,
    PAIR_CTAS = 2,              /* CTAs of a cluster; a rank's CTAs and its communication CTAs come in pairs */
    TICKET_SLOTS = 2,
    BOX_COLUMNS = 64, /* of the boxes that backward operands are loaded in: 64 x 64 BF16, 8 KiB */
    BOX_ROWS = 64,
    STAGING_COLUMNS = 128,               /* columns of an epilogue part */
    STAGING_PITCH = STAGING_COLUMNS + 8, /* elements; 16 bytes of padding keep banks apart */
    STAGING_ROWS = 16,     /* rows of a warp's accumulator */
    COMM_CHUNK_BYTES = 4096,              /* a bulk copy of dispatch and combine */
    COMM_CHUNKS = 4,                      /* chunk slots of a warp */
    COMM_LEAD = 2,                        /* chunks that loads run ahead of stores */
    HANG_RECORDS = 32
};

/* A wait that reached its limit, or saw the abort of another. */
struct hang_record {
    uint32_t edge; /* enum edge */
    uint32_t index, expected, observed;
    uint32_t rank, cta, warp;
    int32_t task;      /* task id, -1: none */
    uint64_t since_ns; /* globaltimer when the wait began */
};

/* State of one rank that outlives a launch. Zeroed when the layer is made and by mok_layer_reset. */
struct layer_control {
    uint32_t abort;      /* nonzero: every role of every rank leaves; written at system scope */
    uint32_t hang_count; /* hang records asked for */
    uint32_t epoch;          /* launches so far, written when all CTAs of a launch have read it */
    uint32_t overflow_epoch; /* last launch that passed the capacity; expert and rows below */
    int32_t overflow_expert;
    int32_t overflow_rows;
    int32_t bad_expert;      /* of the last launch with bad routes, one of them */
    struct hang_record hangs[HANG_RECORDS];
};

/* Words after an epoch's edge counters. */
enum layer_word {
    WORD_TICKET,     /* next compute task */
    WORD_BAD_ROUTES, /* routes whose expert id is out of range, dropped */
    WORD_COUNT
};

/* Routing of one rank in one launch, written by its CTA 0 (roles/route.cuh). */
struct routing_table {
    int32_t total_rows; /* padded; 0 after an overflow */
    struct schedule_rows rows;
    int32_t counts[SCHEDULE_LOCAL_EXPERTS_MAX][SCHEDULE_RANKS_MAX]; /* routes a (local expert, source rank) */
};

/* One rank's memory. Arrays over ranks hold every peer's address, its own included. */
struct rank_arguments {
    CUtensorMap x_ring_map, h_ring_map, w_gate_map, w_up_map, w_down_map;
    CUtensorMap x_map, shared_gate_map, shared_up_map, shared_down_map; /* shared experts: own x, zeros past its last row */
    const uint16_t *x[SCHEDULE_RANKS_MAX];             /* [tokens, H] BF16, frozen from RANK_START on */
    const int32_t *expert_ids[SCHEDULE_RANKS_MAX];     /* [tokens, k], -1 = dropped route */
    uint16_t *combine[SCHEDULE_RANKS_MAX];             /* [tokens * slots, H] BF16, one writer a slot */
    uint32_t *rank_start[SCHEDULE_RANKS_MAX];          /* [ranks] launches begun, a source rank */
    uint32_t *rank_done[SCHEDULE_RANKS_MAX];           /* [ranks] launches pushed, a source rank */
    struct layer_control *control[SCHEDULE_RANKS_MAX];
    const float *weights[SCHEDULE_RANKS_MAX];          /* [tokens, k] FP32 router weights */
    uint16_t *output;            /* [tokens, H] BF16; backward: the gradient of x */
    uint16_t *x_ring;            /* [ring_rows, H] BF16 */
    uint16_t *h_ring;            /* [ring_rows, I] BF16 */
    uint16_t *y_ring;            /* [ring_rows, H] BF16, combine path ring only */
    int32_t *row_peer;           /* [capacity] source rank, -1 = padding */
    int32_t *row_route;          /* [capacity] token * slots + slot at the source */
    int32_t *tile_expert;        /* [capacity / TILE_ROWS] local expert */
    uint16_t *gu_rows;           /* [capacity, 2 I] BF16, 64 columns of g and of u in turn; NULL without a backward pass */
    struct routing_table *table;
    int32_t *chunk_counts;       /* [rank_ctas, SCHEDULE_LOCAL_EXPERTS_MAX] routes that each CTA counted */
    float *row_weight;           /* [capacity] FP32 router weight of the row's route, padding 0; NULL without a backward pass */
    uint32_t *counters;          /* [2, counter_words] edge counters and words of even and odd epochs; a launch zeroes the
                                    next one's */
    int32_t rank;
};

/* One rank's memory for the backward pass. Rows are the rank's gathered rows, padding zero; all BF16 but where it says FP32. */
struct backward_rank {
    /* Boxes of BOX_COLUMNS x BOX_ROWS over the arrays below and the weights. */
    CUtensorMap x_map, dy_map, dgu_map, sh_map, w_gate_map, w_up_map, w_down_map;
    CUtensorMap shared_x_map, shared_dy_map, shared_gate_map, shared_up_map, shared_down_map; /* own x and dY, see above */
    const uint16_t *dy[SCHEDULE_RANKS_MAX]; /* [tokens, H] gradient of the output, frozen from RANK_START on */
    float *d_weights[SCHEDULE_RANKS_MAX];   /* [tokens, k] FP32 gradient of the router weights, one writer an element */
    uint16_t *x_rows, *dy_rows;             /* [capacity, H] */
    uint16_t *dgu_rows;                     /* [capacity, 2 I] 64 columns of dG and of dU in turn */
    uint16_t *sh_rows;                      /* [capacity, I] s h */
    float *ds_partial;                      /* [capacity, I / 256] FP32 <dH', h> over the columns of a tile */
    void *dw_gate, *dw_up, *dw_down;        /* as the weights: BF16, or FP32 added to when accumulate is set */
    void *d_shared_gate, *d_shared_up, *d_shared_down;
};

struct backward_arguments {
    int32_t accumulate; /* 1: weight gradients are added to FP32 main gradients */
    struct backward_rank ranks[SCHEDULE_RANKS_MAX];
};

struct layer_arguments {
    struct schedule schedule;
    uint32_t counter_begin[EDGE_COUNT + 1];
    int32_t rank_first;      /* ranks of this launch: rank_first .. rank_first + gridDim.x / rank_ctas - 1 */
    int32_t rank_ctas;       /* CTAs a rank */
    float swiglu_clamp;      /* g is limited to at most this, u to +- this; infinity: not */
    uint64_t wait_limit_ns;  /* a wait longer than this aborts the launch */
    uint32_t delay_seed;     /* test knob: random delays before tasks, by role */
    uint32_t delay_limit_ns; /* 0: none */
    struct rank_arguments ranks[SCHEDULE_RANKS_MAX];
};

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues the megakernel for ranks [rank_first, rank_first + rank_count); cooperative if rank_count > 1 (one launch holds
 * all ranks). Returns a cudaError_t as int. */
int forward_launch(const struct layer_arguments *arguments, int32_t rank_count, void *stream);

/* The same for the backward pass; arguments->schedule.pass is PASS_BACKWARD. */
int backward_launch(const struct layer_arguments *arguments, const struct backward_arguments *backward, int32_t rank_count,
                    void *stream);

/* Registers and shared bytes of the megakernel, for the run's description. */
int forward_describe(int *registers, int *shared_bytes);

#ifdef __cplusplus
}
#endif

#endif
