/* See trace_read.h: tables of the run, its events, launches and lanes. Records are read by trace_records.c. */
#include "trace_read.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace_read_internal.h"

/* --- statements, one a table ------------------------------------------------------------------------------------------- */

static const char sql_run[] = "SELECT state, producer, begin_utc_ns, ifnull(end_utc_ns, 0), tool_version, git_revision,"
                              " command, host, ifnull(exit_status, -1) FROM run";
static const char sql_attribute[] = "SELECT name, kind, value, unit FROM attribute ORDER BY kind, name";
static const char sql_device[] = "SELECT device_id, name, sm_count, ifnull(sm_clock_khz, 0), ifnull(globaltimer_step_ns, 0),"
                                 " ifnull(memory_bytes, 0), readings IS NOT NULL, drift, offset_ns, residual_ns, width_ns,"
                                 " readings FROM device LEFT JOIN device_clock USING (device_id) ORDER BY device_id";
static const char sql_rank[] = "SELECT rank, device_id FROM rank ORDER BY rank";
static const char sql_module[] = "SELECT module_id, name FROM module ORDER BY module_id";
static const char sql_role[] = "SELECT role_id, module_id, name, class, description FROM role ORDER BY role_id";
static const char sql_edge[] = "SELECT edge_id, module_id, name, producer_role_id, consumer_role_id, scope, slot_reuse,"
                               " granularity, target, description FROM edge ORDER BY edge_id";
static const char sql_event[] = "SELECT event_id, module_id, name, kind, class, level, edge_id, argument, small, description"
                                " FROM event ORDER BY event_id";
static const char sql_kernel[] = "SELECT kernel_id, device_id, grid_id, graph_id, stream_id, name, begin_ns, end_ns,"
                                 " grid_x * grid_y * grid_z, block_x * block_y * block_z, registers,"
                                 " static_shared_bytes + dynamic_shared_bytes FROM kernel ORDER BY kernel_id";
static const char sql_launch[] = "SELECT launch_id, device_id, module_id, grid_id, kernel_id FROM launch ORDER BY launch_id";
static const char sql_lane[] = "SELECT lane.lane_id, launch_id, rank, role_id, cta, warp, sm, sm_end, cluster, closed,"
                               " begin_ticks, end_ticks, record_count, lost_count, span_count, wait_count, signal_count,"
                               " base_ticks, base_ns, ns_per_tick, residual_ns"
                               " FROM lane LEFT JOIN clock_fit ON clock_fit.lane_id = lane.lane_id ORDER BY lane.lane_id";
static const char sql_copy[] = "SELECT kind, device_id, stream_id, bytes, begin_ns, end_ns FROM copy ORDER BY copy_id";
static const char sql_marker[] = "SELECT domain, name, thread_id, begin_ns, end_ns FROM marker ORDER BY marker_id";
static const char sql_loss[] = "SELECT source, kind, sum(count), detail FROM loss GROUP BY source, kind, detail"
                               " ORDER BY sum(count) DESC";
static const char sql_hang[] = "SELECT rank, cta, warp, edge_id, counter_index, expected, observed, task_id, since_ns"
                               " FROM hang ORDER BY hang_id";

/* --- reading rows ---------------------------------------------------------------------------------------------------- */

/* A statement being read, with the first error in it. */
struct reader {
    const struct trace_file *file;
    struct trace *trace;
    sqlite3_stmt *statement;
    const char *table;
    struct error *error;
    int status;
};

static int64_t integer(const struct reader *r, int column) { return sqlite3_column_int64(r->statement, column); }

/* Integers that the program keeps in 32 bits; values beyond are the file's fault. */
static int32_t small_integer(struct reader *r, int column) {
    int64_t value = integer(r, column);
    if (value >= INT32_MIN && value <= INT32_MAX) return (int32_t)value;
    if (!r->status)
        r->status = error_set(r->error, ERROR_USAGE, "trace '%s' is damaged: table '%s' has the value %lld in column '%s'",
                              r->file->path, r->table, (long long)value, sqlite3_column_name(r->statement, column));
    return 0;
}

