/* See trace_read.h: spans, waits and signals of all lanes, and the tasks. A table is read in the order of its ids, in which
 * the rows of a lane stand together; they are checked and put in order of begin, longer first, if they are not. */
#include "trace_read.h"

#include <limits.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "trace_read_internal.h"

static const char *const sql_records[TRACE_KIND_COUNT] = {
    [TRACE_SPAN] = "SELECT lane_id, begin_ticks, length_ticks, event_id, argument, small FROM span ORDER BY span_id",
    [TRACE_WAIT] = "SELECT lane_id, begin_ticks, length_ticks, event_id, counter_index, awaited FROM wait ORDER BY wait_id",
    [TRACE_SIGNAL] = "SELECT lane_id, ticks, 0, event_id, counter_index, value FROM signal ORDER BY signal_id",
};
static const char sql_clock[] = "SELECT lane_id, base_ticks, base_ns, ns_per_tick FROM clock_fit ORDER BY lane_id";
static const char sql_task[] = "SELECT rank, task_id, phase, minibatch, expert, tile_row, tile_column, row_count,"
                               " padding_rows, flops, bytes FROM task ORDER BY rank, task_id";

/* A lane by its id: where it stands in trace.lanes, and its clock. */
struct lane_entry {
    int64_t lane_id;
    int32_t lane;
    bool seen; /* rows of the kind being read were found */
    struct trace_clock clock;
};

struct record_reader {
    const struct trace_file *file;
    struct trace *trace;
    struct lane_entry *entries; /* [lane_count] by lane id */
    uint16_t *events;           /* position of event id; ids from 0 to event_limit - 1 */
    int64_t event_limit;
    struct error *error;
};

static int by_lane_id(const void *a, const void *b) {
    const struct lane_entry *x = a, *y = b;
    return x->lane_id < y->lane_id ? -1 : x->lane_id > y->lane_id;
}

static struct lane_entry *find_lane(const struct record_reader *r, int64_t lane_id) {
    struct lane_entry key = {.lane_id = lane_id};
    return bsearch(&key, r->entries, (size_t)r->trace->lane_count, sizeof key, by_lane_id);
}

static int out_of_memory(const struct record_reader *r) {
    error_set(r->error, ERROR_FAILURE, "out of memory for the records of trace '%s'", r->file->path);
    return error_hint(r->error, "the trace needs about 24 bytes a record; use a machine with more memory");
}

static int read_clocks(struct record_reader *r) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(r->file->database, sql_clock, -1, &statement, NULL);
    while (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        code = SQLITE_OK;
        struct lane_entry *entry = find_lane(r, sqlite3_column_int64(statement, 0));
        if (entry != NULL)
            entry->clock = (struct trace_clock){sqlite3_column_int64(statement, 1), sqlite3_column_int64(statement, 2),
                                                sqlite3_column_double(statement, 3)};
    }
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? 0 : trace_file_fail(r->file, "read", r->error);
}

/* Event ids are small and dense: an array finds them. Ids beyond it are searched. */
static int index_events(struct record_reader *r) {
    const struct trace *trace = r->trace;
    int64_t limit = trace->event_count > 0 ? trace->events[trace->event_count - 1].event_id + 1 : 0;
    r->event_limit = limit < 0 ? 0 : limit > 1 << 20 ? 1 << 20 : limit;
    r->events = malloc((size_t)r->event_limit * sizeof *r->events + 1);
    if (r->events == NULL) return out_of_memory(r);
    memset(r->events, 0xff, (size_t)r->event_limit * sizeof *r->events);
    for (int32_t i = 0; i < trace->event_count; i++)
        if (trace->events[i].event_id >= 0 && trace->events[i].event_id < r->event_limit)
            r->events[trace->events[i].event_id] = (uint16_t)i;
    return 0;
}

static uint16_t saturate(int64_t value) { return value < 0 ? 0 : value > 0xffff ? 0xffff : (uint16_t)value; }

static uint16_t find_event(struct record_reader *r, int64_t id, enum trace_kind kind) {
    uint16_t event = id >= 0 && id < r->event_limit ? r->events[id] : TRACE_EVENT_UNKNOWN;
    if (event != TRACE_EVENT_UNKNOWN && r->trace->events[event].kind == kind) return event;
    r->trace->unknown_event_count++;
    return TRACE_EVENT_UNKNOWN;
}

