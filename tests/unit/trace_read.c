/* Reading traces: every row arrives, times are those of the views, damaged and foreign files are refused with a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "../../analyzer/analysis.h"
#include "../../analyzer/trace_read.h"
#include "trace_build.h"

/* A trace with two roles, an edge, three lanes of one launch. */
static void build_small(struct trace_build *b) {
    build_open(b);
    build_role(b, "mma", "compute");
    build_role(b, "dispatch", "communicate");
    build_event(b, "task", "container", "");
    build_event(b, "mma", "compute", "stall in the span, 64-cycle units");
    build_edge(b, "X", "dispatch", "mma", "gpu", false);
    build_task(b, 0, 7, "gate+up", 3, 1, 2, 100, 28, 1000);
    build_launch(b, 42);
    build_lane(b, "mma", 0, 1, 4, 9, 0, 5000);
    build_span(b, "task", 100, 2000, 3, 7);
    build_wait(b, "X", 110, 300, 5);
    build_span(b, "mma", 300, 1900, 2, 7);
    build_lane_end(b);
    build_lane(b, "dispatch", 0, 0, 0, 8, 10, 4000);
    build_signal(b, "X", 290, 5);
    build_lane_end(b);
    build_lane(b, "mma", 1, 2, 4, 10, 50, 4500);
    build_lane_end(b);
}

static void execute(const char *path, const char *sql) {
    sqlite3 *database = NULL;
    char *message = NULL;
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    if (sqlite3_exec(database, sql, NULL, NULL, &message) != SQLITE_OK) fail_msg("%s: %s", sql, message);
    sqlite3_close(database);
}

static int read_path(const char *path, struct trace_file *file, struct trace *trace, struct error *error) {
    *file = (struct trace_file){0};
    *trace = (struct trace){0};
    *error = (struct error){0};
    int status = trace_file_open(file, path, error);
    return status ? status : trace_read(file, trace, error);
}

/* Reads; asserts that it fails with the text in the message, or a hint where asked, and the code. */
static void refuse(const char *path, int code, const char *text) {
    struct trace_file file;
    struct trace trace;
    struct error error;
    int status = read_path(path, &file, &trace, &error);
    if (status != code || strstr(error.message, text) == NULL) fail_msg("status %d, '%s' (hint '%s'), expected '%s'", status, error.message, error.hint, text);
    assert_null(strchr(error.message, '\n'));
    trace_release(&trace);
    trace_file_close(&file);
}

static void rows_arrive(void **state) {
    (void)state;
    struct trace_build b;
    struct trace_file file;
    struct trace trace;
    struct error error;
    build_small(&b);
    build_close(&b);
    assert_int_equal(read_path(b.path, &file, &trace, &error), 0);
    assert_string_equal(trace.run.state, "complete");
    assert_int_equal(trace.lane_count, 3);
    assert_int_equal(trace.rank_count, 2);
    assert_int_equal(trace.record_count[TRACE_SPAN], 2);
    assert_int_equal(trace.record_count[TRACE_WAIT], 1);
    assert_int_equal(trace.record_count[TRACE_SIGNAL], 1);
    const struct trace_lane *lane = &trace.lanes[0]; /* ordered by launch, rank, role: rank 0's mma lane first */
    assert_int_equal(lane->sm, 9);
    assert_int_equal(lane->cta, 1);
    assert_int_equal(lane->warp, 4);
    assert_int_equal(lane->begin_ns, BUILD_BASE_TICKS);
    assert_int_equal(lane->end_ns, BUILD_BASE_TICKS + 5000);
    assert_true(lane->closed && !lane->void_clock);
    const struct trace_record *spans = trace.records[TRACE_SPAN] + lane->first[TRACE_SPAN];
    assert_int_equal(lane->count[TRACE_SPAN], 2);
    assert_int_equal(spans[0].begin_ns - BUILD_BASE_TICKS, 100);
    assert_int_equal(spans[0].end_ns - BUILD_BASE_TICKS, 2000);
    assert_int_equal(spans[0].argument, 7);
    assert_int_equal(spans[0].small, 3);
    assert_string_equal(trace.events[spans[0].event].name, "task");
    assert_int_equal(trace.events[spans[0].event].event_class, TRACE_EVENT_CONTAINER);
    assert_int_equal(trace.events[spans[1].event].stall_cycles, 64);
    const struct trace_record *wait = trace.records[TRACE_WAIT] + lane->first[TRACE_WAIT];
    assert_int_equal(wait->argument, 5);
    assert_string_equal(trace.edges[trace.events[wait->event].edge].name, "X");
    assert_int_equal(trace.roles[trace.edges[0].producer].role_class, TRACE_ROLE_COMMUNICATE);
    assert_int_equal(trace.task_count, 1);
    assert_int_equal(trace.tasks[0].flops, 1000);
    assert_string_equal(trace.tasks[0].phase, "gate+up");
    trace_release(&trace);
    trace_file_close(&file);
    build_remove(&b);
}

