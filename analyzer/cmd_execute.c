/* mokscope execute: the layer's schedule on the CPU, with real arithmetic on small shapes, checked, and written as a trace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../kernels/bf16.h"
#include "../kernels/executor.h"
#include "../kernels/reference.h"
#include "../kernels/schedule_error.h"
#include "../probes/host/trace_write.h"
#include "command.h"
#include "json_out.h"
#include "options.h"

struct execute_verb {
    int64_t ranks, experts_per_rank, tokens, hidden, intermediate, top_k;
    int64_t sms, comm_sms, comm_warps, minibatch, ring, lag;
    int64_t seed, seeds, passes;
    const char *combine, *routing, *plant, *output;
    bool force, json;
};

#define FIELD(name) offsetof(struct execute_verb, name)

static const struct option_row rows[] = {
    {"ranks", 0, OPTION_INTEGER, FIELD(ranks), "N", "4", NULL, "expert-parallel ranks", 1, SCHEDULE_RANKS_MAX},
    {"experts-per-rank", 0, OPTION_INTEGER, FIELD(experts_per_rank), "N", "2", NULL, "experts of a rank", 1, SCHEDULE_EXPERTS_PER_RANK_MAX},
    {"tokens", 0, OPTION_INTEGER, FIELD(tokens), "N", "32", "tokens a rank", "tokens", 1, 4096},
    {"hidden", 0, OPTION_INTEGER, FIELD(hidden), "H", "32", "columns", "hidden size, multiple of 8", 1, 4096},
    {"intermediate", 0, OPTION_INTEGER, FIELD(intermediate), "I", "32", "columns", "intermediate size, multiple of 8", 1, 4096},
    {"top-k", 0, OPTION_INTEGER, FIELD(top_k), "K", "4", NULL, "experts a token visits", 1, SCHEDULE_TOP_K_MAX},
    {"sms", 0, OPTION_INTEGER, FIELD(sms), "N", "8", "SMs a rank", "CTAs of a rank", 2, 256},
    {"comm-sms", 0, OPTION_INTEGER, FIELD(comm_sms), "N", "2", "SMs a rank", "of these, CTAs that communicate", 1, 256},
    {"comm-warps", 0, OPTION_INTEGER, FIELD(comm_warps), "N", "2", NULL, "executors of a communication CTA", 1, 64},
    {"minibatch", 0, OPTION_INTEGER, FIELD(minibatch), "N", "32", "rows", "rows between two signals, multiple of 8", 1, 1 << 20},
    {"ring", 0, OPTION_INTEGER, FIELD(ring), "N", "64", "rows", "rows of each ring, multiple of the minibatch", 1, 1 << 20},
    {"lag", 0, OPTION_INTEGER, FIELD(lag), "N", "1", "minibatches", "by which down trails gate+up", 0, 1 << 20},
    {"combine", 0, OPTION_STRING, FIELD(combine), "PATH", "direct", NULL, "direct or ring", 0, 0},
    {"routing", 0, OPTION_STRING, FIELD(routing), "KIND", "uniform", NULL, "uniform, zipf, hot, empty or one-rank", 0, 0},
    {"passes", 0, OPTION_INTEGER, FIELD(passes), "N", "2", NULL, "launches of each rank", 1, 1000},
    {"seed", 0, OPTION_INTEGER, FIELD(seed), "N", "1", NULL, "of inputs, routes and delays", 0, INT64_MAX},
    {"seeds", 0, OPTION_INTEGER, FIELD(seeds), "N", "1", NULL, "check this many seeds; a trace is written of the last", 1, 1000000},
    {"plant", 0, OPTION_STRING, FIELD(plant), "FAULT", "none", NULL,
     "plant a fault, as KIND:EDGE, e.g. wait-removed:X_READY; kinds: wait-removed, target-low, target-high, signal-missing, signal-early, slot-early",
     0, 0},
    {"output", 'o', OPTION_STRING, FIELD(output), "FILE", "no trace", NULL, "write what the actors did as a trace", 0, 0},
    {"force", 0, OPTION_FLAG, FIELD(force), NULL, NULL, NULL, "replace an existing trace", 0, 0},
    {"json", 'j', OPTION_FLAG, FIELD(json), NULL, NULL, NULL, "print one JSON object", 0, 0},
};

static const struct option_verb verb = {
    .name = "execute",
    .usage = "[options]",
    .summary = "Executes the schedule of the MoE layer on the CPU: every role of every SM of every rank is an actor with random delays.\n"
               "Checks that results equal the reference bit by bit, that no row is read too early or overwritten while read, that\n"
               "nobody waits for ever and that every counter ends on its target. Tiles are 8 x 8, so shapes are small.",
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .examples = {"mokscope execute --ranks 8 --seeds 100", "mokscope execute --combine ring -o executed.db"},
    .exits = "1 if the protocol was broken",
};

/* Everything of one run. */
struct execution {
    struct executor_options options;
    struct executor_inputs inputs;
    struct routes routes;
    uint16_t *memory;
    struct executor *executor;
};

