/* The trace writer: what goes in comes out of tables and views, with names joined and ids offset; damage by full disks and
 * kills is in trace_write_fault.c. */
#include "trace_query.h"

#include "../../analyzer/trace_file.h"
#include "../../probes/host/schema.h"
#include "../../probes/host/trace_write.h"

#include "random_source.h"

static const struct mokscope_role_row layer_roles[] = {{"load", MOKSCOPE_CLASS_COMMUNICATE, "loads"},
                                                       {"mma", MOKSCOPE_CLASS_COMPUTE, "multiplies"},
                                                       {"store", MOKSCOPE_CLASS_SUPPORT, "stores"}};
static const struct mokscope_edge_row layer_edges[] = {{"X_READY", 0, 1, "tile row", "gpu", 0, "rows", "x has arrived"},
                                                       {"SLOT_FREE", 1, 0, "slot", "cta", 1, "1", "slot was read"}};
enum { NONE, TASK, WORK, WAIT_X, SIGNAL_X, UNUSED, COPY, LAYER_EVENTS };
static const struct mokscope_event_row layer_events[] = {
    {NULL, 0, 0, 0, -1, "", "", ""},
    {"task", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_CONTAINER, 1, -1, "task", "", "a task"},
    {"work", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_COMPUTE, 2, -1, "block", "stage", "a block"},
    {"wait X_READY", MOKSCOPE_KIND_WAIT, MOKSCOPE_CLASS_WAIT, 1, 0, "index", "awaited", "waits"},
    {"signal X_READY", MOKSCOPE_KIND_SIGNAL, MOKSCOPE_CLASS_OVERHEAD, 1, 0, "index", "value", "signals"},
    {NULL, 0, 0, 0, -1, "", "", ""},
    {"copy", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_COMMUNICATE, 3, -1, "peer", "", "a copy"},
};
static const struct mokscope_module layer = {sizeof layer,
                                             MOKSCOPE_PROBE_VERSION,
                                             "layer",
                                             layer_roles,
                                             3,
                                             layer_events,
                                             LAYER_EVENTS,
                                             layer_edges,
                                             2,
                                             NULL,
                                             NULL,
                                             NULL};

static const struct mokscope_role_row fill_roles[] = {{"writer", MOKSCOPE_CLASS_COMMUNICATE, "writes"}};
static const struct mokscope_edge_row fill_edges[] = {{"DONE", 0, 0, "rank", "sys", 0, "ranks", "all have written"}};
static const struct mokscope_event_row fill_events[] = {
    {NULL, 0, 0, 0, -1, "", "", ""},
    {"put", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_COMMUNICATE, 1, -1, "bytes", "", "a put"},
    {"wait DONE", MOKSCOPE_KIND_WAIT, MOKSCOPE_CLASS_WAIT, 1, 0, "rank", "awaited", "waits"},
};
static const struct mokscope_module fill = {
    sizeof fill, MOKSCOPE_PROBE_VERSION, "fill", fill_roles, 1, fill_events, 3, fill_edges, 1, NULL, NULL, NULL};

static const struct trace_run test_run = {"recorder", "9.8", "abc", "app --x", "host"};

