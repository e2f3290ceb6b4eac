/* See analysis_json.h. */
#include "analysis_json.h"

#include <math.h>
#include <string.h>

static void write_devices(struct json_out *json, const struct trace *trace) {
    json_out_array(json, "devices");
    for (int32_t i = 0; i < trace->device_count; i++) {
        const struct recorded_device *device = &trace->devices[i];
        json_out_map(json, NULL);
        json_out_integer(json, "device_id", device->device_id);
        json_out_text(json, "name", device->name);
        json_out_integer(json, "sm_count", device->sm_count);
        if (device->sm_clock_khz > 0)
            json_out_integer(json, "sm_clock_khz", device->sm_clock_khz);
        else
            json_out_null(json, "sm_clock_khz");
        json_out_map_end(json);
    }
    json_out_array_end(json);
}

/* Whole numbers stay numbers. */
static void write_attribute(struct json_out *json, const struct trace_attribute *attribute) {
    size_t digits = strspn(attribute->value, "0123456789");
    if (digits > 0 && digits < 16 && attribute->value[digits] == '\0' && (digits == 1 || attribute->value[0] != '0')) {
        int64_t value = 0;
        for (const char *c = attribute->value; *c != '\0'; c++) value = value * 10 + (*c - '0');
        json_out_integer(json, attribute->name, value);
    } else {
        json_out_text(json, attribute->name, attribute->value);
    }
}

void analysis_json_run(struct json_out *json, const struct trace *trace) {
    static const char *const kinds[] = {"shape", "knob", "routing", "version", "clock", "note"};
    const struct recorded_run *run = &trace->run;
    json_out_map(json, "run");
    json_out_text(json, "state", run->state);
    json_out_text(json, "producer", run->producer);
    json_out_integer(json, "begin_utc_ns", run->begin_utc_ns);
    if (run->end_utc_ns > 0)
        json_out_integer(json, "end_utc_ns", run->end_utc_ns);
    else
        json_out_null(json, "end_utc_ns");
    json_out_text(json, "tool_version", run->tool_version);
    json_out_text(json, "git_revision", run->git_revision);
    json_out_text(json, "command", run->command);
    json_out_text(json, "host", run->host);
    if (run->exit_status >= 0)
        json_out_integer(json, "exit_status", run->exit_status);
    else
        json_out_null(json, "exit_status");
    write_devices(json, trace);
    json_out_integer(json, "ranks", trace->rank_count);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        json_out_map(json, kinds[k]);
        for (int32_t i = 0; i < trace->attribute_count; i++)
            if (strcmp(trace->attributes[i].kind, kinds[k]) == 0) write_attribute(json, &trace->attributes[i]);
        json_out_map_end(json);
    }
    json_out_map_end(json);
}

static void write_figure(struct json_out *json, const struct figure *figure) {
    json_out_map(json, NULL);
    json_out_text(json, "id", figure->definition->id);
    json_out_text(json, "scope", figure->scope);
    json_out_real(json, "value", figure->value);
    json_out_text(json, "unit", figure->definition->unit);
    json_out_real(json, "numerator", figure->numerator);
    json_out_real(json, "denominator", figure->denominator);
    json_out_integer(json, "window_ns", figure->window_ns);
    json_out_integer(json, "iterations", figure->iterations);
    json_out_real(json, "p5", figure->p5);
    json_out_real(json, "p95", figure->p95);
    json_out_real(json, "low", figure->low);
    json_out_real(json, "high", figure->high);
    json_out_integer(json, "clock_error_ns", figure->clock_error_ns);
    json_out_map_end(json);
}

