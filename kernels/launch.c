/* The layer on the host: device memory, tensor maps, launches, and what a finished pass left in its control blocks. Plain C;
 * the kernels are behind layer.h's launch functions. Documented in mok.h.
 *
 * Ranks that share a GPU run as one launch each, on their own streams between two events of the caller's stream, and must be
 * co-resident: rank_ctas x ranks CTAs fit the SMs (checked), and nothing may serialise the streams
 * (CUDA_DEVICE_MAX_CONNECTIONS >= ranks + 1, no CUDA_LAUNCH_BLOCKING, no tool that serialises kernels); options.one_launch
 * has no such condition. Waits are bounded in any case. */
#include "launch_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule_error.h"

int launch_cuda_error(struct error *error, cudaError_t status, const char *operation) {
    cudaGetLastError();
    return error_set(error, ERROR_FAILURE, "%s failed: CUDA error %d, %s: %s", operation, (int)status, cudaGetErrorName(status),
                     cudaGetErrorString(status));
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

int launch_allocate(void **pointer, size_t count, size_t size, const char *name, struct error *error) {
    size_t bytes = count * size;
    cudaError_t status = cudaMalloc(pointer, bytes > 0 ? bytes : 1);
    if (status == cudaSuccess) status = cudaMemset(*pointer, 0, bytes);
    if (status == cudaSuccess) return ERROR_NONE;
    launch_cuda_error(error, status, "allocating device memory");
    return error_context(error, "%s, %zu MiB", name, bytes >> 20);
}

/* Poison: BF16 NaN everywhere, so that a slot nobody wrote shows. */
int launch_allocate_poisoned(uint16_t **pointer, size_t count, const char *name, struct error *error) {
    int code = launch_allocate((void **)pointer, count, sizeof **pointer, name, error);
    if (code == ERROR_NONE) cudaMemset(*pointer, 0xff, count * sizeof **pointer);
    return code;
}

static size_t counter_words(const struct schedule *s) {
    return (size_t)schedule_edge_counter_begin(s, EDGE_COUNT) + WORD_COUNT;
}

static int allocate_rank(struct mok_layer *layer, int32_t rank, struct error *error) {
    const struct schedule *s = &layer->arguments.schedule;
    struct rank_memory *m = &layer->memory[rank];
    size_t ring = (size_t)s->knobs.ring_rows, hidden = (size_t)s->shape.hidden, capacity = (size_t)s->knobs.capacity_rows;
    size_t slots = (size_t)s->shape.tokens * (size_t)schedule_slots(&s->shape);
    int code = launch_allocate_poisoned(&m->combine, slots * hidden, "combine slots", error);
    if (code == ERROR_NONE) code = launch_allocate_poisoned(&m->x_ring, ring * hidden, "x ring", error);
    if (code == ERROR_NONE) code = launch_allocate_poisoned(&m->h_ring, ring * (size_t)s->shape.intermediate, "h ring", error);
    if (code == ERROR_NONE && s->knobs.combine == COMBINE_RING) code = launch_allocate_poisoned(&m->y_ring, ring * hidden, "y ring", error);
    if (code == ERROR_NONE) code = launch_allocate((void **)&m->row_peer, capacity, 4, "row table", error);
    if (code == ERROR_NONE) code = launch_allocate((void **)&m->row_route, capacity, 4, "row table", error);
    if (code == ERROR_NONE) code = launch_allocate((void **)&m->tile_expert, capacity / TILE_ROWS, 4, "tile table", error);
    if (code == ERROR_NONE)
        code = launch_allocate((void **)&m->counters, 2 * counter_words(s), 4, "counters", error);
    if (code == ERROR_NONE)
        code = launch_allocate((void **)&m->chunk_counts, (size_t)s->rank_ctas * SCHEDULE_LOCAL_EXPERTS_MAX, 4, "route counts", error);
    if (code == ERROR_NONE) code = launch_allocate((void **)&m->flags, 2 * SCHEDULE_RANKS_MAX, 4, "rank flags", error);
    if (code == ERROR_NONE) code = launch_allocate((void **)&m->control, 1, sizeof *m->control, "control block", error);
    if (code == ERROR_NONE) code = launch_allocate((void **)&m->table, 1, sizeof *m->table, "routing table", error);
    if (code == ERROR_NONE && layer->backward != NULL) code = launch_backward_allocate(layer, rank, error);
    if (code != ERROR_NONE) return error_context(error, "rank %d", rank);
    cudaError_t status = cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking);
    if (status == cudaSuccess) status = cudaEventCreateWithFlags(&m->done, cudaEventDisableTiming);
    return status == cudaSuccess ? ERROR_NONE : launch_cuda_error(error, status, "creating a stream");
}