/* A writer on a fresh file with device 0 and the layer's module. */
struct fixture {
    struct scratch scratch;
    struct trace_writer *writer;
    int32_t module;
    int64_t launch;
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    const struct trace_device device = {0, "NVIDIA H200", 132, 2000000, 32, 150000000000};
    assert_non_null(f);
    scratch_make(&f->scratch);
    expect_done(trace_write_open(&f->writer, f->scratch.path, 0, &test_run, &error));
    expect_done(trace_write_device(f->writer, &device, &error));
    expect_done(trace_write_module(f->writer, &layer, &f->module, &error));
    assert_int_equal(f->module, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    trace_write_abandon(f->writer);
    scratch_remove(&f->scratch);
    free(f);
    return 0;
}

/* Finishes the file and opens it for questions; every file must be sound. */
static sqlite3 *finish(struct fixture *f) {
    struct trace_writer *writer = f->writer;
    f->writer = NULL;
    expect_done(trace_write_close(writer, "complete", 0, &error));
    sqlite3 *database = query_open(f->scratch.path);
    expect_sound(database);
    return database;
}

/* A closed lane of 2000 ticks = 1000 ns from globaltimer begin_ns on. */
static struct mokscope_lane_header lane_header(uint32_t rank, uint32_t role, uint64_t begin_ns) {
    return (struct mokscope_lane_header){.state = MOKSCOPE_LANE_CLOSED,
                                         .clock_begin = 5000,
                                         .globaltimer_begin = begin_ns,
                                         .clock_end = 7000,
                                         .globaltimer_end = begin_ns + 1000,
                                         .rank = rank,
                                         .role = role,
                                         .cta = 3,
                                         .cluster = 1,
                                         .warp = 4,
                                         .sm_begin = 9,
                                         .sm_end = 10};
}

static void write_lane(struct fixture *f, int64_t launch, struct mokscope_lane_header header,
                       const struct mokscope_record *records, uint32_t count, uint32_t capacity) {
    header.count = count;
    expect_done(trace_write_lane(f->writer, launch, &header, records, capacity, &error));
}

static int64_t new_launch(struct fixture *f, int32_t device, int32_t module, uint64_t grid_id) {
    int64_t launch = 0;
    expect_done(trace_write_launch(f->writer, device, module, grid_id, &launch, &error));
    return launch;
}

/* --- the file -------------------------------------------------------------------------------------------------------- */

static void schema(void **state) {
    sqlite3 *database = finish(*state);
    assert_int_equal(query_integer(database, "PRAGMA application_id"), SCHEMA_APPLICATION_ID);
    assert_int_equal(query_integer(database, "PRAGMA user_version"), TRACE_FILE_SCHEMA_VERSION);
    expect_rows(database,
                "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND NOT strict"
                " AND name NOT LIKE 'sqlite_%'",
                "");
    assert_true(query_integer(database, "SELECT count(*) FROM sqlite_schema WHERE type = 'table'") >= 20);
    char *views = query_text(database, "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name");
    int count = 0;
    for (char *view = strtok(views, "\n"); view != NULL; view = strtok(NULL, "\n"), count++) {
        char sql[128];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM (SELECT * FROM %s)", view);
        query_integer(database, sql);
    }
    assert_true(count >= 15);
    sqlite3_free(views);
    sqlite3_close(database);
}

/* STRICT and CHECK refuse what does not belong. */
static void schema_refuses(void **state) {
    struct fixture *f = *state;
    static const char *const wrong[] = {
        "INSERT INTO span VALUES (1, 1, 'soon', 1, 1, 0, 0, 0)",
        "INSERT INTO wait VALUES (1, 1, 1.5, 1, 1, 0, 0)",
        "INSERT INTO run VALUES (2, 'recording', 'recorder', 1, NULL, '', '', '', '', NULL)",
        "UPDATE run SET state = 'done'",
        "UPDATE run SET command = NULL",
        "INSERT INTO event VALUES (99, 0, 'x', 'span', 'idle', 1, NULL, '', '', '')",
        "INSERT INTO lane VALUES (1, 77, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0)",
    };
    sqlite3_close(finish(f));
    sqlite3 *database = NULL;
    assert_int_equal(sqlite3_open(f->scratch.path, &database), SQLITE_OK);
    sqlite3_exec(database, "PRAGMA foreign_keys = ON", NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (sqlite3_exec(database, wrong[i], NULL, NULL, NULL) != SQLITE_CONSTRAINT) fail_msg("accepted: %s", wrong[i]);
    sqlite3_close(database);
}

static void run_row(void **state) {
    struct fixture *f = *state;
    expect_done(trace_write_close(f->writer, "cut", 137, &error));
    f->writer = NULL;
    sqlite3 *database = query_open(f->scratch.path);
    expect_rows(database,
                "SELECT run_id, state, producer, tool_version, git_revision, command, host, exit_status FROM run",
                "1|cut|recorder|9.8|abc|app --x|host|137\n");
    expect_rows(database,
                "SELECT end_utc_ns >= begin_utc_ns, begin_utc_ns > 1700000000000000000,"
                " abs(begin_utc_ns / 1000000000 - unixepoch()) < 600 FROM run",
                "1|1|1\n");
    sqlite3_close(database);
}

/* What is not given: version, revision and host of this build and machine; exit status unknown. */
static void run_defaults(void **state) {
    struct fixture *f = *state;
    const struct trace_run run = {"executor", NULL, NULL, NULL, NULL};
    char host[256] = "", expected[300];
    trace_write_abandon(f->writer);
    expect_done(trace_write_open(&f->writer, f->scratch.path, 1, &run, &error));
    expect_done(trace_write_close(f->writer, "complete", -1, &error));
    f->writer = NULL;
    gethostname(host, sizeof host - 1);
    snprintf(expected, sizeof expected, "complete|executor||%s|-\n", host);
    sqlite3 *database = query_open(f->scratch.path);
    expect_rows(database, "SELECT state, producer, command, host, ifnull(exit_status, '-') FROM run", expected);
    expect_rows(database, "SELECT tool_version GLOB '[0-9]*.[0-9]*', length(git_revision) IN (0, 12) FROM run",
                "1|1\n");
    sqlite3_close(database);
}

/* --- rows ------------------------------------------------------------------------------------------------------------ */

static void descriptions(void **state) {
    struct fixture *f = *state;
    const struct trace_device changed = {0, "NVIDIA H200", 132, 0, 0, 0}, other = {3, "B", 8, 1, 2, 3};
    expect_done(trace_write_attribute(f->writer, "shape", "hidden", "7168", "elements", &error));
    expect_done(trace_write_attribute(f->writer, "knob", "hidden", "4096", NULL, &error)); /* replaces */
    expect_done(trace_write_attribute(f->writer, "mood", "note", "it's \"fine\"", "", &error));
    expect_done(trace_write_attribute(f->writer, NULL, "empty", NULL, NULL, &error));
    expect_done(trace_write_device(f->writer, &other, &error));
    expect_done(trace_write_device(f->writer, &changed, &error));
    expect_done(trace_write_rank(f->writer, 1, 0, 41, &error));
    expect_done(trace_write_rank(f->writer, 1, 3, 42, &error));
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT * FROM attribute", "empty|note||\nhidden|knob|4096|\nnote|note|it's \"fine\"|\n");
    expect_rows(database, "SELECT * FROM device", "0|NVIDIA H200|132|||\n3|B|8|1|2|3\n");
    expect_rows(database, "SELECT * FROM rank", "1|3|42\n");
    sqlite3_close(database);
}

static void modules(void **state) {
    struct fixture *f = *state;
    int32_t second = -1, third = -1;
    expect_done(trace_write_module(f->writer, &fill, &second, &error));
    expect_done(trace_write_module(f->writer, &layer, &third, &error));
    assert_int_equal(second, 1);
    assert_int_equal(third, 2);
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT * FROM module", "0|layer\n1|fill\n2|layer\n");
    expect_rows(database, "SELECT role_id, module_id, name, class FROM role",
                "0|0|load|communicate\n1|0|mma|compute\n2|0|store|support\n3|1|writer|communicate\n"
                "4|2|load|communicate\n5|2|mma|compute\n6|2|store|support\n");
    expect_rows(database, "SELECT * FROM edge WHERE module_id < 2",
                "0|0|X_READY|0|1|tile row|gpu|0|rows|x has arrived\n1|0|SLOT_FREE|1|0|slot|cta|1|1|slot was read\n"
                "2|1|DONE|3|3|rank|sys|0|ranks|all have written\n");
    expect_rows(database, "SELECT name, producer_role_id, consumer_role_id FROM edge WHERE module_id = 2",
                "X_READY|4|5\nSLOT_FREE|5|4\n");
    expect_rows(database,
                "SELECT event_id, module, event, kind, class, level, edge, producer, consumer, scope, slot_reuse,"
                " argument, small, description FROM v_event WHERE event_id < 10",
                "1|layer|task|span|container|1||||||task||a task\n"
                "2|layer|work|span|compute|2||||||block|stage|a block\n"
                "3|layer|wait X_READY|wait|wait|1|X_READY|load|mma|gpu|0|index|awaited|waits\n"
                "4|layer|signal X_READY|signal|overhead|1|X_READY|load|mma|gpu|0|index|value|signals\n"
                "6|layer|copy|span|communicate|3||||||peer||a copy\n"
                "8|fill|put|span|communicate|1||||||bytes||a put\n"
                "9|fill|wait DONE|wait|wait|1|DONE|writer|writer|sys|0|rank|awaited|waits\n");
    expect_rows(database, "SELECT min(event_id), max(event_id), max(edge_id) FROM event WHERE module_id = 2",
                "11|16|3\n");
    sqlite3_close(database);
}

/* A table that contradicts itself is refused by name, and the writer goes on. */
static void contradicting_modules(void **state) {
    struct fixture *f = *state;
    struct mokscope_edge_row edge = fill_edges[0];
    struct mokscope_event_row events[3] = {fill_events[0], fill_events[1], fill_events[2]};
    struct mokscope_module bad = fill;
    int32_t id = -7;
    bad.edges = &edge;
    bad.events = events;
    edge.consumer_role = 1;
    expect_error(trace_write_module(f->writer, &bad, &id, &error), ERROR_USAGE, "edge 'DONE' of module 'fill'", "");
    edge.consumer_role = 0;
    edge.scope = "world";
    expect_error(trace_write_module(f->writer, &bad, &id, &error), ERROR_USAGE, "scope 'world'", "");
    edge.scope = NULL;
    expect_error(trace_write_module(f->writer, &bad, &id, &error), ERROR_USAGE, "scope ''", "");
    edge.scope = "sys";
    events[2].edge = 1;
    expect_error(trace_write_module(f->writer, &bad, &id, &error), ERROR_USAGE, "event 'wait DONE' of module 'fill'",
                 "");
    events[2].edge = 0;
    events[1].kind = 3;
    expect_error(trace_write_module(f->writer, &bad, &id, &error), ERROR_USAGE, "event 'put' of module 'fill'", "");
    events[1].kind = 0;
    bad.event_count = MOKSCOPE_EVENT_MASK + 2;
    expect_error(trace_write_module(f->writer, &bad, &id, &error), ERROR_USAGE, "4097 events", "");
    bad.event_count = 3;
    assert_int_equal(id, -7);
    expect_done(trace_write_module(f->writer, &bad, &id, &error));
    assert_int_equal(id, 1);
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT count(*) FROM module", "2\n");
    sqlite3_close(database);
}

static void tasks_and_targets(void **state) {
    struct fixture *f = *state;
    int32_t second;
    expect_done(trace_write_module(f->writer, &fill, &second, &error));
    const struct mokscope_task_row tasks[] = {{0, 1, "gate+up", 2, 3, 4, 5, 6, 7, 800000000000, 9},
                                              {0, 2, "dispatch", 0, -1, 0, 0, 1, 0, 0, 14336},
                                              {0, 1, "down", 2, 3, 4, 5, 6, 7, 1, 2},  /* replaces the first */
                                              {5, 1, "down", 2, 3, 4, 5, 6, 7, 1, 2}}; /* rank 5 never comes */
    const struct mokscope_target_row targets[] = {
        {NULL, 0, 1, 7, 12},    {"fill", 1, 0, 0, UINT32_MAX}, {NULL, 0, 1, 7, 13},   {"fill", 0, 1, 0, 1},
        {"nobody", 0, 0, 0, 1}, {NULL, 0, -1, 0, 1},           {"layer", 9, 0, 3, 4}, {"layer", 0, 0, 3, 4}};
    expect_done(trace_write_tasks(f->writer, tasks, 4, &error)); /* before their ranks */
    expect_done(trace_write_targets(f->writer, targets, 8, &error));
    expect_done(trace_write_rank(f->writer, 0, 0, 1, &error));
    expect_done(trace_write_rank(f->writer, 1, 0, 1, &error));
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT * FROM v_task", "0|0|1|down|2|3|4|5|6|7|1|2\n0|0|2|dispatch|0|-1|0|0|1|0|0|14336\n");
    expect_rows(database, "SELECT * FROM v_edge_target ORDER BY rank, edge",
                "0|SLOT_FREE|slot|7|13\n0|X_READY|tile row|3|4\n1|DONE|rank|0|4294967295\n");
    expect_rows(database, "SELECT source, kind, count FROM loss ORDER BY kind, count",
                "recorder|target|1\nrecorder|target|3\nrecorder|task|1\n");
    sqlite3_close(database);
}

/* Targets and hangs that name no module mean the first that has edges. */
static void module_with_edges(void **state) {
    struct fixture *f = *state;
    const struct mokscope_module plain = {
        sizeof plain, MOKSCOPE_PROBE_VERSION, "plain", fill_roles, 1, fill_events, 2, NULL, 0, NULL, NULL, NULL};
    const struct mokscope_target_row target = {NULL, 0, 0, 1, 2};
    int32_t id;
    trace_write_abandon(f->writer);
    expect_done(trace_write_open(&f->writer, f->scratch.path, 1, &test_run, &error));
    expect_done(trace_write_device(f->writer, &(struct trace_device){0, "d", 1, 0, 0, 0}, &error));
    expect_done(trace_write_module(f->writer, &plain, &id, &error));
    expect_done(trace_write_targets(f->writer, &target, 1, &error)); /* nobody has edges */
    expect_done(trace_write_module(f->writer, &fill, &id, &error));
    expect_done(trace_write_rank(f->writer, 0, 0, 1, &error));
    expect_done(trace_write_targets(f->writer, &target, 1, &error));
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT edge, counter_index, target FROM v_edge_target", "DONE|1|2\n");
    expect_rows(database, "SELECT kind, count FROM loss", "target|1\n");
    sqlite3_close(database);
}

static void activity(void **state) {
    struct fixture *f = *state;
    const struct trace_kernel kernel = {0,           UINT32_MAX, 14,   15,    1 + ((int64_t)1 << 40),
                                        3,           "_Z3mokv",  1000, 5000,  {132, 2, 1},
                                        {384, 1, 1}, 168,        16,   232448};
    struct trace_kernel backwards = kernel;
    const struct trace_copy copy = {0, 7, 8, "HtoD", 4096, 100, 300}, instant = {0, 7, 9, "memset", 1, 5, 5};
    const struct trace_marker marker = {77, "domain", "step \xc3\xa9", 10, 30};
    const struct trace_host_activity wait = {"synchronise", "cuCtxSynchronize", 50, 90};
    int64_t id = 0, second = 0;
    backwards.end_ns = 900;
    backwards.name = NULL;
    expect_done(trace_write_kernel(f->writer, &kernel, &id, &error));
    expect_done(trace_write_kernel(f->writer, &backwards, &second, &error));
    expect_done(trace_write_copy(f->writer, &copy, &error));
    expect_done(trace_write_copy(f->writer, &instant, &error));
    expect_done(trace_write_marker(f->writer, &marker, &error));
    expect_done(trace_write_host_activity(f->writer, &wait, &error));
    expect_done(trace_write_loss(f->writer, "cupti", "activity", 5, "dropped", &error));
    expect_done(trace_write_loss(f->writer, "cupti", "activity", 6, "dropped", &error));
    expect_done(trace_write_loss(f->writer, "cupti", "refused", 1, "no counters", &error));
    expect_done(trace_write_loss(f->writer, "cupti", "activity", 0, "nothing", &error));
    assert_int_equal(id, 1);
    assert_int_equal(second, 2);
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT * FROM kernel",
                "1|0|4294967295|14|15|1099511627777|3|_Z3mokv|1000|5000|132|2|1|384|1|1|168|16|232448\n"
                "2|0|4294967295|14|15|1099511627777|3||1000|1000|132|2|1|384|1|1|168|16|232448\n");
    expect_rows(
        database,
        "SELECT kernel_id, launch_id, device, name, duration_ns, cta_count, thread_count, registers, shared_bytes"
        " FROM v_kernel WHERE kernel_id = 1",
        "1||NVIDIA H200|_Z3mokv|4000|264|384|168|232464\n");
    expect_rows(database, "SELECT * FROM v_copy",
                "1|0|7|8|HtoD|4096|100|300|200|20480000000.0\n2|0|7|9|memset|1|5|5|0|\n");
    expect_rows(database, "SELECT * FROM v_marker", "1|77|domain|step \xc3\xa9|10|30|20\n");
    expect_rows(database, "SELECT * FROM v_host_activity", "1|synchronise|cuCtxSynchronize|50|90|40\n");
    expect_rows(database, "SELECT * FROM v_loss", "cupti|activity|11|dropped\ncupti|refused|1|no counters\n");
    expect_rows(database, "SELECT kernel_count, lost_count FROM v_run", "2|11\n");
    sqlite3_close(database);
}

/* --- lanes ----------------------------------------------------------------------------------------------------------- */

static void lanes_in_views(void **state) {
    struct fixture *f = *state;
    const struct trace_device second_device = {1, "other", 8, 1000000, 0, 0};
    const struct mokscope_record records[8] = {{5100, 200, WORK | 2 << MOKSCOPE_PHASE_SHIFT, 1, 11},
                                               {5400, 100, WAIT_X, 6, 5},
                                               {5600, 0, SIGNAL_X, 65535, UINT32_MAX},
                                               {5050, 1000, TASK, 0, 42},
                                               {6100, 300, COPY, 7, 8}};
    const struct mokscope_record put = {300, 40, 1, 3, 7};
    const struct mokscope_lane_header open = {
        .state = MOKSCOPE_LANE_OPEN, .clock_begin = 100, .globaltimer_begin = 90000, .rank = 1};
    int32_t second;
    expect_done(trace_write_module(f->writer, &fill, &second, &error));
    expect_done(trace_write_device(f->writer, &second_device, &error));
    write_lane(f, new_launch(f, 0, f->module, UINT64_MAX >> 1), lane_header(0, 1, 40000), records, 5, 8);
    write_lane(f, new_launch(f, 1, second, 6), open, &put, 1, 8);
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT * FROM lane",
                "1|1|0|3|1|4|1|9|10|1|5000|7000|40000|41000|5|0|1|3|1|1|1|1\n"
                "2|2|1|0|0|0|3|0|0|0|100|340|90000|0|1|0|4|1|2|0|2|0\n");
    expect_rows(
        database,
        "SELECT lane_id, rank, cta, cluster, warp, role, role_class, sm, sm_end, closed, begin_ns, end_ns, clock_ghz,"
        " step_found, record_count, lost_count, span_count, wait_count, signal_count FROM v_lane",
        "1|0|3|1|4|mma|compute|9|10|1|40000|41000|2.0|0|5|0|3|1|1\n"
        "2|1|0|0|0|writer|communicate|0|0|0|90000|90240|1.0|0|1|0|1|0|0\n"); /* one pair: the device's SM clock */
    expect_rows(database, "SELECT * FROM v_span",
                "1|1|1|0|9|3|4|mma|task|container|1|40025|40525|500.0|0|0|42\n"
                "2|1|1|0|9|3|4|mma|work|compute|2|40050|40150|100.0|2|1|11\n"
                "3|1|1|0|9|3|4|mma|copy|communicate|3|40550|40700|150.0|0|7|8\n"
                "4|2|2|1|0|0|0|writer|put|communicate|1|90200|90240|40.0|0|3|7\n");
    expect_rows(database, "SELECT * FROM v_wait",
                "1|1|1|0|9|3|4|mma|wait X_READY|X_READY|0|gpu|40200|40250|50.0|5|6\n");
    expect_rows(database, "SELECT * FROM v_signal",
                "1|1|1|0|9|3|4|mma|signal X_READY|X_READY|0|gpu|40300|4294967295|65535\n");
    expect_rows(database, "SELECT * FROM v_sync", "1|5000|40000|40000\n1|7000|41000|41000\n2|100|90000|90000\n");
    expect_rows(database, "SELECT * FROM clock_fit", "1|5000|40000|0.5|0|2\n2|100|90000|1.0|0|1\n");
    expect_rows(
        database,
        "SELECT launch_id, device_id, module, grid_id, kernel, lanes_begin_ns, lanes_end_ns, lane_count, rank_count,"
        " sm_count, open_lanes, lost_count FROM v_launch",
        "1|0|layer|9223372036854775807||40000|41000|1|1|1|0|0\n2|1|fill|6||90000|90240|1|1|1|1|0\n");
    expect_rows(database, "SELECT rank, device_id, process_id > 0 FROM rank", "0|0|1\n1|1|1\n");
    expect_rows(database,
                "SELECT state, rank_count, launch_count, lane_count, span_count, wait_count, signal_count, lost_count "
                "FROM v_run",
                "complete|2|2|2|4|1|1|0\n");
    expect_rows(database, "SELECT count(*) FROM loss", "0\n");
    sqlite3_close(database);
}

