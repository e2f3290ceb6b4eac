/* See reference.h. Routes are visited expert by expert, so that each weight row is widened once and multiplied with all its rows. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

#include "bf16.h"
#include "reference_internal.h"
#include "schedule.h"

int reference_check(const struct mok_reference *l, struct error *error) {
    if (l->ranks < 1 || l->ranks > SCHEDULE_RANKS_MAX || l->experts_per_rank < 1 || l->tokens < 1 || l->hidden < 1 ||
        l->intermediate < 1 || l->top_k < 1 || l->shared_experts < 0 || l->top_k + l->shared_experts > 1 << 10)
        return error_set(error, ERROR_USAGE,
                         "reference layer of %d ranks, %d experts a rank, %d tokens, hidden %d, intermediate %d, top-k %d, %d shared experts",
                         l->ranks, l->experts_per_rank, l->tokens, l->hidden, l->intermediate, l->top_k, l->shared_experts);
    if (l->x == NULL || l->expert_ids == NULL || l->weights == NULL || l->w_gate == NULL || l->w_up == NULL || l->w_down == NULL)
        return error_set(error, ERROR_USAGE, "reference layer without inputs");
    if (l->shared_experts > 0 && (l->shared_gate == NULL || l->shared_up == NULL || l->shared_down == NULL))
        return error_set(error, ERROR_USAGE, "reference layer without the weights of its shared experts");
    return ERROR_NONE;
}

struct reference_expert reference_expert_of(const struct mok_reference *l, int32_t rank, int32_t expert) {
    int64_t matrix = (int64_t)l->hidden * l->intermediate;
    if (expert < 0) {
        int64_t offset = (-1 - expert) * matrix;
        return (struct reference_expert){l->shared_gate[rank] + offset, l->shared_up[rank] + offset, l->shared_down[rank] + offset};
    }
    int32_t owner = expert / l->experts_per_rank;
    int64_t offset = expert % l->experts_per_rank * matrix;
    return (struct reference_expert){l->w_gate[owner] + offset, l->w_up[owner] + offset, l->w_down[owner] + offset};
}

int reference_route(const struct mok_reference *l, int32_t rank, int32_t token, int32_t slot, int32_t *expert, double *weight) {
    if (slot < l->shared_experts) {
        *expert = -1 - slot;
        *weight = 1.0;
        return 1;
    }
    int64_t route = (int64_t)token * l->top_k + slot - l->shared_experts;
    *expert = l->expert_ids[rank][route];
    *weight = (double)l->weights[rank][route];
    return *expert >= 0 && *expert < l->ranks * l->experts_per_rank;
}

void reference_widen(const uint16_t *source, int64_t count, double *target) {
    for (int64_t i = 0; i < count; i++) target[i] = (double)bf16_to_float(source[i]);
}

/* Eight sums, so that the compiler may use vectors without being told that addition is associative. */
double reference_dot(const double *a, const double *b, int64_t count) {
    double sums[8] = {0.0};
    int64_t whole = count / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8)
        for (int j = 0; j < 8; j++) sums[j] += a[i + j] * b[i + j];
    for (int64_t i = whole; i < count; i++) sums[i - whole] += a[i] * b[i];
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

/* One row of the sample: which slot of which sampled token. */
struct sample_row {
    int32_t sample, slot;
};

/* A forward pass of some tokens. y holds the slots' rows, [sample_count, slots, H]. */
struct forward {
    const struct mok_reference *layer;
    int32_t rank, sample_count, slots;
    const int32_t *sample_tokens;
    int rounded;
    double *y;
    struct sample_row *rows; /* of the current expert, [sample_count * slots] */
    double *inputs;          /* [sample_count, H] x of the sampled tokens */
    double *h;               /* [sample_count * slots, I] of the current expert's rows */
    double *gate_row, *up_row; /* a weight row, widened: [max(H, I)] */
};

static int32_t sampled_token(const struct forward *f, int32_t sample) {
    return f->sample_tokens != NULL ? f->sample_tokens[sample] : sample;
}

static int32_t collect_rows(const struct forward *f, int32_t wanted) {
    int32_t count = 0, expert;
    double weight;
    for (int32_t sample = 0; sample < f->sample_count; sample++)
        for (int32_t slot = 0; slot < f->slots; slot++)
            if (reference_route(f->layer, f->rank, sampled_token(f, sample), slot, &expert, &weight) && expert == wanted)
                f->rows[count++] = (struct sample_row){sample, slot};
    return count;
}

static void run_expert(const struct forward *f, int32_t expert, int32_t count) {
    const struct mok_reference *l = f->layer;
    struct reference_expert e = reference_expert_of(l, f->rank, expert);
    int64_t hidden = l->hidden, intermediate = l->intermediate;
    double limit = reference_limit(l);
    for (int64_t i = 0; i < intermediate; i++) {
        reference_widen(e.gate + i * hidden, hidden, f->gate_row);
        reference_widen(e.up + i * hidden, hidden, f->up_row);
        for (int32_t r = 0; r < count; r++) {
            const double *x = f->inputs + f->rows[r].sample * hidden;
            double h = reference_swiglu(reference_dot(f->gate_row, x, hidden), reference_dot(f->up_row, x, hidden), limit);
            f->h[r * intermediate + i] = f->rounded ? bf16_round(h) : h;
        }
    }
    for (int64_t c = 0; c < hidden; c++) {
        reference_widen(e.down + c * intermediate, intermediate, f->gate_row);
        for (int32_t r = 0; r < count; r++) {
            double y = reference_dot(f->gate_row, f->h + r * intermediate, intermediate);
            int64_t slot = (int64_t)f->rows[r].sample * f->slots + f->rows[r].slot;
            f->y[slot * hidden + c] = f->rounded ? bf16_round(y) : y;
        }
    }
}

