/* The trace writer when things go wrong: paths that cannot be written, full disks, failing allocations, kill -9 at any
 * moment. What was committed must stay readable, and the error must say what happened. */
#include "trace_query.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "../../analyzer/trace_file.h"
#include "../../probes/host/trace_write.h"
#include "faulty_sqlite.h"
#include "random_source.h"

enum { LANE_RECORDS = 512, LANE_SPANS = LANE_RECORDS - 1 };

static const struct mokscope_role_row roles[] = {{"mma", MOKSCOPE_CLASS_COMPUTE, ""}};
static const struct mokscope_edge_row edges[] = {{"X", 0, 0, "tile", "gpu", 0, "1", ""}};
static const struct mokscope_event_row events[] = {
    {NULL, 0, 0, 0, -1, "", "", ""},
    {"work", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_COMPUTE, 1, -1, "", "", ""},
    {"wait", MOKSCOPE_KIND_WAIT, MOKSCOPE_CLASS_WAIT, 1, 0, "", "", ""}};
static const struct mokscope_module module = {
    sizeof module, MOKSCOPE_PROBE_VERSION, "test", roles, 1, events, 3, edges, 1, NULL, NULL, NULL};
static const struct trace_run test_run = {"recorder", NULL, NULL, "app", "host"};

static int set_up(void **state) {
    struct scratch *scratch = malloc(sizeof *scratch);
    assert_non_null(scratch);
    scratch_make(scratch);
    *state = scratch;
    return 0;
}

static int tear_down(void **state) {
    scratch_remove(*state);
    free(*state);
    faulty_reset();
    return 0;
}

/* --- what is written in every test here ------------------------------------------------------------------------------ */

static int open_trace(struct trace_writer **writer, const char *path, int32_t *module_id, int64_t *launch,
                      struct error *error) {
    const struct trace_device device = {0, "device", 1, 1000000, 0, 0};
    int status = trace_write_open(writer, path, 0, &test_run, error);
    if (!status) status = trace_write_device(*writer, &device, error);
    if (!status) status = trace_write_module(*writer, &module, module_id, error);
    if (!status) status = trace_write_launch(*writer, 0, *module_id, 1, launch, error);
    return status;
}

/* LANE_SPANS spans and a wait. */
static int write_lane(struct trace_writer *writer, int64_t launch, uint32_t cta, struct error *error) {
    struct mokscope_record records[LANE_RECORDS];
    struct mokscope_lane_header header = {.state = MOKSCOPE_LANE_CLOSED,
                                          .count = LANE_RECORDS,
                                          .clock_end = 100 * LANE_RECORDS,
                                          .globaltimer_end = 100 * LANE_RECORDS,
                                          .cta = cta};
    for (uint32_t i = 0; i < LANE_RECORDS; i++)
        records[i] = (struct mokscope_record){100 * i, 50, i == 7 ? 2 : 1, 0, i};
    return trace_write_lane(writer, launch, &header, records, LANE_RECORDS, error);
}

/* Whole lanes only, numbered from 0; returns how many. */
static int64_t expect_whole_lanes(sqlite3 *database) {
    int64_t lanes = query_integer(database, "SELECT count(*) FROM lane");
    expect_rows(database, "SELECT count(*) FROM lane WHERE cta <> lane_id - 1", "0\n");
    assert_int_equal(query_integer(database, "SELECT count(*) FROM span"), lanes * LANE_SPANS);
    assert_int_equal(query_integer(database, "SELECT count(*) FROM wait"), lanes);
    assert_int_equal(query_integer(database, "SELECT count(*) FROM clock_fit"), lanes);
    assert_int_equal(query_integer(database, "SELECT count(*) FROM v_span"), lanes * LANE_SPANS);
    expect_rows(database, "PRAGMA integrity_check", "ok\n");
    expect_rows(database, "PRAGMA foreign_key_check", "");
    return lanes;
}