static struct trace_record make_record(struct record_reader *r, sqlite3_stmt *row, const struct trace_clock *clock,
                                       enum trace_kind kind) {
    int64_t begin = sqlite3_column_int64(row, 1), length = sqlite3_column_int64(row, 2), end;
    if (length < 0) {
        r->trace->reversed_count++;
        length = 0;
    }
    if (__builtin_add_overflow(begin, length, &end)) end = INT64_MAX;
    struct trace_record record;
    record.begin_ns = trace_clock_ns(clock, begin);
    record.end_ns = kind == TRACE_SIGNAL ? record.begin_ns : trace_clock_ns(clock, end);
    record.event = find_event(r, sqlite3_column_int64(row, 3), kind);
    record.argument = (uint32_t)sqlite3_column_int64(row, 4);
    record.small = saturate(sqlite3_column_int64(row, 5));
    return record;
}

/* --- order ----------------------------------------------------------------------------------------------------------- */

static int by_begin(const void *a, const void *b) {
    const struct trace_record *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
    return x->event < y->event ? -1 : x->event > y->event;
}

static void order_lane(struct trace_record *rows, size_t count) {
    for (size_t i = 1; i < count; i++) {
        if (rows[i - 1].begin_ns < rows[i].begin_ns) continue;
        if (rows[i - 1].begin_ns == rows[i].begin_ns && rows[i - 1].end_ns >= rows[i].end_ns) continue;
        qsort(rows, count, sizeof *rows, by_begin);
        return;
    }
}

/* --- a table --------------------------------------------------------------------------------------------------------- */

struct record_array {
    struct trace_record *rows;
    size_t count, capacity;
};

static int array_reserve(struct record_reader *r, struct record_array *array) {
    if (array->count < array->capacity) return 0;
    size_t capacity = array->capacity + array->capacity / 2 + 1024;
    struct trace_record *grown = capacity > SIZE_MAX / sizeof *grown ? NULL : realloc(array->rows, capacity * sizeof *grown);
    if (grown == NULL) return out_of_memory(r);
    array->rows = grown;
    array->capacity = capacity;
    return 0;
}

/* The rows of a lane that the array ends with are complete. */
static void close_lane(struct trace *trace, const struct lane_entry *entry, struct record_array *array, enum trace_kind kind) {
    if (entry == NULL) return;
    struct trace_lane *lane = &trace->lanes[entry->lane];
    lane->count[kind] = array->count - lane->first[kind];
    if (lane->count[kind] > 0) order_lane(array->rows + lane->first[kind], lane->count[kind]);
}

static int open_lane(struct record_reader *r, struct lane_entry *entry, const struct record_array *array, enum trace_kind kind) {
    if (entry == NULL) return 0;
    if (entry->seen) {
        error_set(r->error, ERROR_USAGE, "trace '%s' is damaged: the rows of lane %lld do not stand together", r->file->path,
                  (long long)entry->lane_id);
        return error_hint(r->error, "record or import it again");
    }
    entry->seen = true;
    r->trace->lanes[entry->lane].first[kind] = array->count;
    return 0;
}

static int read_kind(struct record_reader *r, enum trace_kind kind) {
    struct trace *trace = r->trace;
    struct record_array array = {0};
    struct lane_entry *entry = NULL;
    int64_t lane_id = INT64_MIN;
    sqlite3_stmt *statement = NULL;
    int status = 0;
    /* First guess: what the lanes claim, within reason. */
    array.capacity = trace->record_count[kind] < (size_t)1 << 28 ? trace->record_count[kind] : 0;
    array.rows = malloc((array.capacity + 1) * sizeof *array.rows);
    if (array.rows == NULL) return out_of_memory(r);
    for (int32_t i = 0; i < trace->lane_count; i++) {
        r->entries[i].seen = false;
        trace->lanes[i].first[kind] = trace->lanes[i].count[kind] = 0;
    }
    int code = sqlite3_prepare_v2(r->file->database, sql_records[kind], -1, &statement, NULL);
    while (!status && code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        code = SQLITE_OK;
        if (sqlite3_column_int64(statement, 0) != lane_id) {
            close_lane(trace, entry, &array, kind);
            lane_id = sqlite3_column_int64(statement, 0);
            entry = find_lane(r, lane_id);
            status = open_lane(r, entry, &array, kind);
        }
        if (entry == NULL) {
            trace->orphan_count++;
        } else if (!status && !(status = array_reserve(r, &array))) {
            array.rows[array.count++] = make_record(r, statement, &entry->clock, kind);
        }
    }
    if (!status) close_lane(trace, entry, &array, kind);
    if (!status && code != SQLITE_DONE) status = trace_file_fail(r->file, "read", r->error);
    sqlite3_finalize(statement);
    trace->records[kind] = array.rows;
    trace->record_count[kind] = array.count;
    return status;
}

