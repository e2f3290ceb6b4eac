/* Numbers for people, escaping, JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "../../analyzer/figure.h"
#include "../../analyzer/json_out.h"
#include "../../analyzer/text.h"

static void numbers(void **state) {
    (void)state;
    assert_string_equal(text_duration(0).bytes, "0 ns");
    assert_string_equal(text_duration(999).bytes, "999 ns");
    assert_string_equal(text_duration(61.75).bytes, "61.8 ns");
    assert_string_equal(text_duration(1234).bytes, "1.234 us");
    assert_string_equal(text_duration(999600).bytes, "1.000 ms");
    assert_string_equal(text_duration(12.5e6).bytes, "12.50 ms");
    assert_string_equal(text_duration(3.2e9).bytes, "3.20 s");
    assert_string_equal(text_duration(NAN).bytes, "-");
    assert_string_equal(text_share(0).bytes, "0.0 %");
    assert_string_equal(text_share(0.12345).bytes, "12.3 %");
    assert_string_equal(text_share(0.0032).bytes, "0.32 %");
    assert_string_equal(text_share(0.00001).bytes, "< 0.01 %");
    assert_string_equal(text_share(1).bytes, "100.0 %");
    assert_string_equal(text_share(NAN).bytes, "-");
    assert_string_equal(text_rate(512e12).bytes, "512 TFLOP/s");
    assert_string_equal(text_rate(1.9e15).bytes, "1.900 PFLOP/s");
    assert_string_equal(text_count(0).bytes, "0");
    assert_string_equal(text_count(999).bytes, "999");
    assert_string_equal(text_count(1234567).bytes, "1,234,567");
    assert_string_equal(text_count(-1000).bytes, "-1,000");
    assert_string_equal(text_count(INT64_MAX).bytes, "9,223,372,036,854,775,807");
    assert_string_equal(text_bytes(1023).bytes, "1023 bytes");
    assert_string_equal(text_bytes(1536).bytes, "1.500 KiB");
    assert_string_equal(text_value(2, "", true).bytes, "2.00");
    assert_string_equal(text_value(0.5, "", false).bytes, "50.0 %");
    assert_string_equal(text_value(1500, "ns", false).bytes, "1.500 us");
}

/* Runs one of the writers into memory. */
static char *written(void (*write)(FILE *file, const char *text), const char *text) {
    char *buffer = NULL;
    size_t size;
    FILE *memory = open_memstream(&buffer, &size);
    write(memory, text);
    fclose(memory);
    return buffer;
}

static void expect_written(void (*write)(FILE *file, const char *text), const char *text, const char *expected) {
    char *got = written(write, text);
    assert_string_equal(got, expected);
    free(got);
}

