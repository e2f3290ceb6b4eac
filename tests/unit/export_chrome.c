/* Chrome trace JSON of kernels, copies, markers and lanes with awkward names; window and filters. The whole of a larger trace
 * is checked in tests/cli/export. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <yajl/yajl_tree.h>

#include "../../analyzer/export_chrome.h"
#include "trace_build.h"

static void build(struct trace_build *b) {
    struct error error = {0};
    build_open(b);
    build_role(b, "mma \"x\"", "compute");
    build_role(b, "dispatch", "communicate");
    build_event(b, "k\\b\xff", "compute", "");
    build_edge(b, "X", "dispatch", "mma \"x\"", "gpu", false);
    struct trace_kernel kernel = {.stream_id = 0, .grid_id = 1, .name = "_Z6kernelPf", .begin_ns = BUILD_BASE_TICKS - 500,
                                  .end_ns = BUILD_BASE_TICKS + 2500, .grid = {3, 2, 1}, .block = {128, 1, 1}, .registers = 168};
    struct trace_copy copy = {.stream_id = 0, .kind = "HtoD", .bytes = 4096, .begin_ns = BUILD_BASE_TICKS - 900, .end_ns = BUILD_BASE_TICKS - 600};
    struct trace_marker marker = {.thread_id = 77, .domain = "d", .name = "step <1>", .begin_ns = BUILD_BASE_TICKS - 1001, .end_ns = BUILD_BASE_TICKS + 9000};
    build_check(trace_write_kernel(b->writer, &kernel, NULL, &error), &error);
    build_check(trace_write_copy(b->writer, &copy, &error), &error);
    build_check(trace_write_marker(b->writer, &marker, &error), &error);
    build_launch(b, 1);
    build_lane(b, "mma \"x\"", 0, 0, 4, 3, 0, 2000);
    build_wait(b, "X", 0, 100, 9);
    build_span(b, "k\\b\xff", 100, 1234, 0, 7);
    build_lane_end(b);
    build_lane(b, "dispatch", 1, 0, 0, 3, 0, 2000);
    build_signal(b, "X", 90, 9);
    build_close(b);
}

/* The document parsed, its events. */
static yajl_val export(const struct trace *trace, const struct export_choice *choice, struct error *error) {
    char *buffer = NULL, message[256];
    size_t size;
    struct export_summary summary;
    FILE *memory = open_memstream(&buffer, &size);
    int status = export_chrome_write(memory, trace, choice, &summary, error);
    fclose(memory);
    yajl_val document = status ? NULL : yajl_tree_parse(buffer, message, sizeof message);
    if (!status && document == NULL) fail_msg("%s\n%s", message, buffer);
    free(buffer);
    return document;
}

static yajl_val get(yajl_val value, const char *key) {
    const char *path[] = {key, NULL};
    return yajl_tree_get(value, path, yajl_t_any);
}

static const char *text_of(yajl_val value) {
    const char *text = YAJL_GET_STRING(value);
    return text != NULL ? text : "";
}

static yajl_val find(yajl_val document, const char *ph, const char *name) {
    yajl_val events = get(document, "traceEvents");
    for (size_t i = 0; i < YAJL_GET_ARRAY(events)->len; i++) {
        yajl_val event = YAJL_GET_ARRAY(events)->values[i];
        if (strcmp(text_of(get(event, "ph")), ph) == 0 && strcmp(text_of(get(event, "name")), name) == 0) return event;
    }
    return NULL;
}

static void expect_time(yajl_val event, double ts, double dur) {
    assert_non_null(event);
    assert_true(fabs(YAJL_GET_DOUBLE(get(event, "ts")) - ts) < 1e-9);
    assert_true(fabs(YAJL_GET_DOUBLE(get(event, "dur")) - dur) < 1e-9);
}

static void load(struct trace_build *b, struct trace_file *file, struct trace *trace) {
    struct error error = {0};
    build(b);
    build_check(trace_file_open(file, b->path, &error), &error);
    build_check(trace_read(file, trace, &error), &error);
}

static void everything(void **state) {
    (void)state;
    struct trace_build b;
    struct trace_file file;
    struct trace trace;
    struct error error = {0};
    const struct export_choice all = {-1, -1, 0, INFINITY};
    load(&b, &file, &trace);
    yajl_val document = export(&trace, &all, &error);
    /* times count from the marker, the first event */
    expect_time(find(document, "X", "step <1>"), 0, 10.001);
    expect_time(find(document, "X", "HtoD"), 0.101, 0.3);
    expect_time(find(document, "X", "_Z6kernelPf"), 0.501, 3);
    expect_time(find(document, "X", "X"), 1.001, 0.1);
    expect_time(find(document, "X", "k\\b\xef\xbf\xbd"), 1.101, 1.134);
    assert_non_null(find(document, "i", "X"));
    assert_int_equal(YAJL_GET_INTEGER(get(get(find(document, "X", "_Z6kernelPf"), "args"), "CTAs")), 6);
    assert_int_equal(YAJL_GET_INTEGER(get(get(find(document, "X", "HtoD"), "args"), "bytes")), 4096);
    assert_int_equal(YAJL_GET_INTEGER(get(get(find(document, "X", "X"), "args"), "index")), 9);
    assert_string_equal(text_of(get(get(find(document, "M", "thread_name"), "args"), "name")), "SM 3 mma \"x\"");
    assert_true(YAJL_GET_INTEGER(get(find(document, "X", "HtoD"), "tid")) > 0); /* stream 0 is not thread 0 */
    yajl_tree_free(document);
    trace_release(&trace);
    trace_file_close(&file);
    build_remove(&b);
}

static void chosen(void **state) {
    (void)state;
    struct trace_build b;
    struct trace_file file;
    struct trace trace;
    struct error error = {0};
    const struct export_choice rank = {-1, 1, 0, INFINITY}, window = {-1, -1, 1.05, 1.101}, absent = {-1, 4, 0, INFINITY}, launch = {9, -1, 0, INFINITY};
    load(&b, &file, &trace);
    yajl_val document = export(&trace, &rank, &error);
    assert_null(find(document, "X", "X"));
    assert_non_null(find(document, "i", "X"));
    yajl_tree_free(document);
    document = export(&trace, &window, &error);
    assert_non_null(find(document, "X", "X"));           /* 1.001 to 1.101 touches it */
    assert_non_null(find(document, "i", "X"));           /* at 1.091 */
    assert_null(find(document, "X", "k\\b\xef\xbf\xbd")); /* begins at its end */
    assert_null(find(document, "X", "HtoD"));
    yajl_tree_free(document);
    assert_null(export(&trace, &absent, &error));
    assert_string_equal(error.message, "the trace has no rank 4");
    error = (struct error){0};
    assert_null(export(&trace, &launch, &error));
    assert_string_equal(error.message, "the trace has no instrumented launch 9");
    trace_release(&trace);
    trace_file_close(&file);
    build_remove(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything), cmocka_unit_test(chosen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
