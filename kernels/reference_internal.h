/* What the forward and the backward reference share. */
#ifndef REFERENCE_INTERNAL_H
#define REFERENCE_INTERNAL_H

#include <math.h>

#include "reference.h"

/* Shape in range, and pointers where they are needed. */
int reference_check(const struct mok_reference *layer, struct error *error);

/* Weights of one expert. expert: of the model, or -1 - i for shared expert i of rank `rank`. */
struct reference_expert {
    const uint16_t *gate, *up, *down;
};

struct reference_expert reference_expert_of(const struct mok_reference *layer, int32_t rank, int32_t expert);

/* Expert (numbered as above) and router weight of a token's slot; shared experts have the first slots. Returns 0 for a dropped route. */
int reference_route(const struct mok_reference *layer, int32_t rank, int32_t token, int32_t slot, int32_t *expert, double *weight);

/* count BF16 numbers as doubles. */
void reference_widen(const uint16_t *source, int64_t count, double *target);

double reference_dot(const double *a, const double *b, int64_t count);

/* Limits of the activation, and its parts. */
static inline double reference_limit(const struct mok_reference *layer) {
    return layer->swiglu_clamp > 0.0f ? (double)layer->swiglu_clamp : INFINITY;
}

static inline double reference_sigmoid(double g) { return 1.0 / (1.0 + exp(-g)); }

static inline double reference_swiglu(double g, double u, double limit) {
    double gate = fmin(g, limit);
    return gate * reference_sigmoid(gate) * fmax(-limit, fmin(u, limit));
}

#endif
