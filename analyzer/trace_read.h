/* A trace as sorted arrays: all SQL that reads a trace stands in trace_read.c. Classes of events and roles come from the
 * trace's own tables, never from this build's. Times are nanoseconds of trace time, made from ticks by the same formula as
 * the views (schemas/views.sql).
 *
 * The struct owns its arrays; strings live in its arena; trace_release accepts a zeroed struct. Ids of the file become
 * positions of arrays here; -1 means none. */
#ifndef TRACE_READ_H
#define TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "trace_file.h"

enum trace_role_class { TRACE_ROLE_COMPUTE, TRACE_ROLE_COMMUNICATE, TRACE_ROLE_SUPPORT };
enum trace_event_class {
    TRACE_EVENT_COMPUTE,
    TRACE_EVENT_COMMUNICATE,
    TRACE_EVENT_OVERHEAD,
    TRACE_EVENT_CONTAINER,
    TRACE_EVENT_WAIT
};
enum trace_kind { TRACE_SPAN, TRACE_WAIT, TRACE_SIGNAL, TRACE_KIND_COUNT };
enum trace_scope { TRACE_SCOPE_CTA, TRACE_SCOPE_GPU, TRACE_SCOPE_SYS };

struct recorded_run {
    const char *state; /* complete or cut; 'recording' in the file is read as cut */
    const char *producer, *tool_version, *git_revision, *command, *host;
    bool unfinished;  /* the file says 'recording' */
    int64_t begin_utc_ns, end_utc_ns; /* end 0: unknown */
    int32_t exit_status;              /* -1: unknown */
};

struct trace_attribute {
    const char *name, *kind, *value, *unit;
};

struct recorded_device {
    int64_t device_id;
    const char *name;
    int64_t sm_count, sm_clock_khz, globaltimer_step_ns, memory_bytes; /* 0: unknown */
    bool clock_known; /* a line to host time was fitted; the fields below hold */
    double drift;     /* ns a ns */
    int64_t offset_ns, residual_ns, width_ns, readings;
};

struct trace_rank {
    int32_t rank, device; /* device: position */
};

struct trace_module {
    int64_t module_id;
    const char *name;
};

struct trace_role {
    int64_t role_id;
    int32_t module;
    enum trace_role_class role_class;
    const char *name, *description;
};

struct trace_edge {
    int64_t edge_id;
    int32_t module, producer, consumer; /* roles by position */
    enum trace_scope scope;
    bool slot_reuse;
    const char *name, *granularity, *target, *description;
};

struct trace_event {
    int64_t event_id;
    int32_t module, edge, level;
    enum trace_kind kind;
    enum trace_event_class event_class;
    int32_t stall_cycles; /* small counts stalls inside the span in units of this many cycles; 0: it does not */
    const char *name, *argument, *small, *description;
};

struct trace_launch {
    int64_t launch_id;
    int32_t device, module, kernel; /* positions; kernel -1: no CUPTI record matched */
    int64_t grid_id;
};

struct recorded_kernel {
    int64_t kernel_id, grid_id, graph_id, stream_id;
    int32_t device;
    const char *name;
    int64_t begin_ns, end_ns;
    int64_t cta_count, thread_count, registers, shared_bytes;
};

/* One warp's role in one launch. Records of kind k: trace.records[k][first[k]] .. + count[k], ordered by begin, longer first. */
struct trace_lane {
    int64_t lane_id;
    int32_t launch, rank, role, cta, warp, sm, cluster;
    bool closed;
    bool void_clock; /* the CTA moved to another SM: its ticks mean nothing */
    int64_t begin_ns, end_ns;
    double ns_per_tick;
    int64_t residual_ns;
    int64_t record_count, lost_count;
    size_t first[TRACE_KIND_COUNT], count[TRACE_KIND_COUNT];
};

/* A span, a wait (argument: counter index, small: awaited value) or a signal (begin = end; small: value). */
struct trace_record {
    int64_t begin_ns, end_ns;
    uint32_t argument;
    uint16_t small; /* saturated */
    uint16_t event; /* position; TRACE_EVENT_UNKNOWN: the trace's table has no such event */
};

enum { TRACE_EVENT_UNKNOWN = 0xffff };

#define TRACE_TIME_NONE INT64_MIN /* no such moment */

struct trace_task {
    int32_t rank, task_id, minibatch, expert, tile_row, tile_column;
    const char *phase;
    int64_t row_count, padding_rows, flops, bytes;
};

struct recorded_copy {
    const char *kind;
    int32_t device;
    int64_t stream_id, bytes, begin_ns, end_ns;
};

struct recorded_marker {
    const char *domain, *name;
    int64_t thread_id, begin_ns, end_ns;
};

struct trace_loss {
    const char *source, *kind, *detail;
    int64_t count;
};

struct trace_hang {
    int32_t rank, cta, warp, edge, task_id;
    int64_t counter_index, expected, observed, since_ns;
};

struct trace {
    struct arena arena;
    struct recorded_run run;
    struct trace_attribute *attributes;
    struct recorded_device *devices;
    struct trace_rank *ranks;
    struct trace_module *modules;
    struct trace_role *roles;
    struct trace_edge *edges;
    struct trace_event *events;
    struct recorded_kernel *kernels;
    struct trace_launch *launches;
    struct trace_lane *lanes; /* ordered by launch, rank, role, cta, warp */
    struct trace_task *tasks; /* ordered by rank, task id */
    struct recorded_copy *copies;
    struct recorded_marker *markers;
    struct trace_loss *losses;
    struct trace_hang *hangs;
    int32_t attribute_count, device_count, rank_count, module_count, role_count, edge_count, event_count, kernel_count,
        launch_count, lane_count, task_count, copy_count, marker_count, loss_count, hang_count;
    struct trace_record *records[TRACE_KIND_COUNT]; /* NULL until trace_read_records */
    size_t record_count[TRACE_KIND_COUNT];          /* rows the lanes claim, until then */
    size_t orphan_count;  /* rows of no lane, left out */
    size_t reversed_count; /* rows with a negative length, taken as zero */
    size_t unknown_event_count; /* rows whose event the trace does not describe */
};

/* Everything but records and tasks: what `info` needs, fast for any size of file. Errors: damaged file, a missing table, an
 * id that points nowhere, more than 65,534 events. */
int trace_read_head(const struct trace_file *file, struct trace *trace, struct error *error);

/* Spans, waits, signals and tasks, after trace_read_head. O(rows), plus a sort of lanes that are not in order. */
int trace_read_records(const struct trace_file *file, struct trace *trace, struct error *error);

void trace_release(struct trace *trace);

/* Both steps; on failure the trace is released. */
int trace_read(const struct trace_file *file, struct trace *trace, struct error *error);

/* Value of an attribute, or NULL. */
const char *trace_attribute_find(const struct trace *trace, const char *name);

/* Device of a launch's rank: position, or -1. */
int32_t trace_rank_device(const struct trace *trace, int32_t rank);

/* Cycles of one unit if the text of event.small says that the field counts stalls inside the span ("stall in the span,
 * 64-cycle units"), else 0. The text is the format: a foreign kernel says the same in its table. */
int32_t trace_stall_cycles(const char *small);

#endif
