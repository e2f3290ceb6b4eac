/* A trace as Chrome trace JSON, which Perfetto and chrome://tracing open. Processes are ranks, threads are lanes by SM and
 * role; kernels and copies are threads of their GPU, NVTX ranges of the host. Times are microseconds with three decimals from
 * the first event on, so that a double holds them exactly. */
#ifndef EXPORT_CHROME_H
#define EXPORT_CHROME_H

#include <stdio.h>

#include "trace_read.h"

struct export_choice {
    int64_t launch_id; /* only lanes of this launch; -1: all */
    int32_t rank;      /* only this rank; -1: all */
    double from_us, to_us; /* only events that touch this window after the first event */
};

/* Counts of what was written. */
struct export_summary {
    int64_t event_count, thread_count;
};

/* Writes the document to stream as it goes; errors of the stream are the caller's to ask for.
 * Errors: out of memory, no such rank or launch. O(records). */
int export_chrome_write(FILE *stream, const struct trace *trace, const struct export_choice *choice, struct export_summary *summary,
                        struct error *error);

#endif