static int unknown(const char *option, const char *value, const char *known, struct error *error) {
    error_set(error, ERROR_USAGE, "unknown value '%s' of option '--%s'", value, option);
    return error_hint(error, "known: %s", known);
}

/* "KIND:EDGE" */
static int parse_fault(const char *text, struct executor_options *o, struct error *error) {
    static const char *const edges[] = {
#define EDGE(name, producer, consumer, granularity, scope, slot_reuse, target, description) #name,
#include "../kernels/edges.def"
#undef EDGE
    };
    const char *colon = strchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    if (strcmp(text, "none") == 0) return ERROR_NONE;
    int fault = EXECUTOR_FAULT_NONE + 1, edge = 0;
    while (fault < EXECUTOR_FAULT_COUNT && (strlen(executor_fault_name((enum executor_fault)fault)) != length ||
                                            strncmp(text, executor_fault_name((enum executor_fault)fault), length) != 0))
        fault++;
    while (colon != NULL && edge < EDGE_COUNT && strcmp(edges[edge], colon + 1) != 0) edge++;
    if (fault == EXECUTOR_FAULT_COUNT || colon == NULL || edge == EDGE_COUNT)
        return unknown("plant", text, "KIND:EDGE, e.g. target-high:H_READY; 'mokscope execute --help' lists the kinds", error);
    if (!executor_fault_applies(&o->schedule, (enum executor_fault)fault, (enum edge)edge)) {
        error_set(error, ERROR_USAGE, "fault '%s' has no meaning here", text);
        return error_hint(error, "edges with a counter: RANK_START, X_READY, X_FREE, H_READY, H_FREE, PUSHED, RANK_DONE, and with --combine ring Y_READY, Y_FREE");
    }
    o->fault = (enum executor_fault)fault;
    o->fault_edge = (enum edge)edge;
    return ERROR_NONE;
}

static int make_options(const struct execute_verb *v, struct executor_options *o, struct error *error) {
    struct schedule *s = &o->schedule;
    memset(o, 0, sizeof *o);
    if (strcmp(v->combine, "direct") != 0 && strcmp(v->combine, "ring") != 0) return unknown("combine", v->combine, "direct, ring", error);
    if (routing_kind_find(v->routing) == ROUTING_KIND_COUNT)
        return unknown("routing", v->routing, "uniform, zipf, hot, empty, one-rank", error);
    s->tile = (struct schedule_tile){8, 8, 8, 2};
    s->shape = (struct layer_shape){.rank_count = (int32_t)v->ranks, .experts_per_rank = (int32_t)v->experts_per_rank, .tokens = (int32_t)v->tokens,
                                    .hidden = (int32_t)v->hidden, .intermediate = (int32_t)v->intermediate, .top_k = (int32_t)v->top_k};
    s->knobs = (struct schedule_knobs){.comm_sms = (int32_t)v->comm_sms, .minibatch_rows = (int32_t)v->minibatch, .ring_rows = (int32_t)v->ring,
                                       .lag = (int32_t)v->lag, .combine = strcmp(v->combine, "ring") == 0 ? COMBINE_RING : COMBINE_DIRECT};
    s->knobs.capacity_rows = (int32_t)schedule_capacity_rows_safe(&s->shape, &s->tile);
    o->rank_ctas = (int32_t)v->sms;
    o->comm_warps = (int32_t)v->comm_warps;
    o->launches = (int32_t)v->passes;
    return parse_fault(v->plant, o, error);
}

