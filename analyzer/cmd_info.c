/* mokscope info: says what a trace holds, without reading its records. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analysis_json.h"
#include "command.h"
#include "iterations.h"
#include "options.h"
#include "text.h"
#include "trace_read.h"

struct info_options {
    bool json;
};

static const struct option_row rows[] = {
    {"json", 0, OPTION_FLAG, offsetof(struct info_options, json), NULL, NULL, NULL, "print one JSON object", 0, 0},
};

static const struct option_verb verb = {
    .name = "info",
    .usage = "[--json] TRACE",
    .summary = "Says what a trace holds: run, GPUs, ranks, shape and knobs, launches, roles, counts, losses, clocks, hangs.\n"
               "Quick for a trace of any size: no record is read.",
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .positional_minimum = 1,
    .positional_maximum = 1,
    .examples = {"mokscope info trace.db", "mokscope info --json trace.db"},
};

enum { LAUNCHES_SHOWN = 20 };

/* What the lanes of one launch, or of one role, add up to. */
struct lane_total {
    int64_t lanes, open, begin_ns, end_ns, records[TRACE_KIND_COUNT], lost, residual_ns;
    int32_t ranks;
};

static void add_lane(struct lane_total *total, const struct trace_lane *lane) {
    if (total->lanes == 0 || lane->begin_ns < total->begin_ns) total->begin_ns = lane->begin_ns;
    if (total->lanes == 0 || lane->end_ns > total->end_ns) total->end_ns = lane->end_ns;
    total->lanes++;
    total->open += !lane->closed;
    total->lost += lane->lost_count;
    if (lane->residual_ns > total->residual_ns) total->residual_ns = lane->residual_ns;
    for (int kind = 0; kind < TRACE_KIND_COUNT; kind++) total->records[kind] += (int64_t)lane->count[kind];
}

struct totals {
    struct lane_total all;
    struct lane_total *launches; /* [launch_count] */
    struct lane_total *roles;    /* [role_count] */
};

static int sum_lanes(struct trace *trace, struct totals *totals, struct error *error) {
    totals->launches = arena_allocate(&trace->arena, (size_t)trace->launch_count + 1, sizeof *totals->launches);
    totals->roles = arena_allocate(&trace->arena, (size_t)trace->role_count + 1, sizeof *totals->roles);
    if (totals->launches == NULL || totals->roles == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; i < trace->lane_count; i++) {
        const struct trace_lane *lane = &trace->lanes[i];
        struct lane_total *launch = &totals->launches[lane->launch];
        if (launch->lanes == 0 || lane[-1].rank != lane->rank) launch->ranks++;
        add_lane(launch, lane);
        add_lane(&totals->roles[lane->role], lane);
        add_lane(&totals->all, lane);
    }
    return 0;
}

/* --- text ------------------------------------------------------------------------------------------------------------ */

static void print_date(int64_t utc_ns) {
    char text[40];
    time_t seconds = (time_t)(utc_ns / 1000000000);
    struct tm utc;
    if (utc_ns <= 0 || gmtime_r(&seconds, &utc) == NULL) return;
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc);
    printf(", begun %s", text);
}

static void print_run(const struct trace_file *file, const struct trace *trace) {
    const struct recorded_run *run = &trace->run;
    printf("%s: %s trace by %s, %s%s\n", file->path, run->state, run->producer, text_bytes((double)file->byte_count).bytes,
           file->compressed ? " compressed" : "");
    printf("  recorded with mokscope %s%s%s", run->tool_version, run->git_revision[0] != '\0' ? " " : "", run->git_revision);
    print_date(run->begin_utc_ns);
    if (run->end_utc_ns > run->begin_utc_ns) printf(", %s long", text_duration((double)(run->end_utc_ns - run->begin_utc_ns)).bytes);
    printf("\n");
    if (run->unfinished) printf("  the recording did not end: read as cut, with what had arrived\n");
    if (run->command[0] != '\0') printf("  command: %s\n", run->command);
    if (run->host[0] != '\0') printf("  host: %s\n", run->host);
    if (run->exit_status > 0) printf("  exit status: %d\n", run->exit_status);
}

static void print_devices(const struct trace *trace) {
    printf("\nGPUs\n");
    for (int32_t i = 0; i < trace->device_count; i++) {
        const struct recorded_device *d = &trace->devices[i];
        printf("  %lld: %s, %lld SMs", (long long)d->device_id, d->name, (long long)d->sm_count);
        if (d->sm_clock_khz > 0) printf(", %.2f GHz", (double)d->sm_clock_khz * 1e-6);
        if (d->globaltimer_step_ns > 0) printf(", globaltimer step %lld ns", (long long)d->globaltimer_step_ns);
        if (d->clock_known)
            printf(", clock to host: bracket %lld ns, residual %lld ns, drift %.2f ppm, %lld readings", (long long)d->width_ns,
                   (long long)d->residual_ns, d->drift * 1e6, (long long)d->readings);
        else
            printf(", clock not tied to the host's");
        printf("\n");
    }
    printf("  %d rank%s\n", trace->rank_count, trace->rank_count == 1 ? "" : "s");
}

