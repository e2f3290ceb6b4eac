/* mokscope run: the built-in MoE layer on this machine's GPU, timed, and recorded by the recorder that this program starts itself
 * under. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../kernels/launch_run.h"
#include "../kernels/routing.h"
#include "../probes/mokscope_describe.h"
#include "command.h"
#include "json_out.h"
#include "options.h"
#include "record_run.h"
#include "text.h"

struct run_verb {
    const char *model, *combine, *launch, *routing, *routes, *write_routes;
    int64_t ranks, experts_per_rank, model_experts, tokens, hidden, intermediate, top_k, shared_experts;
    int64_t sms, comm_sms, minibatch, ring, lag, saved, capacity;
    int64_t passes, warm_up, seed, timeout_ms;
    double zipf_exponent, dropped, clamp;
    struct record_options record;
    bool backward, accumulate, plain, json, quiet;
};

#define FIELD(name) offsetof(struct run_verb, name)

static const struct option_row rows[] = {
    {"model", 0, OPTION_STRING, FIELD(model), "NAME", "glm-5.2", NULL,
     "shape: kimi-k2.7, glm-5.2, qwen3.5 or deepseek-v4-pro; the options below override it", 0, 0},
    {"ranks", 0, OPTION_INTEGER, FIELD(ranks), "N", "2", NULL, "expert-parallel ranks that share the GPU", 1, SCHEDULE_RANKS_MAX},
    {"tokens", 0, OPTION_INTEGER, FIELD(tokens), "N", "2048", "tokens a rank", "tokens", 1, 1 << 20},
    {"experts-per-rank", 0, OPTION_INTEGER, FIELD(experts_per_rank), "N", "the model's at EP 64", NULL, "experts of a rank", 1,
     SCHEDULE_EXPERTS_PER_RANK_MAX},
    {"model-experts", 0, OPTION_INTEGER, FIELD(model_experts), "N", "the model's", NULL,
     "experts that routes are drawn over, then folded onto those present", 1, 1 << 16},
    {"hidden", 0, OPTION_INTEGER, FIELD(hidden), "H", "the model's", "columns", "hidden size, multiple of 256", 1, 1 << 20},
    {"intermediate", 0, OPTION_INTEGER, FIELD(intermediate), "I", "the model's", "columns",
     "intermediate size of an expert, multiple of 128", 1, 1 << 20},
    {"top-k", 0, OPTION_INTEGER, FIELD(top_k), "K", "the model's", NULL, "experts a token visits", 1, SCHEDULE_TOP_K_MAX},
    {"shared-experts", 0, OPTION_INTEGER, FIELD(shared_experts), "N", "0", NULL, "experts that every token visits", 0,
     SCHEDULE_SHARED_EXPERTS_MAX},
    {"clamp", 0, OPTION_REAL, FIELD(clamp), "L", "none", NULL, "limit of the SwiGLU activation", 0, 0},
    {"backward", 0, OPTION_FLAG, FIELD(backward), NULL, NULL, NULL, "a backward pass after each forward pass", 0, 0},
    {"accumulate", 0, OPTION_FLAG, FIELD(accumulate), NULL, NULL, NULL, "weight gradients are added to FP32 main gradients", 0, 0},
    {"sms", 0, OPTION_INTEGER, FIELD(sms), "N", "the GPU's / ranks", "SMs a rank", "CTAs of a rank, even", 2, 1 << 16},
    {"comm-sms", 0, OPTION_INTEGER, FIELD(comm_sms), "N", "an eighth", "SMs a rank", "of these, CTAs that communicate first", 1, 1 << 16},
    {"minibatch", 0, OPTION_INTEGER, FIELD(minibatch), "N", "up to 2048", "rows", "rows between two signals, multiple of 128", 1, 1 << 30},
    {"ring", 0, OPTION_INTEGER, FIELD(ring), "N", "what a rank gets on average", "rows", "rows of each ring, multiple of the minibatch", 1, 1 << 30},
    {"lag", 0, OPTION_INTEGER, FIELD(lag), "N", "1", "minibatches", "by which down trails gate+up", 0, 1 << 20},
    {"combine", 0, OPTION_STRING, FIELD(combine), "PATH", "direct", NULL, "direct (from the epilogue) or ring (communication SMs)", 0, 0},
    {"saved", 0, OPTION_INTEGER, FIELD(saved), "N", "all", "rows", "rows whose activations backward does not recompute", 0, 1 << 30},
    {"capacity", 0, OPTION_INTEGER, FIELD(capacity), "N", "enough for any routing", "rows", "padded rows a rank can hold", 1, 1 << 30},
    {"launch", 0, OPTION_STRING, FIELD(launch), "MODE", "separate", NULL,
     "separate (a launch a rank) or one (cooperative; under tools that serialise kernels)", 0, 0},
    {"routing", 0, OPTION_STRING, FIELD(routing), "KIND", "uniform", NULL, "uniform, zipf, hot, empty or one-rank", 0, 0},
    {"zipf-exponent", 0, OPTION_REAL, FIELD(zipf_exponent), "S", "1.2", NULL, "of --routing zipf", 0, 0},
    {"dropped", 0, OPTION_REAL, FIELD(dropped), "SHARE", "0", NULL, "share of routes dropped at random", 0, 0},
    {"routes", 0, OPTION_STRING, FIELD(routes), "FILE", NULL, NULL, "take the routes from a routes file instead", 0, 0},
    {"write-routes", 0, OPTION_STRING, FIELD(write_routes), "FILE", NULL, NULL, "write the routes to a new routes file", 0, 0},
    {"seed", 0, OPTION_INTEGER, FIELD(seed), "N", "1", NULL, "of routes, inputs and weights", 0, INT64_MAX},
    {"passes", 0, OPTION_INTEGER, FIELD(passes), "N", "20", NULL, "timed passes", 1, 100000},
    {"warm-up", 0, OPTION_INTEGER, FIELD(warm_up), "N", "3", NULL, "passes before them", 0, 100000},
    {"timeout", 0, OPTION_INTEGER, FIELD(timeout_ms), "MS", "2000", "ms", "a wait in the kernel that takes longer aborts the pass", 1, 60000},
    {"plain", 0, OPTION_FLAG, FIELD(plain), NULL, NULL, NULL, "do not record", 0, 0},
    {"output", 'o', OPTION_STRING, FIELD(record.output), "FILE", "trace.db", NULL, "trace to write", 0, 0},
    {"force", 0, OPTION_FLAG, FIELD(record.force), NULL, NULL, NULL, "replace an existing trace", 0, 0},
    {"level", 0, OPTION_STRING, FIELD(record.level), "LEVEL", "phase", NULL, "finest probes recorded: task, phase or kblock", 0, 0},
    {"roles", 0, OPTION_STRING, FIELD(record.roles), "LIST", "all", NULL, "record only these roles", 0, 0},
    {"lanes", 0, OPTION_INTEGER, FIELD(record.lanes), "N", "8192", "lanes", "ring slots a kernel", 1, 1 << 24},
    {"records", 0, OPTION_INTEGER, FIELD(record.records), "N", "2048", "records", "records a slot", 2, 1 << 24},
    {"json", 'j', OPTION_FLAG, FIELD(json), NULL, NULL, NULL, "print one JSON object", 0, 0},
    {"quiet", 'q', OPTION_FLAG, FIELD(quiet), NULL, NULL, NULL, "no summary of the recording", 0, 0},
};

static const struct option_verb verb = {
    "run",
    "[options]",
    "Runs the built-in MoE layer (dispatch, experts, combine in one kernel a rank) with random inputs on the GPU, checks that\n"
    "every counter ended on its target, prints its time, and records it into a trace.",
    rows,
    sizeof rows / sizeof rows[0],
    0,
    0,
    false,
    {"mokscope run --model qwen3.5 --ranks 4 --tokens 512 -o run.db", "mokscope run --plain --passes 50 --json"},
    NULL,
};

/* --- options --------------------------------------------------------------------------------------------------------- */