/* --- tasks ----------------------------------------------------------------------------------------------------------- */

static int32_t clamp(int64_t value) {
    return value < INT32_MIN ? INT32_MIN : value > INT32_MAX ? INT32_MAX : (int32_t)value;
}

/* Phases are few: the string of an earlier task is taken again. */
static const char *phase_name(struct trace *trace, int32_t used, const char *name) {
    for (int32_t i = used - 1; i >= 0 && i > used - 64; i--)
        if (strcmp(trace->tasks[i].phase, name) == 0) return trace->tasks[i].phase;
    return arena_copy(&trace->arena, name);
}

static int read_tasks(struct record_reader *r) {
    struct trace *trace = r->trace;
    sqlite3_stmt *row = NULL;
    int32_t capacity = 0;
    int code = sqlite3_prepare_v2(r->file->database, sql_task, -1, &row, NULL), status = 0;
    while (!status && code == SQLITE_OK && (code = sqlite3_step(row)) == SQLITE_ROW) {
        code = SQLITE_OK;
        if (trace->task_count == capacity) {
            capacity = capacity + capacity / 2 + 256;
            struct trace_task *grown =
                capacity > INT_MAX / 4 ? NULL : realloc(trace->tasks, (size_t)capacity * sizeof *trace->tasks);
            if (grown == NULL) {
                status = out_of_memory(r);
                break;
            }
            trace->tasks = grown;
        }
        const char *phase = (const char *)sqlite3_column_text(row, 2);
        struct trace_task task = {.rank = clamp(sqlite3_column_int64(row, 0)), .task_id = clamp(sqlite3_column_int64(row, 1))};
        task.phase = phase_name(trace, trace->task_count, phase != NULL ? phase : "");
        task.minibatch = clamp(sqlite3_column_int64(row, 3));
        task.expert = clamp(sqlite3_column_int64(row, 4));
        task.tile_row = clamp(sqlite3_column_int64(row, 5));
        task.tile_column = clamp(sqlite3_column_int64(row, 6));
        task.row_count = sqlite3_column_int64(row, 7);
        task.padding_rows = sqlite3_column_int64(row, 8);
        task.flops = sqlite3_column_int64(row, 9);
        task.bytes = sqlite3_column_int64(row, 10);
        if (task.phase == NULL) status = out_of_memory(r);
        trace->tasks[trace->task_count++] = task;
    }
    if (!status && code != SQLITE_DONE) status = trace_file_fail(r->file, "read", r->error);
    sqlite3_finalize(row);
    return status;
}

int trace_read_records(const struct trace_file *file, struct trace *trace, struct error *error) {
    struct record_reader r = {file, trace, NULL, NULL, 0, error};
    int status = 0;
    r.entries = calloc((size_t)trace->lane_count + 1, sizeof *r.entries);
    if (r.entries == NULL) status = out_of_memory(&r);
    for (int32_t i = 0; !status && i < trace->lane_count; i++)
        r.entries[i] = (struct lane_entry){.lane_id = trace->lanes[i].lane_id, .lane = i};
    if (!status) qsort(r.entries, (size_t)trace->lane_count, sizeof *r.entries, by_lane_id);
    if (!status) status = read_clocks(&r);
    if (!status) status = index_events(&r);
    for (int kind = 0; !status && kind < TRACE_KIND_COUNT; kind++) status = read_kind(&r, (enum trace_kind)kind);
    if (!status) status = read_tasks(&r);
    free(r.entries);
    free(r.events);
    if (status) trace_release(trace);
    return status;
}
