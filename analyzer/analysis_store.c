/* See analysis_store.h. The only SQL of the analyzer that writes. */
#include "analysis_store.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../probes/host/schema.h"
#include "command.h"

static const char sql_analysis[] = "INSERT INTO analysis VALUES (1, ?, ?, ?, ?, ?, ?)";
static const char sql_figure[] = "INSERT INTO figure VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
static const char sql_partition[] = "INSERT INTO partition VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
static const char sql_wait[] = "INSERT INTO wait_by_edge VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

/* A statement being filled and run again and again; the first failure stays. */
struct inserter {
    sqlite3 *database;
    sqlite3_stmt *statement;
    int column, code;
};

static void prepare(struct inserter *in, const char *sql) {
    sqlite3_finalize(in->statement);
    in->statement = NULL;
    in->column = 0;
    if (in->code == SQLITE_OK) in->code = sqlite3_prepare_v2(in->database, sql, -1, &in->statement, NULL);
}

static void put_integer(struct inserter *in, int64_t value) {
    if (in->code == SQLITE_OK) in->code = sqlite3_bind_int64(in->statement, ++in->column, value);
}

static void put_null(struct inserter *in) {
    if (in->code == SQLITE_OK) in->code = sqlite3_bind_null(in->statement, ++in->column);
}

static void put_real(struct inserter *in, double value) {
    if (isnan(value))
        put_null(in);
    else if (in->code == SQLITE_OK)
        in->code = sqlite3_bind_double(in->statement, ++in->column, value);
}

static void put_text(struct inserter *in, const char *value) {
    if (in->code == SQLITE_OK) in->code = sqlite3_bind_text(in->statement, ++in->column, value, -1, SQLITE_TRANSIENT);
}

static void run(struct inserter *in) {
    in->column = 0;
    if (in->code != SQLITE_OK) return;
    int code = sqlite3_step(in->statement);
    in->code = code == SQLITE_DONE ? sqlite3_reset(in->statement) : code;
}

static void store_analysis(struct inserter *in, const struct analysis *analysis) {
    size_t length = 1;
    for (int32_t i = 0; i < analysis->note_count; i++) length += strlen(analysis->notes[i]) + 1;
    char *notes = malloc(length);
    if (notes == NULL) {
        in->code = SQLITE_NOMEM;
        return;
    }
    notes[0] = '\0';
    for (int32_t i = 0; i < analysis->note_count; i++) {
        if (i > 0) strcat(notes, "\n");
        strcat(notes, analysis->notes[i]);
    }
    prepare(in, sql_analysis);
    put_integer(in, ANALYSIS_DERIVED_VERSION);
    put_text(in, command_version());
    put_text(in, command_git_revision());
    put_integer(in, analysis->iterations.count);
    put_integer(in, analysis->iterations.used_count);
    put_text(in, notes);
    run(in);
    free(notes);
}

static void store_figures(struct inserter *in, const struct figures *figures) {
    prepare(in, sql_figure);
    for (int32_t i = 0; i < figures->count; i++) {
        const struct figure *figure = &figures->rows[i];
        put_text(in, figure->definition->id);
        put_text(in, figure->scope);
        put_real(in, figure->value);
        put_text(in, figure->definition->unit);
        put_real(in, figure->numerator);
        put_real(in, figure->denominator);
        put_integer(in, figure->window_ns);
        put_integer(in, figure->iterations);
        put_real(in, figure->p5);
        put_real(in, figure->p95);
        put_real(in, figure->low);
        put_real(in, figure->high);
        put_integer(in, figure->clock_error_ns);
        run(in);
    }
}

static void put_id(struct inserter *in, bool there, int64_t id) {
    if (there)
        put_integer(in, id);
    else
        put_null(in);
}

static void store_partition(struct inserter *in, const struct analysis *analysis) {
    const struct trace *trace = analysis->trace;
    prepare(in, sql_partition);
    for (int by = 0; by < PARTITION_BY_COUNT; by++) {
        const struct partition_group *group = &analysis->partition.groups[by];
        for (int32_t i = 0; i < group->count; i++) {
            const struct partition_row *row = &group->rows[i];
            put_text(in, partition_by_name((enum partition_by)by));
            put_id(in, row->rank >= 0, row->rank);
            put_id(in, row->role >= 0, row->role >= 0 ? trace->roles[row->role].role_id : 0);
            put_id(in, row->device >= 0, row->device >= 0 ? trace->devices[row->device].device_id : 0);
            put_id(in, row->sm >= 0, row->sm);
            put_integer(in, row->lane_count);
            put_integer(in, row->lane_ns);
            for (int state = 0; state < STATE_COUNT; state++) put_integer(in, row->ns[state]);
            put_integer(in, row->stalled_ns);
            run(in);
        }
    }
}

static void store_waits(struct inserter *in, const struct analysis *analysis) {
    const struct trace *trace = analysis->trace;
    prepare(in, sql_wait);
    for (int32_t i = 0; i < analysis->waits.count; i++) {
        const struct wait_row *row = &analysis->waits.rows[i];
        put_integer(in, row->rank);
        put_integer(in, trace->roles[row->role].role_id);
        put_id(in, row->edge >= 0, row->edge >= 0 ? trace->edges[row->edge].edge_id : 0);
        put_id(in, row->owner >= 0, row->owner >= 0 ? trace->edges[row->owner].edge_id : 0);
        put_integer(in, row->total_ns);
        put_integer(in, row->count);
        put_integer(in, row->max_ns);
        put_integer(in, row->owner >= 0 && analysis->carries[row->owner]);
        run(in);
    }
}

static int check_storable(const struct trace_file *file, const struct analysis *analysis, struct error *error) {
    if (file->compressed) {
        error_set(error, ERROR_FAILURE, "the trace is compressed");
        return error_hint(error, "inflate it with gunzip to keep results in it");
    }
    if (analysis->trace->run.unfinished) return error_set(error, ERROR_FAILURE, "its recording has not ended");
    if (access(file->path, W_OK) != 0) return error_set(error, ERROR_FAILURE, "the file is read-only");
    return 0;
}

int analysis_store(const struct trace_file *file, const struct analysis *analysis, struct error *error) {
    struct inserter in = {0};
    int status = check_storable(file, analysis, error);
    if (status) return status;
    in.code = sqlite3_open_v2(file->path, &in.database, SQLITE_OPEN_READWRITE, NULL);
    if (in.code == SQLITE_OK) in.code = sqlite3_busy_timeout(in.database, 2000);
    if (in.code == SQLITE_OK) in.code = sqlite3_exec(in.database, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (in.code == SQLITE_OK) in.code = sqlite3_exec(in.database, schema_derived_sql, NULL, NULL, NULL);
    store_analysis(&in, analysis);
    store_figures(&in, &analysis->figures);
    store_partition(&in, analysis);
    store_waits(&in, analysis);
    sqlite3_finalize(in.statement);
    in.statement = NULL;
    if (in.code == SQLITE_OK) in.code = sqlite3_exec(in.database, "COMMIT", NULL, NULL, NULL);
    if (in.code != SQLITE_OK) {
        status = error_set(error, ERROR_FAILURE, "%s", in.database != NULL ? sqlite3_errmsg(in.database) : sqlite3_errstr(in.code));
        if (in.database != NULL && !sqlite3_get_autocommit(in.database)) sqlite3_exec(in.database, "ROLLBACK", NULL, NULL, NULL);
    }
    sqlite3_close(in.database);
    return status;
}
