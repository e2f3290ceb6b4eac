/* An analysis, a trace's run and the definitions as JSON: the interface for scripts. Fields are documented in the man page. */
#ifndef ANALYSIS_JSON_H
#define ANALYSIS_JSON_H

#include "analysis.h"
#include "json_out.h"

/* {"run": {...}, "notes": [...], "figures": [...], "partition": [...], "waits": [...]} */
void analysis_json_write(struct json_out *json, struct analysis *analysis);

/* "run": state, producer, versions, shape, knobs, devices, ranks; inside an open map. */
void analysis_json_run(struct json_out *json, const struct trace *trace);

/* {"definitions": [...]} */
void analysis_json_definitions(struct json_out *json);

#endif
