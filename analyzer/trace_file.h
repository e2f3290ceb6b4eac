/* Opens a trace for reading and refuses what is none: the checks before the first row. Called by every verb that reads; the
 * rows are read by trace_read. A plain file is opened read-only; a gzip file (by its first bytes, not its name) is inflated
 * into memory. The struct owns the database handle and the path; trace_file_close accepts a struct that was never opened. */
#ifndef TRACE_FILE_H
#define TRACE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "../probes/host/error.h"

struct sqlite3;

enum { TRACE_FILE_SCHEMA_VERSION = 1 }; /* newest schema this build reads */

struct trace_file {
    struct sqlite3 *database;
    char *path;
    bool compressed;   /* gzip: in memory, results cannot be stored in it */
    int64_t byte_count; /* of the file as it lies on disk */
};

/* Errors  usage: no such file, a folder, empty, not a trace, written by a newer mokscope, truncated or damaged gzip;
 *         failure: not readable, out of memory, locked. */
int trace_file_open(struct trace_file *file, const char *path, struct error *error);
void trace_file_close(struct trace_file *file);

/* Describes the database's last error while doing `what` to the trace; returns its code. */
int trace_file_fail(const struct trace_file *file, const char *what, struct error *error);

/* Is the file at path a mokscope trace by its header (plain or compressed)? For refusing to overwrite one. */
bool trace_file_is_trace(const char *path);

#endif