static void write_partition_row(struct json_out *json, const struct trace *trace, enum partition_by by,
                                const struct partition_row *row) {
    json_out_map(json, NULL);
    json_out_text(json, "by", partition_by_name(by));
    if (row->rank >= 0) json_out_integer(json, "rank", row->rank);
    if (row->role >= 0) json_out_text(json, "role", trace->roles[row->role].name);
    if (row->device >= 0) json_out_integer(json, "device", trace->devices[row->device].device_id);
    if (row->sm >= 0) json_out_integer(json, "sm", row->sm);
    json_out_integer(json, "lanes", row->lane_count);
    json_out_integer(json, "lane_ns", row->lane_ns);
    for (int state = 0; state < STATE_COUNT; state++) {
        char key[32];
        snprintf(key, sizeof key, "%s_ns", lane_state_name((enum lane_state)state));
        json_out_integer(json, key, row->ns[state]);
    }
    json_out_integer(json, "stalled_ns", row->stalled_ns);
    json_out_map_end(json);
}

static void write_wait(struct json_out *json, const struct analysis *analysis, const struct wait_row *row) {
    const struct trace *trace = analysis->trace;
    json_out_map(json, NULL);
    json_out_integer(json, "rank", row->rank);
    json_out_text(json, "role", trace->roles[row->role].name);
    json_out_text(json, "edge", row->edge >= 0 ? trace->edges[row->edge].name : NULL);
    json_out_text(json, "owner", row->owner >= 0 ? trace->edges[row->owner].name : NULL);
    json_out_integer(json, "total_ns", row->total_ns);
    json_out_integer(json, "count", row->count);
    json_out_integer(json, "max_ns", row->max_ns);
    json_out_flag(json, "slot_reuse", row->owner >= 0 && trace->edges[row->owner].slot_reuse);
    json_out_flag(json, "communication", row->owner >= 0 && analysis->carries[row->owner]);
    json_out_map_end(json);
}

void analysis_json_write(struct json_out *json, struct analysis *analysis) {
    const char *sentences[VERDICT_COUNT];
    json_out_map(json, NULL);
    analysis_json_run(json, analysis->trace);
    json_out_array(json, "verdict");
    int count = analysis_verdict(analysis, sentences);
    for (int i = 0; i < count; i++) json_out_text(json, NULL, sentences[i]);
    json_out_array_end(json);
    json_out_array(json, "notes");
    for (int32_t i = 0; i < analysis->note_count; i++) json_out_text(json, NULL, analysis->notes[i]);
    json_out_array_end(json);
    json_out_array(json, "figures");
    for (int32_t i = 0; i < analysis->figures.count; i++) write_figure(json, &analysis->figures.rows[i]);
    json_out_array_end(json);
    json_out_array(json, "partition");
    for (int by = 0; by < PARTITION_BY_COUNT; by++)
        for (int32_t i = 0; i < analysis->partition.groups[by].count; i++)
            write_partition_row(json, analysis->trace, (enum partition_by)by, &analysis->partition.groups[by].rows[i]);
    json_out_array_end(json);
    json_out_array(json, "waits");
    for (int32_t i = 0; i < analysis->waits.count; i++) write_wait(json, analysis, &analysis->waits.rows[i]);
    json_out_array_end(json);
    json_out_map_end(json);
}

void analysis_json_definitions(struct json_out *json) {
    static const char *const kinds[] = {"ratio of sums", "1 - ratio of sums", "median"};
    int32_t count;
    const struct definition *rows = definitions(&count);
    json_out_map(json, NULL);
    json_out_array(json, "definitions");
    for (int32_t i = 0; i < count; i++) {
        json_out_map(json, NULL);
        json_out_text(json, "id", rows[i].id);
        json_out_text(json, "unit", rows[i].unit);
        json_out_text(json, "over_iterations", kinds[rows[i].kind]);
        json_out_text(json, "title", rows[i].title);
        json_out_text(json, "formula", rows[i].formula);
        json_out_text(json, "text", rows[i].text);
        json_out_text(json, "source", rows[i].source);
        json_out_map_end(json);
    }
    json_out_array_end(json);
    json_out_map_end(json);
}