static void escaping(void **state) {
    (void)state;
    expect_written(text_write_html, "<a b=\"c\">'&", "&lt;a b=&quot;c&quot;&gt;&#39;&amp;");
    expect_written(text_write_json, "a\"b\\c\n\x7f", "\"a\\\"b\\\\c\\u000a\\u007f\"");
    expect_written(text_write_json, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    expect_written(text_write_json, "\xff\xc3(\xe0\x80\x80\xed\xa0\x80", "\"\\ufffd\\ufffd(\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\"");
    expect_written(text_write_json, "\xc3", "\"\\ufffd\"");
}

static int accept_number(void *context, const char *text, size_t length) {
    double *numbers_read = context;
    char copy[64] = "";
    memcpy(copy, text, length < 63 ? length : 63);
    numbers_read[0]++;
    numbers_read[(int)numbers_read[0]] = strtod(copy, NULL);
    return 1;
}

/* Everything written is valid JSON and reads back exactly. */
static void json_reads_back(void **state) {
    (void)state;
    static const double values[] = {0, -1, 0.1, 1.0 / 3, 1e300, -2.5e-300, 476629.5, 123456789012345680.0, 5e-324};
    enum { COUNT = sizeof values / sizeof values[0] };
    double got[COUNT + 3] = {0};
    char *buffer = NULL;
    size_t size;
    struct json_out json;
    FILE *memory = open_memstream(&buffer, &size);
    json_out_open(&json, memory, false);
    json_out_map(&json, NULL);
    json_out_array(&json, "values");
    for (int i = 0; i < COUNT; i++) json_out_real(&json, NULL, values[i]);
    json_out_real(&json, NULL, NAN);
    json_out_real(&json, NULL, INFINITY);
    json_out_array_end(&json);
    json_out_text(&json, "bad \xff key", "tab\t\"quote\" \xc3\xa9 \xfe");
    json_out_text(&json, "none", NULL);
    json_out_integer(&json, "integer", INT64_MIN);
    json_out_flag(&json, "flag", true);
    json_out_map_end(&json);
    assert_int_equal(json_out_close(&json), 0);
    fclose(memory);
    yajl_callbacks callbacks = {.yajl_number = accept_number};
    yajl_handle parser = yajl_alloc(&callbacks, NULL, got);
    assert_int_equal(yajl_parse(parser, (const unsigned char *)buffer, size), yajl_status_ok);
    assert_int_equal(yajl_complete_parse(parser), yajl_status_ok);
    yajl_free(parser);
    assert_int_equal((int)got[0], COUNT + 1);
    for (int i = 0; i < COUNT; i++) assert_true(got[1 + i] == values[i]);
    assert_true(got[COUNT + 1] == (double)INT64_MIN);
    assert_non_null(strstr(buffer, "null,null"));
    assert_non_null(strstr(buffer, "\"bad \xef\xbf\xbd key\":\"tab\\t\\\"quote\\\" \xc3\xa9 \xef\xbf\xbd\""));
    free(buffer);
}

/* A value outside a map with a key is a bug and is reported, not written. */
static void json_misuse(void **state) {
    (void)state;
    char *buffer = NULL;
    size_t size;
    struct json_out json;
    FILE *memory = open_memstream(&buffer, &size);
    json_out_open(&json, memory, false);
    json_out_map(&json, NULL);
    json_out_integer(&json, NULL, 1);
    json_out_map_end(&json);
    assert_int_equal(json_out_close(&json), -1);
    fclose(memory);
    free(buffer);
}

static void quantiles(void **state) {
    (void)state;
    double values[] = {5, 1, 4, 2, 3};
    assert_true(quantile(values, 5, 0.5) == 3);
    assert_true(quantile(values, 5, 0) == 1);
    assert_true(quantile(values, 5, 1) == 5);
    assert_true(fabs(quantile(values, 5, 0.05) - 1.2) < 1e-12);
    assert_true(isnan(quantile(values, 0, 0.5)));
}

/* Ratio of sums, not mean of ratios; medians; missing iterations; scopes in order of their numbers. */
static void figure_statistics(void **state) {
    (void)state;
    struct arena arena = {0};
    struct figures figures;
    struct error error = {0};
    figures_init(&figures, &arena, 3);
    figures_add_plain(&figures, "exposed.share", "rank 10", 0, 1, 10, 10);
    figures_add_plain(&figures, "exposed.share", "rank 10", 2, 30, 40, 40);
    figures_add_plain(&figures, "exposed.share", "rank 9", 1, 0, 0, 5);
    figures_add_plain(&figures, "time.kernel", "all", 0, 5, 1, 5);
    figures_add_plain(&figures, "time.kernel", "all", 1, 9, 1, 9);
    figures_add_plain(&figures, "time.kernel", "all", 2, 6, 1, 6);
    figures_add_plain(&figures, "tail", "role x", 0, 3, 4, 5);
    assert_int_equal(figures_finish(&figures, &error), 0);
    assert_int_equal(figures.count, 4);
    const struct figure *share = figures_find(&figures, "exposed.share", "rank 10");
    assert_true(share->value == 31.0 / 50 && share->iterations == 2 && share->window_ns == 50);
    assert_true(fabs(share->p5 - 0.1325) < 1e-12);
    assert_true(isnan(figures_find(&figures, "exposed.share", "rank 9")->value));
    assert_true(figures_find(&figures, "time.kernel", "all")->value == 6);
    assert_true(figures_find(&figures, "tail", "role x")->value == 0.25);
    assert_true(share == figures_find(&figures, "exposed.share", "rank 9") + 1);
    arena_release(&arena);
}

/* Every definition says something, once. */
static void definitions_complete(void **state) {
    (void)state;
    int32_t count;
    const struct definition *rows = definitions(&count);
    for (int32_t i = 0; i < count; i++) {
        assert_true(rows[i].formula[0] != '\0' && rows[i].text[0] != '\0' && rows[i].title[0] != '\0' && rows[i].source[0] != '\0');
        assert_ptr_equal(definition_find(rows[i].id), &rows[i]);
    }
    assert_null(definition_find("no.such"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),     cmocka_unit_test(escaping),  cmocka_unit_test(json_reads_back),   cmocka_unit_test(json_misuse),
        cmocka_unit_test(quantiles),   cmocka_unit_test(figure_statistics), cmocka_unit_test(definitions_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
