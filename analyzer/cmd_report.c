/* mokscope report: writes a self-contained HTML report of a trace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis.h"
#include "command.h"
#include "options.h"
#include "output_file.h"
#include "report_html.h"

struct report_options {
    const char *output;
    bool force;
    int64_t rank, launch;
};

static const struct option_row rows[] = {
    {"output", 'o', OPTION_STRING, offsetof(struct report_options, output), "FILE", "the trace's name with .html", NULL,
     "where to write; - is stdout", 0, 0},
    {"rank", 0, OPTION_INTEGER, offsetof(struct report_options, rank), "R", "all", NULL, "only this rank's lanes", 0, 1 << 20},
    {"launch", 0, OPTION_INTEGER, offsetof(struct report_options, launch), "N", "all", NULL,
     "only the iteration of launch N of table launch", 0, INT64_MAX},
    {"force", 0, OPTION_FLAG, offsetof(struct report_options, force), NULL, NULL, NULL,
     "replace an existing file that is not a report (reports are always replaced)", 0, 0},
};

static const struct option_verb verb = {
    .name = "report",
    .usage = "[options] TRACE",
    .summary = "Writes one self-contained HTML file: what the figures say, a timeline of every rank and role to zoom into, lane time\n"
               "by state, waits by edge, all figures with their definitions, the run's description. It opens from disk, without\n"
               "network. The trace is not changed.",
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .positional_minimum = 1,
    .positional_maximum = 1,
    .examples = {"mokscope report trace.db", "mokscope report trace.db -o layer.html"},
};

static bool ends_in(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The trace's name without .gz and .db, with .html. */
static char *default_output(const char *trace) {
    size_t length = strlen(trace);
    char *name = malloc(length + sizeof ".html");
    if (name == NULL) return NULL;
    strcpy(name, trace);
    if (ends_in(name, ".gz")) name[length -= 3] = '\0';
    if (ends_in(name, ".db")) name[length -= 3] = '\0';
    strcpy(name + length, ".html");
    return name;
}

static int write_file(const char *path, struct analysis *analysis, const struct report_source *source, bool force, struct error *error) {
    struct output_file output = {0};
    int status = output_file_open(&output, path, report_html_is_report, force, error);
    if (status) return status;
    status = report_html_write(output.stream, analysis, source, error);
    if (status) {
        output_file_discard(&output);
        return status;
    }
    status = output_file_commit(&output, error);
    if (!status && strcmp(path, "-") != 0) printf("%s\n", path);
    return status;
}

static int report(const char *path, const struct report_options *options, struct error *error) {
    struct trace_file file = {0};
    struct trace trace = {0};
    struct analysis analysis = {0};
    const struct iteration_choice choice = {options->launch, (int32_t)options->rank};
    char *named = options->output == NULL ? default_output(path) : NULL;
    const char *slash = strrchr(path, '/');
    int status = 0;
    if (options->output == NULL && named == NULL) status = error_set(error, ERROR_FAILURE, "out of memory");
    if (!status) status = trace_file_open(&file, path, error);
    if (!status) status = trace_read(&file, &trace, error);
    if (!status && trace.run.unfinished)
        command_warn("report", "the recording of '%s' did not end: read as cut, with what had arrived", path);
    if (!status) status = analysis_run(&trace, &choice, &analysis, error);
    const struct report_source source = {slash != NULL ? slash + 1 : path, file.byte_count, file.compressed};
    if (!status) status = write_file(named != NULL ? named : options->output, &analysis, &source, options->force, error);
    free(named);
    analysis_release(&analysis);
    trace_release(&trace);
    trace_file_close(&file);
    return status;
}

int cmd_report(int argc, char **argv) {
    struct report_options options = {.rank = -1, .launch = -1};
    struct error error = {0};
    int count = 0, status = options_parse(&verb, argc, argv, &options, &count, &error);
    if (status == OPTIONS_HELP) return 0;
    if (status == 0) status = report(argv[1], &options, &error);
    return status == 0 ? 0 : command_fail(verb.name, &error, false);
}