static int unknown_choice(const char *option, const char *value, const char *choices, struct error *error) {
    error_set(error, ERROR_USAGE, "unknown value '%s' of option '--%s'", value, option);
    return error_hint(error, "known: %s", choices);
}

/* Fills what the command line left open from the model's row. */
static int apply_model(struct run_verb *o, struct error *error) {
    static const struct model {
        const char *name;
        int64_t experts, hidden, intermediate, top_k, experts_per_rank;
    } models[] = {
#define MODEL(name, experts, hidden, intermediate, top_k, experts_per_rank) {name, experts, hidden, intermediate, top_k, experts_per_rank},
#include "../kernels/models.def"
#undef MODEL
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const struct model *m = &models[i];
        if (strcmp(m->name, o->model) != 0) continue;
        if (o->model_experts == 0) o->model_experts = m->experts;
        if (o->hidden == 0) o->hidden = m->hidden;
        if (o->intermediate == 0) o->intermediate = m->intermediate;
        if (o->top_k == 0) o->top_k = m->top_k;
        if (o->experts_per_rank == 0) o->experts_per_rank = m->experts_per_rank;
        return ERROR_NONE;
    }
    return unknown_choice("model", o->model, "kimi-k2.7, glm-5.2, qwen3.5, deepseek-v4-pro", error);
}

