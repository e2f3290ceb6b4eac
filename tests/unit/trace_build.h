/* Small traces for tests: roles, edges, events and lanes are added by name, a tick is a nanosecond, and the file is written
 * by the project's own writer. Failures abort the test with a message. Header-only, because each test is one file. */
#ifndef TRACE_BUILD_H
#define TRACE_BUILD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../probes/host/trace_write.h"

enum { BUILD_ROWS = 64, BUILD_NAME = 64, BUILD_BASE_TICKS = 1000000 };

struct build_record {
    int64_t begin, end; /* ns after BUILD_BASE_TICKS */
    uint32_t argument;
    uint16_t event, small;
};

struct trace_build {
    char path[256];
    struct trace_writer *writer;
    struct mokscope_module module;
    struct mokscope_role_row roles[BUILD_ROWS];
    struct mokscope_edge_row edges[BUILD_ROWS];
    struct mokscope_event_row events[BUILD_ROWS];
    char names[4 * BUILD_ROWS][BUILD_NAME];
    uint32_t name_count;
    int32_t module_id;
    bool registered;
    int64_t launch;
    struct mokscope_lane_header header; /* of the open lane */
    bool lane_open;
    uint32_t lost;
    struct build_record *records;
    uint32_t record_count, record_capacity;
};

static inline void build_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

static inline void build_check(int status, const struct error *error) {
    if (status) build_fail("trace_build: %s", error->message);
}

static inline const char *build_name(struct trace_build *b, const char *name) {
    if (b->name_count == 4 * BUILD_ROWS || strlen(name) >= BUILD_NAME) build_fail("trace_build: too many names, or too long");
    return strcpy(b->names[b->name_count++], name);
}

