/* The collector: lanes and descriptions from several threads, clocks from calibration or matched kernels, hangs, refused
 * modules, and a writer that fails under it. */
#include "trace_query.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "../../probes/recorder/collector.h"
#include "fake_module.h"
#include "random_source.h"

struct fixture {
    struct scratch scratch;
    struct collector *collector;
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    scratch_make(&f->scratch);
    expect_done(collector_open(&f->collector, f->scratch.path, "app --x", &error));
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    struct error error = {0};
    collector_close(f->collector, "cut", &error);
    scratch_remove(&f->scratch);
    free(f);
    return 0;
}

static sqlite3 *finish(struct fixture *f) {
    struct collector *collector = f->collector;
    f->collector = NULL;
    expect_done(collector_close(collector, "complete", &error));
    sqlite3 *database = query_open(f->scratch.path);
    expect_sound(database);
    return database;
}

/* --- blocks ---------------------------------------------------------------------------------------------------------- */

enum { CAPACITY = 16 };

/* A block as rings.c makes it, of closed lanes with `records` spans each; headers may be changed afterwards. */
static struct lane_block *new_block(const struct mokscope_module *module, int32_t device, uint32_t lanes,
                                    uint32_t records) {
    struct lane_block *block = calloc(1, sizeof *block + lanes * (sizeof *block->headers + sizeof(size_t)) +
                                             (size_t)lanes * records * sizeof *block->records);
    assert_non_null(block);
    block->module = module;
    block->device_id = device;
    block->record_capacity = CAPACITY;
    block->lane_count = lanes;
    block->bytes = 1000;
    block->headers = (void *)(block + 1);
    block->records = (void *)(block->headers + lanes);
    block->first_record = (void *)(block->records + (size_t)lanes * records);
    for (uint32_t i = 0; i < lanes; i++) {
        block->first_record[i] = (size_t)i * records;
        block->headers[i] =
            (struct mokscope_lane_header){.state = MOKSCOPE_LANE_CLOSED, .count = records, .grid_id = 1, .cta = i};
        for (uint32_t record = 0; record < records; record++)
            block->records[i * records + record] = (struct mokscope_record){10 * record, 5, 1, 0, i};
    }
    return block;
}

/* Ticks are globaltimer nanoseconds here. */
static void set_time(struct lane_block *block, uint32_t lane, uint64_t grid_id, int64_t begin_ns, int64_t end_ns) {
    struct mokscope_lane_header *header = &block->headers[lane];
    header->grid_id = grid_id;
    header->clock_begin = header->globaltimer_begin = (uint64_t)begin_ns;
    header->clock_end = header->globaltimer_end = (uint64_t)end_ns;
    for (uint32_t record = 0; record < header->count; record++)
        block->records[block->first_record[lane] + record].begin_clock += (uint32_t)begin_ns;
}

static struct trace_kernel kernel_at(int32_t device, int64_t grid_id, int64_t begin_ns, int64_t end_ns) {
    return (struct trace_kernel){.device_id = device,
                                 .grid_id = grid_id,
                                 .name = "mok",
                                 .begin_ns = begin_ns,
                                 .end_ns = end_ns,
                                 .grid = {1, 1, 1},
                                 .block = {1, 1, 1}};
}

/* --- threads --------------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, BLOCKS = 50, LANES = 6, RECORDS = 9 };

struct worker {
    struct collector *collector;
    int number;
};

/* Lanes of ranks of its own, and everything an application may say, in between. */
static void *work(void *argument) {
    const struct worker *worker = argument;
    struct collector *collector = worker->collector;
    for (int b = 0; b < BLOCKS; b++) {
        struct lane_block *first = new_block(&fake_module, worker->number % 2, LANES, RECORDS), *second;
        second = new_block(&fake_module, worker->number % 2, LANES, RECORDS);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            int64_t begin = 1000000 * (b + 1);
            set_time(first, lane, (uint64_t)b + 1, begin, begin + 500000);
            set_time(second, lane, (uint64_t)b + 1, begin, begin + 500000);
            first->headers[lane].rank = second->headers[lane].rank = (uint32_t)worker->number;
        }
        first->next = second;
        collector_lanes(collector, first);
        char name[64];
        snprintf(name, sizeof name, "thread%d.%d", worker->number, b);
        const struct mokscope_task_row task = {worker->number, b, "down", 0, 0, 0, 0, 1, 0, 1, 1};
        const struct trace_kernel kernel = kernel_at(worker->number, b, b, b + 1);
        const struct trace_copy copy = {worker->number, 1, 2, "HtoD", 3, 4, 5};
        const struct trace_marker marker = {worker->number, "", name, 6, 7};
        const struct trace_host_activity activity = {"synchronise", name, 8, 9};
        collector_attribute(collector, "knob", name, "1", "");
        collector_tasks(collector, &task, 1);
        collector_kernel(collector, &kernel);
        collector_copy(collector, &copy);
        collector_marker(collector, &marker);
        collector_host_activity(collector, &activity);
        collector_loss(collector, "nvtx", "range", 1, name);
        if (b % 10 == 0) collector_flush(collector);
    }
    return NULL;
}

