/* mokscope export: writes a trace as Chrome trace JSON, for Perfetto. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "command.h"
#include "export_chrome.h"
#include "options.h"
#include "output_file.h"
#include "text.h"

struct export_options {
    const char *output;
    bool force;
    int64_t rank, launch;
    double from_us, to_us;
};

static const struct option_row rows[] = {
    {"output", 'o', OPTION_STRING, offsetof(struct export_options, output), "FILE", "the trace's name with .json", NULL,
     "where to write; a name that ends in .gz is compressed; - is stdout", 0, 0},
    {"rank", 0, OPTION_INTEGER, offsetof(struct export_options, rank), "R", "all", NULL, "only this rank", 0, 1 << 20},
    {"launch", 0, OPTION_INTEGER, offsetof(struct export_options, launch), "N", "all", NULL, "only the lanes of launch N", 0, INT64_MAX},
    {"from", 0, OPTION_REAL, offsetof(struct export_options, from_us), "T", "0", "us", "only events that end after T, from the first event on", 0, 0},
    {"to", 0, OPTION_REAL, offsetof(struct export_options, to_us), "T", "the end", "us", "only events that begin before T", 0, 0},
    {"force", 0, OPTION_FLAG, offsetof(struct export_options, force), NULL, NULL, NULL, "replace an existing file", 0, 0},
};

static const struct option_verb verb = {
    .name = "export",
    .usage = "[options] TRACE",
    .summary = "Writes a trace as Chrome trace JSON, which https://ui.perfetto.dev opens. A process is a rank, a thread a lane\n"
               "(SM and role); kernels, copies and NVTX ranges stand beside them. About 150 bytes an event: choose a rank, a\n"
               "launch or a window of a large trace.",
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .positional_minimum = 1,
    .positional_maximum = 1,
    .examples = {"mokscope export trace.db -o trace.json.gz", "mokscope export --rank 0 --from 100 --to 400 trace.db -o -"},
};

enum { EVENTS_MANY = 4000000 }; /* about 600 MB of JSON: more than a browser's tab likes */

/* The stream that compresses into another. */
static ssize_t write_compressed(void *cookie, const char *bytes, size_t count) {
    return count == 0 || gzwrite(cookie, bytes, (unsigned)count) == (int)count ? (ssize_t)count : 0;
}

static int close_compressed(void *cookie) { return gzclose(cookie) == Z_OK ? 0 : -1; }

static FILE *open_compressed(FILE *below) {
    static const cookie_io_functions_t functions = {.write = write_compressed, .close = close_compressed};
    int descriptor = dup(fileno(below));
    gzFile compressed = descriptor >= 0 ? gzdopen(descriptor, "wb6") : NULL;
    if (compressed == NULL) {
        if (descriptor >= 0) close(descriptor);
        return NULL;
    }
    FILE *stream = fopencookie(compressed, "w", functions);
    if (stream == NULL) gzclose(compressed);
    return stream;
}

static bool ends_in(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static int write_file(const char *path, const struct trace *trace, const struct export_options *options, struct error *error) {
    const struct export_choice choice = {options->launch, (int32_t)options->rank, options->from_us, options->to_us};
    struct export_summary summary = {0};
    struct output_file output = {0};
    int status = output_file_open(&output, path, NULL, options->force, error);
    if (status) return status;
    bool compress = ends_in(path, ".gz");
    FILE *stream = compress ? open_compressed(output.stream) : output.stream;
    if (stream == NULL) {
        status = error_set(error, ERROR_FAILURE, "out of memory");
    } else {
        status = export_chrome_write(stream, trace, &choice, &summary, error);
        bool failed = ferror(stream) != 0;
        if (compress && fclose(stream) != 0) failed = true;
        if (!status && failed) {
            status = error_set(error, ERROR_FAILURE, "cannot write '%s': the disk is full or the reader gone", path);
            error_hint(error, "free space, or choose another place with -o");
        }
    }
    if (status) {
        output_file_discard(&output);
        return status;
    }
    status = output_file_commit(&output, error);
    if (status) return status;
    if (summary.event_count > EVENTS_MANY)
        command_warn("export", "%s events are more than a browser opens well; choose --rank, --launch or --from and --to",
                     text_count(summary.event_count).bytes);
    if (strcmp(path, "-") != 0)
        printf("%s: %s events in %s threads; open it at https://ui.perfetto.dev\n", path, text_count(summary.event_count).bytes,
               text_count(summary.thread_count).bytes);
    return 0;
}

/* The trace's name without .gz and .db, with .json. */
static char *default_output(const char *trace) {
    size_t length = strlen(trace);
    char *name = malloc(length + sizeof ".json");
    if (name == NULL) return NULL;
    strcpy(name, trace);
    if (ends_in(name, ".gz")) name[length -= 3] = '\0';
    if (ends_in(name, ".db")) name[length -= 3] = '\0';
    strcpy(name + length, ".json");
    return name;
}

static int export_trace(const char *path, const struct export_options *options, struct error *error) {
    struct trace_file file = {0};
    struct trace trace = {0};
    char *named = options->output == NULL ? default_output(path) : NULL;
    int status = 0;
    if (options->output == NULL && named == NULL) status = error_set(error, ERROR_FAILURE, "out of memory");
    if (!status) status = trace_file_open(&file, path, error);
    if (!status) status = trace_read(&file, &trace, error);
    if (!status && trace.run.unfinished)
        command_warn("export", "the recording of '%s' did not end: read as cut, with what had arrived", path);
    if (!status) status = write_file(named != NULL ? named : options->output, &trace, options, error);
    free(named);
    trace_release(&trace);
    trace_file_close(&file);
    return status;
}

int cmd_export(int argc, char **argv) {
    struct export_options options = {.rank = -1, .launch = -1, .from_us = 0, .to_us = INFINITY};
    struct error error = {0};
    int count = 0, status = options_parse(&verb, argc, argv, &options, &count, &error);
    if (status == OPTIONS_HELP) return 0;
    if (status == 0 && !(options.from_us >= 0 && options.to_us > options.from_us)) {
        error_set(&error, ERROR_USAGE, "the window from %g us to %g us is empty", options.from_us, options.to_us);
        status = error_hint(&error, "give --from and --to in microseconds after the first event, --from first");
    }
    if (status == 0) status = export_trace(argv[1], &options, &error);
    return status == 0 ? 0 : command_fail(verb.name, &error, false);
}