/* The same nanoseconds as the public views, whatever the clock's line is. */
static void times_are_the_views(void **state) {
    (void)state;
    static const char *const lines[] = {"ns_per_tick = 0.50505", "ns_per_tick = 0.3333333333, base_ticks = base_ticks + 12345678901",
                                        "ns_per_tick = 1.7, base_ns = base_ns + 1700000000000000000", "ns_per_tick = 2.5, base_ticks = 7"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct trace_build b;
        struct trace_file file;
        struct trace trace;
        struct error error;
        char sql[256];
        sqlite3_stmt *statement = NULL;
        build_small(&b);
        build_close(&b);
        snprintf(sql, sizeof sql, "UPDATE clock_fit SET %s", lines[i]);
        execute(b.path, sql);
        assert_int_equal(read_path(b.path, &file, &trace, &error), 0);
        assert_int_equal(sqlite3_prepare_v2(file.database, "SELECT begin_ns, end_ns FROM v_span UNION ALL SELECT begin_ns, end_ns FROM v_wait"
                                            " UNION ALL SELECT at_ns, at_ns FROM v_signal", -1, &statement, NULL), SQLITE_OK);
        for (int kind = 0; kind < TRACE_KIND_COUNT; kind++) {
            for (size_t r = 0; r < trace.record_count[kind]; r++) {
                assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
                assert_int_equal(trace.records[kind][r].begin_ns, sqlite3_column_int64(statement, 0));
                assert_int_equal(trace.records[kind][r].end_ns, sqlite3_column_int64(statement, 1));
            }
        }
        assert_int_equal(sqlite3_step(statement), SQLITE_DONE);
        sqlite3_finalize(statement);
        trace_release(&trace);
        trace_file_close(&file);
        build_remove(&b);
    }
}

static void compressed(void **state) {
    (void)state;
    struct trace_build b;
    struct trace_file file;
    struct trace trace;
    struct error error;
    char path[300];
    build_small(&b);
    build_close(&b);
    snprintf(path, sizeof path, "%s.gz", b.path);
    FILE *input = fopen(b.path, "rb");
    gzFile output = gzopen(path, "wb9");
    static char bytes[1 << 20];
    size_t got = fread(bytes, 1, sizeof bytes, input);
    assert_true(got > 4096);
    assert_int_equal(gzwrite(output, bytes, (unsigned)got), (int)got);
    gzclose(output);
    fclose(input);
    assert_int_equal(read_path(path, &file, &trace, &error), 0);
    assert_true(file.compressed);
    assert_int_equal(trace.record_count[TRACE_SPAN], 2);
    trace_release(&trace);
    trace_file_close(&file);
    assert_int_equal(truncate(path, 300), 0);
    refuse(path, ERROR_USAGE, "truncated gzip file");
    unlink(path);
    build_remove(&b);
}

