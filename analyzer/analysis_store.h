/* Stores an analysis in the trace it came from (schemas/derived.sql), in one transaction. */
#ifndef ANALYSIS_STORE_H
#define ANALYSIS_STORE_H

#include "analysis.h"

enum { ANALYSIS_DERIVED_VERSION = 1 };

/* Drops and makes the derived tables anew. file: the open trace; it is opened a second time for writing.
 * Errors  failure: compressed or read-only file, disk full, locked, still recording. The trace is then as it was. */
int analysis_store(const struct trace_file *file, const struct analysis *analysis, struct error *error);

#endif
