/* What a schedule is made of: shapes, tiles and knobs with their checks, the names of edges, and the rows of a rank after routing.
 * First part of schedule.h, which includes it and says how the whole hangs together. */
#ifndef SCHEDULE_SHAPE_H
#define SCHEDULE_SHAPE_H

#include <stdint.h>

#ifdef __CUDACC__
#define SCHEDULE_FUNCTION static inline __host__ __device__
#else
#define SCHEDULE_FUNCTION static inline
#endif

enum {
    SCHEDULE_RANKS_MAX = 8,
    SCHEDULE_EXPERTS_PER_RANK_MAX = 64,
    SCHEDULE_SHARED_EXPERTS_MAX = 4,
    SCHEDULE_LOCAL_EXPERTS_MAX = SCHEDULE_EXPERTS_PER_RANK_MAX + SCHEDULE_SHARED_EXPERTS_MAX,
    SCHEDULE_TOP_K_MAX = 16
};

/* What one counter of an edge counts for. */
enum edge_granularity { EDGE_PER_PEER, EDGE_PER_MINIBATCH, EDGE_PER_TILE_ROW, EDGE_PER_RANK, EDGE_PER_CTA_SLOT, EDGE_PER_EXPERT };

enum edge_scope { EDGE_SCOPE_CTA, EDGE_SCOPE_GPU, EDGE_SCOPE_SYS };

enum edge {
#define EDGE(name, producer, consumer, granularity, scope, slot_reuse, target, description) EDGE_##name,
#include "edges.def"
#undef EDGE
    EDGE_COUNT
};

/* Of the forward pass: dispatch, gate+up, down, combine. Of the backward pass: dispatch, then replay (gate+up again for rows
 * whose g and u were not saved), dgrad through down, dgrad through gate and up, and the weight gradients. */
enum schedule_phase {
    PHASE_DISPATCH,
    PHASE_GATE_UP,
    PHASE_DOWN,
    PHASE_COMBINE,
    PHASE_REPLAY,
    PHASE_DGRAD_DOWN,
    PHASE_DGRAD_GATE_UP,
    PHASE_WGRAD_DOWN,
    PHASE_WGRAD_GATE,
    PHASE_WGRAD_UP,
    PHASE_NONE
};

enum schedule_pass { PASS_FORWARD, PASS_BACKWARD };

enum schedule_combine { COMBINE_DIRECT, COMBINE_RING };

/* Shape of one layer. Weights of a rank: its own experts, expert e of the model on rank e / experts_per_rank. */
struct layer_shape {
    int32_t rank_count;       /* 1..SCHEDULE_RANKS_MAX */
    int32_t experts_per_rank; /* 1..SCHEDULE_EXPERTS_PER_RANK_MAX */
    int32_t tokens;           /* tokens a rank */
    int32_t hidden;           /* H, multiple of tile.down_columns */
    int32_t intermediate;     /* I, multiple of tile.gate_up_columns */
    int32_t top_k;            /* 1..SCHEDULE_TOP_K_MAX */
    int32_t shared_experts;   /* 0..SCHEDULE_SHARED_EXPERTS_MAX; each takes every token of its rank, with weight 1 */
};

/* Tile and unit sizes. The kernel passes constants; the executor passes small ones so that arithmetic stays cheap. */
struct schedule_tile {
    int32_t rows;            /* M tile; padding unit of an expert's rows */
    int32_t gate_up_columns; /* columns of I a gate+up tile makes (g and u of each) */
    int32_t down_columns;    /* columns of H a down tile makes */
    int32_t unit_rows;       /* rows of one dispatch or combine task; divides rows */
};

/* Schedule knobs: none changes a bit of the result. */
struct schedule_knobs {
    int32_t comm_sms;       /* CTAs of a rank that only communicate, 1..rank CTAs - 2 */
    int32_t minibatch_rows; /* rows between two signals; multiple of tile.rows */
    int32_t ring_rows;      /* physical rows of the x, h and y rings; multiple of minibatch_rows */
    int32_t lag;            /* minibatches by which down trails gate+up; < ring_rows / minibatch_rows */
    int32_t combine;        /* enum schedule_combine */
    int32_t capacity_rows;  /* padded rows a rank can hold; multiple of tile.rows */
    int32_t saved_rows;     /* rows of a rank whose g and u the forward pass keeps for the backward pass, which computes those
                               of the others again; multiple of tile.rows; 0: a layer without backward pass, or all replayed */
};

