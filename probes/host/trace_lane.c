/* See trace_write.h: lanes. A lane's rows go into the file by three INSERT ... SELECT from the virtual table
 * trace_lane_rows, which reads the decoder's arrays: no statement is stepped and no value bound once a row. Ids are dealt
 * by the writer, ascending, so that rows are appended and a lane's rows are contiguous. */
#include "trace_write_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the virtual table ----------------------------------------------------------------------------------------------- */

struct rows_table {
    sqlite3_vtab base; /* first: SQLite's view of it */
    const struct writer_source *source;
};

struct rows_cursor {
    sqlite3_vtab_cursor base; /* first */
    const struct writer_source *source;
    uint32_t row;
};

enum rows_column { COLUMN_ID, COLUMN_LANE, COLUMN_BEGIN, COLUMN_LENGTH, COLUMN_EVENT, COLUMN_PHASE, COLUMN_SMALL,
                   COLUMN_ARGUMENT };

static int rows_connect(sqlite3 *database, void *auxiliary, int argc, const char *const *argv, sqlite3_vtab **result,
                        char **message) {
    (void)argc, (void)argv, (void)message;
    int code = sqlite3_declare_vtab(database, "CREATE TABLE x (id, lane_id, begin, length, event, phase, small, argument)");
    if (code != SQLITE_OK) return code;
    struct rows_table *table = sqlite3_malloc(sizeof *table);
    if (table == NULL) return SQLITE_NOMEM;
    memset(table, 0, sizeof *table);
    table->source = auxiliary;
    *result = &table->base;
    return SQLITE_OK;
}

static int rows_disconnect(sqlite3_vtab *table) {
    sqlite3_free(table);
    return SQLITE_OK;
}

static int rows_best_index(sqlite3_vtab *table, sqlite3_index_info *plan) {
    (void)table;
    plan->estimatedCost = 1000;
    return SQLITE_OK;
}

static int rows_open(sqlite3_vtab *table, sqlite3_vtab_cursor **result) {
    struct rows_cursor *cursor = sqlite3_malloc(sizeof *cursor);
    if (cursor == NULL) return SQLITE_NOMEM;
    memset(cursor, 0, sizeof *cursor);
    cursor->source = ((struct rows_table *)(void *)table)->source;
    *result = &cursor->base;
    return SQLITE_OK;
}

static int rows_close(sqlite3_vtab_cursor *cursor) {
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int rows_filter(sqlite3_vtab_cursor *cursor, int plan, const char *name, int argc, sqlite3_value **argv) {
    (void)plan, (void)name, (void)argc, (void)argv;
    ((struct rows_cursor *)(void *)cursor)->row = 0;
    return SQLITE_OK;
}

static int rows_next(sqlite3_vtab_cursor *cursor) {
    ((struct rows_cursor *)(void *)cursor)->row++;
    return SQLITE_OK;
}

static int rows_eof(sqlite3_vtab_cursor *base) {
    const struct rows_cursor *cursor = (const struct rows_cursor *)(const void *)base;
    return cursor->row >= cursor->source->count;
}

static int rows_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column) {
    const struct rows_cursor *cursor = (const struct rows_cursor *)(const void *)base;
    const struct writer_source *source = cursor->source;
    const struct lane_row *row = &source->rows[cursor->row];
    int64_t value = 0;
    switch ((enum rows_column)column) {
    case COLUMN_ID: value = source->first_id + cursor->row; break;
    case COLUMN_LANE: value = source->lane_id; break;
    case COLUMN_BEGIN: value = row->begin_ticks; break;
    case COLUMN_LENGTH: value = row->length_ticks; break;
    case COLUMN_EVENT: value = source->event_base + row->event; break;
    case COLUMN_PHASE: value = row->phase; break;
    case COLUMN_SMALL: value = row->small; break;
    case COLUMN_ARGUMENT: value = row->argument; break;
    }
    sqlite3_result_int64(context, value);
    return SQLITE_OK;
}

static int rows_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *rowid) {
    *rowid = ((struct rows_cursor *)(void *)cursor)->row;
    return SQLITE_OK;
}

/* xCreate == NULL: the table exists by its name alone, in no schema. */
static const sqlite3_module rows_module = {
    .xConnect = rows_connect, .xBestIndex = rows_best_index, .xDisconnect = rows_disconnect, .xOpen = rows_open,
    .xClose = rows_close,     .xFilter = rows_filter,        .xNext = rows_next,             .xEof = rows_eof,
    .xColumn = rows_column,   .xRowid = rows_rowid,
};

int trace_lane_register(struct trace_writer *writer, struct error *error) {
    if (sqlite3_create_module(writer->database, "trace_lane_rows", &rows_module, &writer->source) != SQLITE_OK)
        return trace_writer_fail(writer, error, "create");
    return 0;
}

/* --- a lane ---------------------------------------------------------------------------------------------------------- */

/* A rank that nobody described gets a row by its first lane. */
static int see_rank(struct trace_writer *writer, uint32_t rank, int32_t device_id, struct error *error) {
    if (trace_writer_rank_device(writer, rank) != RANK_UNSEEN) return 0;
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_RANK_DEFAULT, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "uil", rank, device_id, (int64_t)getpid());
    int status = trace_writer_step(writer, statement, 0, error);
    if (!status && trace_writer_see_rank(writer, rank, device_id)) return error_set(error, ERROR_FAILURE, "out of memory");
    return status;
}

