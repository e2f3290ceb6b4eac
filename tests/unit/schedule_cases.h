/* Random schedules with routes, for the tests of the schedule: small tiles in the proportions of the kernel's. */
#ifndef SCHEDULE_CASES_H
#define SCHEDULE_CASES_H

#include <stdlib.h>
#include <string.h>

#include "../../kernels/routing.h"
#include "../../kernels/schedule_error.h"
#include "random_source.h"

struct schedule_case {
    uint64_t seed;
    struct schedule schedule;
    struct schedule_rows rows[SCHEDULE_RANKS_MAX];
    int32_t total_rows[SCHEDULE_RANKS_MAX];
};

static inline int32_t pick(struct random_source *source, int32_t least, int32_t most) {
    return (int32_t)random_between(source, least, most);
}

static inline void case_shape(struct random_source *source, struct schedule *s) {
    int32_t rows = random_below(source, 2) ? 4 : 8;
    s->tile = (struct schedule_tile){rows, rows, 2 * rows, rows >> random_below(source, 3)};
    s->shape.rank_count = random_below(source, 3) ? pick(source, 1, 3) : pick(source, 1, SCHEDULE_RANKS_MAX);
    s->shape.experts_per_rank = pick(source, 1, 4);
    s->shape.tokens = pick(source, 1, 32);
    s->shape.hidden = s->tile.down_columns * pick(source, 1, 3);
    s->shape.intermediate = s->pass == PASS_BACKWARD ? s->tile.down_columns * pick(source, 1, 2) : s->tile.gate_up_columns * pick(source, 1, 4);
    s->shape.top_k = pick(source, 1, 4);
    s->shape.shared_experts = random_below(source, 2) ? 0 : pick(source, 1, 2);
}

static inline void case_knobs(struct random_source *source, struct schedule *s) {
    s->rank_ctas = random_below(source, 4) ? 2 * pick(source, 1, 6) : pick(source, 2, 9);
    s->knobs.comm_sms = pick(source, 1, schedule_maximum(1, s->rank_ctas - 2));
    s->knobs.minibatch_rows = s->tile.rows * pick(source, 1, 4);
    s->knobs.ring_rows = s->knobs.minibatch_rows * pick(source, 1, 4);
    s->knobs.lag = pick(source, 0, schedule_ring_minibatches(s) - 1);
    s->knobs.combine = random_below(source, 2) ? COMBINE_RING : COMBINE_DIRECT;
    s->knobs.capacity_rows = (int32_t)schedule_capacity_rows_safe(&s->shape, &s->tile);
    s->knobs.saved_rows = s->tile.rows * pick(source, 0, s->knobs.capacity_rows / s->tile.rows);
    if (random_below(source, 3) == 0) s->knobs.saved_rows = 0;
}

/* Rows of every rank from routes of this kind, by the host's row table. */
static inline void case_rows(struct random_source *source, struct schedule_case *c) {
    const struct schedule *s = &c->schedule;
    int32_t present = s->shape.rank_count * s->shape.experts_per_rank;
    struct routing_request request = {s->shape.rank_count, s->shape.tokens, s->shape.top_k, s->shape.experts_per_rank,
                                      s->shape.top_k + pick(source, 0, 2 * present), (enum routing_kind)random_below(source, ROUTING_KIND_COUNT),
                                      1.2, (double)random_below(source, 4) / 3.0 * (double)random_below(source, 2), c->seed};
    size_t capacity = (size_t)s->knobs.capacity_rows;
    int32_t *table = malloc(2 * capacity * sizeof *table);
    struct routes routes;
    struct error error = {0};
    if (table == NULL || routes_draw(&routes, &request, &error) != ERROR_NONE) abort();
    for (int32_t rank = 0; rank < s->shape.rank_count; rank++) {
        if (routing_table_build(s, &routes, rank, &c->rows[rank], table, table + capacity, &error) != ERROR_NONE) abort();
        c->total_rows[rank] = schedule_total_rows(s, &c->rows[rank]);
    }
    routes_free(&routes);
    free(table);
}

static inline struct schedule_case case_make(uint64_t seed, enum schedule_pass pass) {
    struct random_source source = random_seeded(seed);
    struct schedule_case c;
    memset(&c, 0, sizeof c);
    c.seed = seed;
    c.schedule.pass = (int32_t)pass;
    case_shape(&source, &c.schedule);
    case_knobs(&source, &c.schedule);
    case_rows(&source, &c);
    return c;
}

/* Local expert that owns a tile row. */
static inline int32_t case_tile_expert(const struct schedule_case *c, int32_t rank, int32_t tile_row) {
    int32_t expert = 0;
    while (c->rows[rank].expert_row_begin[expert + 1] <= tile_row * c->schedule.tile.rows) expert++;
    return expert;
}

#endif