struct schedule {
    struct layer_shape shape;
    struct schedule_tile tile;
    struct schedule_knobs knobs;
    int32_t pass;      /* enum schedule_pass */
    int32_t rank_ctas; /* CTAs of one rank's launch; 0 where no launch builds the routing table (executor) */
};

enum schedule_error {
    SCHEDULE_OK,
    SCHEDULE_BAD_RANKS,
    SCHEDULE_BAD_EXPERTS,
    SCHEDULE_BAD_SHARED,
    SCHEDULE_BAD_TOKENS,
    SCHEDULE_BAD_TOP_K,
    SCHEDULE_BAD_HIDDEN,
    SCHEDULE_BAD_INTERMEDIATE,
    SCHEDULE_BAD_TILE,
    SCHEDULE_BAD_COMM_SMS,
    SCHEDULE_BAD_MINIBATCH,
    SCHEDULE_BAD_RING,
    SCHEDULE_BAD_LAG,
    SCHEDULE_BAD_COMBINE,
    SCHEDULE_BAD_CAPACITY,
    SCHEDULE_BAD_SAVED,
    SCHEDULE_BAD_EXPERT_ID,
    SCHEDULE_OVERFLOW
};

/* Rows of one rank after routing. Local experts: the shared ones first, then the rank's own.
 * expert_row_begin[local experts] = padded total. */
struct schedule_rows {
    int32_t expert_rows[SCHEDULE_LOCAL_EXPERTS_MAX];          /* routes, without padding */
    int32_t expert_row_begin[SCHEDULE_LOCAL_EXPERTS_MAX + 1]; /* prefix sums of the padded counts */
};

/* One task, decoded. */
struct schedule_task {
    int32_t phase;       /* enum schedule_phase */
    int32_t minibatch;   /* -1: weight gradients */
    int32_t tile_row;    /* row / tile.rows; first row / unit_rows (dispatch, combine); weight row / tile.rows (wgrad) */
    int32_t tile_column; /* 0 for dispatch and combine */
    int32_t expert;      /* local expert of a weight gradient; -1: follows from the tile row */
};

SCHEDULE_FUNCTION int32_t schedule_minimum(int32_t a, int32_t b) { return a < b ? a : b; }
SCHEDULE_FUNCTION int32_t schedule_maximum(int32_t a, int32_t b) { return a > b ? a : b; }
SCHEDULE_FUNCTION int32_t schedule_divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

SCHEDULE_FUNCTION int32_t schedule_local_experts(const struct layer_shape *shape) {
    return shape->shared_experts + shape->experts_per_rank;
}

/* Combine slots of a token: shared experts, then routes. A row's route number is token * slots + slot. */
SCHEDULE_FUNCTION int32_t schedule_slots(const struct layer_shape *shape) { return shape->shared_experts + shape->top_k; }

/* Rows of the shared experts, which come first and are the rank's own tokens: nobody dispatches them. */
SCHEDULE_FUNCTION int32_t schedule_shared_rows(const struct schedule *s) {
    return s->shape.shared_experts * (schedule_divide_up(s->shape.tokens, s->tile.rows) * s->tile.rows);
}

