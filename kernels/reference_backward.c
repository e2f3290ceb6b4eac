/* Backward pass of the reference layer, see reference.h. Given dY and, for each route, its router weight s:
 *   dH' = dY W_down, ds = <dH', h>
 *   dG = s dH' u sigma (1 + g (1 - sigma)), dU = s dH' g sigma
 *   dX_j = dG W_gate + dU W_up, dW_down += dY^T (s h), dW_gate += dG^T x, dW_up += dU^T x
 * Route by route, in the order of ranks, tokens and slots: simple, for small shapes. */
#include <math.h>
#include <stdlib.h>

#include "bf16.h"
#include "reference.h"
#include "reference_internal.h"

struct backward {
    const struct mok_reference *layer;
    const struct mok_reference_gradients *gradients;
    int rounded;
    double *x, *dy, *weight_row, *dx; /* [max(H, I)]; dx: of one route */
    double *dh, *dg, *du, *sh;        /* [I] of one route */
    float *sum;                       /* [H] FP32 sums of a token's dX_j */
};

/* value rounded to BF16 without crossing the limit: the gradient's mask is the activation's. */
static double round_same_side(double value, double limit) {
    double rounded = bf16_round(value);
    if (value > limit && !(rounded > limit)) return (double)bf16_to_float((uint16_t)(bf16_from_double(value) + 1));
    if (!(value > limit) && rounded > limit) return (double)bf16_to_float((uint16_t)(bf16_from_double(value) - 1));
    return rounded;
}

static double rounded_if(const struct backward *b, double value) { return b->rounded ? bf16_round(value) : value; }

/* Gradients of one expert's matrices. */
struct expert_gradients {
    double *gate, *up, *down;
};

static struct expert_gradients gradients_of(const struct backward *b, int32_t rank, int32_t expert) {
    const struct mok_reference *l = b->layer;
    const struct mok_reference_gradients *g = b->gradients;
    int64_t matrix = (int64_t)l->hidden * l->intermediate;
    if (expert < 0) {
        int64_t offset = (-1 - expert) * matrix;
        return (struct expert_gradients){g->d_shared_gate[rank] + offset, g->d_shared_up[rank] + offset, g->d_shared_down[rank] + offset};
    }
    int32_t owner = expert / l->experts_per_rank;
    int64_t offset = expert % l->experts_per_rank * matrix;
    return (struct expert_gradients){g->dw_gate[owner] + offset, g->dw_up[owner] + offset, g->dw_down[owner] + offset};
}

/* dH' of the route, from the current dy. */
static void run_dgrad_down(struct backward *b, const struct reference_expert *e) {
    const struct mok_reference *l = b->layer;
    for (int32_t i = 0; i < l->intermediate; i++) b->dh[i] = 0.0;
    for (int32_t c = 0; c < l->hidden; c++) {
        reference_widen(e->down + (int64_t)c * l->intermediate, l->intermediate, b->weight_row);
        for (int32_t i = 0; i < l->intermediate; i++) b->dh[i] += b->dy[c] * b->weight_row[i];
    }
}

/* dG, dU and s h of the route. Returns the gradient of its router weight. */
static double run_activation(struct backward *b, const struct reference_expert *e, double s) {
    const struct mok_reference *l = b->layer;
    double limit = reference_limit(l), ds = 0.0;
    for (int32_t i = 0; i < l->intermediate; i++) {
        reference_widen(e->gate + (int64_t)i * l->hidden, l->hidden, b->weight_row);
        double g = reference_dot(b->weight_row, b->x, l->hidden);
        reference_widen(e->up + (int64_t)i * l->hidden, l->hidden, b->weight_row);
        double u = reference_dot(b->weight_row, b->x, l->hidden);
        if (b->rounded) {
            g = round_same_side(g, limit);
            u = copysign(round_same_side(fabs(u), limit), u);
        }
        double gate = fmin(g, limit), up = fmax(-limit, fmin(u, limit)), sigma = reference_sigmoid(gate);
        double h = gate * sigma * up;
        ds += b->dh[i] * h;
        b->dg[i] = g > limit ? 0.0 : rounded_if(b, s * b->dh[i] * up * sigma * (1.0 + gate * (1.0 - sigma)));
        b->du[i] = fabs(u) > limit ? 0.0 : rounded_if(b, s * b->dh[i] * gate * sigma);
        b->sh[i] = rounded_if(b, s * h);
    }
    return ds;
}