static void release_rank(struct rank_memory *m) {
    void *pointers[] = {m->combine, m->x_ring,   m->h_ring, m->y_ring, m->row_peer, m->row_route, m->tile_expert,
                        m->counters, m->chunk_counts, m->flags, m->control, m->table};
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) cudaFree(pointers[i]);
    launch_backward_release(m);
    if (m->stream != NULL) cudaStreamDestroy(m->stream);
    if (m->done != NULL) cudaEventDestroy(m->done);
}

/* --- tensor maps ----------------------------------------------------------------------------------------------------- */

typedef CUresult tensor_map_encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                            const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static tensor_map_encode_function *find_tensor_map_encode(void) {
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) return NULL;
    return (tensor_map_encode_function *)function;
}

int launch_encode_map(CUtensorMap *map, const void *matrix, int64_t rows, int64_t columns, int32_t box_rows, const char *name,
                      struct error *error) {
    tensor_map_encode_function *encode = find_tensor_map_encode();
    if (encode == NULL) return error_set(error, ERROR_FAILURE, "the CUDA driver has no cuTensorMapEncodeTiled");
    cuuint64_t sizes[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    cuuint64_t strides[1] = {(cuuint64_t)columns * sizeof(uint16_t)};
    cuuint32_t box[2] = {K_BLOCK, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    CUresult status = encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)matrix, sizes, strides, box, steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status == CUDA_SUCCESS) return ERROR_NONE;
    return error_set(error, ERROR_FAILURE, "tensor map of %s failed: CUDA driver error %d", name, (int)status);
}

/* --- create, bind, destroy ------------------------------------------------------------------------------------------- */

static void fill_arguments(struct mok_layer *layer) {
    struct layer_arguments *a = &layer->arguments;
    int32_t ranks = a->schedule.shape.rank_count;
    for (int32_t e = 0; e <= EDGE_COUNT; e++) a->counter_begin[e] = (uint32_t)schedule_edge_counter_begin(&a->schedule, e);
    a->rank_ctas = layer->options.rank_ctas;
    a->swiglu_clamp = layer->options.swiglu_clamp > 0 ? layer->options.swiglu_clamp : INFINITY;
    a->wait_limit_ns = (uint64_t)layer->options.wait_limit_ns;
    a->delay_seed = layer->options.delay_seed;
    a->delay_limit_ns = layer->options.delay_limit_ns;
    for (int32_t rank = 0; rank < ranks; rank++) {
        struct rank_arguments *r = &a->ranks[rank];
        const struct rank_memory *m = &layer->memory[rank];
        r->rank = rank;
        r->x_ring = m->x_ring;
        r->h_ring = m->h_ring;
        r->y_ring = m->y_ring;
        r->row_peer = m->row_peer;
        r->row_route = m->row_route;
        r->tile_expert = m->tile_expert;
        r->gu_rows = m->gu_rows;
        r->table = m->table;
        r->counters = m->counters;
        r->chunk_counts = m->chunk_counts;
        r->row_weight = m->row_weight;
        for (int32_t peer = 0; peer < ranks; peer++) {
            r->combine[peer] = layer->memory[peer].combine;
            r->rank_start[peer] = layer->memory[peer].flags;
            r->rank_done[peer] = layer->memory[peer].flags + SCHEDULE_RANKS_MAX;
            r->control[peer] = layer->memory[peer].control;
        }
    }
}