static void lost_and_unknown(void **state) {
    struct fixture *f = *state;
    struct mokscope_record records[4];
    int64_t launch = new_launch(f, 0, f->module, 1);
    for (uint32_t i = 0; i < 4; i++) records[i] = (struct mokscope_record){6000 + 10 * ((i + 2) & 3), 5, WORK, 0, i};
    write_lane(f, launch, lane_header(0, 0, 1000), records, 6, 4); /* two overwritten; the oldest kept stands at 2 */
    write_lane(f, launch, lane_header(0, 0, 1000), records, 1000, 4);
    write_lane(f, launch, lane_header(0, 3, 1000), records, 4, 4); /* role the module does not have */
    write_lane(f, launch, lane_header(0, UINT32_MAX, 1000), records, 4, 4);
    records[0].event = UNUSED;
    records[1].event = LAYER_EVENTS;
    records[2].begin_clock = 100000000; /* after the lane's end */
    write_lane(f, launch, lane_header(UINT32_MAX, 2, 1000), records, 4, 4);
    expect_error(trace_write_lane(f->writer, 2, &(struct mokscope_lane_header){0}, records, 4, &error), ERROR_FAILURE,
                 "unknown launch 2", "");
    expect_error(trace_write_lane(f->writer, 0, &(struct mokscope_lane_header){0}, records, 4, &error), ERROR_FAILURE,
                 "unknown launch 0", "");
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT record_count, lost_count, span_count, rank FROM lane",
                "6|2|4|0\n1000|996|4|0\n4|0|1|4294967295\n");
    expect_rows(database, "SELECT argument FROM span WHERE lane_id = 1", "2\n3\n0\n1\n");
    expect_rows(database, "SELECT source, kind, count, detail FROM v_loss",
                "probes|record|998|records of role load overwritten in full rings: raise --records\n"
                "probes|event|2|records whose event is not in their module's table\n"
                "probes|role|2|lanes whose role is not in their module's table\n"
                "probes|clock|1|records whose clock lies outside their lane\n");
    sqlite3_close(database);
}