static const char *text(struct reader *r, int column) {
    const char *copy = arena_copy(&r->trace->arena, (const char *)sqlite3_column_text(r->statement, column));
    if (copy == NULL && !r->status) r->status = error_set(r->error, ERROR_FAILURE, "out of memory");
    return copy != NULL ? copy : "";
}

static int32_t word(struct reader *r, int column, const char *const *words, int32_t count) {
    const char *value = (const char *)sqlite3_column_text(r->statement, column);
    for (int32_t i = 0; i < count; i++)
        if (value != NULL && strcmp(value, words[i]) == 0) return i;
    if (!r->status)
        r->status = error_set(r->error, ERROR_USAGE, "trace '%s' is damaged: table '%s' has '%s' in column '%s'", r->file->path,
                              r->table, value != NULL ? value : "NULL", sqlite3_column_name(r->statement, column));
    return 0;
}

/* Ids are read in ascending order, so positions are found by halving. rows [count] of struct size `size`, id first. */
static int32_t find_id(const void *rows, int32_t count, size_t size, int64_t id) {
    int32_t low = 0, high = count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int64_t here;
        memcpy(&here, (const char *)rows + (size_t)middle * size, sizeof here);
        if (here == id) return middle;
        if (here < id)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* Position of the row that a column names; NULL is -1 if the column may be NULL. */
static int32_t reference(struct reader *r, int column, const void *rows, int32_t count, size_t size, bool may_be_null) {
    if (may_be_null && sqlite3_column_type(r->statement, column) == SQLITE_NULL) return -1;
    int32_t position = find_id(rows, count, size, integer(r, column));
    if (position < 0 && !r->status)
        r->status = error_set(r->error, ERROR_USAGE, "trace '%s' is damaged: table '%s' names %s %lld, which is not there",
                              r->file->path, r->table, sqlite3_column_name(r->statement, column), (long long)integer(r, column));
    return position;
}

#define REFERENCE(r, column, rows, count) reference(r, column, rows, count, sizeof *(rows), false)

typedef void read_row(struct reader *r, void *row);

/* Reads a table into an array of rows that grows. */
static int read_table(const struct trace_file *file, struct trace *trace, const char *table, const char *sql, read_row *function,
                      size_t size, void *rows_pointer, int32_t *count, struct error *error) {
    struct reader r = {file, trace, NULL, table, error, 0};
    char *rows = NULL;
    int32_t used = 0, capacity = 0;
    int code = sqlite3_prepare_v2(file->database, sql, -1, &r.statement, NULL);
    while (code == SQLITE_OK && !r.status && (code = sqlite3_step(r.statement)) == SQLITE_ROW) {
        code = SQLITE_OK;
        if (used == capacity) {
            if (capacity > INT32_MAX / 4) {
                r.status = error_set(error, ERROR_FAILURE, "trace '%s' has too many rows in table '%s'", file->path, table);
                break;
            }
            capacity = capacity * 2 + 16;
            char *grown = realloc(rows, (size_t)capacity * size);
            if (grown == NULL) {
                r.status = error_set(error, ERROR_FAILURE, "out of memory for table '%s' of trace '%s'", table, file->path);
                break;
            }
            rows = grown;
        }
        memset(rows + (size_t)used * size, 0, size);
        function(&r, rows + (size_t)used * size);
        used++;
    }
    if (!r.status && code != SQLITE_DONE) r.status = trace_file_fail(file, "read", error);
    sqlite3_finalize(r.statement);
    memcpy(rows_pointer, &rows, sizeof rows);
    *count = r.status ? 0 : used;
    return r.status;
}

/* --- one function a table -------------------------------------------------------------------------------------------- */

static void read_run(struct reader *r, void *pointer) {
    static const char *const states[] = {"complete", "cut", "recording"};
    struct recorded_run *run = pointer;
    int32_t state = word(r, 0, states, 3);
    run->unfinished = state == 2;
    run->state = states[state == 2 ? 1 : state];
    run->producer = text(r, 1);
    run->begin_utc_ns = integer(r, 2);
    run->end_utc_ns = integer(r, 3);
    run->tool_version = text(r, 4);
    run->git_revision = text(r, 5);
    run->command = text(r, 6);
    run->host = text(r, 7);
    run->exit_status = small_integer(r, 8);
}

static void read_attribute(struct reader *r, void *pointer) {
    struct trace_attribute *attribute = pointer;
    attribute->name = text(r, 0);
    attribute->kind = text(r, 1);
    attribute->value = text(r, 2);
    attribute->unit = text(r, 3);
}

static void read_device(struct reader *r, void *pointer) {
    struct recorded_device *device = pointer;
    device->device_id = integer(r, 0);
    device->name = text(r, 1);
    device->sm_count = integer(r, 2);
    device->sm_clock_khz = integer(r, 3);
    device->globaltimer_step_ns = integer(r, 4);
    device->memory_bytes = integer(r, 5);
    device->clock_known = integer(r, 6) != 0;
    device->drift = sqlite3_column_double(r->statement, 7);
    device->offset_ns = integer(r, 8);
    device->residual_ns = integer(r, 9);
    device->width_ns = integer(r, 10);
    device->readings = integer(r, 11);
}

static void read_rank(struct reader *r, void *pointer) {
    struct trace_rank *rank = pointer;
    rank->rank = small_integer(r, 0);
    rank->device = REFERENCE(r, 1, r->trace->devices, r->trace->device_count);
}

static void read_module(struct reader *r, void *pointer) {
    struct trace_module *module = pointer;
    module->module_id = integer(r, 0);
    module->name = text(r, 1);
}

static void read_role(struct reader *r, void *pointer) {
    static const char *const classes[] = {"compute", "communicate", "support"};
    struct trace_role *role = pointer;
    role->role_id = integer(r, 0);
    role->module = REFERENCE(r, 1, r->trace->modules, r->trace->module_count);
    role->name = text(r, 2);
    role->role_class = (enum trace_role_class)word(r, 3, classes, 3);
    role->description = text(r, 4);
}

static void read_edge(struct reader *r, void *pointer) {
    static const char *const scopes[] = {"cta", "gpu", "sys"};
    struct trace_edge *edge = pointer;
    edge->edge_id = integer(r, 0);
    edge->module = REFERENCE(r, 1, r->trace->modules, r->trace->module_count);
    edge->name = text(r, 2);
    edge->producer = REFERENCE(r, 3, r->trace->roles, r->trace->role_count);
    edge->consumer = REFERENCE(r, 4, r->trace->roles, r->trace->role_count);
    edge->scope = (enum trace_scope)word(r, 5, scopes, 3);
    edge->slot_reuse = integer(r, 6) != 0;
    edge->granularity = text(r, 7);
    edge->target = text(r, 8);
    edge->description = text(r, 9);
}

static void read_event(struct reader *r, void *pointer) {
    static const char *const kinds[] = {"span", "wait", "signal"};
    static const char *const classes[] = {"compute", "communicate", "overhead", "container", "wait"};
    struct trace_event *event = pointer;
    event->event_id = integer(r, 0);
    event->module = REFERENCE(r, 1, r->trace->modules, r->trace->module_count);
    event->name = text(r, 2);
    event->kind = (enum trace_kind)word(r, 3, kinds, 3);
    event->event_class = (enum trace_event_class)word(r, 4, classes, 5);
    event->level = small_integer(r, 5);
    event->edge = reference(r, 6, r->trace->edges, r->trace->edge_count, sizeof *r->trace->edges, true);
    event->argument = text(r, 7);
    event->small = text(r, 8);
    event->description = text(r, 9);
    event->stall_cycles = event->kind == TRACE_SPAN ? trace_stall_cycles(event->small) : 0;
}

static void read_kernel(struct reader *r, void *pointer) {
    struct recorded_kernel *kernel = pointer;
    kernel->kernel_id = integer(r, 0);
    kernel->device = REFERENCE(r, 1, r->trace->devices, r->trace->device_count);
    kernel->grid_id = integer(r, 2);
    kernel->graph_id = integer(r, 3);
    kernel->stream_id = integer(r, 4);
    kernel->name = text(r, 5);
    kernel->begin_ns = integer(r, 6);
    kernel->end_ns = integer(r, 7);
    kernel->cta_count = integer(r, 8);
    kernel->thread_count = integer(r, 9);
    kernel->registers = integer(r, 10);
    kernel->shared_bytes = integer(r, 11);
}

static void read_launch(struct reader *r, void *pointer) {
    struct trace_launch *launch = pointer;
    const struct trace *trace = r->trace;
    launch->launch_id = integer(r, 0);
    launch->device = REFERENCE(r, 1, trace->devices, trace->device_count);
    launch->module = REFERENCE(r, 2, trace->modules, trace->module_count);
    launch->grid_id = integer(r, 3);
    launch->kernel = reference(r, 4, trace->kernels, trace->kernel_count, sizeof *trace->kernels, true);
}

static size_t count_of(struct reader *r, int column) {
    int64_t value = integer(r, column);
    return value < 0 ? 0 : (size_t)value;
}

static void read_lane(struct reader *r, void *pointer) {
    struct trace_lane *lane = pointer;
    lane->lane_id = integer(r, 0);
    lane->launch = REFERENCE(r, 1, r->trace->launches, r->trace->launch_count);
    lane->rank = small_integer(r, 2);
    lane->role = REFERENCE(r, 3, r->trace->roles, r->trace->role_count);
    lane->cta = small_integer(r, 4);
    lane->warp = small_integer(r, 5);
    lane->sm = small_integer(r, 6);
    lane->cluster = small_integer(r, 8);
    lane->closed = integer(r, 9) != 0;
    lane->record_count = integer(r, 12);
    lane->lost_count = integer(r, 13);
    for (int kind = 0; kind < TRACE_KIND_COUNT; kind++) lane->count[kind] = count_of(r, 14 + kind);
    struct trace_clock clock = {integer(r, 17), integer(r, 18), sqlite3_column_double(r->statement, 19)};
    if (sqlite3_column_type(r->statement, 17) == SQLITE_NULL || !(clock.ns_per_tick > 0) || !isfinite(clock.ns_per_tick)) {
        if (!r->status)
            r->status = error_set(r->error, ERROR_USAGE, "trace '%s' is damaged: lane %lld has no clock fit", r->file->path,
                                  (long long)lane->lane_id);
        return;
    }
    lane->ns_per_tick = clock.ns_per_tick;
    lane->residual_ns = integer(r, 20);
    lane->begin_ns = trace_clock_ns(&clock, integer(r, 10));
    lane->end_ns = trace_clock_ns(&clock, integer(r, 11));
    if (lane->end_ns < lane->begin_ns) lane->end_ns = lane->begin_ns;
    lane->void_clock = small_integer(r, 7) != lane->sm;
}

static void read_copy(struct reader *r, void *pointer) {
    struct recorded_copy *copy = pointer;
    copy->kind = text(r, 0);
    copy->device = REFERENCE(r, 1, r->trace->devices, r->trace->device_count);
    copy->stream_id = integer(r, 2);
    copy->bytes = integer(r, 3);
    copy->begin_ns = integer(r, 4);
    copy->end_ns = integer(r, 5);
}

static void read_marker(struct reader *r, void *pointer) {
    struct recorded_marker *marker = pointer;
    marker->domain = text(r, 0);
    marker->name = text(r, 1);
    marker->thread_id = integer(r, 2);
    marker->begin_ns = integer(r, 3);
    marker->end_ns = integer(r, 4);
}

static void read_loss(struct reader *r, void *pointer) {
    struct trace_loss *loss = pointer;
    loss->source = text(r, 0);
    loss->kind = text(r, 1);
    loss->count = integer(r, 2);
    loss->detail = text(r, 3);
}

static void read_hang(struct reader *r, void *pointer) {
    struct trace_hang *hang = pointer;
    hang->rank = small_integer(r, 0);
    hang->cta = small_integer(r, 1);
    hang->warp = small_integer(r, 2);
    hang->edge = REFERENCE(r, 3, r->trace->edges, r->trace->edge_count);
    hang->counter_index = integer(r, 4);
    hang->expected = integer(r, 5);
    hang->observed = integer(r, 6);
    hang->task_id = small_integer(r, 7);
    hang->since_ns = integer(r, 8);
}

/* --- the head -------------------------------------------------------------------------------------------------------- */

#define READ(table, rows, count)                                                                                          \
    if (!status)                                                                                                          \
    status = read_table(file, trace, #table, sql_##table, read_##table, sizeof *trace->rows, &trace->rows, &trace->count, error)

static int read_run_row(const struct trace_file *file, struct trace *trace, struct error *error) {
    struct recorded_run *rows = NULL;
    int32_t count = 0;
    int status = read_table(file, trace, "run", sql_run, read_run, sizeof *rows, &rows, &count, error);
    if (!status && count != 1) {
        status = error_set(error, ERROR_USAGE, "trace '%s' has no run in it", file->path);
        error_hint(error, "the recording did not start; record it again");
    }
    if (!status) trace->run = rows[0];
    free(rows);
    return status;
}

static int by_place(const void *a, const void *b) {
    const struct trace_lane *x = a, *y = b;
    if (x->launch != y->launch) return x->launch < y->launch ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->role != y->role) return x->role < y->role ? -1 : 1;
    if (x->cta != y->cta) return x->cta < y->cta ? -1 : 1;
    if (x->warp != y->warp) return x->warp < y->warp ? -1 : 1;
    return x->lane_id < y->lane_id ? -1 : x->lane_id > y->lane_id;
}

int trace_read_head(const struct trace_file *file, struct trace *trace, struct error *error) {
    *trace = (struct trace){0};
    int status = read_run_row(file, trace, error);
    READ(attribute, attributes, attribute_count);
    READ(device, devices, device_count);
    READ(rank, ranks, rank_count);
    READ(module, modules, module_count);
    READ(role, roles, role_count);
    READ(edge, edges, edge_count);
    READ(event, events, event_count);
    READ(kernel, kernels, kernel_count);
    READ(launch, launches, launch_count);
    READ(lane, lanes, lane_count);
    READ(copy, copies, copy_count);
    READ(marker, markers, marker_count);
    READ(loss, losses, loss_count);
    READ(hang, hangs, hang_count);
    if (!status && trace->event_count >= TRACE_EVENT_UNKNOWN)
        status = error_set(error, ERROR_USAGE, "trace '%s' describes %d events; this mokscope handles %d", file->path,
                           trace->event_count, TRACE_EVENT_UNKNOWN - 1);
    if (!status && trace->edge_count > INT16_MAX)
        status = error_set(error, ERROR_USAGE, "trace '%s' describes %d edges; this mokscope handles %d", file->path,
                           trace->edge_count, INT16_MAX);
    if (status) {
        trace_release(trace);
        return status;
    }
    if (trace->lane_count > 0) qsort(trace->lanes, (size_t)trace->lane_count, sizeof *trace->lanes, by_place);
    for (int32_t i = 0; i < trace->lane_count; i++)
        for (int kind = 0; kind < TRACE_KIND_COUNT; kind++) trace->record_count[kind] += trace->lanes[i].count[kind];
    return 0;
}

int trace_read(const struct trace_file *file, struct trace *trace, struct error *error) {
    int status = trace_read_head(file, trace, error);
    return status ? status : trace_read_records(file, trace, error);
}

void trace_release(struct trace *trace) {
    free(trace->attributes);
    free(trace->devices);
    free(trace->ranks);
    free(trace->modules);
    free(trace->roles);
    free(trace->edges);
    free(trace->events);
    free(trace->kernels);
    free(trace->launches);
    free(trace->lanes);
    free(trace->tasks);
    free(trace->copies);
    free(trace->markers);
    free(trace->losses);
    free(trace->hangs);
    for (int kind = 0; kind < TRACE_KIND_COUNT; kind++) free(trace->records[kind]);
    arena_release(&trace->arena);
    *trace = (struct trace){0};
}

const char *trace_attribute_find(const struct trace *trace, const char *name) {
    for (int32_t i = 0; i < trace->attribute_count; i++)
        if (strcmp(trace->attributes[i].name, name) == 0) return trace->attributes[i].value;
    return NULL;
}

int32_t trace_rank_device(const struct trace *trace, int32_t rank) {
    for (int32_t i = 0; i < trace->rank_count; i++)
        if (trace->ranks[i].rank == rank) return trace->ranks[i].device;
    return -1;
}

int32_t trace_stall_cycles(const char *small) {
    int cycles = 0, end = 0;
    if (sscanf(small, "stall in the span, %d-cycle units%n", &cycles, &end) == 1 && end > 0 && cycles > 0) return cycles;
    return 0;
}
