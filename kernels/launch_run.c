/* See launch_run.h. */
#include "launch_run.h"

#include <math.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

#include "launch_internal.h"

enum { TENSORS_A_RANK = 16 }; /* seeds of a rank's random tensors */

struct mok_run {
    struct mok_layer *layer;
    struct mok_run_rank ranks[SCHEDULE_RANKS_MAX];
    cudaStream_t stream;
};

static int allocate(void **pointer, size_t bytes, const char *name, struct error *error) {
    cudaError_t status = cudaMalloc(pointer, bytes);
    if (status == cudaSuccess) return ERROR_NONE;
    launch_cuda_error(error, status, "allocating device memory");
    return error_context(error, "%s, %zu MiB", name, bytes >> 20);
}

/* A tensor of normals; every one of a run has its own seed. */
static int make_normal(struct mok_run *run, void **tensor, size_t count, double deviation, uint64_t seed, const char *name,
                       struct error *error) {
    int code = allocate(tensor, count * sizeof(uint16_t), name, error);
    if (code != ERROR_NONE) return code;
    cudaError_t status = (cudaError_t)mok_fill_normal(*tensor, count, (float)deviation, seed, run->stream);
    return status == cudaSuccess ? ERROR_NONE : launch_cuda_error(error, status, "filling a tensor");
}

/* Zeros: main gradients are added to. */
static int make_zeros(void **tensor, size_t bytes, const char *name, struct error *error) {
    int code = allocate(tensor, bytes, name, error);
    cudaError_t status = code == ERROR_NONE ? cudaMemset(*tensor, 0, bytes) : cudaSuccess;
    return status == cudaSuccess ? code : launch_cuda_error(error, status, "clearing a tensor");
}

static int make_gradients(struct mok_run *run, int32_t rank, uint64_t seed, struct error *error) {
    const struct mok_options *o = mok_layer_options(run->layer);
    struct mok_run_rank *r = &run->ranks[rank];
    size_t tokens = (size_t)o->tokens, hidden = (size_t)o->hidden, element = o->accumulate ? sizeof(float) : sizeof(uint16_t);
    size_t matrix = (size_t)o->experts_per_rank * hidden * (size_t)o->intermediate * element;
    int code = make_normal(run, &r->dy, tokens * hidden, 1.0, seed, "dy", error);
    if (code == ERROR_NONE) code = make_zeros(&r->dx, tokens * hidden * sizeof(uint16_t), "dx", error);
    if (code == ERROR_NONE) code = make_zeros(&r->d_weights, tokens * (size_t)o->top_k * sizeof(float), "d_weights", error);
    if (code == ERROR_NONE) code = make_zeros(&r->dw_gate, matrix, "dw_gate", error);
    if (code == ERROR_NONE) code = make_zeros(&r->dw_up, matrix, "dw_up", error);
    if (code == ERROR_NONE) code = make_zeros(&r->dw_down, matrix, "dw_down", error);
    if (code != ERROR_NONE) return code;
    return mok_layer_bind_backward(run->layer, rank, r->dy, r->dx, r->d_weights, r->dw_gate, r->dw_up, r->dw_down, error);
}

static int make_shared(struct mok_run *run, int32_t rank, uint64_t seed, struct error *error) {
    const struct mok_options *o = mok_layer_options(run->layer);
    struct mok_run_rank *r = &run->ranks[rank];
    double hidden_deviation = 1.0 / sqrt((double)o->hidden), intermediate_deviation = 1.0 / sqrt((double)o->intermediate);
    size_t matrix = (size_t)o->shared_experts * (size_t)o->hidden * (size_t)o->intermediate;
    size_t bytes = matrix * (o->accumulate ? sizeof(float) : sizeof(uint16_t));
    int code = make_normal(run, &r->shared_gate, matrix, hidden_deviation, seed, "shared w_gate", error);
    if (code == ERROR_NONE) code = make_normal(run, &r->shared_up, matrix, hidden_deviation, seed + 1, "shared w_up", error);
    if (code == ERROR_NONE) code = make_normal(run, &r->shared_down, matrix, intermediate_deviation, seed + 2, "shared w_down", error);
    if (code == ERROR_NONE && o->backward) code = make_zeros(&r->d_shared_gate, bytes, "shared dw_gate", error);
    if (code == ERROR_NONE && o->backward) code = make_zeros(&r->d_shared_up, bytes, "shared dw_up", error);
    if (code == ERROR_NONE && o->backward) code = make_zeros(&r->d_shared_down, bytes, "shared dw_down", error);
    if (code != ERROR_NONE) return code;
    return mok_layer_bind_shared(run->layer, rank, r->shared_gate, r->shared_up, r->shared_down, r->d_shared_gate, r->d_shared_up,
                                 r->d_shared_down, error);
}