static void several_threads(void **state) {
    struct fixture *f = *state;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){f->collector, i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_false(collector_failed(f->collector));
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT rank, count(*), sum(span_count), count(DISTINCT launch_id) FROM lane GROUP BY rank",
                "0|600|5400|50\n1|600|5400|50\n2|600|5400|50\n3|600|5400|50\n");
    expect_rows(database, "SELECT count(*), count(DISTINCT lane_id) FROM span", "21600|2400\n");
    expect_rows(database, "SELECT count(*) FROM span JOIN lane USING (lane_id) WHERE argument <> cta", "0\n");
    expect_rows(database, "SELECT count(*), count(DISTINCT device_id) FROM launch",
                "100|2\n"); /* ranks 0 and 2 share device 0 */
    expect_rows(database,
                "SELECT (SELECT count(*) FROM attribute WHERE kind = 'knob'), (SELECT count(*) FROM task),"
                " (SELECT count(*) FROM kernel), (SELECT count(*) FROM copy), (SELECT count(*) FROM marker),"
                " (SELECT count(*) FROM host_activity), (SELECT sum(count) FROM loss WHERE source = 'nvtx')",
                "200|200|200|200|200|200|200\n");
    expect_rows(database, "SELECT device_id, name FROM device", "0|unknown\n1|unknown\n2|unknown\n3|unknown\n");
    expect_rows(database, "SELECT state, command, producer FROM run", "complete|app --x|recorder\n");
    sqlite3_close(database);
}

/* A ring drained into the collector, as the recorder does it. */
static void from_rings(void **state) {
    struct fixture *f = *state;
    struct ring ring;
    const struct mokscope_ring request = {NULL, NULL, NULL, 16, CAPACITY, MOKSCOPE_LEVEL_TASK, UINT32_MAX};
    expect_done(ring_install(&ring, &fake_module, &request, 0, NULL, &error));
    for (uint32_t id = 0; id < 40; id++) {
        struct lane_block *blocks;
        struct fake_lane lane = fake_open(1 + id / 10, id, id % 2, id % 2, 1000 * (id + 1));
        for (uint32_t i = 0; i < id; i++)
            fake_span(&lane, (uint16_t)(1 + i % 3), 1000 * (id + 1) + 20 * i, 1000 * (id + 1) + 20 * i + 10, id);
        fake_close(&lane, 1000 * (id + 1) + 900);
        if (id % 3 != 0) continue;
        expect_done(ring_drain(&ring, 0, &blocks, &error));
        collector_lanes(f->collector, blocks);
    }
    ring_release(&ring);
    fake_release();
    sqlite3 *database = finish(f);
    expect_rows(database,
                "SELECT count(*), count(DISTINCT cta), sum(record_count = cta), sum(lost_count = max(0, cta - 16)),"
                " sum(span_count + wait_count + signal_count = min(cta, 16)), sum(rank = cta % 2) FROM lane",
                "40|40|40|40|40|40\n");
    expect_rows(database, "SELECT sum(count) = (SELECT sum(lost_count) FROM lane) FROM loss WHERE kind = 'record'",
                "1\n");
    sqlite3_close(database);
}

/* --- clocks ---------------------------------------------------------------------------------------------------------- */

/* Launches whose kernels run on a host clock 30 us and 40 ppm away: the fit must bring lanes into their kernels' intervals.
 * Kernels come before lanes and after them, as CUPTI delivers. */