int mok_layer_create(const struct mok_options *options, struct mok_layer **result, struct error *error) {
    struct mok_layer *layer = calloc(1, sizeof *layer);
    *result = NULL;
    if (layer == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    layer->options = *options;
    int code = mok_options_resolve(&layer->options, error);
    if (code == ERROR_NONE) {
        cudaError_t status = cudaGetDevice(&layer->device);
        if (status == cudaSuccess) status = cudaEventCreateWithFlags(&layer->begin, cudaEventDisableTiming);
        if (status != cudaSuccess) code = launch_cuda_error(error, status, "opening the GPU");
    }
    if (code == ERROR_NONE) layer->arguments.schedule = launch_schedule(&layer->options);
    if (code == ERROR_NONE && layer->options.backward) {
        layer->backward = calloc(1, sizeof *layer->backward);
        if (layer->backward == NULL) code = error_set(error, ERROR_FAILURE, "out of memory");
    }
    for (int32_t rank = 0; code == ERROR_NONE && rank < layer->options.ranks; rank++) code = allocate_rank(layer, rank, error);
    if (code == ERROR_NONE) {
        fill_arguments(layer);
        if (layer->backward != NULL) launch_backward_fill(layer);
        *result = layer;
    } else {
        mok_layer_destroy(layer);
    }
    return code;
}

void mok_layer_destroy(struct mok_layer *layer) {
    if (layer == NULL) return;
    for (int32_t rank = 0; rank < SCHEDULE_RANKS_MAX; rank++) release_rank(&layer->memory[rank]);
    if (layer->begin != NULL) cudaEventDestroy(layer->begin);
    free(layer->backward);
    free(layer);
}

int mok_layer_bind(struct mok_layer *layer, int32_t rank, const void *x, const void *expert_ids, const void *weights,
                   const void *w_gate, const void *w_up, const void *w_down, void *output, struct error *error) {
    struct layer_arguments *a = &layer->arguments;
    const struct layer_shape *shape = &a->schedule.shape;
    if (rank < 0 || rank >= shape->rank_count)
        return error_set(error, ERROR_USAGE, "rank %d is not in 0..%d", rank, shape->rank_count - 1);
    const void *pointers[] = {x, expert_ids, weights, w_gate, w_up, w_down, output};
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++)
        if (pointers[i] == NULL || (uintptr_t)pointers[i] % 16 != 0)
            return error_set(error, ERROR_USAGE, "rank %d: buffer %zu of mok_layer_bind is null or not 16-byte aligned", rank, i);
    struct rank_arguments *r = &a->ranks[rank];
    struct rank_memory *m = &layer->memory[rank];
    int64_t experts = shape->experts_per_rank, hidden = shape->hidden, intermediate = shape->intermediate;
    int64_t ring = a->schedule.knobs.ring_rows;
    for (int32_t peer = 0; peer < shape->rank_count; peer++) {
        a->ranks[peer].x[rank] = x;
        a->ranks[peer].expert_ids[rank] = expert_ids;
        a->ranks[peer].weights[rank] = weights;
    }
    m->output = output;
    int code = launch_encode_map(&r->x_ring_map, m->x_ring, ring, hidden, TILE_ROWS, "x ring", error);
    if (code == ERROR_NONE) code = launch_encode_map(&r->h_ring_map, m->h_ring, ring, intermediate, TILE_ROWS, "h ring", error);
    if (code == ERROR_NONE)
        code = launch_encode_map(&r->w_gate_map, w_gate, experts * intermediate, hidden, GATE_UP_TILE_COLUMNS, "w_gate", error);
    if (code == ERROR_NONE)
        code = launch_encode_map(&r->w_up_map, w_up, experts * intermediate, hidden, GATE_UP_TILE_COLUMNS, "w_up", error);
    if (code == ERROR_NONE)
        code = launch_encode_map(&r->w_down_map, w_down, experts * hidden, intermediate, DOWN_TILE_COLUMNS / 2, "w_down", error);
    if (code == ERROR_NONE) code = launch_encode_map(&r->x_map, x, shape->tokens, hidden, TILE_ROWS, "x", error);
    if (code == ERROR_NONE && layer->backward != NULL) {
        code = launch_backward_bind_weights(layer, rank, 0, w_gate, w_up, w_down, error);
        if (code == ERROR_NONE)
            code = launch_encode_map(&layer->backward->ranks[rank].shared_x_map, x, shape->tokens, hidden, BOX_ROWS, "x", error);
    }
    m->bound = code == ERROR_NONE;
    return code;
}