/* Lanes arrive in order of their ends; launch ids follow the first lane's begin, links to kernels go along. */
static void launch_order(void **state) {
    struct fixture *f = *state;
    static const uint64_t begins[] = {5000, 3000, 9000, 1000, 3000};
    const struct trace_kernel kernel = {.name = "k", .begin_ns = 1, .end_ns = 2};
    for (uint64_t i = 0; i < 5; i++) {
        int64_t launch = new_launch(f, 0, f->module, 100 + i), kernel_id;
        assert_int_equal(launch, (int64_t)i + 1);
        if (i != 2) write_lane(f, launch, lane_header((uint32_t)i, 1, begins[i] + 7), NULL, 0, 4);
        if (i != 2) write_lane(f, launch, lane_header((uint32_t)i, 1, begins[i]), NULL, 0, 4);
        expect_done(trace_write_kernel(f->writer, &kernel, &kernel_id, &error));
        expect_done(trace_write_launch_kernel(f->writer, launch, kernel_id, &error));
    }
    assert_int_equal(new_launch(f, 0, f->module, 101), 2); /* known */
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT launch_id, grid_id, kernel_id FROM launch", "1|103|4\n2|101|2\n3|104|5\n4|100|1\n");
    expect_rows(database,
                "SELECT launch_id, min(begin_globaltimer_ns), max(rank), count(*) FROM lane GROUP BY launch_id",
                "1|1000|3|2\n2|3000|1|2\n3|3000|4|2\n4|5000|0|2\n");
    sqlite3_close(database);
}

