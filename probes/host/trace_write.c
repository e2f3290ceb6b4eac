/* See trace_write.h: the file, its run row, transactions and errors.
 *
 * Journal: a rollback journal with synchronous=OFF. Loading only appends pages, so the journal holds next to nothing and a
 * page is written once (WAL would write it twice). A killed process loses no write that the kernel has taken; a transaction
 * it was in is rolled back by the next connection that opens the file for writing. Only a crash of the whole machine can
 * lose more, and the run would be gone with it. After close, or trace_write_finalise, the trace is one file. */
#include "trace_write_internal.h"

#include "../version.h"
#include "schema.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#ifndef MOKSCOPE_GIT_REVISION
#define MOKSCOPE_GIT_REVISION ""
#endif

enum { FREE_BYTES_MINIMUM = 4 << 20, BUSY_MS = 10000, FLUSH_BUSY_MS = 100 };

/* Text of each statement, in the order of enum trace_statement. */
static const char *const statement_sql[STATEMENT_COUNT] = {
    [STATEMENT_ATTRIBUTE] = "INSERT INTO attribute (kind, name, value, unit) VALUES (?, ?, ?, ?)"
                            " ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, value = excluded.value,"
                            " unit = excluded.unit",
    [STATEMENT_DEVICE] = "INSERT INTO device VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (device_id) DO UPDATE SET"
                         " name = excluded.name, sm_count = excluded.sm_count, sm_clock_khz = excluded.sm_clock_khz,"
                         " globaltimer_step_ns = excluded.globaltimer_step_ns, memory_bytes = excluded.memory_bytes",
    [STATEMENT_RANK] = "INSERT INTO rank VALUES (?, ?, ?) ON CONFLICT (rank) DO UPDATE SET"
                       " device_id = excluded.device_id, process_id = excluded.process_id",
    [STATEMENT_RANK_DEFAULT] = "INSERT OR IGNORE INTO rank VALUES (?, ?, ?)",
    [STATEMENT_DEVICE_CLOCK] = "INSERT OR REPLACE INTO device_clock VALUES (?, ?, ?, ?, ?, ?, ?)",
    /* ?1 device, ?2 ?3 ?4 old base, offset, drift, ?5 ?6 ?7 new: trace time -> globaltimer -> new trace time */
    [STATEMENT_REFIT] = "UPDATE clock_fit SET"
                        " base_ns = base_ns - ?3 + ?6"
                        " - CAST(round((base_ns - ?3 - ?2) * ?4 / (1.0 + ?4)) AS INTEGER)"
                        " + CAST(round(?7 * (?2 - ?5 + (base_ns - ?3 - ?2) / (1.0 + ?4))) AS INTEGER),"
                        " ns_per_tick = ns_per_tick * (1.0 + ?7) / (1.0 + ?4)"
                        " WHERE lane_id IN (SELECT lane_id FROM lane JOIN launch USING (launch_id) WHERE device_id = ?1)",
    [STATEMENT_REFIT_HANGS] = "UPDATE hang SET"
                              " since_ns = since_ns - ?3 + ?6"
                              " - CAST(round((since_ns - ?3 - ?2) * ?4 / (1.0 + ?4)) AS INTEGER)"
                              " + CAST(round(?7 * (?2 - ?5 + (since_ns - ?3 - ?2) / (1.0 + ?4))) AS INTEGER)"
                              " WHERE since_ns <> 0 AND rank IN (SELECT rank FROM rank WHERE device_id = ?1)",
    [STATEMENT_MODULE] = "INSERT INTO module VALUES (?, ?)",
    [STATEMENT_ROLE] = "INSERT INTO role VALUES (?, ?, ?, ?, ?)",
    [STATEMENT_EDGE] = "INSERT INTO edge VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [STATEMENT_EVENT] = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [STATEMENT_TARGET] = "INSERT OR REPLACE INTO edge_target VALUES (?, ?, ?, ?)",
    [STATEMENT_TASK] = "INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [STATEMENT_HANG] = "INSERT INTO hang VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [STATEMENT_KERNEL] = "INSERT INTO kernel VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [STATEMENT_COPY] = "INSERT INTO copy VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
    [STATEMENT_MARKER] = "INSERT INTO marker VALUES (NULL, ?, ?, ?, ?, ?)",
    [STATEMENT_HOST_ACTIVITY] = "INSERT INTO host_activity VALUES (NULL, ?, ?, ?, ?)",
    [STATEMENT_LOSS] = "INSERT INTO loss VALUES (NULL, ?, ?, ?, ?)",
    [STATEMENT_LAUNCH] = "INSERT INTO launch VALUES (?, ?, ?, ?, NULL)",
    [STATEMENT_LAUNCH_KERNEL] = "UPDATE launch SET kernel_id = ?2 WHERE launch_id = ?1",
    [STATEMENT_LANE] = "INSERT INTO lane VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [STATEMENT_CLOCK_FIT] = "INSERT INTO clock_fit VALUES (?, ?, ?, ?, ?, ?)",
    [STATEMENT_SYNC] = "INSERT INTO sync VALUES (?, ?, ?)",
    [STATEMENT_SPANS] = "INSERT INTO span SELECT id, lane_id, begin, length, event, phase, small, argument"
                        " FROM trace_lane_rows",
    [STATEMENT_WAITS] = "INSERT INTO wait SELECT id, lane_id, begin, length, event, argument, small FROM trace_lane_rows",
    [STATEMENT_SIGNALS] = "INSERT INTO signal SELECT id, lane_id, begin, event, argument, small FROM trace_lane_rows",
};