static int check_choices(const struct run_verb *o, struct error *error) {
    if (strcmp(o->combine, "direct") != 0 && strcmp(o->combine, "ring") != 0)
        return unknown_choice("combine", o->combine, "direct, ring", error);
    if (strcmp(o->launch, "separate") != 0 && strcmp(o->launch, "one") != 0)
        return unknown_choice("launch", o->launch, "separate, one", error);
    if (routing_kind_find(o->routing) == ROUTING_KIND_COUNT)
        return unknown_choice("routing", o->routing, "uniform, zipf, hot, empty, one-rank", error);
    if (!(o->clamp >= 0)) return error_set(error, ERROR_USAGE, "value '%g' of option '--clamp' is negative", o->clamp);
    return ERROR_NONE;
}

static struct mok_options layer_options(const struct run_verb *o) {
    struct mok_options l;
    mok_options_init(&l);
    l.ranks = (int32_t)o->ranks;
    l.experts_per_rank = (int32_t)o->experts_per_rank;
    l.tokens = (int32_t)o->tokens;
    l.hidden = (int32_t)o->hidden;
    l.intermediate = (int32_t)o->intermediate;
    l.top_k = (int32_t)o->top_k;
    l.shared_experts = (int32_t)o->shared_experts;
    l.swiglu_clamp = (float)o->clamp;
    l.rank_ctas = (int32_t)o->sms;
    l.comm_sms = (int32_t)o->comm_sms;
    l.minibatch_rows = (int32_t)o->minibatch;
    l.ring_rows = (int32_t)o->ring;
    l.lag = o->lag < 0 ? 0 : o->lag == 0 ? -1 : (int32_t)o->lag; /* the library's 0 is its default, its -1 is none */
    l.combine_ring = strcmp(o->combine, "ring") == 0;
    l.saved_rows = o->saved < 0 ? 0 : o->saved == 0 ? -1 : (int32_t)o->saved;
    l.capacity_rows = (int32_t)o->capacity;
    l.backward = o->backward;
    l.accumulate = o->accumulate;
    l.one_launch = strcmp(o->launch, "one") == 0;
    l.wait_limit_ns = o->timeout_ms * 1000000;
    return l;
}

static int get_routes(const struct run_verb *o, struct routes *routes, struct error *error) {
    int code;
    if (o->routes != NULL) {
        code = routes_read(routes, o->routes, error);
        int32_t present = (int32_t)(o->ranks * o->experts_per_rank);
        if (code == ERROR_NONE && (routes->ranks != o->ranks || routes->tokens != o->tokens || routes->top_k != o->top_k ||
                                   routes->experts > present)) {
            code = error_set(error, ERROR_USAGE, "'%s' has %d ranks x %d tokens, top-k %d, %d experts; the run has %lld x %lld, %lld, %d",
                             o->routes, routes->ranks, routes->tokens, routes->top_k, routes->experts, (long long)o->ranks,
                             (long long)o->tokens, (long long)o->top_k, present);
            error_hint(error, "give --ranks, --tokens, --top-k and --experts-per-rank of the file");
            routes_free(routes);
        }
    } else {
        struct routing_request request = {(int32_t)o->ranks, (int32_t)o->tokens, (int32_t)o->top_k, (int32_t)o->experts_per_rank,
                                          (int32_t)o->model_experts, routing_kind_find(o->routing), o->zipf_exponent, o->dropped,
                                          (uint64_t)o->seed};
        code = routes_draw(routes, &request, error);
    }
    if (code == ERROR_NONE && o->write_routes != NULL) {
        code = routes_write(routes, o->write_routes, error);
        if (code != ERROR_NONE) routes_free(routes);
    }
    return code;
}

