/* A scratch folder for tests that write traces, and questions to a finished one in SQL. */
#ifndef TRACE_QUERY_H
#define TRACE_QUERY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct scratch {
    char folder[256];
    char path[512]; /* a trace in it; not made */
};

static inline void scratch_make(struct scratch *scratch) {
    const char *parent = getenv("TMPDIR");
    snprintf(scratch->folder, sizeof scratch->folder, "%s/mokscope-test-XXXXXX", parent != NULL ? parent : "/tmp");
    assert_non_null(mkdtemp(scratch->folder));
    snprintf(scratch->path, sizeof scratch->path, "%s/trace.db", scratch->folder);
}

static inline int scratch_remove_entry(const char *path, const struct stat *information, int type, struct FTW *level) {
    (void)information, (void)type, (void)level;
    return remove(path);
}

static inline void scratch_remove(struct scratch *scratch) {
    nftw(scratch->folder, scratch_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static inline sqlite3 *query_open(const char *path) {
    sqlite3 *database = NULL;
    if (sqlite3_open_v2(path, &database, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        fail_msg("cannot open '%s': %s", path, sqlite3_errmsg(database));
    return database;
}

/* All rows as text, columns separated by '|', each row ended by a newline; the caller frees it. */
static inline char *query_text(sqlite3 *database, const char *sql) {
    sqlite3_stmt *statement = NULL;
    sqlite3_str *text = sqlite3_str_new(database);
    int code = sqlite3_prepare_v2(database, sql, -1, &statement, NULL);
    while (code == SQLITE_OK || code == SQLITE_ROW) {
        code = sqlite3_step(statement);
        if (code != SQLITE_ROW) break;
        for (int i = 0; i < sqlite3_column_count(statement); i++)
            sqlite3_str_appendf(text, "%s%s", i > 0 ? "|" : "", sqlite3_column_text(statement, i));
        sqlite3_str_appendchar(text, 1, '\n');
    }
    if (code != SQLITE_DONE) sqlite3_str_appendf(text, "error: %s\n", sqlite3_errmsg(database));
    sqlite3_finalize(statement);
    char *result = sqlite3_str_finish(text);
    if (result == NULL) result = sqlite3_mprintf("");
    return result;
}

static inline void query_expect(sqlite3 *database, const char *sql, const char *expected, const char *file, int line) {
    char *got = query_text(database, sql);
    if (strcmp(got, expected) != 0) {
        print_error("%s\n--- gives\n%s--- expected\n%s---\n", sql, got, expected);
        sqlite3_free(got);
        _fail(file, line);
    }
    sqlite3_free(got);
}

/* The query's rows are exactly these. */
#define expect_rows(database, sql, expected) query_expect(database, sql, expected, __FILE__, __LINE__)

static inline int64_t query_integer(sqlite3 *database, const char *sql) {
    char *text = query_text(database, sql), *end = NULL;
    int64_t value = strtoll(text, &end, 10);
    if (end == text || *end != '\n') fail_msg("%s gives %s", sql, text);
    sqlite3_free(text);
    return value;
}

/* What every trace must satisfy, whatever is in it. */
static inline void expect_sound(sqlite3 *database) {
    expect_rows(database, "PRAGMA integrity_check", "ok\n");
    expect_rows(database, "PRAGMA foreign_key_check", "");
    expect_rows(database, "PRAGMA journal_mode", "delete\n");
}

/* A function of the project that must succeed; the error is its last argument's name, `error`. */
#define expect_done(call) \
    do { \
        struct error error = {0}; \
        if ((call) != 0) fail_msg("%s: %s (%s)", #call, error.message, error.hint); \
    } while (0)

/* A function of the project that must fail with this code and a message and hint that contain these texts. */
#define expect_error(call, expected_code, message_part, hint_part) \
    do { \
        struct error error = {0}; \
        int status = (call); \
        if (status != (expected_code) || error.code != (expected_code) || \
            strstr(error.message, message_part) == NULL || strstr(error.hint, hint_part) == NULL) \
            fail_msg("%s: %d, %d: %s (%s)", #call, status, error.code, error.message, error.hint); \
    } while (0)

#endif