static int64_t realtime_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* --- errors ---------------------------------------------------------------------------------------------------------- */

static int describe_failure(struct error *error, sqlite3 *database, const char *path, const char *what) {
    int code = sqlite3_errcode(database), cause = sqlite3_system_errno(database);
    if (code == SQLITE_FULL || cause == ENOSPC || cause == EFBIG || cause == EDQUOT) {
        error_set(error, ERROR_FAILURE, "cannot %s trace '%s': disk full or file too large", what, path);
        return error_hint(error, "free space, raise the file size limit, or choose another place with -o");
    }
    if (sqlite3_extended_errcode(database) == SQLITE_IOERR_WRITE) { /* at COMMIT SQLite does not keep errno */
        error_set(error, ERROR_FAILURE, "cannot %s trace '%s': write error, as by a quota, a file size limit or a failing disk",
                  what, path);
        return error_hint(error, "check the quota, 'ulimit -f' and the disk, or choose another place with -o");
    }
    if (code == SQLITE_READONLY || code == SQLITE_CANTOPEN || cause == EACCES || cause == EROFS) {
        error_set(error, ERROR_FAILURE, "cannot %s trace '%s': %s", what, path,
                  cause != 0 ? strerror(cause) : "not writable");
        return error_hint(error, "choose a folder you may write with -o");
    }
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
        error_set(error, ERROR_FAILURE, "cannot %s trace '%s': not a trace, or damaged", what, path);
        return error_hint(error, "record it again");
    }
    if (code == SQLITE_BUSY) {
        error_set(error, ERROR_FAILURE, "cannot %s trace '%s': another program has it open", what, path);
        return error_hint(error, "close the program that reads or writes it");
    }
    return error_set(error, ERROR_FAILURE, "cannot %s trace '%s': sqlite %s: %s", what, path, sqlite3_errstr(code),
                     sqlite3_errmsg(database));
}

int trace_writer_fail(struct trace_writer *writer, struct error *error, const char *what) {
    if (writer->failure.code == 0) describe_failure(&writer->failure, writer->database, writer->path, what);
    if (error != NULL && error->code == 0) *error = writer->failure;
    if (writer->database != NULL && !sqlite3_get_autocommit(writer->database))
        sqlite3_exec(writer->database, "ROLLBACK", NULL, NULL, NULL);
    writer->in_transaction = 0;
    return writer->failure.code;
}