static void clock_from_kernels(void **state) {
    struct fixture *f = *state;
    const int64_t base = 1793000000000000000;
    struct random_source source = random_seeded(5);
    for (int i = 0; i < 40; i++) {
        int64_t begin = base + i * 5000000, end = begin + 3000000, drift = (begin - base) / 25000;
        struct lane_block *block = new_block(&fake_module, 0, 2, 3);
        set_time(block, 0, 500 + (uint64_t)i, begin + 64, end);
        set_time(block, 1, 500 + (uint64_t)i, begin, end - 96);
        const struct trace_kernel kernel =
            kernel_at(0, 500 + i, begin + 30000 + drift - random_between(&source, 400, 800),
                      end + 30120 + drift + random_between(&source, 400, 800));
        if (i % 2) collector_kernel(f->collector, &kernel);
        collector_lanes(f->collector, block);
        if (i % 2 == 0) collector_kernel(f->collector, &kernel);
    }
    sqlite3 *database = finish(f);
    expect_rows(database,
                "SELECT count(*), sum(launch.grid_id = kernel.grid_id) FROM launch JOIN kernel USING (kernel_id)",
                "40|40\n");
    expect_rows(
        database,
        "SELECT abs(drift * 1e6 - 40) < 2, abs(offset_ns - 30000 - (base_ns - 1793000000000000000) / 25000) < 200,"
        " readings > 20, residual_ns < 400, width_ns BETWEEN 800 AND 3400 FROM device_clock",
        "1|1|1|1|1\n");
    expect_rows(database,
                "SELECT count(*) FROM v_lane AS lane JOIN v_launch USING (launch_id)"
                " WHERE lane.begin_ns < kernel_begin_ns OR lane.end_ns > kernel_end_ns",
                "0\n");
    expect_rows(database, "SELECT count(*), min(duration_ns) > 4.9 FROM v_span", "240|1\n");
    expect_rows(database, "SELECT value FROM attribute WHERE name = 'globaltimer_calibration'", "kernel intervals\n");
    expect_rows(database, "SELECT globaltimer_step_ns FROM device", "32\n");
    expect_rows(database, "SELECT count(*) FROM loss", "0\n");
    sqlite3_close(database);
}

/* A launch lasts from its first lane's begin to its last lane's end, whatever order they come in. */
static void extent_of_a_launch(void **state) {
    struct fixture *f = *state;
    static const int64_t begins[] = {5000, 3000, 4000}, ends[] = {8000, 9000, 7000};
    const struct trace_kernel kernel = kernel_at(0, 1, 3000 + 100 - 20, 9000 + 100 + 20);
    struct lane_block *block = new_block(&fake_module, 0, 3, 1);
    for (uint32_t lane = 0; lane < 3; lane++) set_time(block, lane, 1, begins[lane], ends[lane]);
    collector_lanes(f->collector, block);
    collector_kernel(f->collector, &kernel);
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT offset_ns, width_ns, residual_ns FROM device_clock", "100|40|0\n");
    sqlite3_close(database);
}

/* Readings of the calibration kernel go before kernel intervals, each device its own; nothing at all is a loss. */
static void clock_from_calibration(void **state) {
    struct fixture *f = *state;
    const struct trace_device described = {0, "NVIDIA H200", 132, 1980000, 0, 0}, idle = {4, "idle", 1, 0, 0, 0};
    collector_device(f->collector, &described);
    collector_device(f->collector, &idle);
    assert_true(collector_has_device(f->collector, 0));
    assert_false(collector_has_device(f->collector, 1));
    for (int32_t device = 0; device < 3; device++) {
        struct lane_block *block = new_block(&fake_module, device, 1, 1);
        const struct clock_reading reading = {2000000, 2000000 + 700 * (device + 1) - 10,
                                              2000000 + 700 * (device + 1) + 10};
        const struct trace_kernel kernel = kernel_at(device, 1, 1000000 + 4990, 3000000 + 5010);
        set_time(block, 0, 1, 1000000, 3000000);
        block->headers[0].rank = (uint32_t)device;
        if (device < 2) collector_reading(f->collector, device, &reading);
        if (device == 0) collector_kernel(f->collector, &kernel);
        collector_lanes(f->collector, block);
    }
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT device_id, offset_ns, drift, width_ns, readings FROM device_clock",
                "0|700|0.0|20|1\n1|1400|0.0|20|1\n");
    expect_rows(database, "SELECT rank, begin_ns FROM v_lane ORDER BY rank", "0|1000700\n1|1001400\n2|1000000\n");
    expect_rows(database, "SELECT source, kind, count FROM loss ORDER BY kind", "recorder|clock|1\ncupti|match|2\n");
    expect_rows(database, "SELECT value FROM attribute", "calibration kernel\n");
    expect_rows(database, "SELECT device_id, name, sm_clock_khz, globaltimer_step_ns IS NULL FROM device",
                "0|NVIDIA H200|1980000|1\n1|unknown||1\n2|unknown||1\n4|idle||1\n"); /* two readings show no step */
    sqlite3_close(database);
}

/* --- hangs, targets, refused modules --------------------------------------------------------------------------------- */