/* Reads a file whose writer is gone as the analyzer does, then finishes it: cut, the same lanes. Returns how many. */
static int64_t expect_cut(const char *path, int exit_status) {
    struct trace_file file;
    struct trace_summary summary;
    expect_done(trace_file_open(&file, path, &error));
    int64_t lanes = expect_whole_lanes(file.database);
    expect_rows(file.database, "SELECT state FROM run", "recording\n");
    trace_file_close(&file);
    for (int again = 0; again < 2; again++) {
        expect_done(trace_write_finalise(path, again ? -1 : exit_status, &summary, &error));
        assert_string_equal(summary.state, "cut");
        assert_int_equal(summary.lane_count, lanes);
        assert_int_equal(summary.span_count, lanes * LANE_SPANS);
        assert_int_equal(summary.wait_count, lanes);
    }
    sqlite3 *database = query_open(path);
    assert_int_equal(query_integer(database, "SELECT exit_status FROM run"), exit_status);
    expect_rows(database, "SELECT state, end_utc_ns >= begin_utc_ns FROM run", "cut|1\n");
    assert_int_equal(expect_whole_lanes(database), lanes);
    expect_sound(database);
    sqlite3_close(database);
    return lanes;
}

/* --- paths ----------------------------------------------------------------------------------------------------------- */

static void put_file(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static int64_t file_size(const char *path) {
    struct stat information;
    return path != NULL && stat(path, &information) == 0 ? (int64_t)information.st_size : -1;
}

/* trace_write_check_path and trace_write_open agree, and neither leaves a trace of the attempt. */
static void expect_refused(const char *path, int overwrite, int code, const char *message, const char *hint) {
    struct trace_writer *writer = NULL;
    int64_t before = file_size(path);
    expect_error(trace_write_check_path(path, overwrite, &error), code, message, hint);
    expect_error(trace_write_open(&writer, path, overwrite, &test_run, &error), code, message, hint);
    assert_null(writer);
    assert_int_equal(file_size(path), before);
}

static void paths(void **state) {
    const struct scratch *scratch = *state;
    char path[600];
    struct trace_writer *writer = NULL;
    expect_refused("", 0, ERROR_USAGE, "no name", "");
    expect_refused(NULL, 0, ERROR_USAGE, "no name", "");
    expect_refused(scratch->folder, 1, ERROR_USAGE, "it is a folder", "/trace.db");
    expect_refused("/dev/null", 1, ERROR_USAGE, "not a mokscope trace", "another name");
    snprintf(path, sizeof path, "%s/no/trace.db", scratch->folder);
    expect_refused(path, 0, ERROR_FAILURE, "No such file or directory", "-o");
    put_file(scratch->path, "notes", 5);
    snprintf(path, sizeof path, "%s/trace.db", scratch->path); /* the folder is a file */
    expect_refused(path, 0, ERROR_FAILURE, "not a folder", "-o");
    chmod(scratch->path, 0777);
    expect_refused(path, 0, ERROR_FAILURE, "not a folder", "-o");
    for (int overwrite = 0; overwrite < 2; overwrite++)
        expect_refused(scratch->path, overwrite, ERROR_USAGE, "is not a mokscope trace", "remove it yourself");
    put_file(scratch->path, "", 0); /* nothing to lose */
    expect_refused(scratch->path, 0, ERROR_USAGE, "it exists", "--force");
    expect_done(trace_write_check_path(scratch->path, 1, &error));
    assert_int_equal(file_size(scratch->path), 0);
    expect_done(trace_write_open(&writer, scratch->path, 1, &test_run, &error));
    trace_write_abandon(writer);
}

/* A trace is replaced if asked, another database never, however it is called. */
static void existing_databases(void **state) {
    const struct scratch *scratch = *state;
    struct trace_writer *writer = NULL;
    sqlite3 *database = NULL;
    struct trace_run other = test_run;
    char journal[600];
    snprintf(journal, sizeof journal, "%s-journal", scratch->path);
    expect_done(trace_write_open(&writer, scratch->path, 0, &test_run, &error));
    expect_done(trace_write_close(writer, "complete", 0, &error));
    expect_refused(scratch->path, 0, ERROR_USAGE, "it exists", "--force");
    put_file(journal, "stale", 5);
    other.command = "second";
    expect_done(trace_write_open(&writer, scratch->path, 1, &other, &error));
    expect_done(trace_write_close(writer, "complete", 0, &error));
    assert_int_equal(file_size(journal), -1);
    database = query_open(scratch->path);
    expect_rows(database, "SELECT command FROM run", "second\n");
    sqlite3_close(database);
    assert_int_equal(sqlite3_open(scratch->path, &database), SQLITE_OK);
    sqlite3_exec(database, "PRAGMA application_id = 1", NULL, NULL, NULL);
    sqlite3_close(database);
    expect_refused(scratch->path, 1, ERROR_USAGE, "is not a mokscope trace", "remove it yourself");
}

static void finish_what_is_no_trace(void **state) {
    const struct scratch *scratch = *state;
    struct trace_summary summary;
    expect_error(trace_write_finalise(scratch->path, 0, &summary, &error), ERROR_FAILURE, "no trace",
                 "never have used a GPU");
    put_file(scratch->path, "", 0);
    expect_error(trace_write_finalise(scratch->path, 0, NULL, &error), ERROR_FAILURE, "is empty", "again");
    assert_int_equal(summary.lane_count, 0);
    put_file(scratch->path,
             "no database, but longer than the header of one is: 100 bytes are what SQLite reads of it first", 95);
    expect_error(trace_write_finalise(scratch->path, 0, NULL, &error), ERROR_FAILURE, "not a trace, or damaged", "");
    expect_error(trace_write_finalise(scratch->folder, 0, NULL, &error), ERROR_FAILURE, scratch->folder, "");
}

/* Runs a body in a child; its return value is the exit status. 77: the machine does not allow the test. */
static void in_child(int (*body)(const struct scratch *scratch), const struct scratch *scratch) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(body(scratch));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: this machine does not let the test mount a small disk or change its user\n");
        skip();
    }
    if (status != 0) fail_msg("child ended with wait status %#x", (unsigned)status);
}

