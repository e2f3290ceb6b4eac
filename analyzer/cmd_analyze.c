/* mokscope analyze: says where the time of a trace went, and stores the answer in it. */
#include <stdio.h>
#include <string.h>

#include "analysis.h"
#include "analysis_json.h"
#include "analysis_store.h"
#include "analysis_text.h"
#include "command.h"
#include "options.h"
#include "text.h"

struct analyze_options {
    bool json, brief, no_store, definitions;
    int64_t rank, launch;
};

static const struct option_row rows[] = {
    {"json", 0, OPTION_FLAG, offsetof(struct analyze_options, json), NULL, NULL, NULL, "print one JSON object", 0, 0},
    {"brief", 0, OPTION_FLAG, offsetof(struct analyze_options, brief), NULL, NULL, NULL, "print the verdict and the five figures only", 0, 0},
    {"rank", 0, OPTION_INTEGER, offsetof(struct analyze_options, rank), "R", "all", NULL, "only this rank's lanes", 0, 1 << 20},
    {"launch", 0, OPTION_INTEGER, offsetof(struct analyze_options, launch), "N", "all", NULL,
     "only the iteration of launch N of table launch", 0, INT64_MAX},
    {"no-store", 0, OPTION_FLAG, offsetof(struct analyze_options, no_store), NULL, NULL, NULL,
     "leave the trace as it is: do not store the results in it", 0, 0},
    {"definitions", 0, OPTION_FLAG, offsetof(struct analyze_options, definitions), NULL, NULL, NULL,
     "explain every figure; needs no trace", 0, 0},
};

static const struct option_verb verb = {
    .name = "analyze",
    .usage = "[options] TRACE",
    .summary = "Says where the time of a trace went: the state of every lane, overlap and exposed communication, waits by edge,\n"
               "fill and tail. Prints the five figures that matter first, and stores all of them in the trace (tables figure,\n"
               "partition, wait_by_edge). With --rank or --launch nothing is stored.",
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .positional_minimum = 0,
    .positional_maximum = 1,
    .examples = {"mokscope analyze trace.db", "mokscope analyze --json trace.db"},
};

static int print_definitions(const struct analyze_options *options) {
    if (!options->json) {
        analysis_text_definitions(stdout, NULL);
        return 0;
    }
    struct json_out json;
    json_out_open(&json, stdout, true);
    analysis_json_definitions(&json);
    return json_out_close(&json) == 0 ? 0 : 1;
}

static int print(struct analysis *analysis, const struct analyze_options *options, struct error *error) {
    if (!options->json) {
        if (options->brief)
            analysis_text_brief(stdout, analysis, text_colour_wanted(stdout));
        else
            analysis_text_write(stdout, analysis, text_colour_wanted(stdout));
        return 0;
    }
    struct json_out json;
    json_out_open(&json, stdout, false);
    analysis_json_write(&json, analysis);
    return json_out_close(&json) == 0 ? 0 : error_set(error, ERROR_FAILURE, "writing JSON failed");
}

/* Results that could not be stored are still printed; the reason goes to stderr. */
static void store(const struct trace_file *file, const struct analysis *analysis) {
    struct error error = {0};
    if (analysis_store(file, analysis, &error))
        command_warn("analyze", "the results were not stored in '%s': %s (--no-store silences this)", file->path, error.message);
}

static int analyze(const char *path, const struct analyze_options *options, struct error *error) {
    struct trace_file file = {0};
    struct trace trace = {0};
    struct analysis analysis = {0};
    const struct iteration_choice choice = {options->launch, (int32_t)options->rank};
    int status = trace_file_open(&file, path, error);
    if (!status) status = trace_read(&file, &trace, error);
    if (!status && trace.run.unfinished)
        command_warn("analyze", "the recording of '%s' did not end: read as cut, with what had arrived", path);
    if (!status) status = analysis_run(&trace, &choice, &analysis, error);
    if (!status) status = print(&analysis, options, error);
    if (!status && !options->no_store && options->rank < 0 && options->launch < 0) store(&file, &analysis);
    analysis_release(&analysis);
    trace_release(&trace);
    trace_file_close(&file);
    return status;
}

int cmd_analyze(int argc, char **argv) {
    struct analyze_options options = {.rank = -1, .launch = -1};
    struct error error = {0};
    int count = 0, status = options_parse(&verb, argc, argv, &options, &count, &error);
    if (status == OPTIONS_HELP) return 0;
    if (status < 0) return command_fail(verb.name, &error, options.json);
    if (options.definitions) return print_definitions(&options);
    if (count == 0) {
        error_set(&error, ERROR_USAGE, "an argument is missing");
        error_hint(&error, "usage: mokscope analyze %s", verb.usage);
        return command_fail(verb.name, &error, options.json);
    }
    return analyze(argv[1], &options, &error) == 0 ? 0 : command_fail(verb.name, &error, options.json);
}