static int failed_before(const struct trace_writer *writer, struct error *error) {
    if (writer->failure.code != 0 && error != NULL && error->code == 0) *error = writer->failure;
    return writer->failure.code;
}

/* --- statements and transactions ------------------------------------------------------------------------------------- */

static int run_sql(struct trace_writer *writer, const char *sql, const char *what, struct error *error) {
    if (sqlite3_exec(writer->database, sql, NULL, NULL, NULL) != SQLITE_OK) return trace_writer_fail(writer, error, what);
    return 0;
}

/* A reader in the file is waited for. If it stays, the transaction stays open for a later commit, unless this one must be. */
static int commit(struct trace_writer *writer, int must, struct error *error) {
    int status = failed_before(writer, error);
    if (status || !writer->in_transaction) return status;
    sqlite3_busy_timeout(writer->database, must ? BUSY_MS : FLUSH_BUSY_MS);
    int code = sqlite3_exec(writer->database, "COMMIT", NULL, NULL, NULL);
    writer->pending_rows = 0;
    if (code == SQLITE_OK) {
        writer->in_transaction = 0;
    } else if (code != SQLITE_BUSY || must) {
        status = trace_writer_fail(writer, error, "write");
    }
    sqlite3_busy_timeout(writer->database, BUSY_MS);
    return status;
}

int trace_write_flush(struct trace_writer *writer, struct error *error) { return commit(writer, 0, error); }

sqlite3_stmt *trace_writer_statement(struct trace_writer *writer, enum trace_statement id, struct error *error) {
    if (failed_before(writer, error)) return NULL;
    if (!writer->in_transaction) {
        if (run_sql(writer, "BEGIN IMMEDIATE", "write", error)) return NULL;
        writer->in_transaction = 1;
    }
    if (writer->statements[id] == NULL &&
        sqlite3_prepare_v3(writer->database, statement_sql[id], -1, SQLITE_PREPARE_PERSISTENT, &writer->statements[id],
                           NULL) != SQLITE_OK) {
        trace_writer_fail(writer, error, "write");
        return NULL;
    }
    return writer->statements[id];
}

int trace_writer_step(struct trace_writer *writer, sqlite3_stmt *statement, int64_t rows, struct error *error) {
    int code = sqlite3_step(statement);
    int status = code == SQLITE_DONE ? 0 : trace_writer_fail(writer, error, "write");
    sqlite3_reset(statement);
    if (status) return status;
    writer->pending_rows += rows;
    return writer->pending_rows >= TRACE_COMMIT_ROWS ? trace_write_flush(writer, error) : 0;
}

void trace_writer_bind(sqlite3_stmt *statement, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    for (int i = 0; format[i] != '\0'; i++) {
        int64_t integer;
        const char *text;
        switch (format[i]) {
        case 'i': sqlite3_bind_int64(statement, i + 1, va_arg(arguments, int32_t)); break;
        case 'u': sqlite3_bind_int64(statement, i + 1, va_arg(arguments, uint32_t)); break;
        case 'l': sqlite3_bind_int64(statement, i + 1, va_arg(arguments, int64_t)); break;
        case 'd': sqlite3_bind_double(statement, i + 1, va_arg(arguments, double)); break;
        case 's':
            text = va_arg(arguments, const char *);
            sqlite3_bind_text(statement, i + 1, text != NULL ? text : "", -1, SQLITE_TRANSIENT);
            break;
        case 'n':
            integer = va_arg(arguments, int64_t);
            if (integer != 0) {
                sqlite3_bind_int64(statement, i + 1, integer);
            } else {
                sqlite3_bind_null(statement, i + 1);
            }
            break;
        default: break;
        }
    }
    va_end(arguments);
}

struct writer_device *trace_writer_device(struct trace_writer *writer, int32_t device_id) {
    for (int32_t i = 0; i < writer->device_count; i++)
        if (writer->devices[i].device_id == device_id) return &writer->devices[i];
    struct writer_device *grown =
        realloc(writer->devices, ((size_t)writer->device_count + 1) * sizeof *writer->devices);
    if (grown == NULL) return NULL;
    writer->devices = grown;
    struct writer_device *device = &grown[writer->device_count++];
    *device = (struct writer_device){.device_id = device_id};
    return device;
}