/* Small integers and halves: sums are exact, so that their order cannot show. */
static void fill(uint16_t *values, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        values[i] = bf16_from_float((float)((int)(seed >> 33) % 5 - 2) * 0.5f);
    }
}

static int make_inputs(struct execution *e, struct error *error) {
    const struct layer_shape *shape = &e->options.schedule.shape;
    size_t x = (size_t)shape->tokens * (size_t)shape->hidden, ranks = (size_t)shape->rank_count;
    size_t matrix = (size_t)shape->experts_per_rank * (size_t)shape->hidden * (size_t)shape->intermediate;
    size_t count = ranks * (2 * x + 3 * matrix);
    uint16_t *at = e->memory = malloc(count * sizeof *at);
    if (at == NULL) return error_set(error, ERROR_FAILURE, "out of memory for %zu MiB of inputs", count >> 19);
    fill(at, count, e->options.seed);
    e->inputs.x_versions = 2;
    e->inputs.routes = &e->routes;
    for (size_t r = 0; r < ranks; r++) {
        e->inputs.x[0][r] = at, at += x;
        e->inputs.x[1][r] = at, at += x;
        e->inputs.w_gate[r] = at, at += matrix;
        e->inputs.w_up[r] = at, at += matrix;
        e->inputs.w_down[r] = at, at += matrix;
    }
    return ERROR_NONE;
}

static int compare_outputs(const struct execution *e, struct error *error) {
    const struct layer_shape *shape = &e->options.schedule.shape;
    int32_t version = (e->options.launches - 1) % e->inputs.x_versions;
    size_t routes = (size_t)shape->tokens * (size_t)shape->top_k, outputs = (size_t)shape->tokens * (size_t)shape->hidden;
    const int32_t *ids[SCHEDULE_RANKS_MAX];
    const float *weights[SCHEDULE_RANKS_MAX];
    uint16_t *expected = malloc(outputs * sizeof *expected);
    if (expected == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t r = 0; r < shape->rank_count; r++) {
        ids[r] = e->routes.expert_ids + (size_t)r * routes;
        weights[r] = e->routes.weights + (size_t)r * routes;
    }
    struct mok_reference layer = {.ranks = shape->rank_count, .experts_per_rank = shape->experts_per_rank, .tokens = shape->tokens,
                                  .hidden = shape->hidden, .intermediate = shape->intermediate, .top_k = shape->top_k,
                                  .x = e->inputs.x[version], .expert_ids = ids, .weights = weights, .w_gate = e->inputs.w_gate,
                                  .w_up = e->inputs.w_up, .w_down = e->inputs.w_down};
    int code = ERROR_NONE;
    for (int32_t r = 0; code == ERROR_NONE && r < shape->rank_count; r++) {
        code = mok_reference_forward(&layer, r, NULL, shape->tokens, expected, error);
        if (code == ERROR_NONE && memcmp(expected, executor_output(e->executor, r), outputs * sizeof *expected) != 0)
            code = error_set(error, ERROR_FAILURE, "outputs of rank %d differ from the reference", r);
    }
    free(expected);
    return code;
}

static void release(struct execution *e) {
    executor_destroy(e->executor);
    routes_free(&e->routes);
    free(e->memory);
    memset(e, 0, sizeof *e);
}

