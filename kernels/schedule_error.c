/* See schedule_error.h. */
#include "schedule_error.h"

const char *schedule_edge_name(enum edge edge) {
    static const char *const names[] = {
#define EDGE(name, producer, consumer, granularity, scope, slot_reuse, target, description) #name,
#include "edges.def"
#undef EDGE
    };
    return edge >= 0 && edge < EDGE_COUNT ? names[edge] : "?";
}

static int bad_range(struct error *error, const char *name, int32_t value, int32_t low, int32_t high) {
    error_set(error, ERROR_USAGE, "%s %d is out of range", name, value);
    return error_hint(error, "allowed: %d to %d", low, high);
}

static int bad_multiple(struct error *error, const char *name, int32_t value, int32_t of, const char *of_what) {
    error_set(error, ERROR_USAGE, "%s %d is not a positive multiple of %d", name, value, of);
    int32_t nearest = value < of ? of : value / of * of;
    return error_hint(error, "it must be a multiple of %s; nearest: %d", of_what, nearest);
}

static int bad_ring(const struct schedule_knobs *knobs, struct error *error) {
    if (knobs->ring_rows >= knobs->minibatch_rows)
        return bad_multiple(error, "ring", knobs->ring_rows, knobs->minibatch_rows, "the minibatch");
    error_set(error, ERROR_USAGE, "ring of %d rows is smaller than a minibatch of %d rows", knobs->ring_rows, knobs->minibatch_rows);
    return error_hint(error, "make the ring a multiple of the minibatch, e.g. %d rows", 2 * knobs->minibatch_rows);
}

static int bad_knob(const struct schedule *s, enum schedule_error bad, int32_t rank_ctas, struct error *error) {
    const struct schedule_knobs *knobs = &s->knobs;
    switch (bad) {
    case SCHEDULE_BAD_COMM_SMS:
        if (rank_ctas < 2) return bad_range(error, "SMs a rank", rank_ctas, 2, 1 << 16);
        return bad_range(error, "communication SMs", knobs->comm_sms, 1, schedule_maximum(1, rank_ctas - 2));
    case SCHEDULE_BAD_MINIBATCH: return bad_multiple(error, "minibatch", knobs->minibatch_rows, s->tile.rows, "the tile's rows");
    case SCHEDULE_BAD_RING: return bad_ring(knobs, error);
    case SCHEDULE_BAD_LAG:
        return bad_range(error, "lag", knobs->lag, 0, knobs->ring_rows / schedule_maximum(1, knobs->minibatch_rows) - 1);
    case SCHEDULE_BAD_COMBINE: return bad_range(error, "combine path", knobs->combine, COMBINE_DIRECT, COMBINE_RING);
    case SCHEDULE_BAD_CAPACITY: return bad_multiple(error, "capacity", knobs->capacity_rows, s->tile.rows, "the tile's rows");
    case SCHEDULE_BAD_SAVED:
        error_set(error, ERROR_USAGE, "saved rows %d are not a multiple of %d between 0 and the capacity %d", knobs->saved_rows,
                  s->tile.rows, knobs->capacity_rows);
        return error_hint(error, "leave it out to save all rows");
    default: return error_set(error, ERROR_USAGE, "schedule refused, reason %d", (int)bad);
    }
}

int schedule_error_describe(const struct schedule *s, enum schedule_error bad, int32_t rank_ctas, struct error *error) {
    const struct layer_shape *shape = &s->shape;
    switch (bad) {
    case SCHEDULE_OK: return ERROR_NONE;
    case SCHEDULE_BAD_RANKS: return bad_range(error, "ranks", shape->rank_count, 1, SCHEDULE_RANKS_MAX);
    case SCHEDULE_BAD_EXPERTS:
        return bad_range(error, "experts per rank", shape->experts_per_rank, 1, SCHEDULE_EXPERTS_PER_RANK_MAX);
    case SCHEDULE_BAD_SHARED: return bad_range(error, "shared experts", shape->shared_experts, 0, SCHEDULE_SHARED_EXPERTS_MAX);
    case SCHEDULE_BAD_TOKENS: return bad_range(error, "tokens", shape->tokens, 1, 1 << 20);
    case SCHEDULE_BAD_TOP_K: return bad_range(error, "top-k", shape->top_k, 1, SCHEDULE_TOP_K_MAX);
    case SCHEDULE_BAD_HIDDEN: return bad_multiple(error, "hidden", shape->hidden, s->tile.down_columns, "the down tile's columns");
    case SCHEDULE_BAD_INTERMEDIATE:
        return bad_multiple(error, "intermediate", shape->intermediate, s->tile.gate_up_columns, "the gate+up tile's columns");
    case SCHEDULE_BAD_TILE:
        error_set(error, ERROR_USAGE, "tile of %d rows, %d and %d columns, units of %d rows", s->tile.rows, s->tile.gate_up_columns,
                  s->tile.down_columns, s->tile.unit_rows);
        return error_hint(error, "all must be positive, and the unit divide the rows");
    default: return bad_knob(s, bad, rank_ctas, error);
    }
}

int schedule_error_overflow(const struct schedule *s, int32_t rank, int32_t expert, int32_t rows, struct error *error) {
    int32_t own = expert - s->shape.shared_experts;
    error_set(error, ERROR_USAGE, "rank %d overflows at %s %d: %d rows with padding, capacity %d", rank,
              own < 0 ? "shared expert" : "expert", own < 0 ? expert : rank * s->shape.experts_per_rank + own, rows,
              s->knobs.capacity_rows);
    return error_hint(error, "raise the capacity to at least %d, or drop routes", rows);
}
