/* Routes on the host: drawing them from a distribution, reading and writing them, and the row table they lead to (the host twin of
 * kernels/roles/route.cuh). Pure but for the file functions. */
#ifndef ROUTING_H
#define ROUTING_H

#include "../probes/host/error.h"
#include "schedule.h"

/* Routes of all ranks. Arrays are owned; routes_free releases them. */
struct routes {
    int32_t ranks, tokens, top_k;
    int32_t experts;     /* expert ids are 0..experts - 1, or -1 for a dropped route */
    int32_t *expert_ids; /* [ranks * tokens * top_k] */
    float *weights;      /* the same shape: router weights; those of a token sum to 1 before routes are dropped */
};

enum routing_kind { ROUTING_UNIFORM, ROUTING_ZIPF, ROUTING_HOT, ROUTING_EMPTY, ROUTING_ONE_RANK, ROUTING_KIND_COUNT };

struct routing_request {
    int32_t ranks, tokens, top_k;
    int32_t experts_per_rank; /* present: ranks * experts_per_rank */
    int32_t model_experts;    /* routes are drawn over these and folded onto those present (id mod present); at least top_k */
    enum routing_kind kind;
    double zipf_exponent;     /* ROUTING_ZIPF: weight of expert i is (i + 1)^-exponent */
    double dropped;           /* share of routes dropped at random, 0..1 */
    uint64_t seed;
};

/* uniform, zipf, hot (expert 0 as heavy as all others together), empty (only the first half of the experts get routes), one-rank
 * (only experts of rank 0). */
const char *routing_kind_name(enum routing_kind kind);

/* Kind of this name, or ROUTING_KIND_COUNT. */
enum routing_kind routing_kind_find(const char *name);

/* Draws top_k experts a token without repetition over the model's experts, with probabilities proportional to the kind's weights
 * (largest keys u^(1/w), Efraimidis and Spirakis 2006), then folds them. The same for a seed on any machine. Empty and one-rank are
 * defined over the experts present, with repetition where they are fewer than top_k. */
int routes_draw(struct routes *routes, const struct routing_request *request, struct error *error);

/* Routes file, text, a real model's top-k routes or drawn ones.
 * First line  "mokscope routes 1 ranks R tokens T top_k K experts E", R 1..8, T 1..2^20, K 1..16, E 1..512
 * Then        R * T lines, tokens of rank 0 first; each K fields "id:weight" with blanks between, the token's routes in slot order:
 *             id 0..E-1, or -1 for a dropped route; weight a finite decimal number (9 significant digits keep a float's bits)
 * Nothing else: no comments, no empty lines, nothing after the last token. Errors name file, line and value. routes_write does
 * not overwrite. */
int routes_read(struct routes *routes, const char *path, struct error *error);
int routes_write(const struct routes *routes, const char *path, struct error *error);

void routes_free(struct routes *routes);

/* Rows of one rank. row_peer, row_route [capacity_rows]: source rank (-1 padding) and token * slots + slot there; rows past the
 * total are left alone. Returns ERROR_USAGE on overflow, naming rank, expert, rows and capacity. */
int routing_table_build(const struct schedule *schedule, const struct routes *routes, int32_t rank, struct schedule_rows *rows,
                        int32_t *row_peer, int32_t *row_route, struct error *error);

#endif