/* A lane still open in a long wait is a hang; its time moves with the device's clock, which is known only at the end. */
static void hang_of_open_lane(void **state) {
    struct fixture *f = *state;
    struct lane_block *block = new_block(&fake_module, 0, 4, 0);
    for (uint32_t lane = 0; lane < 4; lane++) {
        set_time(block, lane, 9, 1000000, 0);
        block->headers[lane].state = MOKSCOPE_LANE_OPEN;
        block->headers[lane].rank = 2;
        block->headers[lane].warp = 5;
        block->headers[lane].wait_since = 3000000;
        block->headers[lane].wait_event = lane == 1 ? 1 : lane == 2 ? 99 : 2; /* 1 is no wait, 99 no event */
        block->headers[lane].wait_index = 17;
        block->headers[lane].wait_awaited = 8;
        block->headers[lane].wait_observed = 6;
    }
    block->headers[3].wait_since = 0; /* not in a long wait */
    const struct clock_reading reading = {5000000, 5000400, 5000600};
    collector_lanes(f->collector, block);
    collector_reading(f->collector, 0, &reading);
    sqlite3 *database = finish(f);
    expect_rows(database,
                "SELECT rank, cta, warp, edge, producer, consumer, counter_index, expected, observed, task_id, "
                "since_ns FROM v_hang",
                "2|0|5|X|mma|store|17|8|6|-1|3000500\n");
    expect_rows(database, "SELECT count(*), sum(closed), max(end_globaltimer_ns) FROM lane", "4|0|0\n");
    sqlite3_close(database);
}

static void descriptions(void **state) {
    struct fixture *f = *state;
    const struct mokscope_target_row targets[] = {{"fake", 1, 0, 3, 4}, {NULL, 1, 0, 4, 5}, {"other", 1, 0, 3, 4}};
    const struct mokscope_hang_row hang = {"fake", 1, 2, 3, 0, 4, 5, 6, 7, 0};
    collector_module(f->collector, &fake_module);
    collector_module(f->collector, &fake_module); /* known */
    collector_targets(f->collector, targets, 3);
    collector_rank(f->collector, 1, 6);
    collector_hangs(f->collector, &hang, 1);
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT count(*) FROM module", "1\n");
    expect_rows(database, "SELECT * FROM v_edge_target", "1|X|tile|3|4\n1|X|tile|4|5\n");
    expect_rows(database, "SELECT rank, device_id, name, process_id > 0 FROM rank JOIN device USING (device_id)",
                "1|6|unknown|1\n");
    expect_rows(database, "SELECT task_id, since_ns FROM v_hang", "7|0\n");
    expect_rows(database, "SELECT kind, count FROM loss", "target|1\n");
    sqlite3_close(database);
}

/* stderr into a file of the scratch folder; returns what was stderr. */
static int silence(const struct fixture *f) {
    char path[600];
    snprintf(path, sizeof path, "%s/stderr", f->scratch.folder);
    fflush(stderr);
    int kept = dup(2), file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    assert_true(kept >= 0 && file >= 0 && dup2(file, 2) == 2);
    close(file);
    return kept;
}

