/* mokscope record: runs a program with the recorder injected. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "json_out.h"
#include "options.h"
#include "record_run.h"

struct record_verb {
    struct record_options record;
    bool json, quiet;
};

static const struct option_row rows[] = {
    {"output", 'o', OPTION_STRING, offsetof(struct record_verb, record.output), "FILE", "trace.db", NULL, "trace to write", 0, 0},
    {"force", 0, OPTION_FLAG, offsetof(struct record_verb, record.force), NULL, NULL, NULL, "replace an existing trace", 0, 0},
    {"level", 0, OPTION_STRING, offsetof(struct record_verb, record.level), "LEVEL", "phase", NULL,
     "finest probes recorded: task, phase or kblock", 0, 0},
    {"roles", 0, OPTION_STRING, offsetof(struct record_verb, record.roles), "LIST", "all", NULL,
     "record only these roles, names separated by commas", 0, 0},
    {"lanes", 0, OPTION_INTEGER, offsetof(struct record_verb, record.lanes), "N", "8192", "lanes",
     "ring slots a module and GPU; a lane is one warp's role in one launch", 1, 1 << 24},
    {"records", 0, OPTION_INTEGER, offsetof(struct record_verb, record.records), "N", "2048", "records",
     "records a slot, 16 bytes each, rounded up to a power of two", 2, 1 << 24},
    {"no-probes", 0, OPTION_FLAG, offsetof(struct record_verb, record.no_probes), NULL, NULL, NULL, "record no probes", 0, 0},
    {"no-activity", 0, OPTION_FLAG, offsetof(struct record_verb, record.no_activity), NULL, NULL, NULL,
     "record no kernels, copies and NVTX ranges (CUPTI)", 0, 0},
    {"json", 'j', OPTION_FLAG, offsetof(struct record_verb, json), NULL, NULL, NULL, "print the summary as one JSON object", 0, 0},
    {"quiet", 'q', OPTION_FLAG, offsetof(struct record_verb, quiet), NULL, NULL, NULL, "print no summary", 0, 0},
};

static const struct option_verb verb = {
    "record",
    "[options] [--] PROGRAM [ARGUMENTS]",
    "Runs PROGRAM with the recorder injected and writes what its kernels' probes, CUPTI and NVTX say into a trace. PROGRAM\n"
    "needs no change; kernels with mokscope_probe.h record their warp roles. The exit status is PROGRAM's.",
    rows,
    sizeof rows / sizeof rows[0],
    1,
    0,
    true,
    {"mokscope record -o run.db -- ./train --steps 3", "mokscope record --level task -- python3 train.py"},
    "the program's, 128+n if signal n ended it; 1 also if it used no CUDA device",
};

/* state "none": the program used no CUDA device, and there is no trace. */
static void print_json(const char *path, const struct trace_summary *s, int others, int status) {
    struct json_out json;
    json_out_open(&json, stdout, false);
    json_out_map(&json, NULL);
    json_out_text(&json, "trace", path);
    json_out_text(&json, "state", s->state[0] != '\0' ? s->state : "none");
    json_out_integer(&json, "spans", s->span_count);
    json_out_integer(&json, "waits", s->wait_count);
    json_out_integer(&json, "signals", s->signal_count);
    json_out_integer(&json, "lanes", s->lane_count);
    json_out_integer(&json, "launches", s->launch_count);
    json_out_integer(&json, "kernels", s->kernel_count);
    json_out_integer(&json, "lost", s->lost_count);
    json_out_integer(&json, "other_traces", others);
    json_out_integer(&json, "exit", status);
    json_out_map_end(&json);
    json_out_close(&json);
}

static void print_summary(const char *path, const struct trace_summary *s) {
    fprintf(stderr, "mokscope record: %s: %lld spans, %lld waits, %lld launches, %lld kernels, %lld lost%s\n", path,
            (long long)s->span_count, (long long)s->wait_count, (long long)s->launch_count, (long long)s->kernel_count,
            (long long)s->lost_count,
            strcmp(s->state, "cut") == 0 ? "; the program did not end by itself, the trace is cut" : "");
}

int cmd_record(int argc, char **argv) {
    struct record_verb options = {.json = false};
    struct error error = {0};
    struct trace_summary summary;
    char other[4096];
    int count = 0, status = -1;
    record_options_init(&options.record);
    int result = options_parse(&verb, argc, argv, &options, &count, &error);
    if (result == OPTIONS_HELP) return 0;
    if (result < 0) return command_fail("record", &error, options.json);
    argv[1 + count] = NULL;
    time_t begin = time(NULL);
    if (record_run(&options.record, argv + 1, &status, &summary, &error) != ERROR_NONE) return command_fail("record", &error, options.json);
    int others = record_run_others(options.record.output, begin, other, sizeof other);
    bool recorded = summary.state[0] != '\0';
    if (options.json) print_json(options.record.output, &summary, others, status);
    if (!recorded)
        command_warn("record", "nothing was recorded: '%s' used no CUDA device%s", argv[1], status == 0 ? "" : ", and did not succeed");
    else if (!options.quiet && !options.json)
        print_summary(options.record.output, &summary);
    if (others > 0 && !options.quiet)
        command_warn("record", "%d more process%s of the command used CUDA: '%s'%s", others, others == 1 ? "" : "es", other,
                     others == 1 ? "" : " and others like it");
    return recorded || status != 0 ? status : 1;
}