static int need_gpu(struct error *error) {
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) {
        struct cudaDeviceProp properties;
        status = cudaGetDeviceProperties(&properties, 0);
        if (status == cudaSuccess && properties.major == 9) return ERROR_NONE;
        if (status == cudaSuccess) {
            error_set(error, ERROR_FAILURE, "GPU 0 is %s, compute capability %d.%d; the layer is built for 9.0 (Hopper)", properties.name,
                      properties.major, properties.minor);
            return error_hint(error, "everything that reads a trace works here: analyze, report, export");
        }
    }
    error_set(error, ERROR_FAILURE, "no CUDA GPU: %s", status == cudaSuccess ? "none was found" : cudaGetErrorString(status));
    return error_hint(error, "everything that reads a trace works without one; 'mokscope execute' runs the schedule on the CPU");
}

/* --- result ---------------------------------------------------------------------------------------------------------- */

struct run_times {
    double median, low, high; /* ms; 5th and 95th percentile */
};

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static struct run_times summarise(float *ms, int64_t count) {
    qsort(ms, (size_t)count, sizeof *ms, compare_floats);
    struct run_times t = {(double)ms[count / 2], (double)ms[count / 20], (double)ms[count - 1 - count / 20]};
    if (count % 2 == 0) t.median = ((double)ms[count / 2 - 1] + (double)ms[count / 2]) / 2;
    return t;
}

static void json_times(struct json_out *json, const char *key, const struct run_times *t) {
    json_out_map(json, key);
    json_out_real(json, "median", t->median);
    json_out_real(json, "p5", t->low);
    json_out_real(json, "p95", t->high);
    json_out_map_end(json);
}

static void print_json(const struct run_verb *o, const struct mok_layer *layer, const struct run_times *times) {
    const struct mok_options *l = mok_layer_options(layer);
    double flops = mok_layer_forward_flops(layer);
    struct json_out json;
    json_out_open(&json, stdout, false);
    json_out_map(&json, NULL);
    json_out_text(&json, "model", o->model);
    json_out_integer(&json, "ranks", l->ranks);
    json_out_integer(&json, "tokens", l->tokens);
    json_out_integer(&json, "experts_per_rank", l->experts_per_rank);
    json_out_integer(&json, "hidden", l->hidden);
    json_out_integer(&json, "intermediate", l->intermediate);
    json_out_integer(&json, "top_k", l->top_k);
    json_out_text(&json, "routing", o->routes != NULL ? o->routes : o->routing);
    json_out_integer(&json, "sms", l->rank_ctas);
    json_out_integer(&json, "comm_sms", l->comm_sms);
    json_out_integer(&json, "minibatch", l->minibatch_rows);
    json_out_integer(&json, "ring", l->ring_rows);
    json_out_integer(&json, "lag", l->lag);
    json_out_text(&json, "combine", o->combine);
    json_out_text(&json, "launch", o->launch);
    json_out_flag(&json, "recorded", mokscope_describe_recording() != 0);
    json_out_integer(&json, "passes", o->passes);
    json_out_real(&json, "forward_flops", flops);
    json_times(&json, "pass_ms", &times[0]);
    json_out_real(&json, "tflops", flops / times[0].median / 1e9);
    if (o->backward) {
        json_times(&json, "backward_ms", &times[1]);
        json_out_real(&json, "backward_tflops", 2 * flops / times[1].median / 1e9);
    }
    json_out_map_end(&json);
    json_out_close(&json);
}

static void print_text(const struct run_verb *o, const struct mok_layer *layer, const struct run_times *times) {
    const struct mok_options *l = mok_layer_options(layer);
    double flops = mok_layer_forward_flops(layer);
    printf("%s: %d ranks x %d tokens, %d experts a rank, H %d, I %d, top-%d, %s\n", o->model, l->ranks, l->tokens, l->experts_per_rank,
           l->hidden, l->intermediate, l->top_k, o->routes != NULL ? o->routes : o->routing);
    printf("knobs: %d SMs a rank, %d of them communicate, minibatch %d, ring %d, lag %d, combine %s\n", l->rank_ctas, l->comm_sms,
           l->minibatch_rows, l->ring_rows, l->lag, o->combine);
    for (int pass = 0; pass < (o->backward ? 2 : 1); pass++)
        printf("%-9s %.3f ms (p5 %.3f, p95 %.3f) over %lld passes, %s\n", pass == 0 ? "forward" : "backward", times[pass].median,
               times[pass].low, times[pass].high, (long long)o->passes,
               text_rate(flops * (pass + 1) / times[pass].median * 1e3).bytes);
}

/* --- run ------------------------------------------------------------------------------------------------------------- */