int32_t trace_writer_rank_device(const struct trace_writer *writer, uint32_t rank) {
    return rank < writer->rank_capacity ? writer->rank_devices[rank] : RANK_UNSEEN;
}

int trace_writer_see_rank(struct trace_writer *writer, uint32_t rank, int32_t device_id) {
    if (rank >= RANK_MAXIMUM) return 0;
    if (rank >= writer->rank_capacity) {
        uint32_t capacity = rank + 64;
        int32_t *grown = realloc(writer->rank_devices, capacity * sizeof *grown);
        if (grown == NULL) return -1;
        for (uint32_t i = writer->rank_capacity; i < capacity; i++) grown[i] = RANK_UNSEEN;
        writer->rank_devices = grown;
        writer->rank_capacity = capacity;
    }
    writer->rank_devices[rank] = device_id;
    return 0;
}

/* --- path ------------------------------------------------------------------------------------------------------------ */

enum path_kind { PATH_ABSENT, PATH_TRACE, PATH_EMPTY, PATH_OTHER, PATH_FOLDER };

static enum path_kind path_examine(const char *path) {
    struct stat information;
    if (stat(path, &information) != 0) return PATH_ABSENT;
    if (S_ISDIR(information.st_mode)) return PATH_FOLDER;
    if (!S_ISREG(information.st_mode)) return PATH_OTHER;
    if (information.st_size == 0) return PATH_EMPTY;
    unsigned char header[72] = {0};
    FILE *file = fopen(path, "rb");
    size_t got = file != NULL ? fread(header, 1, sizeof header, file) : 0;
    if (file != NULL) fclose(file);
    uint32_t application = (uint32_t)header[68] << 24 | (uint32_t)header[69] << 16 | (uint32_t)header[70] << 8 | header[71];
    int trace = got == sizeof header && memcmp(header, "SQLite format 3", 16) == 0 && application == SCHEMA_APPLICATION_ID;
    return trace ? PATH_TRACE : PATH_OTHER;
}

int trace_write_check_path(const char *path, int overwrite, struct error *error) {
    if (path == NULL || path[0] == '\0') return error_set(error, ERROR_USAGE, "no name given for the trace");
    enum path_kind kind = path_examine(path);
    if (kind == PATH_FOLDER) {
        error_set(error, ERROR_USAGE, "cannot write trace '%s': it is a folder", path);
        return error_hint(error, "name a file in it, e.g. -o %s/trace.db", path);
    }
    if (kind == PATH_OTHER) {
        error_set(error, ERROR_USAGE, "will not overwrite '%s': it exists and is not a mokscope trace", path);
        return error_hint(error, "choose another name with -o, or remove it yourself");
    }
    if (kind != PATH_ABSENT && !overwrite) {
        error_set(error, ERROR_USAGE, "will not overwrite '%s': it exists", path);
        return error_hint(error, "use --force to replace it, or choose another name with -o");
    }
    char *copy = strdup(path);
    if (copy == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    const char *folder = dirname(copy);
    struct statvfs space;
    struct stat information;
    int status = 0;
    if (stat(folder, &information) == 0 && !S_ISDIR(information.st_mode)) {
        status = error_set(error, ERROR_FAILURE, "cannot create trace '%s': '%s' is not a folder", path, folder);
        error_hint(error, "choose a folder you may write with -o");
    } else if (access(folder, W_OK | X_OK) != 0) {
        status = error_set(error, ERROR_FAILURE, "cannot create trace '%s': folder '%s': %s", path, folder,
                           strerror(errno));
        error_hint(error, "choose a folder you may write with -o");
    } else if (statvfs(folder, &space) == 0 && space.f_blocks > 0 && space.f_bavail * space.f_frsize < FREE_BYTES_MINIMUM) {
        status = error_set(error, ERROR_FAILURE, "cannot create trace '%s': disk full, %llu bytes free in '%s'", path,
                           (unsigned long long)(space.f_bavail * space.f_frsize), folder);
        error_hint(error, "free space or choose another place with -o");
    }
    free(copy);
    return status;
}

static void remove_old(const char *path) {
    static const char *const suffixes[] = {"", "-journal", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char *name = sqlite3_mprintf("%s%s", path, suffixes[i]);
        if (name != NULL) unlink(name);
        sqlite3_free(name);
    }
}

/* --- open ------------------------------------------------------------------------------------------------------------ */

static int write_run(struct trace_writer *writer, const struct trace_run *run, struct error *error) {
    static const char sql[] = "INSERT INTO run VALUES (1, 'recording', ?, ?, NULL, ?, ?, ?, ?, NULL)";
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(writer->database, sql, -1, &statement, NULL) != SQLITE_OK)
        return trace_writer_fail(writer, error, "create");
    trace_writer_bind(statement, "slssss", run->producer, realtime_ns(),
                      run->tool_version != NULL ? run->tool_version : MOKSCOPE_VERSION,
                      run->git_revision != NULL ? run->git_revision : MOKSCOPE_GIT_REVISION, run->command,
                      run->host != NULL ? run->host : host);
    int code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? 0 : trace_writer_fail(writer, error, "create");
}