static double nominal_slope(const struct writer_device *device) {
    if (device->slope_ns_per_tick > 0) return device->slope_ns_per_tick;
    return device->sm_clock_khz > 0 ? 1e6 / device->sm_clock_khz : 1.0;
}

static int write_clock(struct trace_writer *writer, struct writer_device *device, int64_t lane_id, struct error *error) {
    const struct lane_decoder *decoded = &writer->decoder;
    struct clock_line line;
    clock_fit_pairs(decoded->pairs, decoded->pair_count, nominal_slope(device), &line);
    int64_t range = decoded->pairs[decoded->pair_count - 1].ticks - decoded->pairs[0].ticks;
    if (decoded->pair_count > 1 && line.residual_ns <= CLOCK_STEP_RESIDUAL_NS && range > 1000000)
        device->slope_ns_per_tick = line.ns_per_tick;
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_CLOCK_FIT, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "llldli", lane_id, line.base_ticks, clock_offset_apply(&device->clock, line.base_ns),
                      line.ns_per_tick * (1.0 + device->clock.drift), line.residual_ns, line.pairs);
    int status = trace_writer_step(writer, statement, 0, error);
    for (int32_t i = 0; !status && i < decoded->pair_count; i++) {
        statement = trace_writer_statement(writer, STATEMENT_SYNC, error);
        if (statement == NULL) return writer->failure.code;
        trace_writer_bind(statement, "lll", lane_id, decoded->pairs[i].ticks, decoded->pairs[i].time_ns);
        status = trace_writer_step(writer, statement, 0, error);
    }
    return status;
}

static int write_rows(struct trace_writer *writer, int64_t lane_id, int64_t event_base, struct error *error) {
    static const enum trace_statement inserts[LANE_KIND_COUNT] = {STATEMENT_SPANS, STATEMENT_WAITS, STATEMENT_SIGNALS};
    for (int kind = 0; kind < LANE_KIND_COUNT; kind++) {
        uint32_t count = writer->decoder.row_count[kind];
        if (count == 0) continue;
        writer->source = (struct writer_source){writer->decoder.rows[kind], count, writer->next_id[kind], lane_id,
                                                event_base};
        sqlite3_stmt *statement = trace_writer_statement(writer, inserts[kind], error);
        if (statement == NULL) return writer->failure.code;
        int status = trace_writer_step(writer, statement, 0, error);
        if (status) return status;
        writer->next_id[kind] += count;
    }
    return 0;
}

static int write_header(struct trace_writer *writer, int64_t launch_id, int64_t lane_id, int32_t role_id,
                        const struct mokscope_lane_header *header, struct error *error) {
    const struct lane_decoder *decoded = &writer->decoder;
    int closed = header->state == MOKSCOPE_LANE_CLOSED;
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_LANE, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "lluuuuiuuilllllu", lane_id, launch_id, header->rank, header->cta, header->cluster,
                      header->warp, role_id, header->sm_begin, header->sm_end, closed, (int64_t)header->clock_begin,
                      decoded->end_ticks, (int64_t)header->globaltimer_begin,
                      closed ? (int64_t)header->globaltimer_end : (int64_t)0, (int64_t)header->count,
                      decoded->lost_count);
    const int first_parameter = 17;
    for (int kind = 0; kind < LANE_KIND_COUNT; kind++) {
        sqlite3_bind_int64(statement, first_parameter + 2 * kind, writer->next_id[kind]);
        sqlite3_bind_int64(statement, first_parameter + 2 * kind + 1, decoded->row_count[kind]);
    }
    return trace_writer_step(writer, statement, 0, error);
}

int trace_write_lane(struct trace_writer *writer, int64_t launch_id, const struct mokscope_lane_header *header,
                     const struct mokscope_record *records, uint32_t capacity, struct error *error) {
    if (launch_id < 1 || launch_id > writer->launch_count)
        return error_set(error, ERROR_FAILURE, "lane of unknown launch %lld", (long long)launch_id);
    const struct writer_launch *launch = &writer->launches[launch_id - 1];
    const struct writer_module *module = &writer->modules[launch->module_id];
    struct writer_device *device = trace_writer_device(writer, launch->device_id);
    if (device == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    if (header->role >= module->module->role_count) {
        writer->refused_lanes++;
        return 0;
    }
    int status = lane_decode(&writer->decoder, header, records, capacity, module->event_kinds,
                             module->module->event_count, error);
    if (!status) status = see_rank(writer, header->rank, launch->device_id, error);
    if (status) return status;
    writer->unknown_events += writer->decoder.unknown_count;
    writer->misplaced_records += writer->decoder.misplaced_count;
    int64_t lane_id = writer->next_lane_id++;
    status = write_header(writer, launch_id, lane_id, module->role_base + (int32_t)header->role, header, error);
    if (!status) status = write_clock(writer, device, lane_id, error);
    if (!status) status = write_rows(writer, lane_id, module->event_base, error);
    if (status) return status;
    writer->pending_rows += 4;
    for (int kind = 0; kind < LANE_KIND_COUNT; kind++) writer->pending_rows += writer->decoder.row_count[kind];
    return writer->pending_rows >= TRACE_COMMIT_ROWS ? trace_write_flush(writer, error) : 0;
}