static int complain(const char *what, const struct error *error) {
    fprintf(stderr, "%s: code %d: %s (%s)\n", what, error->code, error->message, error->hint);
    return 1;
}

/* As a user who may not write the folder. */
static int try_foreign_folder(const struct scratch *scratch) {
    struct error error = {0};
    if (chmod(scratch->folder, 0555) != 0 || (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))) return 77;
    trace_write_check_path(scratch->path, 0, &error);
    if (error.code != ERROR_FAILURE || strstr(error.message, "Permission denied") == NULL ||
        strstr(error.hint, "-o") == NULL)
        return complain("read-only folder", &error);
    return 0;
}

static void foreign_folder(void **state) {
    const struct scratch *scratch = *state;
    in_child(try_foreign_folder, scratch);
    chmod(scratch->folder, 0700);
}

/* --- states ---------------------------------------------------------------------------------------------------------- */

static void states(void **state) {
    const struct scratch *scratch = *state;
    struct trace_writer *writer = NULL;
    int32_t module_id;
    int64_t launch;
    struct trace_summary summary;
    expect_done(open_trace(&writer, scratch->path, &module_id, &launch, &error));
    sqlite3 *reader = query_open(scratch->path);
    expect_rows(reader, "SELECT state, end_utc_ns IS NULL, exit_status IS NULL FROM run", "recording|1|1\n");
    expect_rows(reader, "SELECT count(*) FROM device", "0\n"); /* not committed yet */
    expect_done(write_lane(writer, launch, 0, &error));
    expect_done(trace_write_flush(writer, &error));
    expect_done(trace_write_flush(writer, &error)); /* nothing to do */
    assert_int_equal(expect_whole_lanes(reader), 1);
    expect_done(write_lane(writer, launch, 1, &error));
    sqlite3_close(reader);
    trace_write_abandon(writer);
    assert_int_equal(expect_cut(scratch->path, 139), 1);
    unlink(scratch->path);

    expect_done(open_trace(&writer, scratch->path, &module_id, &launch, &error));
    expect_done(write_lane(writer, launch, 0, &error));
    expect_done(trace_write_close(writer, "complete", -1, &error));
    expect_done(trace_write_finalise(scratch->path, 3, &summary, &error));
    assert_string_equal(summary.state, "complete");
    assert_int_equal(summary.launch_count, 1);
    assert_int_equal(summary.lost_count, 0);
    reader = query_open(scratch->path);
    expect_rows(reader, "SELECT state, exit_status FROM run", "complete|3\n");
    sqlite3_close(reader);
    expect_done(trace_write_close(NULL, "complete", 0, &error));
}

static void *release_reader(void *reader) {
    usleep(300000);
    sqlite3_exec(reader, "COMMIT", NULL, NULL, NULL);
    return NULL;
}