int mok_layer_bind_shared(struct mok_layer *layer, int32_t rank, const void *w_gate, const void *w_up, const void *w_down,
                          void *dw_gate, void *dw_up, void *dw_down, struct error *error) {
    const struct layer_shape *shape = &layer->arguments.schedule.shape;
    if (shape->shared_experts == 0) return error_set(error, ERROR_USAGE, "the layer was made without options.shared_experts");
    if (rank < 0 || rank >= shape->rank_count)
        return error_set(error, ERROR_USAGE, "rank %d is not in 0..%d", rank, shape->rank_count - 1);
    const void *pointers[] = {w_gate, w_up, w_down, dw_gate, dw_up, dw_down};
    for (size_t i = 0; i < (layer->backward != NULL ? 6 : 3); i++)
        if (pointers[i] == NULL || (uintptr_t)pointers[i] % 16 != 0)
            return error_set(error, ERROR_USAGE, "rank %d: buffer %zu of mok_layer_bind_shared is null or not 16-byte aligned", rank, i);
    struct rank_arguments *r = &layer->arguments.ranks[rank];
    int64_t experts = shape->shared_experts, hidden = shape->hidden, intermediate = shape->intermediate;
    int code = launch_encode_map(&r->shared_gate_map, w_gate, experts * intermediate, hidden, GATE_UP_TILE_COLUMNS, "w_gate", error);
    if (code == ERROR_NONE)
        code = launch_encode_map(&r->shared_up_map, w_up, experts * intermediate, hidden, GATE_UP_TILE_COLUMNS, "w_up", error);
    if (code == ERROR_NONE)
        code = launch_encode_map(&r->shared_down_map, w_down, experts * hidden, intermediate, DOWN_TILE_COLUMNS / 2, "w_down", error);
    if (code == ERROR_NONE && layer->backward != NULL) {
        struct backward_rank *b = &layer->backward->ranks[rank];
        b->d_shared_gate = dw_gate;
        b->d_shared_up = dw_up;
        b->d_shared_down = dw_down;
        code = launch_backward_bind_weights(layer, rank, 1, w_gate, w_up, w_down, error);
    }
    layer->memory[rank].bound_shared = code == ERROR_NONE;
    return code;
}

/* --- passes ---------------------------------------------------------------------------------------------------------- */

static int enqueue_kernel(struct mok_layer *layer, int32_t rank_count, cudaStream_t stream) {
    if (layer->arguments.schedule.pass == PASS_FORWARD) return forward_launch(&layer->arguments, rank_count, stream);
    return backward_launch(&layer->arguments, layer->backward, rank_count, stream);
}


static int enqueue_rank(struct mok_layer *layer, int32_t rank) {
    struct rank_memory *m = &layer->memory[rank];
    layer->arguments.rank_first = rank;
    int status = (int)cudaStreamWaitEvent(m->stream, layer->begin, 0);
    if (status == 0) status = enqueue_kernel(layer, 1, m->stream);
    if (status == 0) status = (int)cudaEventRecord(m->done, m->stream);
    return status;
}