/* --- clocks ---------------------------------------------------------------------------------------------------------- */

/* Setting a device's line moves what is there: lanes before and after it, and hangs, end at the same trace time, exactly
 * where the line puts them. Other devices stay. */
static void device_clock(void **state) {
    struct fixture *f = *state;
    const int64_t base = 1793000000000000000;
    const struct trace_device other = {1, "other", 1, 0, 0, 0};
    const struct clock_offset lines[] = {{base - 5000, -700, 0, 1, 2, 3}, {base + 1000000, 123456789, 2e-4, 4, 5, 6}};
    const struct mokscope_hang_row hangs[] = {{NULL, 0, 1, 2, 0, 3, 4, 5, -1, (uint64_t)base + 2000000},
                                              {NULL, 1, 1, 2, 1, 3, 4, 5, 8, (uint64_t)base + 2000000},
                                              {NULL, 0, 1, 2, 0, 3, 4, 5, 9, 0},
                                              {NULL, 0, 1, 2, 2, 3, 4, 5, 9, 0}};
    expect_done(trace_write_device(f->writer, &other, &error));
    int64_t launch = new_launch(f, 0, f->module, 1), elsewhere = new_launch(f, 1, f->module, 1);
    for (int i = 0; i < 3; i++) {
        write_lane(f, launch, lane_header(0, 1, (uint64_t)base + 2000000), NULL, 0, 4);
        write_lane(f, elsewhere, lane_header(1, 1, (uint64_t)base), NULL, 0, 4);
        expect_done(trace_write_hangs(f->writer, hangs, i == 0 ? 4 : 3, &error));
        if (i < 2) expect_done(trace_write_device_clock(f->writer, 0, &lines[i], &error));
    }
    sqlite3 *database = finish(f);
    /* offset 123456789 and drift 2e-4 * 1000000 = 200 */
    expect_rows(database,
                "SELECT DISTINCT base_ns - 1793000000000000000, round(ns_per_tick, 12), residual_ns FROM clock_fit"
                " JOIN lane USING (lane_id) WHERE rank = 0",
                "125456989|0.5001|0\n");
    expect_rows(database,
                "SELECT DISTINCT base_ns - 1793000000000000000, ns_per_tick FROM clock_fit JOIN lane USING (lane_id)"
                " WHERE rank = 1",
                "0|0.5\n");
    expect_rows(database,
                "SELECT rank, edge, producer, consumer, counter_index, expected, observed, task_id,"
                " iif(since_ns = 0, 0, since_ns - 1793000000000000000), count(*) FROM v_hang GROUP BY 1, 2, 8, 9",
                "0|X_READY|load|mma|3|4|5|-1|125456989|3\n0|X_READY|load|mma|3|4|5|9|0|3\n1|SLOT_FREE|mma|load|3|4|5|8|"
                "2000000|3\n");
    expect_rows(database, "SELECT kind, count FROM loss", "hang|1\n");
    expect_rows(database,
                "SELECT device_id, offset_ns, round(drift_ppm, 6), residual_ns, width_ns, readings FROM v_device",
                "0|123456789|200.0|4|5|6\n1|||||\n");
    sqlite3_close(database);
}