static void release(struct trace_writer *writer) {
    if (writer == NULL) return;
    for (int i = 0; i < STATEMENT_COUNT; i++) sqlite3_finalize(writer->statements[i]);
    sqlite3_close(writer->database);
    for (int32_t i = 0; i < writer->module_count; i++) free(writer->modules[i].event_kinds);
    free(writer->modules);
    free(writer->launches);
    free(writer->devices);
    free(writer->rank_devices);
    lane_decode_release(&writer->decoder);
    free(writer->path);
    free(writer);
}

void trace_write_abandon(struct trace_writer *writer) { release(writer); }

int trace_write_open(struct trace_writer **result, const char *path, int overwrite, const struct trace_run *run,
                     struct error *error) {
    *result = NULL;
    int status = trace_write_check_path(path, overwrite, error);
    if (status) return status;
    if (overwrite) remove_old(path);
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST) {
        error_set(error, ERROR_USAGE, "will not overwrite '%s': it exists", path);
        return error_hint(error, "use --force to replace it, or choose another name with -o");
    }
    if (file < 0) {
        error_set(error, ERROR_FAILURE, "cannot create trace '%s': %s", path, strerror(errno));
        return error_hint(error, "choose a folder you may write with -o");
    }
    close(file);

    struct trace_writer *writer = calloc(1, sizeof *writer);
    if (writer != NULL) writer->path = strdup(path);
    if (writer == NULL || writer->path == NULL) {
        status = error_set(error, ERROR_FAILURE, "out of memory");
        goto cleanup;
    }
    for (int kind = 0; kind < LANE_KIND_COUNT; kind++) writer->next_id[kind] = 1;
    writer->next_lane_id = 1;
    if (sqlite3_open_v2(path, &writer->database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        status = trace_writer_fail(writer, error, "create");
        goto cleanup;
    }
    sqlite3_busy_timeout(writer->database, BUSY_MS);
    status = run_sql(writer,
                     "PRAGMA page_size = 8192; PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF;"
                     "PRAGMA foreign_keys = OFF; PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY; BEGIN IMMEDIATE",
                     "create", error);
    if (!status) status = run_sql(writer, schema_trace_sql, "create", error);
    if (!status) status = run_sql(writer, schema_views_sql, "create", error);
    if (!status) status = write_run(writer, run, error);
    if (!status) status = run_sql(writer, "COMMIT", "create", error);
    if (!status) status = trace_lane_register(writer, error);

cleanup:
    if (status) {
        release(writer);
        remove_old(path);
        return status;
    }
    *result = writer;
    return 0;
}

/* --- close ----------------------------------------------------------------------------------------------------------- */