/* Passes, timed; the last one is described to the recorder. */
static int run_passes(const struct run_verb *o, struct mok_run *run, struct run_times *times, struct error *error) {
    float *ms = malloc(2 * (size_t)o->passes * sizeof *ms);
    if (ms == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    int code = ERROR_NONE;
    if (o->warm_up > 0) code = mok_run_passes(run, "warm-up", (int32_t)o->warm_up, NULL, NULL, error);
    if (code == ERROR_NONE) code = mok_run_passes(run, "pass", (int32_t)o->passes, ms, o->backward ? ms + o->passes : NULL, error);
    if (code == ERROR_NONE) {
        mok_layer_describe(mok_run_layer(run));
        mokscope_describe_attribute("routing", "routing", o->routes != NULL ? o->routes : o->routing, "");
        mokscope_describe_attribute("shape", "model", o->model, "");
        times[0] = summarise(ms, o->passes);
        if (o->backward) times[1] = summarise(ms + o->passes, o->passes);
    }
    free(ms);
    return code;
}

static int run_here(const struct run_verb *o, struct error *error) {
    struct mok_options options = layer_options(o);
    struct routes routes = {0};
    struct mok_run *run = NULL;
    struct run_times times[2];
    cudaError_t status = cudaFree(NULL); /* makes the context, on which the recorder installs its rings at the next line */
    if (status != cudaSuccess) return error_set(error, ERROR_FAILURE, "opening the GPU failed: %s", cudaGetErrorString(status));
    for (int32_t rank = 0; rank < options.ranks; rank++) mokscope_describe_rank(rank, 0);
    int code = mok_options_resolve(&options, error);
    if (code == ERROR_NONE) code = get_routes(o, &routes, error);
    if (code == ERROR_NONE) code = mok_run_create(&options, routes.expert_ids, routes.weights, (uint64_t)o->seed, &run, error);
    if (code == ERROR_NONE) code = run_passes(o, run, times, error);
    if (code == ERROR_NONE && o->json) print_json(o, mok_run_layer(run), times);
    if (code == ERROR_NONE && !o->json) print_text(o, mok_run_layer(run), times);
    mok_run_destroy(run);
    routes_free(&routes);
    return code;
}

/* This program again, under the recorder. */
static int run_recorded(const struct run_verb *o, int argc, char **argv, struct error *error) {
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) return error_set(error, ERROR_FAILURE, "cannot find this program's own path");
    self[length] = '\0';
    char **arguments = calloc((size_t)argc + 3, sizeof *arguments);
    if (arguments == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    arguments[0] = self;
    for (int i = 0; i < argc; i++) arguments[i + 1] = argv[i];
    struct trace_summary summary;
    int status = -1, code = record_run(&o->record, arguments, &status, &summary, error);
    free(arguments);
    if (code != ERROR_NONE) return code;
    if (status != 0) return status;
    if (!o->quiet)
        fprintf(stderr, "mokscope run: %s: %lld spans, %lld waits, %lld launches, %lld lost; 'mokscope report %s' explains it\n",
                o->record.output, (long long)summary.span_count, (long long)summary.wait_count, (long long)summary.launch_count,
                (long long)summary.lost_count, o->record.output);
    return 0;
}

int cmd_run(int argc, char **argv) {
    struct run_verb o = {.model = "glm-5.2", .combine = "direct", .launch = "separate", .routing = "uniform", .ranks = 2, .tokens = 2048,
                         .lag = -1, .saved = -1, .passes = 20, .warm_up = 3, .seed = 1, .timeout_ms = 2000, .zipf_exponent = 1.2};
    struct error error = {0};
    int count = 0;
    char **copy = calloc((size_t)argc + 1, sizeof *copy); /* parsing reorders argv */
    if (copy == NULL) return 1;
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    record_options_init(&o.record);
    int result = options_parse(&verb, argc, argv, &o, &count, &error);
    if (result == OPTIONS_HELP) {
        free(copy);
        return 0;
    }
    /* Ranks that share the GPU are launches that wait for each other: each needs a hardware queue of its own. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (result == OPTIONS_GO) result = apply_model(&o, &error);
    if (result == ERROR_NONE) result = check_choices(&o, &error);
    if (result == ERROR_NONE) result = need_gpu(&error);
    if (result == ERROR_NONE) {
        bool here = o.plain || mokscope_describe_recording();
        struct mok_options options = layer_options(&o);
        if (!here) result = mok_options_resolve(&options, &error); /* before anything is recorded */
        if (result == ERROR_NONE) result = here ? run_here(&o, &error) : run_recorded(&o, argc, copy, &error);
    }
    free(copy);
    return result >= 0 ? result : command_fail("run", &error, o.json);
}