/* A lane with a single pair takes the slope of the device's last good lane. */
static void slope_of_open_lanes(void **state) {
    struct fixture *f = *state;
    int64_t launch = new_launch(f, 0, f->module, 1);
    struct mokscope_lane_header header = lane_header(0, 1, 10000);
    header.clock_end = header.clock_begin + 16000000;
    header.globaltimer_end = header.globaltimer_begin + 10000000;
    struct mokscope_lane_header open = header;
    open.state = MOKSCOPE_LANE_OPEN;
    write_lane(f, launch, open, NULL, 0, 4);
    write_lane(f, launch, header, NULL, 0, 4);
    write_lane(f, launch, open, NULL, 0, 4);
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT ns_per_tick, pairs FROM clock_fit", "0.5|1\n0.625|2\n0.625|1\n");
    sqlite3_close(database);
}

/* --- volume ---------------------------------------------------------------------------------------------------------- */

/* More rows than one transaction holds, of random lanes: another program sees whole lanes while it is written, and at the
 * end every row stands in its lane's range, in order. */
static void volume(void **state) {
    struct fixture *f = *state;
    enum { LANES = 800, RECORDS = 2048 };
    struct random_source source = random_seeded(1);
    static struct mokscope_record records[RECORDS];
    int64_t sums[3] = {0}, counts[3] = {0}, seen = 0;
    sqlite3 *reader = query_open(f->scratch.path);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        struct mokscope_lane_header header = lane_header(lane % 4, lane % 3, 1000 + lane);
        uint32_t clock = 5000, count = (uint32_t)random_between(&source, 0, RECORDS);
        header.clock_end = header.clock_begin + 4000000;
        for (uint32_t i = 0; i < count; i++) {
            static const uint16_t events[] = {WORK, TASK, COPY, WAIT_X, SIGNAL_X};
            uint32_t event = (uint32_t)random_below(&source, 5), kind = event < 3 ? 0 : event - 2;
            records[i] = (struct mokscope_record){clock, kind == 2 ? 0 : (uint32_t)random_below(&source, 900),
                                                  events[event], 1, i};
            clock = records[i].begin_clock + records[i].length_cycles + (uint32_t)random_below(&source, 2);
            sums[kind] += (int64_t)records[i].begin_clock * (1 + lane % 7);
            counts[kind]++;
        }
        write_lane(f, new_launch(f, 0, f->module, 1 + lane / 100), header, records, count, RECORDS);
        if (lane % 100 == 99) {
            int64_t now = query_integer(reader, "SELECT ifnull(max(span_id), 0) FROM span");
            assert_int_equal(now, query_integer(reader, "SELECT ifnull(sum(span_count), 0) FROM lane"));
            seen = now > seen ? now : seen;
        }
    }
    assert_true(seen > 0 && seen < counts[0]); /* a commit came on the way, and was not the end */
    sqlite3_close(reader);
    sqlite3 *database = finish(f);
    static const char *const tables[] = {"span", "wait", "signal"}, *const begins[] = {"begin_ticks", "begin_ticks",
                                                                                       "ticks"};
    for (int kind = 0; kind < 3; kind++) {
        char sql[512];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", tables[kind]);
        assert_int_equal(query_integer(database, sql), counts[kind]);
        snprintf(sql, sizeof sql, "SELECT sum(%s * (1 + (lane_id - 1) %% 7)) FROM %s", begins[kind], tables[kind]);
        assert_int_equal(query_integer(database, sql), sums[kind]);
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM %s AS row JOIN lane USING (lane_id) WHERE %s_id < first_%s_id"
                 " OR %s_id >= first_%s_id + %s_count",
                 tables[kind], tables[kind], tables[kind], tables[kind], tables[kind], tables[kind]);
        assert_int_equal(query_integer(database, sql), 0);
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM %s AS a JOIN %s AS b ON b.%s_id = a.%s_id + 1 WHERE b.lane_id < a.lane_id"
                 " OR (b.lane_id = a.lane_id AND b.%s < a.%s)",
                 tables[kind], tables[kind], tables[kind], tables[kind], begins[kind], begins[kind]);
        assert_int_equal(query_integer(database, sql), 0);
    }
    sqlite3_close(database);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(schema),
        TEST(schema_refuses),
        TEST(run_row),
        TEST(run_defaults),
        TEST(descriptions),
        TEST(modules),
        TEST(contradicting_modules),
        TEST(tasks_and_targets),
        TEST(activity),
        TEST(lanes_in_views),
        TEST(lost_and_unknown),
        TEST(launch_order),
        TEST(device_clock),
        TEST(slope_of_open_lanes),
        TEST(module_with_edges),
        TEST(volume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