/* Launch ids follow the first lane's begin; lanes arrive in order of their ends, so ids may need to be dealt anew. */
static const char launch_order_sql[] =
    "CREATE TEMP TABLE launch_order AS SELECT launch_id AS old_id, row_number() OVER (ORDER BY begin, launch_id) AS new_id"
    " FROM (SELECT launch_id, min(begin_globaltimer_ns) AS begin FROM lane GROUP BY launch_id);"
    "DELETE FROM launch WHERE launch_id NOT IN (SELECT old_id FROM launch_order);"
    "CREATE TEMP TABLE launch_moved AS SELECT old_id, new_id FROM launch_order WHERE old_id <> new_id;"
    "UPDATE lane SET launch_id = (SELECT new_id FROM launch_moved WHERE old_id = launch_id)"
    " WHERE launch_id IN (SELECT old_id FROM launch_moved);"
    "UPDATE launch SET launch_id = -launch_id WHERE launch_id IN (SELECT old_id FROM launch_moved);"
    "UPDATE launch SET launch_id = (SELECT new_id FROM launch_moved WHERE old_id = -launch_id) WHERE launch_id < 0;"
    "DROP TABLE launch_order; DROP TABLE launch_moved;";

static const char lost_records_sql[] =
    "INSERT INTO loss SELECT NULL, 'probes', 'record', sum(lost_count), 'records of role ' || name ||"
    " ' overwritten in full rings: raise --records' FROM lane JOIN role USING (role_id) WHERE lost_count > 0"
    " GROUP BY role_id";

/* Rows described ahead of ranks that never came: they would point nowhere. */
static int drop_rows_of_unknown_ranks(struct trace_writer *writer, struct error *error) {
    static const char *const sql[] = {"DELETE FROM task WHERE rank NOT IN (SELECT rank FROM rank)",
                                      "DELETE FROM edge_target WHERE rank NOT IN (SELECT rank FROM rank)"};
    static const char *const kinds[] = {"task", "target"};
    int status = 0;
    for (int i = 0; !status && i < 2; i++) {
        status = run_sql(writer, sql[i], "finish", error);
        if (!status)
            status = trace_write_loss(writer, "recorder", kinds[i], sqlite3_changes(writer->database),
                                      "rows of ranks that never appeared", error);
    }
    return status;
}

static int64_t count_violations(struct trace_writer *writer) {
    sqlite3_stmt *statement = NULL;
    int64_t count = 0;
    if (sqlite3_prepare_v2(writer->database, "PRAGMA foreign_key_check", -1, &statement, NULL) != SQLITE_OK) return -1;
    while (sqlite3_step(statement) == SQLITE_ROW) count++;
    sqlite3_finalize(statement);
    return count;
}

static int write_losses(struct trace_writer *writer, struct error *error) {
    int status = trace_write_loss(writer, "probes", "event", writer->unknown_events,
                                  "records whose event is not in their module's table", error);
    if (!status)
        status = trace_write_loss(writer, "probes", "clock", writer->misplaced_records,
                                  "records whose clock lies outside their lane", error);
    if (!status)
        status = trace_write_loss(writer, "probes", "role", writer->refused_lanes,
                                  "lanes whose role is not in their module's table", error);
    if (!status && trace_writer_statement(writer, STATEMENT_LOSS, error) == NULL) status = writer->failure.code;
    if (!status) status = run_sql(writer, lost_records_sql, "finish", error);
    if (!status) status = drop_rows_of_unknown_ranks(writer, error);
    return status;
}