int launch_pass(struct mok_layer *layer, enum schedule_pass pass, void *stream, struct error *error) {
    int32_t ranks = layer->options.ranks;
    int status = 0;
    for (int32_t rank = 0; rank < ranks; rank++)
        if (layer->options.shared_experts > 0 && !layer->memory[rank].bound_shared)
            return error_set(error, ERROR_USAGE, "rank %d has no shared experts: call mok_layer_bind_shared", rank);
    layer->checked = 0;
    layer->arguments.schedule.pass = (int32_t)pass;
    for (int32_t rank = 0; rank < ranks; rank++)
        layer->arguments.ranks[rank].output = pass == PASS_FORWARD ? layer->memory[rank].output : layer->memory[rank].dx;
    if (layer->options.one_launch) {
        layer->arguments.rank_first = 0;
        status = enqueue_kernel(layer, ranks, stream);
    } else {
        status = (int)cudaEventRecord(layer->begin, stream);
        for (int32_t rank = 0; status == 0 && rank < ranks; rank++) status = enqueue_rank(layer, rank);
        for (int32_t rank = 0; status == 0 && rank < ranks; rank++)
            status = (int)cudaStreamWaitEvent(stream, layer->memory[rank].done, 0);
    }
    if (status == 0) return ERROR_NONE;
    return launch_cuda_error(error, (cudaError_t)status, pass == PASS_FORWARD ? "launching the forward pass" : "launching the backward pass");
}

int mok_layer_forward(struct mok_layer *layer, void *stream, struct error *error) {
    for (int32_t rank = 0; rank < layer->options.ranks; rank++)
        if (!layer->memory[rank].bound) return error_set(error, ERROR_USAGE, "rank %d has no buffers: call mok_layer_bind", rank);
    return launch_pass(layer, PASS_FORWARD, stream, error);
}

int mok_layer_adjust(struct mok_layer *layer, int32_t comm_sms, uint32_t delay_seed, uint32_t delay_limit_ns, struct error *error) {
    struct mok_options options = layer->options;
    options.comm_sms = comm_sms;
    options.delay_seed = delay_seed;
    options.delay_limit_ns = delay_limit_ns;
    int code = mok_options_resolve(&options, error);
    if (code != ERROR_NONE) return code;
    int32_t pass = layer->arguments.schedule.pass;
    layer->options = options;
    layer->arguments.schedule = launch_schedule(&options);
    layer->arguments.schedule.pass = pass;
    layer->arguments.delay_seed = delay_seed;
    layer->arguments.delay_limit_ns = delay_limit_ns;
    return ERROR_NONE;
}

/* --- check and reset ------------------------------------------------------------------------------------------------- */

static int check_control(const struct mok_layer *layer, int32_t rank, const struct layer_control *c, struct error *error) {
    const struct schedule *s = &layer->arguments.schedule;
    if (c->epoch > 0 && c->overflow_epoch == c->epoch) return schedule_error_overflow(s, rank, c->overflow_expert, c->overflow_rows, error);
    if (c->hang_count > 0) {
        const struct hang_record *h = &c->hangs[0];
        const char *edge = h->edge < EDGE_COUNT ? schedule_edge_name((enum edge)h->edge) : "?";
        error_set(error, ERROR_FAILURE, "rank %u CTA %u warp %u waited too long for %s[%u]: expected %u, saw %u (task %d; %u such waits)",
                  h->rank, h->cta, h->warp, edge, h->index, h->expected, h->observed, h->task, c->hang_count);
        return error_hint(error, "are all ranks co-resident? try one_launch; else raise wait_limit_ns; then mok_layer_reset");
    }
    return ERROR_NONE;
}