/* A program that reads the file for long holds commits up, not the recording; closing waits for it. */
static void long_reader(void **state) {
    const struct scratch *scratch = *state;
    struct trace_writer *writer = NULL;
    int32_t module_id;
    int64_t launch;
    pthread_t thread;
    expect_done(open_trace(&writer, scratch->path, &module_id, &launch, &error));
    expect_done(trace_write_flush(writer, &error));
    sqlite3 *reader = query_open(scratch->path);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM lane", NULL, NULL, NULL), SQLITE_OK);
    for (uint32_t lane = 0; lane < 3; lane++) {
        expect_done(write_lane(writer, launch, lane, &error));
        expect_done(trace_write_flush(writer, &error));
        expect_rows(reader, "SELECT count(*) FROM lane", "0\n");
    }
    assert_int_equal(pthread_create(&thread, NULL, release_reader, reader), 0);
    expect_done(trace_write_close(writer, "complete", 0, &error));
    pthread_join(thread, NULL);
    assert_int_equal(expect_whole_lanes(reader), 3);
    expect_rows(reader, "SELECT state FROM run", "complete\n");
    sqlite3_close(reader);
}

/* Closing fails, rather than to hide it, when rows point nowhere. */
static void broken_references(void **state) {
    const struct scratch *scratch = *state;
    struct trace_writer *writer = NULL;
    const struct trace_kernel kernel = {.device_id = 5, .name = "k"};
    expect_done(trace_write_open(&writer, scratch->path, 0, &test_run, &error));
    expect_done(trace_write_kernel(writer, &kernel, NULL, &error));
    expect_error(trace_write_close(writer, "complete", 0, &error), ERROR_FAILURE, "1 rows that point nowhere",
                 "report it");
}

/* --- full disks ------------------------------------------------------------------------------------------------------ */

/* Writes lanes until it fails; the error must speak of the disk and stick. Returns the lanes committed before it. */
static int fill_disk(const struct scratch *scratch, const char *expected, int64_t *committed) {
    struct trace_writer *writer = NULL;
    struct error error = {0}, later = {0}, last = {0};
    int32_t module_id;
    int64_t launch;
    int status = open_trace(&writer, scratch->path, &module_id, &launch, &error);
    for (uint32_t lane = 0; !status && lane < 100000; lane++) {
        status = write_lane(writer, launch, lane, &error);
        if (!status && lane % 10 == 9) {
            status = trace_write_flush(writer, &error);
            if (!status) *committed = lane + 1;
        }
    }
    if (status != ERROR_FAILURE || strstr(error.message, expected) == NULL || error.hint[0] == '\0')
        return complain("full disk", &error);
    if (trace_write_flush(writer, &later) != ERROR_FAILURE || strcmp(later.message, error.message) != 0)
        return complain("flush after failure", &later);
    if (trace_write_loss(writer, "x", "y", 1, "", &last) != ERROR_FAILURE || strcmp(last.message, error.message) != 0)
        return complain("row after failure", &last);
    memset(&last, 0, sizeof last);
    if (trace_write_close(writer, "complete", 0, &last) != ERROR_FAILURE || strcmp(last.message, error.message) != 0)
        return complain("close after failure", &last);
    return 0;
}

static void limit_file_size(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void file_size_limit(void **state) {
    const struct scratch *scratch = *state;
    int64_t committed = 0;
    struct trace_writer *writer = NULL;
    struct error error = {0};
    signal(SIGXFSZ, SIG_IGN);
    limit_file_size(20000); /* less than the schema */
    int status = trace_write_open(&writer, scratch->path, 0, &test_run, &error);
    limit_file_size(RLIM_INFINITY);
    if (status != ERROR_FAILURE || strstr(error.message, "file size limit") == NULL)
        fail_msg("creating: %d: %s", status, error.message);
    assert_int_equal(file_size(scratch->path), -1);

    limit_file_size(3000000);
    status = fill_disk(scratch, "file size limit", &committed);
    limit_file_size(RLIM_INFINITY);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, 0);
    assert_true(committed >= 50);
    assert_int_equal(expect_cut(scratch->path, 1), committed);
}

static int write_text(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t wrote = file >= 0 ? write(file, text, strlen(text)) : -1;
    if (file >= 0) close(file);
    return wrote == (ssize_t)strlen(text) ? 0 : -1;
}