/* Back to the old stderr; what was said in between. */
static const char *unsilence(const struct fixture *f, int kept) {
    static char text[4096];
    char path[600];
    snprintf(path, sizeof path, "%s/stderr", f->scratch.folder);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* A table that contradicts itself is said once and counted; other modules are recorded. */
static void refused_module(void **state) {
    struct fixture *f = *state;
    const struct mokscope_edge_row edge = {"BAD", 0, 7, "tile", "gpu", 0, "1", ""};
    struct mokscope_module bad = fake_module;
    bad.name = "bad";
    bad.edges = &edge;
    int kept = silence(f);
    collector_lanes(f->collector, new_block(&bad, 0, 3, 1));
    collector_lanes(f->collector, new_block(&fake_module, 0, 2, 1));
    collector_module(f->collector, &bad);
    sqlite3 *database = finish(f);
    const char *said = unsilence(f, kept), *first = strstr(said, "edge 'BAD' of module 'bad'");
    assert_non_null(first);
    assert_null(strstr(first + 1, "edge 'BAD'"));
    expect_rows(database, "SELECT count(*) FROM lane", "2\n");
    expect_rows(database, "SELECT name FROM module", "fake\n");
    expect_rows(database, "SELECT source, kind, count FROM loss WHERE source = 'probes' ORDER BY kind",
                "probes|lane|3\nprobes|module|1\n");
    sqlite3_close(database);
}

/* A lane that hangs is in the file before it arrives, said once, and not stored again when it comes. Another wait of it is. */
static void stuck_lanes(void **state) {
    struct fixture *f = *state;
    struct lane_block *block = new_block(&fake_module, 0, 3, 0);
    for (uint32_t lane = 0; lane < 3; lane++) {
        set_time(block, lane, 9, 1000000, 0);
        block->headers[lane].state = MOKSCOPE_LANE_OPEN;
        block->headers[lane].cta = lane;
        block->headers[lane].wait_since = 3000000;
        block->headers[lane].wait_event = lane == 2 ? 1 : 2; /* 1 is no wait */
    }
    int kept = silence(f);
    for (uint32_t lane = 0; lane < 3; lane++) collector_stuck(f->collector, &fake_module, &block->headers[lane]);
    collector_flush(f->collector);
    const char *said = unsilence(f, kept), *first = strstr(said, "module 'fake' may hang: rank 0, CTA 0, warp ");
    sqlite3 *early = query_open(f->scratch.path);
    expect_rows(early, "SELECT cta, since_ns FROM hang", "0|3000000\n1|3000000\n");
    sqlite3_close(early);
    assert_non_null(first);
    assert_non_null(strstr(first, "waits on X["));
    assert_null(strstr(strchr(first, '\n'), "may hang"));
    block->headers[1].wait_since = 4000000;
    collector_lanes(f->collector, block);
    sqlite3 *database = finish(f);
    expect_rows(database, "SELECT cta, since_ns FROM hang ORDER BY hang_id", "0|3000000\n1|3000000\n1|4000000\n");
    sqlite3_close(database);
}

/* --- failures -------------------------------------------------------------------------------------------------------- */

static void cannot_open(void **state) {
    struct fixture *f = *state;
    struct collector *second = (void *)&second;
    expect_error(collector_open(&second, f->scratch.path, "app", &error), ERROR_USAGE, "it exists", "--force");
    assert_null(second);
    expect_done(collector_close(NULL, "complete", &error));
    struct collector *collector = f->collector;
    f->collector = NULL;
    expect_done(collector_close(collector, "cut", &error));
    sqlite3 *database = query_open(f->scratch.path);
    expect_rows(database, "SELECT state FROM run", "cut\n");
    sqlite3_close(database);
}

/* The file may not grow any more: said once, everything stays callable, what was committed stays. */
static void failing_writer(void **state) {
    struct fixture *f = *state;
    struct collector *collector = f->collector;
    struct rlimit limit, unlimited;
    const struct trace_device device = {7, "late", 1, 0, 0, 0};
    struct worker worker = {collector, 1};
    f->collector = NULL;
    collector_lanes(collector, new_block(&fake_module, 0, 5, 3));
    for (int64_t lanes = 0; lanes < 5; usleep(1000)) { /* until the thread has committed them */
        sqlite3 *database = query_open(f->scratch.path);
        sqlite3_busy_timeout(database, 1000);
        lanes = query_integer(database, "SELECT count(*) FROM lane");
        sqlite3_close(database);
    }
    int kept = silence(f);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
    limit = unlimited;
    limit.rlim_cur = 20000; /* the trace is larger, what goes to stderr is not */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 2; i++) work(&worker);
    setrlimit(RLIMIT_FSIZE, &unlimited);
    signal(SIGXFSZ, SIG_DFL);
    int told = collector_failed(collector), again = collector_failed(collector);
    collector_device(collector, &device);
    collector_rank(collector, 1, 1);
    collector_module(collector, &fake_module);
    collector_reading(collector, 0, &(struct clock_reading){1, 2, 3});
    struct error failure = {0};
    int status = collector_close(collector, "complete", &failure);
    const char *said = unsilence(f, kept), *first = strstr(said, "recording stopped: cannot write trace");
    assert_int_equal(told, 1);
    assert_int_equal(again, 0);
    assert_int_equal(status, 0);
    assert_non_null(first);
    if (strstr(first, "file size limit") == NULL) fail_msg("%s", first);
    assert_null(strstr(first + 1, "recording stopped"));
    struct trace_summary summary;
    expect_done(trace_write_finalise(f->scratch.path, 1, &summary, &error));
    assert_string_equal(summary.state, "cut");
    assert_int_equal(summary.lane_count, 5);
    assert_int_equal(summary.span_count, 15);
    sqlite3 *database = query_open(f->scratch.path);
    expect_sound(database);
    sqlite3_close(database);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(several_threads),
        TEST(from_rings),
        TEST(clock_from_kernels),
        TEST(extent_of_a_launch),
        TEST(clock_from_calibration),
        TEST(hang_of_open_lane),
        TEST(stuck_lanes),
        TEST(descriptions),
        TEST(refused_module),
        TEST(cannot_open),
        TEST(failing_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