static int make_rank(struct mok_run *run, int32_t rank, const int32_t *expert_ids, const float *weights, uint64_t seed,
                     struct error *error) {
    const struct mok_options *o = mok_layer_options(run->layer);
    struct mok_run_rank *r = &run->ranks[rank];
    size_t tokens = (size_t)o->tokens, hidden = (size_t)o->hidden, routes = tokens * (size_t)o->top_k;
    size_t matrix = (size_t)o->experts_per_rank * hidden * (size_t)o->intermediate;
    double hidden_deviation = 1.0 / sqrt((double)o->hidden), intermediate_deviation = 1.0 / sqrt((double)o->intermediate);
    uint64_t first = seed * 128 + (uint64_t)rank * TENSORS_A_RANK;
    int code = make_normal(run, &r->x, tokens * hidden, 1.0, first, "x", error);
    if (code == ERROR_NONE) code = make_normal(run, &r->w_gate, matrix, hidden_deviation, first + 1, "w_gate", error);
    if (code == ERROR_NONE) code = make_normal(run, &r->w_up, matrix, hidden_deviation, first + 2, "w_up", error);
    if (code == ERROR_NONE) code = make_normal(run, &r->w_down, matrix, intermediate_deviation, first + 3, "w_down", error);
    if (code == ERROR_NONE) code = allocate(&r->output, tokens * hidden * sizeof(uint16_t), "output", error);
    if (code == ERROR_NONE) code = allocate(&r->expert_ids, routes * sizeof *expert_ids, "expert ids", error);
    if (code == ERROR_NONE) code = allocate(&r->weights, routes * sizeof *weights, "router weights", error);
    if (code != ERROR_NONE) return error_context(error, "rank %d", rank);
    const size_t offset = (size_t)rank * routes;
    cudaError_t status = cudaMemcpy(r->expert_ids, expert_ids + offset, routes * sizeof *expert_ids, cudaMemcpyHostToDevice);
    if (status == cudaSuccess) status = cudaMemcpy(r->weights, weights + offset, routes * sizeof *weights, cudaMemcpyHostToDevice);
    if (status != cudaSuccess) return launch_cuda_error(error, status, "copying the routes");
    code = mok_layer_bind(run->layer, rank, r->x, r->expert_ids, r->weights, r->w_gate, r->w_up, r->w_down, r->output, error);
    if (code == ERROR_NONE && o->backward) code = make_gradients(run, rank, first + 4, error);
    if (code == ERROR_NONE && o->shared_experts > 0) code = make_shared(run, rank, first + 8, error);
    return code;
}

int mok_run_create(const struct mok_options *options, const int32_t *expert_ids, const float *weights, uint64_t seed,
                   struct mok_run **result, struct error *error) {
    struct mok_run *run = calloc(1, sizeof *run);
    *result = NULL;
    if (run == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    int code = mok_layer_create(options, &run->layer, error);
    if (code == ERROR_NONE) {
        cudaError_t status = cudaStreamCreateWithFlags(&run->stream, cudaStreamNonBlocking);
        if (status != cudaSuccess) code = launch_cuda_error(error, status, "creating a stream");
    }
    for (int32_t rank = 0; code == ERROR_NONE && rank < options->ranks; rank++)
        code = make_rank(run, rank, expert_ids, weights, seed, error);
    if (code == ERROR_NONE) {
        cudaError_t status = cudaStreamSynchronize(run->stream);
        if (status != cudaSuccess) code = launch_cuda_error(error, status, "filling the tensors");
    }
    if (code == ERROR_NONE)
        *result = run;
    else
        mok_run_destroy(run);
    return code;
}

void mok_run_destroy(struct mok_run *run) {
    if (run == NULL) return;
    cudaDeviceSynchronize();
    mok_layer_destroy(run->layer);
    for (int32_t rank = 0; rank < SCHEDULE_RANKS_MAX; rank++) {
        struct mok_run_rank *r = &run->ranks[rank];
        void *pointers[] = {r->x,  r->expert_ids, r->weights, r->w_gate, r->w_up, r->w_down, r->output, r->shared_gate, r->shared_up,
                            r->shared_down, r->dy, r->dx, r->d_weights, r->dw_gate, r->dw_up, r->dw_down, r->d_shared_gate,
                            r->d_shared_up, r->d_shared_down};
        for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) cudaFree(pointers[i]);
    }
    if (run->stream != NULL) cudaStreamDestroy(run->stream);
    free(run);
}