/* A new trace at a temporary path. */
static inline void build_open(struct trace_build *b) {
    struct error error = {0};
    struct trace_run run = {"executor", NULL, NULL, "test", "host"};
    struct trace_device device = {0, "test device", 132, 1000000, 32, 0};
    memset(b, 0, sizeof *b);
    snprintf(b->path, sizeof b->path, "%s/mokscope-test-XXXXXX", getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    int descriptor = mkstemp(b->path);
    if (descriptor < 0) build_fail("trace_build: cannot make a temporary file");
    close(descriptor);
    unlink(b->path);
    build_check(trace_write_open(&b->writer, b->path, 0, &run, &error), &error);
    build_check(trace_write_device(b->writer, &device, &error), &error);
    b->module = (struct mokscope_module){sizeof b->module, MOKSCOPE_PROBE_VERSION, "test", b->roles, 0, b->events, 1, b->edges, 0,
                                         NULL, NULL, NULL};
    b->events[0].edge = -1;
}

static inline int32_t build_find_role(const struct trace_build *b, const char *name) {
    for (uint32_t i = 0; i < b->module.role_count; i++)
        if (strcmp(b->roles[i].name, name) == 0) return (int32_t)i;
    build_fail("trace_build: no role '%s'", name);
    return -1;
}

static inline uint16_t build_find_event(const struct trace_build *b, uint32_t kind, const char *name) {
    for (uint32_t i = 1; i < b->module.event_count; i++)
        if (b->events[i].kind == kind && strcmp(b->events[i].name, name) == 0) return (uint16_t)i;
    build_fail("trace_build: no event '%s' of kind %u", name, kind);
    return 0;
}

static inline uint32_t build_class(const char *name) {
    static const char *const names[] = {"compute", "communicate", "overhead", "container", "wait", "support"};
    for (uint32_t i = 0; i < 6; i++)
        if (strcmp(names[i], name) == 0) return i;
    build_fail("trace_build: no class '%s'", name);
    return 0;
}

static inline void build_role(struct trace_build *b, const char *name, const char *role_class) {
    b->roles[b->module.role_count++] = (struct mokscope_role_row){build_name(b, name), build_class(role_class), ""};
}

static inline void build_event(struct trace_build *b, const char *name, const char *event_class, const char *small) {
    b->events[b->module.event_count++] = (struct mokscope_event_row){build_name(b, name), MOKSCOPE_KIND_SPAN, build_class(event_class),
                                                                     2, -1, "", build_name(b, small), ""};
}

/* An edge with its wait and its signal event, both of the edge's name. scope: cta, gpu, sys. */
static inline void build_edge(struct trace_build *b, const char *name, const char *producer, const char *consumer,
                              const char *scope, bool slot_reuse) {
    const char *kept = build_name(b, name);
    int32_t edge = (int32_t)b->module.edge_count;
    b->edges[b->module.edge_count++] = (struct mokscope_edge_row){kept, build_find_role(b, producer), build_find_role(b, consumer), "tile",
                                                                  build_name(b, scope), slot_reuse, "", ""};
    b->events[b->module.event_count++] =
        (struct mokscope_event_row){kept, MOKSCOPE_KIND_WAIT, MOKSCOPE_CLASS_WAIT, 1, edge, "index", "awaited", ""};
    b->events[b->module.event_count++] =
        (struct mokscope_event_row){kept, MOKSCOPE_KIND_SIGNAL, MOKSCOPE_CLASS_OVERHEAD, 1, edge, "index", "value", ""};
}

static inline void build_launch(struct trace_build *b, uint64_t grid_id) {
    struct error error = {0};
    if (!b->registered) build_check(trace_write_module(b->writer, &b->module, &b->module_id, &error), &error);
    b->registered = true;
    build_check(trace_write_launch(b->writer, 0, b->module_id, grid_id, &b->launch, &error), &error);
}

/* Opens a lane; its records follow, then build_lane_end. */
static inline void build_lane(struct trace_build *b, const char *role, uint32_t rank, uint32_t cta, uint32_t warp, uint32_t sm,
                              int64_t begin, int64_t end) {
    b->header = (struct mokscope_lane_header){.state = MOKSCOPE_LANE_CLOSED,
                                              .clock_begin = (uint64_t)(BUILD_BASE_TICKS + begin),
                                              .globaltimer_begin = (uint64_t)(BUILD_BASE_TICKS + begin),
                                              .clock_end = (uint64_t)(BUILD_BASE_TICKS + end),
                                              .globaltimer_end = (uint64_t)(BUILD_BASE_TICKS + end),
                                              .cta = cta, .rank = rank, .warp = warp, .sm_begin = sm, .sm_end = sm,
                                              .role = (uint32_t)build_find_role(b, role)};
    b->record_count = 0;
    b->lost = 0;
    b->lane_open = true;
}

static inline void build_record(struct trace_build *b, uint16_t event, int64_t begin, int64_t end, uint16_t small, uint32_t argument) {
    if (b->record_count == b->record_capacity) {
        b->record_capacity = b->record_capacity * 2 + 64;
        b->records = realloc(b->records, b->record_capacity * sizeof *b->records);
        if (b->records == NULL) build_fail("trace_build: out of memory");
    }
    b->records[b->record_count++] = (struct build_record){begin, end, argument, event, small};
}

static inline void build_span(struct trace_build *b, const char *name, int64_t begin, int64_t end, uint16_t small, uint32_t argument) {
    build_record(b, build_find_event(b, MOKSCOPE_KIND_SPAN, name), begin, end, small, argument);
}

static inline void build_wait(struct trace_build *b, const char *edge, int64_t begin, int64_t end, uint32_t index) {
    build_record(b, build_find_event(b, MOKSCOPE_KIND_WAIT, edge), begin, end, 1, index);
}

static inline void build_signal(struct trace_build *b, const char *edge, int64_t at, uint32_t index) {
    build_record(b, build_find_event(b, MOKSCOPE_KIND_SIGNAL, edge), at, at, 1, index);
}

static inline int build_by_end(const void *a, const void *b) {
    const struct build_record *x = a, *y = b;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return x->begin > y->begin ? -1 : x->begin < y->begin;
}

/* Writes the lane: records in order of their ends into a ring. A lane that lost records must keep a power of two of them. */
static inline void build_lane_end(struct trace_build *b) {
    struct error error = {0};
    uint32_t capacity = 1;
    if (!b->lane_open) return;
    while (capacity < b->record_count) capacity *= 2;
    if (b->lost > 0 && capacity != b->record_count) build_fail("trace_build: a lossy lane keeps a power of two of records");
    struct mokscope_record *ring = calloc(capacity, sizeof *ring);
    if (ring == NULL) build_fail("trace_build: out of memory");
    if (b->record_count > 0) qsort(b->records, b->record_count, sizeof *b->records, build_by_end);
    for (uint32_t i = 0; i < b->record_count; i++) {
        const struct build_record *r = &b->records[i];
        ring[(b->lost + i) & (capacity - 1)] = (struct mokscope_record){(uint32_t)(BUILD_BASE_TICKS + r->begin), (uint32_t)(r->end - r->begin),
                                                                        r->event, r->small, r->argument};
    }
    b->header.count = b->record_count + b->lost;
    build_check(trace_write_lane(b->writer, b->launch, &b->header, ring, capacity, &error), &error);
    free(ring);
    b->lane_open = false;
}

static inline void build_task(struct trace_build *b, int32_t rank, int32_t id, const char *phase, int32_t expert, int32_t tile_row,
                              int32_t tile_column, int32_t rows, int32_t padding, int64_t flops) {
    struct error error = {0};
    struct mokscope_task_row row = {rank, id, phase, 0, expert, tile_row, tile_column, rows, padding, flops, 0};
    build_check(trace_write_tasks(b->writer, &row, 1, &error), &error);
}

/* Closes the writer; the file stays at b->path until build_remove. */
static inline void build_close(struct trace_build *b) {
    struct error error = {0};
    build_lane_end(b);
    build_check(trace_write_close(b->writer, "complete", 0, &error), &error);
    free(b->records);
    b->writer = NULL;
    b->records = NULL;
}

static inline void build_remove(struct trace_build *b) { unlink(b->path); }

#endif
