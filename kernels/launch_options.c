/* Options of a layer: defaults that follow from the device and the shape, and errors that name the knob. */
#include "launch_internal.h"

#include <string.h>

#include "schedule_error.h"

void mok_options_init(struct mok_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

struct schedule launch_schedule(const struct mok_options *o) {
    struct schedule s;
    memset(&s, 0, sizeof s);
    s.shape.rank_count = o->ranks;
    s.shape.experts_per_rank = o->experts_per_rank;
    s.shape.tokens = o->tokens;
    s.shape.hidden = o->hidden;
    s.shape.intermediate = o->intermediate;
    s.shape.top_k = o->top_k;
    s.shape.shared_experts = o->shared_experts;
    s.rank_ctas = o->rank_ctas;
    s.tile.rows = TILE_ROWS;
    s.tile.gate_up_columns = GATE_UP_TILE_COLUMNS;
    s.tile.down_columns = DOWN_TILE_COLUMNS;
    s.tile.unit_rows = UNIT_ROWS;
    s.knobs.comm_sms = o->comm_sms;
    s.knobs.minibatch_rows = o->minibatch_rows;
    s.knobs.ring_rows = o->ring_rows;
    s.knobs.lag = o->lag;
    s.knobs.combine = o->combine_ring ? COMBINE_RING : COMBINE_DIRECT;
    s.knobs.capacity_rows = o->capacity_rows;
    s.knobs.saved_rows = o->backward ? schedule_maximum(o->saved_rows, 0) : 0;
    return s;
}

/* A minibatch is at most a quarter of the rows a rank gets on average, so that small problems overlap too. */
static int32_t default_minibatch_rows(const struct mok_options *o) {
    int64_t quarter = (int64_t)o->tokens * o->top_k / 4 / TILE_ROWS * TILE_ROWS;
    if (quarter < TILE_ROWS) return TILE_ROWS;
    return quarter < 2048 ? (int32_t)quarter : 2048;
}

/* The rows a rank gets on average, so that dispatch rarely waits for a ring row and its CTAs soon compute; at least 4. */
static int32_t default_ring_minibatches(const struct mok_options *o) {
    int64_t rows = (int64_t)o->tokens * (o->top_k + o->shared_experts) + (int64_t)(o->experts_per_rank + o->shared_experts) * TILE_ROWS;
    return (int32_t)schedule_maximum(4, (int32_t)((rows + o->minibatch_rows - 1) / o->minibatch_rows));
}

static int fill_defaults(struct mok_options *o, struct error *error) {
    int device = 0, sm_count = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) status = cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess) return launch_cuda_error(error, status, "reading the GPU's SM count");
    if (o->rank_ctas == 0) o->rank_ctas = sm_count / o->ranks / PAIR_CTAS * PAIR_CTAS;
    if (o->rank_ctas < 2 || (int64_t)o->rank_ctas * o->ranks > sm_count) {
        error_set(error, ERROR_USAGE, "%d ranks of %d CTAs do not fit the GPU's %d SMs", o->ranks, o->rank_ctas, sm_count);
        return error_hint(error, "use at most %d CTAs a rank", sm_count / o->ranks);
    }
    if (o->rank_ctas % PAIR_CTAS != 0) {
        error_set(error, ERROR_USAGE, "%d CTAs a rank are odd", o->rank_ctas);
        return error_hint(error, "CTAs come in pairs that share loads; use %d", o->rank_ctas - 1);
    }
    if (o->comm_sms == 0) o->comm_sms = schedule_maximum(1, schedule_minimum(o->rank_ctas - 2, schedule_maximum(2, o->rank_ctas / 8 / 2 * 2)));
    if (o->minibatch_rows == 0) o->minibatch_rows = default_minibatch_rows(o);
    if (o->ring_rows == 0) o->ring_rows = default_ring_minibatches(o) * o->minibatch_rows;
    if (o->lag == 0) o->lag = o->ring_rows > o->minibatch_rows ? 1 : 0;
    if (o->lag == -1) o->lag = 0;
    if (o->wait_limit_ns == 0) o->wait_limit_ns = 2000000000;
    return ERROR_NONE;
}

int mok_options_resolve(struct mok_options *o, struct error *error) {
    if (o->size != sizeof *o) return error_set(error, ERROR_USAGE, "mok_options has size %zu, this library wants %zu", o->size, sizeof *o);
    struct schedule s = launch_schedule(o);
    if (!(o->swiglu_clamp >= 0)) return error_set(error, ERROR_USAGE, "swiglu clamp %g is negative", (double)o->swiglu_clamp);
    if (o->ranks < 1 || o->ranks > SCHEDULE_RANKS_MAX) return schedule_error_describe(&s, SCHEDULE_BAD_RANKS, 0, error);
    if (fill_defaults(o, error) != ERROR_NONE) return error->code;
    if (o->capacity_rows == 0) {
        s = launch_schedule(o);
        int64_t safe = schedule_capacity_rows_safe(&s.shape, &s.tile);
        if (safe > INT32_MAX / 2) return error_set(error, ERROR_USAGE, "%d tokens x top-k %d x %d ranks are too many rows", o->tokens, o->top_k, o->ranks);
        o->capacity_rows = (int32_t)safe;
    }
    if (o->backward && o->saved_rows == 0) o->saved_rows = o->capacity_rows;
    if (o->backward && o->intermediate % DOWN_TILE_COLUMNS != 0) {
        error_set(error, ERROR_USAGE, "intermediate %d is not a multiple of %d", o->intermediate, DOWN_TILE_COLUMNS);
        return error_hint(error, "the backward pass needs that; a forward-only layer takes multiples of %d", GATE_UP_TILE_COLUMNS);
    }
    s = launch_schedule(o);
    enum schedule_error bad = schedule_check(&s, o->rank_ctas);
    if (bad != SCHEDULE_OK) return schedule_error_describe(&s, bad, o->rank_ctas, error);
    return ERROR_NONE;
}