/* Poisons the outputs, then a forward pass between events 0 and 1 and, if there is one, a backward pass between 1 and 2. */
static int enqueue_pass(struct mok_run *run, const cudaEvent_t *events, struct error *error) {
    const struct mok_options *o = mok_layer_options(run->layer);
    size_t bytes = (size_t)o->tokens * (size_t)o->hidden * sizeof(uint16_t);
    cudaError_t status = cudaSuccess;
    for (int32_t rank = 0; status == cudaSuccess && rank < o->ranks; rank++) {
        status = cudaMemsetAsync(run->ranks[rank].output, 0xff, bytes, run->stream);
        if (status == cudaSuccess && o->backward) status = cudaMemsetAsync(run->ranks[rank].dx, 0xff, bytes, run->stream);
    }
    if (status == cudaSuccess) status = cudaEventRecord(events[0], run->stream);
    if (status != cudaSuccess) return launch_cuda_error(error, status, "enqueueing a pass");
    if (mok_layer_forward(run->layer, run->stream, error) != ERROR_NONE) return error->code;
    status = cudaEventRecord(events[1], run->stream);
    if (status == cudaSuccess && o->backward && mok_layer_backward(run->layer, run->stream, error) != ERROR_NONE) return error->code;
    if (status == cudaSuccess) status = cudaEventRecord(events[2], run->stream);
    return status == cudaSuccess ? ERROR_NONE : launch_cuda_error(error, status, "enqueueing a pass");
}

static int elapsed(float *ms, const cudaEvent_t *events, struct error *error) {
    cudaError_t status = ms != NULL ? cudaEventElapsedTime(ms, events[0], events[1]) : cudaSuccess;
    return status == cudaSuccess ? ERROR_NONE : launch_cuda_error(error, status, "timing a pass");
}

int mok_run_passes(struct mok_run *run, const char *label, int32_t passes, float *forward_ms, float *backward_ms, struct error *error) {
    cudaEvent_t *events = calloc((size_t)passes * 3 + 1, sizeof *events);
    if (events == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    int code = ERROR_NONE;
    for (int32_t i = 0; code == ERROR_NONE && i < 3 * passes; i++) {
        cudaError_t status = cudaEventCreate(&events[i]);
        if (status != cudaSuccess) code = launch_cuda_error(error, status, "creating an event");
    }
    for (int32_t i = 0; code == ERROR_NONE && i < passes; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s %d", label, i);
        nvtxRangePushA(name);
        code = enqueue_pass(run, events + 3 * i, error);
        nvtxRangePop();
    }
    if (code == ERROR_NONE) code = mok_layer_check(run->layer, error);
    for (int32_t i = 0; code == ERROR_NONE && i < passes; i++) {
        code = elapsed(forward_ms != NULL ? &forward_ms[i] : NULL, events + 3 * i, error);
        if (code == ERROR_NONE) code = elapsed(backward_ms != NULL ? &backward_ms[i] : NULL, events + 3 * i + 1, error);
    }
    for (int32_t i = 0; i < 3 * passes; i++)
        if (events[i] != NULL) cudaEventDestroy(events[i]);
    free(events);
    return code;
}

const struct mok_layer *mok_run_layer(const struct mok_run *run) { return run->layer; }

const struct mok_run_rank *mok_run_rank(const struct mok_run *run, int32_t rank) { return &run->ranks[rank]; }

int mok_run_read(const void *device, size_t bytes, void *host, struct error *error) {
    cudaError_t status = cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);
    return status == cudaSuccess ? ERROR_NONE : launch_cuda_error(error, status, "reading device memory");
}