/* Checks everything that does not depend on the routes. rank_ctas: CTAs of one rank's launch. */
SCHEDULE_FUNCTION enum schedule_error schedule_check(const struct schedule *s, int32_t rank_ctas) {
    const struct layer_shape *shape = &s->shape;
    const struct schedule_tile *tile = &s->tile;
    const struct schedule_knobs *knobs = &s->knobs;
    if (shape->rank_count < 1 || shape->rank_count > SCHEDULE_RANKS_MAX) return SCHEDULE_BAD_RANKS;
    if (shape->experts_per_rank < 1 || shape->experts_per_rank > SCHEDULE_EXPERTS_PER_RANK_MAX)
        return SCHEDULE_BAD_EXPERTS;
    if (shape->shared_experts < 0 || shape->shared_experts > SCHEDULE_SHARED_EXPERTS_MAX) return SCHEDULE_BAD_SHARED;
    if (shape->tokens < 1 || shape->tokens > (1 << 20)) return SCHEDULE_BAD_TOKENS;
    if (shape->top_k < 1 || shape->top_k > SCHEDULE_TOP_K_MAX) return SCHEDULE_BAD_TOP_K;
    if (tile->rows < 1 || tile->gate_up_columns < 1 || tile->down_columns < 1 || tile->unit_rows < 1 ||
        tile->rows % tile->unit_rows != 0)
        return SCHEDULE_BAD_TILE;
    if (shape->hidden < 1 || shape->hidden % tile->down_columns != 0) return SCHEDULE_BAD_HIDDEN;
    if (shape->intermediate < 1 || shape->intermediate % tile->gate_up_columns != 0) return SCHEDULE_BAD_INTERMEDIATE;
    if (knobs->comm_sms < 1 || knobs->comm_sms > schedule_maximum(1, rank_ctas - 2) || rank_ctas < 2)
        return SCHEDULE_BAD_COMM_SMS;
    if (knobs->minibatch_rows < 1 || knobs->minibatch_rows % tile->rows != 0) return SCHEDULE_BAD_MINIBATCH;
    if (knobs->ring_rows < knobs->minibatch_rows || knobs->ring_rows % knobs->minibatch_rows != 0)
        return SCHEDULE_BAD_RING;
    if (knobs->lag < 0 || knobs->lag >= knobs->ring_rows / knobs->minibatch_rows) return SCHEDULE_BAD_LAG;
    if (knobs->combine != COMBINE_DIRECT && knobs->combine != COMBINE_RING) return SCHEDULE_BAD_COMBINE;
    if (knobs->capacity_rows < tile->rows || knobs->capacity_rows % tile->rows != 0) return SCHEDULE_BAD_CAPACITY;
    if (knobs->saved_rows < 0 || knobs->saved_rows > knobs->capacity_rows || knobs->saved_rows % tile->rows != 0)
        return SCHEDULE_BAD_SAVED;
    return SCHEDULE_OK;
}

/* Capacity that no routing can overflow: every route of every rank on one rank, and each expert's padding. */
SCHEDULE_FUNCTION int64_t schedule_capacity_rows_safe(const struct layer_shape *shape, const struct schedule_tile *tile) {
    int64_t rows = (int64_t)shape->rank_count * shape->tokens * shape->top_k +
                   (int64_t)shape->experts_per_rank * (tile->rows - 1) +
                   (int64_t)shape->shared_experts * (shape->tokens + tile->rows - 1);
    return (rows + tile->rows - 1) / tile->rows * tile->rows;
}

/* --- rows ---------------------------------------------------------------------------------------------------------- */

/* Row of a route inside its expert: round-robin over source ranks.
 * counts   [rank_count] routes of each rank to this expert
 * peer     the route's source rank; ordinal: its number among the peer's routes to this expert, in route order
 * Formula  sum over r of min(counts[r], ordinal) + |{r < peer: counts[r] > ordinal}| (the placement of MoK's schedule) */
SCHEDULE_FUNCTION int32_t schedule_row_in_expert(const int32_t *counts, int32_t rank_count, int32_t peer, int32_t ordinal) {
    int32_t row = 0;
    for (int32_t r = 0; r < rank_count; r++) {
        row += schedule_minimum(counts[r], ordinal);
        row += r < peer && counts[r] > ordinal;
    }
    return row;
}

SCHEDULE_FUNCTION int32_t schedule_total_rows(const struct schedule *s, const struct schedule_rows *rows) {
    return rows->expert_row_begin[schedule_local_experts(&s->shape)];
}

/* Fills expert_row_begin from expert_rows. On SCHEDULE_OVERFLOW *failed_expert is the first local expert whose padded rows
 * end past capacity; expert_row_begin is still complete. */
SCHEDULE_FUNCTION enum schedule_error schedule_rows_prefix(const struct schedule *s, struct schedule_rows *rows,
                                                           int32_t *failed_expert) {
    enum schedule_error result = SCHEDULE_OK;
    int32_t begin = 0;
    for (int32_t e = 0; e < schedule_local_experts(&s->shape); e++) {
        rows->expert_row_begin[e] = begin;
        begin += schedule_divide_up(rows->expert_rows[e], s->tile.rows) * s->tile.rows;
        if (begin > s->knobs.capacity_rows && result == SCHEDULE_OK) {
            result = SCHEDULE_OVERFLOW;
            *failed_expert = e;
        }
    }
    rows->expert_row_begin[schedule_local_experts(&s->shape)] = begin;
    return result;
}

#endif