static void write_bytes(const char *path, const char *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static void foreign_files(void **state) {
    (void)state;
    struct trace_build b;
    build_small(&b);
    build_close(&b);
    refuse("/nonexistent/trace.db", ERROR_USAGE, "no such file");
    refuse("/tmp", ERROR_USAGE, "it is a folder");
    refuse("/dev/null", ERROR_USAGE, "not a regular file");
    execute(b.path, "PRAGMA user_version = 7");
    refuse(b.path, ERROR_USAGE, "has schema version 7, this mokscope reads up to version 1");
    execute(b.path, "PRAGMA user_version = 0");
    refuse(b.path, ERROR_USAGE, "no schema version");
    execute(b.path, "PRAGMA application_id = 5");
    refuse(b.path, ERROR_USAGE, "not a mokscope trace");
    write_bytes(b.path, "", 0);
    refuse(b.path, ERROR_USAGE, "is empty");
    write_bytes(b.path, "{\"traceEvents\": []}", 19);
    refuse(b.path, ERROR_USAGE, "is not a trace");
    write_bytes(b.path, "SQLite format 3\0 and no more", 28);
    refuse(b.path, ERROR_USAGE, "truncated: 28 bytes");
    build_remove(&b);
}

static void truncated_files(void **state) {
    (void)state;
    struct trace_build b;
    struct stat_size {
        long size;
    } whole;
    build_small(&b);
    build_close(&b);
    FILE *file = fopen(b.path, "rb");
    fseek(file, 0, SEEK_END);
    whole.size = ftell(file);
    fclose(file);
    for (long size = whole.size - 1; size > 100; size = size * 3 / 4) {
        assert_int_equal(truncate(b.path, size), 0);
        refuse(b.path, ERROR_USAGE, "truncated");
    }
    build_remove(&b);
}

/* Each statement damages the trace; the text must be in the refusal. */
static void damaged_rows(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"DELETE FROM run", "has no run"},
        {"DROP TABLE span", "no such table: span"},
        {"DROP TABLE clock_fit", "no such table: clock_fit"},
        {"DELETE FROM clock_fit", "lane 1 has no clock fit"},
        {"UPDATE clock_fit SET ns_per_tick = -1.0", "has no clock fit"},
        {"PRAGMA foreign_keys = OFF; UPDATE lane SET role_id = 99", "names role_id 99, which is not there"},
        {"PRAGMA foreign_keys = OFF; UPDATE lane SET launch_id = 99", "names launch_id 99"},
        {"PRAGMA foreign_keys = OFF; UPDATE edge SET producer_role_id = 99", "names producer_role_id 99"},
        {"UPDATE lane SET cta = 9000000000", "value 9000000000 in column 'cta'"},
        {"PRAGMA ignore_check_constraints = ON; UPDATE event SET class = 'magic'", "'magic' in column 'class'"},
        {"INSERT INTO span SELECT 100, 2, begin_ticks, 5, event_id, 0, 0, 0 FROM span WHERE span_id = 1;"
         " INSERT INTO span SELECT 101, 1, begin_ticks, 5, event_id, 0, 0, 0 FROM span WHERE span_id = 1", "do not stand together"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trace_build b;
        build_small(&b);
        build_close(&b);
        execute(b.path, cases[i][0]);
        refuse(b.path, ERROR_USAGE, cases[i][1]);
        build_remove(&b);
    }
}