static void print_attributes(const struct trace *trace) {
    static const char *const kinds[][2] = {{"shape", "Shape"}, {"knob", "Knobs"}, {"routing", "Routing"}, {"version", "Versions"},
                                           {"clock", "Clocks"}, {"note", "Notes"}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        int column = 0;
        for (int32_t i = 0; i < trace->attribute_count; i++) {
            const struct trace_attribute *a = &trace->attributes[i];
            if (strcmp(a->kind, kinds[k][0]) != 0) continue;
            if (column == 0) printf("\n%s\n ", kinds[k][1]);
            int width = (int)(strlen(a->name) + strlen(a->value) + strlen(a->unit)) + 4;
            if (column > 0 && column + width > 100) {
                printf("\n ");
                column = 0;
            }
            printf("%s %s %s%s%s", column > 0 ? "," : "", a->name, a->value, a->unit[0] != '\0' ? " " : "", a->unit);
            column += width;
        }
        if (column > 0) printf("\n");
    }
}

static void print_launches(const struct trace *trace, const struct totals *totals) {
    if (trace->launch_count == 0) {
        printf("\nNo instrumented launch\n");
        return;
    }
    printf("\n%d instrumented launch%s, %d kernel%s in all\n", trace->launch_count, trace->launch_count == 1 ? "" : "es",
           trace->kernel_count, trace->kernel_count == 1 ? "" : "s");
    printf("  %6s %6s %6s %7s %12s %12s %12s %12s  %s\n", "launch", "ranks", "lanes", "open", "lanes' time", "kernel time", "records",
           "lost", "module");
    for (int32_t i = 0; i < trace->launch_count && i < LAUNCHES_SHOWN; i++) {
        const struct trace_launch *launch = &trace->launches[i];
        const struct lane_total *t = &totals->launches[i];
        const struct recorded_kernel *kernel = launch->kernel >= 0 ? &trace->kernels[launch->kernel] : NULL;
        printf("  %6lld %6d %6lld %7lld %12s %12s %12s %12s  %s\n", (long long)launch->launch_id, t->ranks, (long long)t->lanes,
               (long long)t->open, text_duration((double)(t->end_ns - t->begin_ns)).bytes,
               kernel != NULL ? text_duration((double)(kernel->end_ns - kernel->begin_ns)).bytes : "-",
               text_count(t->records[0] + t->records[1] + t->records[2]).bytes, text_count(t->lost).bytes,
               trace->modules[launch->module].name);
    }
    if (trace->launch_count > LAUNCHES_SHOWN) printf("  and %d more\n", trace->launch_count - LAUNCHES_SHOWN);
    printf("\n  %-12s %-12s %7s %14s %12s %12s %10s\n", "role", "class", "lanes", "spans", "waits", "signals", "lost");
    static const char *const classes[] = {"compute", "communicate", "support"};
    for (int32_t r = 0; r < trace->role_count; r++) {
        const struct lane_total *t = &totals->roles[r];
        if (t->lanes == 0) continue;
        printf("  %-12s %-12s %7lld %14s %12s %12s %10s\n", trace->roles[r].name, classes[trace->roles[r].role_class], (long long)t->lanes,
               text_count(t->records[TRACE_SPAN]).bytes, text_count(t->records[TRACE_WAIT]).bytes,
               text_count(t->records[TRACE_SIGNAL]).bytes, text_count(t->lost).bytes);
    }
    printf("  %-12s %-12s %7lld %14s %12s %12s %10s\n", "all", "", (long long)totals->all.lanes, text_count(totals->all.records[TRACE_SPAN]).bytes,
           text_count(totals->all.records[TRACE_WAIT]).bytes, text_count(totals->all.records[TRACE_SIGNAL]).bytes,
           text_count(totals->all.lost).bytes);
    printf("  largest residual of a lane's clock line: %lld ns\n", (long long)totals->all.residual_ns);
}

static void print_losses(const struct trace *trace) {
    if (trace->loss_count > 0) printf("\nLost or refused\n");
    for (int32_t i = 0; i < trace->loss_count; i++)
        printf("  %s %s %s: %s\n", text_count(trace->losses[i].count).bytes, trace->losses[i].source, trace->losses[i].kind,
               trace->losses[i].detail);
    if (trace->hang_count > 0) printf("\nWaits that timed out or were still polling\n");
    for (int32_t i = 0; i < trace->hang_count; i++) {
        const struct trace_hang *h = &trace->hangs[i];
        printf("  rank %d, CTA %d, warp %d waits for %s[%lld]: expected %lld, observed %lld", h->rank, h->cta, h->warp,
               trace->edges[h->edge].name, (long long)h->counter_index, (long long)h->expected, (long long)h->observed);
        if (h->task_id >= 0) printf(", in task %d", h->task_id);
        printf("\n");
    }
}

static void print_others(const struct trace *trace) {
    printf("\n%d copies and memsets, %d NVTX markers, %d modules, %d events, %d edges\n", trace->copy_count, trace->marker_count,
           trace->module_count, trace->event_count, trace->edge_count);
}

