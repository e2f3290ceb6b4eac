/* The HTML report of an analysis: one self-contained file, no network, works without script for reading and printing; the
 * script zooms the timeline. Deterministic: the same trace gives the same bytes. */
#ifndef REPORT_HTML_H
#define REPORT_HTML_H

#include <stdio.h>

#include "analysis.h"

/* What the page says about the file it was made from. */
struct report_source {
    const char *name; /* of the trace, without folders */
    int64_t byte_count;
    bool compressed;
};

/* First bytes of every report: by them a report is known (report_html_is_report). */
extern const char report_html_mark[];

bool report_html_is_report(const char *path);

/* Writes the page. Errors: out of memory, a broken invariant; errors of the stream are the caller's to ask for. */
int report_html_write(FILE *stream, struct analysis *analysis, const struct report_source *source, struct error *error);

#endif