/* Oddities that are counted and survived. */
static void odd_rows(void **state) {
    (void)state;
    struct trace_build b;
    struct trace_file file;
    struct trace trace;
    struct error error;
    build_small(&b);
    build_close(&b);
    execute(b.path, "UPDATE span SET length_ticks = -5 WHERE span_id = 2;"
                    "INSERT INTO span VALUES (50, 77, 1, 1, 1, 0, 0, 0);" /* no such lane */
                    "INSERT INTO wait VALUES (60, 1, 1000050, 5, 4000, 0, 70000);" /* no such event, value past 16 bits, out of order */
                    "UPDATE lane SET span_count = 1000000, first_span_id = -3;"
                    "UPDATE run SET state = 'recording'");
    assert_int_equal(read_path(b.path, &file, &trace, &error), 0);
    assert_int_equal(trace.orphan_count, 1);
    assert_int_equal(trace.reversed_count, 1);
    assert_int_equal(trace.unknown_event_count, 1);
    assert_true(trace.run.unfinished);
    assert_string_equal(trace.run.state, "cut");
    const struct trace_lane *lane = &trace.lanes[0];
    const struct trace_record *waits = trace.records[TRACE_WAIT] + lane->first[TRACE_WAIT];
    assert_int_equal(lane->count[TRACE_WAIT], 2);
    assert_int_equal(waits[0].event, TRACE_EVENT_UNKNOWN); /* put in order */
    assert_int_equal(waits[0].small, 65535);
    assert_int_equal(waits[0].begin_ns - BUILD_BASE_TICKS, 50);
    trace_release(&trace);
    trace_file_close(&file);
    build_remove(&b);
}

/* A killed writer's file opens, with what was committed. */
static void killed_writer(void **state) {
    (void)state;
    struct trace_build b;
    struct trace_file file;
    struct trace trace;
    struct error error = {0};
    build_small(&b);
    build_check(trace_write_flush(b.writer, &error), &error);
    trace_write_abandon(b.writer);
    free(b.records);
    assert_int_equal(read_path(b.path, &file, &trace, &error), 0);
    assert_true(trace.run.unfinished);
    assert_int_equal(trace.lane_count, 3);
    trace_release(&trace);
    trace_file_close(&file);
    build_remove(&b);
}

/* Flipped bytes: an error or an answer, never a crash (run it with SAN=address,undefined). */
static void flipped_bytes(void **state) {
    (void)state;
    struct trace_build b;
    static char whole[1 << 20], copy[1 << 20];
    int rounds = getenv("MOKSCOPE_ROUNDS") != NULL ? atoi(getenv("MOKSCOPE_ROUNDS")) : 400;
    uint64_t random = 88172645463325252u + (uint64_t)rounds;
    char path[300];
    build_small(&b);
    build_close(&b);
    snprintf(path, sizeof path, "%s.flipped", b.path);
    FILE *input = fopen(b.path, "rb");
    size_t size = fread(whole, 1, sizeof whole, input);
    fclose(input);
    for (int round = 0; round < rounds; round++) {
        struct trace_file file;
        struct trace trace;
        struct error error;
        memcpy(copy, whole, size);
        for (int flip = 0; flip < 1 + round % 8; flip++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            size_t at = round % 2 ? random % size : 100 + random % (size - 100);
            copy[at] = (char)(copy[at] ^ (1 << (random >> 40 & 7)));
        }
        write_bytes(path, copy, size);
        if (read_path(path, &file, &trace, &error) == 0) {
            struct analysis analysis = {0};
            const struct iteration_choice choice = {-1, -1};
            analysis_run(&trace, &choice, &analysis, &error);
            analysis_release(&analysis);
        } else {
            assert_true(error.message[0] != '\0');
        }
        trace_release(&trace);
        trace_file_close(&file);
    }
    unlink(path);
    build_remove(&b);
}

static void stall_units(void **state) {
    (void)state;
    assert_int_equal(trace_stall_cycles("stall in the span, 64-cycle units"), 64);
    assert_int_equal(trace_stall_cycles("stall in the span, 1-cycle units; more"), 1);
    assert_int_equal(trace_stall_cycles("stall in the span"), 0);
    assert_int_equal(trace_stall_cycles("rows"), 0);
    assert_int_equal(trace_stall_cycles(""), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_arrive),   cmocka_unit_test(times_are_the_views), cmocka_unit_test(compressed),    cmocka_unit_test(foreign_files),
        cmocka_unit_test(truncated_files), cmocka_unit_test(damaged_rows),      cmocka_unit_test(odd_rows),      cmocka_unit_test(killed_writer),
        cmocka_unit_test(flipped_bytes), cmocka_unit_test(stall_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