/* --- JSON ------------------------------------------------------------------------------------------------------------ */

static void write_total(struct json_out *json, const struct lane_total *t) {
    json_out_integer(json, "lanes", t->lanes);
    json_out_integer(json, "open_lanes", t->open);
    json_out_integer(json, "spans", t->records[TRACE_SPAN]);
    json_out_integer(json, "waits", t->records[TRACE_WAIT]);
    json_out_integer(json, "signals", t->records[TRACE_SIGNAL]);
    json_out_integer(json, "lost_records", t->lost);
    json_out_integer(json, "clock_residual_ns", t->residual_ns);
}

static void write_launches(struct json_out *json, const struct trace *trace, const struct totals *totals) {
    json_out_array(json, "launches");
    for (int32_t i = 0; i < trace->launch_count; i++) {
        const struct trace_launch *launch = &trace->launches[i];
        const struct lane_total *t = &totals->launches[i];
        json_out_map(json, NULL);
        json_out_integer(json, "launch_id", launch->launch_id);
        json_out_text(json, "module", trace->modules[launch->module].name);
        json_out_integer(json, "ranks", t->ranks);
        json_out_integer(json, "lanes_ns", t->end_ns - t->begin_ns);
        if (launch->kernel >= 0)
            json_out_integer(json, "kernel_ns", trace->kernels[launch->kernel].end_ns - trace->kernels[launch->kernel].begin_ns);
        else
            json_out_null(json, "kernel_ns");
        write_total(json, t);
        json_out_map_end(json);
    }
    json_out_array_end(json);
    json_out_array(json, "roles");
    for (int32_t r = 0; r < trace->role_count; r++) {
        if (totals->roles[r].lanes == 0) continue;
        json_out_map(json, NULL);
        json_out_text(json, "name", trace->roles[r].name);
        write_total(json, &totals->roles[r]);
        json_out_map_end(json);
    }
    json_out_array_end(json);
}

static void write_losses(struct json_out *json, const struct trace *trace) {
    json_out_array(json, "losses");
    for (int32_t i = 0; i < trace->loss_count; i++) {
        json_out_map(json, NULL);
        json_out_text(json, "source", trace->losses[i].source);
        json_out_text(json, "kind", trace->losses[i].kind);
        json_out_integer(json, "count", trace->losses[i].count);
        json_out_text(json, "detail", trace->losses[i].detail);
        json_out_map_end(json);
    }
    json_out_array_end(json);
    json_out_array(json, "hangs");
    for (int32_t i = 0; i < trace->hang_count; i++) {
        const struct trace_hang *h = &trace->hangs[i];
        json_out_map(json, NULL);
        json_out_integer(json, "rank", h->rank);
        json_out_integer(json, "cta", h->cta);
        json_out_integer(json, "warp", h->warp);
        json_out_text(json, "edge", trace->edges[h->edge].name);
        json_out_integer(json, "index", h->counter_index);
        json_out_integer(json, "expected", h->expected);
        json_out_integer(json, "observed", h->observed);
        json_out_integer(json, "task_id", h->task_id);
        json_out_map_end(json);
    }
    json_out_array_end(json);
}

static int write_json(const struct trace_file *file, const struct trace *trace, const struct totals *totals) {
    struct json_out json;
    json_out_open(&json, stdout, false);
    json_out_map(&json, NULL);
    analysis_json_run(&json, trace);
    json_out_integer(&json, "file_bytes", file->byte_count);
    json_out_flag(&json, "compressed", file->compressed);
    json_out_map(&json, "counts");
    write_total(&json, &totals->all);
    json_out_integer(&json, "kernels", trace->kernel_count);
    json_out_integer(&json, "copies", trace->copy_count);
    json_out_integer(&json, "markers", trace->marker_count);
    json_out_map_end(&json);
    write_launches(&json, trace, totals);
    write_losses(&json, trace);
    json_out_map_end(&json);
    return json_out_close(&json);
}

static int info(const char *path, const struct info_options *options, struct error *error) {
    struct trace_file file = {0};
    struct trace trace = {0};
    struct totals totals = {0};
    int status = trace_file_open(&file, path, error);
    if (!status) status = trace_read_head(&file, &trace, error);
    if (!status) status = sum_lanes(&trace, &totals, error);
    if (!status && options->json) {
        if (write_json(&file, &trace, &totals)) status = error_set(error, ERROR_FAILURE, "writing JSON failed");
    } else if (!status) {
        print_run(&file, &trace);
        print_devices(&trace);
        print_attributes(&trace);
        print_launches(&trace, &totals);
        print_losses(&trace);
        print_others(&trace);
    }
    trace_release(&trace);
    trace_file_close(&file);
    return status;
}

int cmd_info(int argc, char **argv) {
    struct info_options options = {false};
    struct error error = {0};
    int count = 0, status = options_parse(&verb, argc, argv, &options, &count, &error);
    if (status == OPTIONS_HELP) return 0;
    if (status == 0) status = info(argv[1], &options, &error);
    return status == 0 ? 0 : command_fail(verb.name, &error, options.json);
}