/* Sum of one element over the token's slots. */
static double sum_slots(const struct forward *f, int32_t sample, int64_t column) {
    int32_t token = sampled_token(f, sample), expert;
    const double *y = f->y + (int64_t)sample * f->slots * f->layer->hidden + column;
    double weight, exact = 0.0;
    float sum = 0.0f;
    for (int32_t slot = 0; slot < f->slots; slot++) {
        if (!reference_route(f->layer, f->rank, token, slot, &expert, &weight)) continue;
        exact += weight * y[slot * (int64_t)f->layer->hidden];
        sum = fmaf((float)weight, (float)y[slot * (int64_t)f->layer->hidden], sum);
    }
    return f->rounded ? (double)sum : exact;
}

/* Allocates what the sample needs. Returns 0 without memory. */
static int forward_allocate(struct forward *f) {
    size_t samples = (size_t)f->sample_count, rows = samples * (size_t)f->slots;
    size_t hidden = (size_t)f->layer->hidden, intermediate = (size_t)f->layer->intermediate;
    size_t longest = hidden > intermediate ? hidden : intermediate;
    f->y = malloc((rows * hidden + 1) * sizeof(double));
    f->rows = malloc((rows + 1) * sizeof *f->rows);
    f->inputs = malloc((samples * hidden + 1) * sizeof(double));
    f->h = malloc((rows * intermediate + 1) * sizeof(double));
    f->gate_row = malloc(longest * sizeof(double));
    f->up_row = malloc(longest * sizeof(double));
    return f->y != NULL && f->rows != NULL && f->inputs != NULL && f->h != NULL && f->gate_row != NULL && f->up_row != NULL;
}

static void forward_release(struct forward *f) {
    free(f->y);
    free(f->rows);
    free(f->inputs);
    free(f->h);
    free(f->gate_row);
    free(f->up_row);
}

static int check_sample(const struct forward *f, struct error *error) {
    int code = reference_check(f->layer, error);
    if (code != ERROR_NONE) return code;
    if (f->rank < 0 || f->rank >= f->layer->ranks) return error_set(error, ERROR_USAGE, "rank %d of %d", f->rank, f->layer->ranks);
    if (f->sample_count < 0) return error_set(error, ERROR_USAGE, "sample of %d tokens", f->sample_count);
    for (int32_t i = 0; i < f->sample_count; i++)
        if (sampled_token(f, i) < 0 || sampled_token(f, i) >= f->layer->tokens)
            return error_set(error, ERROR_USAGE, "sampled token %d of %d", sampled_token(f, i), f->layer->tokens);
    return ERROR_NONE;
}

/* Fills f->y for the sample. On success the caller reads the sums, then releases. */
static int forward_run(struct forward *f, struct error *error) {
    const struct mok_reference *l = f->layer;
    int code = check_sample(f, error);
    if (code != ERROR_NONE) return code;
    f->slots = l->shared_experts + l->top_k;
    if (!forward_allocate(f)) return error_set(error, ERROR_FAILURE, "out of memory for a reference of %d tokens", f->sample_count);
    for (int32_t i = 0; i < f->sample_count; i++)
        reference_widen(l->x[f->rank] + (int64_t)sampled_token(f, i) * l->hidden, l->hidden, f->inputs + (int64_t)i * l->hidden);
    for (int32_t expert = -l->shared_experts; expert < l->ranks * l->experts_per_rank; expert++) {
        int32_t count = collect_rows(f, expert);
        if (count > 0) run_expert(f, expert, count);
    }
    return ERROR_NONE;
}

int mok_reference_forward(const struct mok_reference *layer, int32_t rank, const int32_t *sample_tokens, int32_t sample_count,
                          uint16_t *output, struct error *error) {
    struct forward f = {.layer = layer, .rank = rank, .sample_count = sample_count, .sample_tokens = sample_tokens, .rounded = 1};
    int code = forward_run(&f, error);
    for (int32_t i = 0; code == ERROR_NONE && i < sample_count; i++)
        for (int64_t c = 0; c < layer->hidden; c++) output[(int64_t)i * layer->hidden + c] = bf16_from_double(sum_slots(&f, i, c));
    forward_release(&f);
    return code;
}

int mok_reference_forward_exact(const struct mok_reference *layer, int32_t rank, const int32_t *sample_tokens, int32_t sample_count,
                                double *output, struct error *error) {
    struct forward f = {.layer = layer, .rank = rank, .sample_count = sample_count, .sample_tokens = sample_tokens};
    int code = forward_run(&f, error);
    for (int32_t i = 0; code == ERROR_NONE && i < sample_count; i++)
        for (int64_t c = 0; c < layer->hidden; c++) output[(int64_t)i * layer->hidden + c] = sum_slots(&f, i, c);
    forward_release(&f);
    return code;
}