static int execute_seed(const struct execute_verb *v, uint64_t seed, struct execution *e, struct error *error) {
    memset(e, 0, sizeof *e);
    int code = make_options(v, &e->options, error);
    e->options.seed = seed;
    struct routing_request request = {(int32_t)v->ranks, (int32_t)v->tokens, (int32_t)v->top_k, (int32_t)v->experts_per_rank,
                                      (int32_t)(v->ranks * v->experts_per_rank + v->top_k), routing_kind_find(v->routing), 1.2, 0.0, seed};
    if (code == ERROR_NONE) {
        enum schedule_error bad = schedule_check(&e->options.schedule, e->options.rank_ctas);
        if (bad != SCHEDULE_OK) code = schedule_error_describe(&e->options.schedule, bad, e->options.rank_ctas, error);
    }
    if (code == ERROR_NONE) code = routes_draw(&e->routes, &request, error);
    if (code == ERROR_NONE) code = make_inputs(e, error);
    if (code == ERROR_NONE) code = executor_create(&e->options, &e->inputs, &e->executor, error);
    if (code == ERROR_NONE) code = executor_run(e->executor, error);
    if (code == ERROR_NONE) code = compare_outputs(e, error);
    if (code != ERROR_NONE && error_exit_status(error->code) == 1) error_context(error, "seed %llu", (unsigned long long)seed);
    return code;
}

static void print_result(const struct execute_verb *v, const struct executor_counts *counts) {
    if (!v->json) {
        printf("%lld seed%s: results equal the reference bit by bit, every counter ended on its target\n", (long long)v->seeds,
               v->seeds == 1 ? "" : "s");
        printf("last seed: %lld tasks, %lld waits, %lld steps of actors, %.1f us of virtual time\n", (long long)counts->tasks,
               (long long)counts->waits, (long long)counts->steps, (double)counts->time_ns / 1e3);
        return;
    }
    struct json_out json;
    json_out_open(&json, stdout, false);
    json_out_map(&json, NULL);
    json_out_flag(&json, "kept", true);
    json_out_integer(&json, "seeds", v->seeds);
    json_out_integer(&json, "tasks", counts->tasks);
    json_out_integer(&json, "waits", counts->waits);
    json_out_integer(&json, "steps", counts->steps);
    json_out_integer(&json, "virtual_ns", counts->time_ns);
    json_out_map_end(&json);
    json_out_close(&json);
}

static int execute(const struct execute_verb *v, struct error *error) {
    struct execution e;
    struct executor_counts counts = {0};
    int progress = isatty(STDERR_FILENO), code = ERROR_NONE;
    if (v->output != NULL && (code = trace_write_check_path(v->output, v->force, error)) != ERROR_NONE) return code;
    for (int64_t n = 0; code == ERROR_NONE && n < v->seeds; n++) {
        code = execute_seed(v, (uint64_t)(v->seed + n), &e, error);
        if (code == ERROR_NONE) counts = executor_count(e.executor);
        if (code == ERROR_NONE && n == v->seeds - 1 && v->output != NULL)
            code = executor_write_trace(e.executor, v->output, v->force, "mokscope execute", error);
        release(&e);
        if (progress && n % 16 == 15) fprintf(stderr, "\r%lld of %lld seeds", (long long)(n + 1), (long long)v->seeds);
    }
    if (progress && v->seeds >= 16) fprintf(stderr, "\r%30s\r", "");
    if (code == ERROR_NONE) print_result(v, &counts);
    return code;
}

int cmd_execute(int argc, char **argv) {
    struct execute_verb v = {.ranks = 4, .experts_per_rank = 2, .tokens = 32, .hidden = 32, .intermediate = 32, .top_k = 4, .sms = 8,
                             .comm_sms = 2, .comm_warps = 2, .minibatch = 32, .ring = 64, .lag = 1, .combine = "direct", .routing = "uniform",
                             .plant = "none", .passes = 2, .seed = 1, .seeds = 1};
    struct error error = {0};
    int count = 0;
    int result = options_parse(&verb, argc, argv, &v, &count, &error);
    if (result == OPTIONS_HELP) return 0;
    if (result == OPTIONS_GO) result = execute(&v, &error);
    return result >= 0 ? result : command_fail("execute", &error, v.json);
}