static int end_run(struct trace_writer *writer, const char *state, int exit_status, struct error *error) {
    char *sql = sqlite3_mprintf("UPDATE run SET state = %Q, end_utc_ns = %lld, exit_status = %s", state, realtime_ns(),
                                exit_status < 0 ? "NULL" : "");
    if (sql != NULL && exit_status >= 0) {
        char *with_status = sqlite3_mprintf("%s%d", sql, exit_status);
        sqlite3_free(sql);
        sql = with_status;
    }
    if (sql == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    int status = run_sql(writer, sql, "finish", error);
    sqlite3_free(sql);
    return status;
}

int trace_write_close(struct trace_writer *writer, const char *state, int exit_status, struct error *error) {
    if (writer == NULL) return 0;
    int status = failed_before(writer, error);
    if (!status) status = write_losses(writer, error);
    if (!status) status = run_sql(writer, launch_order_sql, "finish", error);
    if (!status) status = end_run(writer, state, exit_status, error);
    if (!status) status = commit(writer, 1, error);
    if (!status) {
        int64_t violations = count_violations(writer);
        if (violations != 0) {
            status = error_set(error, ERROR_FAILURE, "trace '%s' has %lld rows that point nowhere", writer->path,
                               (long long)violations);
            error_hint(error, "sqlite3 '%s' 'PRAGMA foreign_key_check' names them; this is a bug, please report it",
                       writer->path);
        }
    }
    release(writer);
    return status;
}

/* --- after the recorded program -------------------------------------------------------------------------------------- */

/* First value of the query's first row; 0, or -1 with the database's error. */
static int query_integer(sqlite3 *database, const char *sql, int64_t *value) {
    sqlite3_stmt *statement = NULL;
    int got = sqlite3_prepare_v2(database, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW;
    if (got) *value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return got ? 0 : -1;
}

static int update_run(sqlite3 *database, int exit_status) {
    char *sql = sqlite3_mprintf("UPDATE run SET state = CASE state WHEN 'recording' THEN 'cut' ELSE state END,"
                                " end_utc_ns = ifnull(end_utc_ns, %lld), exit_status = CASE WHEN %d < 0 THEN exit_status"
                                " ELSE %d END; PRAGMA journal_mode = DELETE",
                                realtime_ns(), exit_status, exit_status);
    int code = sql != NULL ? sqlite3_exec(database, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return code;
}

static void fill_summary(sqlite3 *database, struct trace_summary *summary) {
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(database, "SELECT state FROM run", -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        snprintf(summary->state, sizeof summary->state, "%s", (const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    query_integer(database, "SELECT ifnull(max(span_id), 0) FROM span", &summary->span_count);
    query_integer(database, "SELECT ifnull(max(wait_id), 0) FROM wait", &summary->wait_count);
    query_integer(database, "SELECT ifnull(max(signal_id), 0) FROM signal", &summary->signal_count);
    query_integer(database, "SELECT count(*) FROM lane", &summary->lane_count);
    query_integer(database, "SELECT count(*) FROM launch", &summary->launch_count);
    query_integer(database, "SELECT count(*) FROM kernel", &summary->kernel_count);
    query_integer(database, "SELECT count(*) FROM device", &summary->device_count);
    query_integer(database, "SELECT ifnull(sum(count), 0) FROM loss WHERE kind <> 'refused'", &summary->lost_count);
}

int trace_write_finalise(const char *path, int exit_status, struct trace_summary *summary, struct error *error) {
    if (summary != NULL) memset(summary, 0, sizeof *summary);
    static const char count_tables_sql[] = "SELECT count(*) FROM sqlite_schema";
    sqlite3 *database = NULL;
    int64_t tables = 0;
    int status = 0;
    if (path_examine(path) == PATH_ABSENT) {
        status = error_set(error, ERROR_FAILURE, "no trace '%s'", path);
        error_hint(error, "the program may never have used a GPU");
        return status;
    }
    if (sqlite3_open_v2(path, &database, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(database, BUSY_MS) != SQLITE_OK || query_integer(database, count_tables_sql, &tables)) {
        status = describe_failure(error, database, path, "finish");
    } else if (tables == 0) {
        status = error_set(error, ERROR_FAILURE, "trace '%s' is empty: its recording ended while it was being created", path);
        error_hint(error, "record it again");
    } else if (update_run(database, exit_status) != SQLITE_OK) {
        status = describe_failure(error, database, path, "finish");
    } else if (summary != NULL) {
        fill_summary(database, summary);
    }
    sqlite3_close(database);
    return status;
}