/* Mounts of the child's own; without root in a user namespace, in which the user is root. 0 if the machine allows it. */
static int own_mounts(void) {
    char user[32], group[32];
    snprintf(user, sizeof user, "0 %u 1", (unsigned)geteuid());
    snprintf(group, sizeof group, "0 %u 1", (unsigned)getegid());
    int root = geteuid() == 0;
    if (unshare(root ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) return -1;
    if (!root && (write_text("/proc/self/uid_map", user) || write_text("/proc/self/setgroups", "deny") ||
                  write_text("/proc/self/gid_map", group)))
        return -1;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static int try_small_disk(const struct scratch *scratch) {
    struct trace_writer *writer = NULL;
    struct error error = {0};
    int64_t committed = 0;
    if (own_mounts() != 0 || mount("tmpfs", scratch->folder, "tmpfs", 0, "size=1M") != 0) return 77;
    if (trace_write_check_path(scratch->path, 0, &error) != ERROR_FAILURE || strstr(error.message, "disk full") == NULL)
        return complain("check of a small disk", &error);
    if (trace_write_open(&writer, scratch->path, 0, &test_run, &error) != ERROR_FAILURE ||
        file_size(scratch->path) != -1)
        return complain("creation on a small disk", &error);
    if (mount("tmpfs", scratch->folder, "tmpfs", MS_REMOUNT, "size=6M") != 0) return 77;
    if (fill_disk(scratch, "disk full", &committed)) return 1;
    if (mount("tmpfs", scratch->folder, "tmpfs", MS_REMOUNT, "size=20M") != 0) return 77;
    struct trace_summary summary;
    memset(&error, 0, sizeof error);
    if (trace_write_finalise(scratch->path, 1, &summary, &error)) return complain("finish", &error);
    if (committed < 50 || summary.lane_count != committed || strcmp(summary.state, "cut") != 0)
        return complain(summary.state, &error);
    return 0;
}

static void small_disk(void **state) { in_child(try_small_disk, *state); }

/* --- every write, every allocation ----------------------------------------------------------------------------------- */

/* A short recording: four commits of two lanes, and the end. *committed counts lanes for sure in the file, *begun those that
 * may be. */
static int record_shortly(const char *path, volatile int64_t *committed, volatile int64_t *begun, struct error *error) {
    struct trace_writer *writer = NULL;
    int32_t module_id;
    int64_t launch;
    int status = open_trace(&writer, path, &module_id, &launch, error);
    if (!status) *begun = 0;
    for (uint32_t lane = 0; !status && lane < 8; lane += 2) {
        *begun = lane + 2;
        status = write_lane(writer, launch, lane, error);
        if (!status) status = write_lane(writer, launch, lane + 1, error);
        if (!status) status = trace_write_flush(writer, error);
        if (!status) *committed = lane + 2;
    }
    if (status) {
        trace_write_abandon(writer);
        return status;
    }
    return trace_write_close(writer, "complete", 0, error);
}

/* After a failure: no file, or one that can be read and finished with what had been committed. */
static void expect_readable(const char *path, int64_t committed, int64_t begun, int number) {
    struct trace_summary summary;
    struct error empty = {0};
    if (begun < 0 && trace_write_finalise(path, 1, &summary, &empty) == ERROR_FAILURE &&
        (strstr(empty.message, "is empty") != NULL || strstr(empty.message, "no trace") != NULL))
        return;
    expect_done(trace_write_finalise(path, 1, &summary, &error));
    sqlite3 *database = query_open(path);
    int64_t lanes = expect_whole_lanes(database);
    expect_sound(database);
    sqlite3_close(database);
    if (lanes < committed || (begun >= 0 && lanes > begun))
        fail_msg("fault %d: %lld lanes, %lld committed, %lld begun", number, (long long)lanes, (long long)committed,
                 (long long)begun);
    assert_true(strcmp(summary.state, "cut") == 0 || (committed == 8 && strcmp(summary.state, "complete") == 0));
}

static void failing_writes(void **state) {
    const struct scratch *scratch = *state;
    static const int codes[] = {SQLITE_FULL, SQLITE_IOERR_WRITE};
    for (int i = 0; i < 2; i++) {
        int status = -1;
        for (int n = 1; status != 0; n++) {
            struct error error = {0};
            int64_t committed = 0, begun = -1;
            faulty_reset();
            faulty.fail_change = n;
            faulty.fail_code = codes[i];
            status = record_shortly(scratch->path, &committed, &begun, &error);
            faulty_reset();
            if (status == 0) assert_true(n > 40); /* there are that many writes */
            if (status != 0 && (error.message[0] == '\0' || strstr(error.message, scratch->path) == NULL))
                fail_msg("write %d: error '%s'", n, error.message);
            if (codes[i] == SQLITE_FULL && status != 0 && strstr(error.message, "disk full") == NULL)
                fail_msg("write %d: error '%s'", n, error.message);
            expect_readable(scratch->path, committed, begun, n);
            unlink(scratch->path);
        }
    }
}

static void failing_allocations(void **state) {
    const struct scratch *scratch = *state;
    for (int stay = 0; stay < 2; stay++) {
        int status = -1;
        for (int n = 1; status != 0; n += n < 400 ? 1 : n / 50) {
            struct error error = {0};
            int64_t committed = 0, begun = -1;
            faulty_reset();
            faulty.fail_allocation = n;
            faulty.allocations_stay_failed = stay;
            status = record_shortly(scratch->path, &committed, &begun, &error);
            int reached = faulty.allocations >= n;
            faulty_reset();
            if (status != 0 && error.message[0] == '\0') fail_msg("allocation %d: no message", n);
            expect_readable(scratch->path, committed, begun, n);
            unlink(scratch->path);
            if (reached && status == 0) status = -1; /* SQLite did without it */
        }
    }
}

/* --- kill -9 --------------------------------------------------------------------------------------------------------- */

/* What the child reached, in memory shared with it. */
struct progress {
    int64_t committed, begun;
};

static struct progress *share_progress(void) {
    struct progress *progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(progress != MAP_FAILED);
    return progress;
}

static void killed_at_every_write(void **state) {
    const struct scratch *scratch = *state;
    struct progress *progress = share_progress();
    int status = -1;
    for (int n = 1; status != 0; n++) {
        progress->committed = 0;
        progress->begun = -1;
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct error error = {0};
            faulty_reset();
            faulty.kill_change = n;
            _exit(record_shortly(scratch->path, &progress->committed, &progress->begun, &error) == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status == 0) assert_true(n > 40);
        if (status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
            fail_msg("write %d: wait status %#x", n, (unsigned)status);
        expect_readable(scratch->path, progress->committed, progress->begun, n);
        char journal[600];
        snprintf(journal, sizeof journal, "%s-journal", scratch->path);
        assert_int_equal(file_size(journal), -1);
        unlink(scratch->path);
    }
    munmap(progress, sizeof *progress);
}

static void record_for_ever(const char *path, struct progress *progress, uint32_t lanes_a_commit) {
    struct trace_writer *writer = NULL;
    struct error error = {0};
    int32_t module_id;
    int64_t launch;
    int status = open_trace(&writer, path, &module_id, &launch, &error);
    for (uint32_t lane = 0; !status; lane++) {
        __atomic_store_n(&progress->begun, (int64_t)lane + 1, __ATOMIC_SEQ_CST);
        status = write_lane(writer, launch, lane, &error);
        if (!status && lane % lanes_a_commit == lanes_a_commit - 1) {
            status = trace_write_flush(writer, &error);
            if (!status) __atomic_store_n(&progress->committed, (int64_t)lane + 1, __ATOMIC_SEQ_CST);
        }
    }
    complain("killed child", &error);
    _exit(1);
}

/* Killed at random moments while it writes and commits; a file copied away with its journal reads the same. */
static void killed_at_random(void **state) {
    const struct scratch *scratch = *state;
    struct progress *progress = share_progress();
    struct random_source source = random_seeded((uint64_t)time(NULL));
    int64_t most = 0;
    for (int round = 0; round < 30; round++) {
        int64_t delay_us = random_between(&source, 0, 60000);
        uint32_t lanes_a_commit = (uint32_t)random_between(&source, 1, 40);
        progress->committed = 0;
        progress->begun = -1;
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) record_for_ever(scratch->path, progress, lanes_a_commit);
        usleep((useconds_t)delay_us);
        int status = 0;
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        if (progress->begun < 0) {
            expect_readable(scratch->path, 0, -1, round);
        } else {
            int64_t lanes = expect_cut(scratch->path, 137);
            if (lanes < progress->committed || lanes > progress->begun)
                fail_msg("killed after %lld us: %lld lanes, %lld committed", (long long)delay_us, (long long)lanes,
                         (long long)progress->committed);
            most = lanes > most ? lanes : most;
        }
        unlink(scratch->path);
    }
    assert_true(most > 40); /* the rounds did reach beyond creation */
    munmap(progress, sizeof *progress);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(paths),
        TEST(existing_databases),
        TEST(finish_what_is_no_trace),
        TEST(foreign_folder),
        TEST(states),
        TEST(long_reader),
        TEST(broken_references),
        TEST(file_size_limit),
        TEST(small_disk),
        TEST(failing_writes),
        TEST(failing_allocations),
        TEST(killed_at_every_write),
        TEST(killed_at_random),
    };
    faulty_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