static int check_counters(const struct mok_layer *layer, int32_t rank, const struct layer_control *control, struct error *error) {
    const struct schedule *s = &layer->arguments.schedule;
    uint32_t epoch = control->epoch;
    int32_t total_rows = layer->tables[rank].total_rows;
    size_t count = counter_words(s);
    uint32_t flags[2 * SCHEDULE_RANKS_MAX], *counters = malloc((count + 1) * sizeof *counters);
    if (counters == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    cudaError_t status = cudaMemcpy(counters, layer->memory[rank].counters + epoch % 2 * count, count * sizeof *counters, cudaMemcpyDeviceToHost);
    if (status == cudaSuccess) status = cudaMemcpy(flags, layer->memory[rank].flags, sizeof flags, cudaMemcpyDeviceToHost);
    int code = status == cudaSuccess ? ERROR_NONE : launch_cuda_error(error, status, "reading the counters");
    uint32_t bad_routes = code == ERROR_NONE ? counters[layer->arguments.counter_begin[EDGE_COUNT] + WORD_BAD_ROUTES] : 0;
    if (bad_routes > 0)
        code = error_set(error, ERROR_USAGE, "rank %d: %u routes have expert ids outside -1..%d, e.g. %d", rank, bad_routes,
                         s->shape.rank_count * s->shape.experts_per_rank - 1, control->bad_expert);
    for (int32_t e = 0; code == ERROR_NONE && e < EDGE_COUNT; e++) {
        int32_t edge_count = schedule_edge_counter_count(s, (enum edge)e);
        for (int32_t i = 0; code == ERROR_NONE && i < edge_count; i++) {
            uint32_t target = e == EDGE_EXPERT_READY ? schedule_expert_target(s, &layer->tables[rank].rows, i)
                                                     : schedule_edge_target(s, total_rows, (enum edge)e, i, epoch);
            uint32_t value = counters[layer->arguments.counter_begin[e] + (uint32_t)i];
            if (e == EDGE_RANK_START) value = flags[i];
            if (e == EDGE_RANK_DONE) value = flags[SCHEDULE_RANKS_MAX + i];
            if (value != target)
                code = error_set(error, ERROR_FAILURE, "rank %d: counter %s[%d] ended on %u, its target is %u", rank,
                                 schedule_edge_name((enum edge)e), i, value, target);
        }
    }
    free(counters);
    return code;
}

int mok_layer_check(struct mok_layer *layer, struct error *error) {
    int32_t ranks = layer->options.ranks;
    struct layer_control controls[SCHEDULE_RANKS_MAX];
    cudaError_t status = cudaDeviceSynchronize();
    for (int32_t rank = 0; status == cudaSuccess && rank < ranks; rank++) {
        status = cudaMemcpy(&controls[rank], layer->memory[rank].control, sizeof controls[rank], cudaMemcpyDeviceToHost);
        if (status == cudaSuccess)
            status = cudaMemcpy(&layer->tables[rank], layer->memory[rank].table, sizeof layer->tables[rank], cudaMemcpyDeviceToHost);
    }
    if (status != cudaSuccess) return launch_cuda_error(error, status, "the last pass");
    int code = ERROR_NONE;
    for (int32_t rank = 0; code == ERROR_NONE && rank < ranks; rank++) code = check_control(layer, rank, &controls[rank], error);
    for (int32_t rank = 0; code == ERROR_NONE && rank < ranks; rank++)
        code = check_counters(layer, rank, &controls[rank], error);
    layer->checked = code == ERROR_NONE;
    return code;
}

int mok_layer_reset(struct mok_layer *layer, struct error *error) {
    cudaError_t status = cudaDeviceSynchronize();
    for (int32_t rank = 0; status == cudaSuccess && rank < layer->options.ranks; rank++) {
        status = cudaMemset(layer->memory[rank].control, 0, sizeof *layer->memory[rank].control);
        if (status == cudaSuccess)
            status = cudaMemset(layer->memory[rank].counters, 0, 2 * counter_words(&layer->arguments.schedule) * sizeof(uint32_t));
        if (status == cudaSuccess)
            status = cudaMemset(layer->memory[rank].flags, 0, 2 * SCHEDULE_RANKS_MAX * sizeof *layer->memory[rank].flags);
    }
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    return status == cudaSuccess ? ERROR_NONE : launch_cuda_error(error, status, "resetting the layer");
}

const struct mok_options *mok_layer_options(const struct mok_layer *layer) { return &layer->options; }

double mok_layer_forward_flops(const struct mok_layer *layer) {
    const struct layer_shape *shape = &layer->arguments.schedule.shape;
    double routes = 0;
    for (int32_t rank = 0; rank < shape->rank_count; rank++)
        for (int32_t e = 0; e < schedule_local_experts(shape); e++) routes += layer->tables[rank].rows.expert_rows[e];
    return 6.0 * routes * shape->hidden * shape->intermediate;
}