/* dX_j, and the route's part of the weight gradients. */
static void run_products(struct backward *b, const struct reference_expert *e, const struct expert_gradients *d) {
    const struct mok_reference *l = b->layer;
    int64_t hidden = l->hidden, intermediate = l->intermediate;
    for (int64_t c = 0; c < hidden; c++) b->dx[c] = 0.0;
    for (int64_t i = 0; i < intermediate; i++) {
        reference_widen(e->gate + i * hidden, hidden, b->weight_row);
        for (int64_t c = 0; c < hidden; c++) b->dx[c] += b->dg[i] * b->weight_row[c];
        reference_widen(e->up + i * hidden, hidden, b->weight_row);
        for (int64_t c = 0; c < hidden; c++) b->dx[c] += b->du[i] * b->weight_row[c];
        for (int64_t c = 0; c < hidden; c++) d->gate[i * hidden + c] += b->dg[i] * b->x[c];
        for (int64_t c = 0; c < hidden; c++) d->up[i * hidden + c] += b->du[i] * b->x[c];
    }
    for (int64_t c = 0; c < hidden; c++)
        for (int64_t i = 0; i < intermediate; i++) d->down[c * intermediate + i] += b->dy[c] * b->sh[i];
}

static void run_token(struct backward *b, const uint16_t *dy, int32_t rank, int32_t token) {
    const struct mok_reference *l = b->layer;
    int64_t hidden = l->hidden;
    double *dx = b->gradients->dx[rank] + token * hidden;
    reference_widen(l->x[rank] + token * hidden, hidden, b->x);
    reference_widen(dy + token * hidden, hidden, b->dy);
    for (int64_t c = 0; c < hidden; c++) dx[c] = 0.0, b->sum[c] = 0.0f;
    for (int32_t slot = 0; slot < l->shared_experts + l->top_k; slot++) {
        int32_t expert;
        double s, ds = 0.0;
        if (reference_route(l, rank, token, slot, &expert, &s)) {
            struct reference_expert e = reference_expert_of(l, rank, expert);
            struct expert_gradients d = gradients_of(b, rank, expert);
            run_dgrad_down(b, &e);
            ds = run_activation(b, &e, s);
            run_products(b, &e, &d);
            for (int64_t c = 0; c < hidden; c++) dx[c] += b->dx[c], b->sum[c] += (float)rounded_if(b, b->dx[c]);
        }
        if (slot >= l->shared_experts) b->gradients->d_weights[rank][(int64_t)token * l->top_k + slot - l->shared_experts] = ds;
    }
    for (int64_t c = 0; b->rounded && c < hidden; c++) dx[c] = bf16_round((double)b->sum[c]);
}

static void clear_matrices(const struct backward *b, int32_t rank) {
    const struct mok_reference *l = b->layer;
    int64_t matrix = (int64_t)l->hidden * l->intermediate;
    for (int32_t expert = -l->shared_experts; expert < l->experts_per_rank; expert++) {
        struct expert_gradients d = gradients_of(b, rank, expert < 0 ? expert : rank * l->experts_per_rank + expert);
        for (int64_t i = 0; i < matrix; i++) d.gate[i] = d.up[i] = d.down[i] = 0.0;
    }
}

int mok_reference_backward(const struct mok_reference *layer, const uint16_t *const *dy, int32_t rounded,
                           const struct mok_reference_gradients *gradients, struct error *error) {
    int code = reference_check(layer, error);
    if (code != ERROR_NONE) return code;
    size_t longest = (size_t)(layer->hidden > layer->intermediate ? layer->hidden : layer->intermediate);
    double *scratch = malloc(8 * longest * sizeof *scratch);
    float *sum = malloc(longest * sizeof *sum);
    if (scratch == NULL || sum == NULL) code = error_set(error, ERROR_FAILURE, "out of memory for a reference layer");
    if (code == ERROR_NONE) {
        struct backward b = {layer, gradients, rounded, scratch, scratch + longest, scratch + 2 * longest, scratch + 3 * longest,
                             scratch + 4 * longest, scratch + 5 * longest, scratch + 6 * longest, scratch + 7 * longest, sum};
        for (int32_t rank = 0; rank < layer->ranks; rank++) clear_matrices(&b, rank);
        for (int32_t rank = 0; rank < layer->ranks; rank++)
            for (int32_t token = 0; token < layer->tokens; token++) run_token(&b, dy[rank], rank, token);
    }
    free(scratch);
    free(sum);
    return code;
}
