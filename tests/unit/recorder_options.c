/* What the recorder makes of MOKSCOPE_* variables: defaults, values, nonsense, roles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../probes/recorder/recorder_options.h"

static const char *const names[] = {"MOKSCOPE_OUTPUT", "MOKSCOPE_ROLES",  "MOKSCOPE_LEVEL",   "MOKSCOPE_LANES",
                                    "MOKSCOPE_RECORDS", "MOKSCOPE_PROBES", "MOKSCOPE_ACTIVITY"};

static int set_up(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
    return 0;
}

/* Options with one variable set; what was said on stderr in said [512]. */
static struct recorder_options with(const char *name, const char *value, char *said) {
    struct recorder_options options;
    int pipes[2], kept = dup(2);
    assert_int_equal(pipe(pipes), 0);
    setenv(name, value, 1);
    dup2(pipes[1], 2);
    close(pipes[1]);
    recorder_options_read(&options);
    dup2(kept, 2); /* closes the pipe's last writing end */
    close(kept);
    ssize_t length = read(pipes[0], said, 511);
    close(pipes[0]);
    said[length > 0 ? length : 0] = '\0';
    unsetenv(name);
    return options;
}

static void defaults(void **state) {
    (void)state;
    struct recorder_options options;
    recorder_options_read(&options);
    assert_null(options.output);
    assert_null(options.roles);
    assert_int_equal(options.level, MOKSCOPE_LEVEL_PHASE);
    assert_int_equal(options.lanes, 8192);
    assert_int_equal(options.records, 2048);
    assert_true(options.probes && options.activity);
}

static void values(void **state) {
    (void)state;
    char said[512];
    assert_int_equal(with("MOKSCOPE_LEVEL", "task", said).level, MOKSCOPE_LEVEL_TASK);
    assert_int_equal(with("MOKSCOPE_LEVEL", "kblock", said).level, MOKSCOPE_LEVEL_KBLOCK);
    assert_int_equal(with("MOKSCOPE_LANES", "1", said).lanes, 1);
    assert_int_equal(with("MOKSCOPE_LANES", "16777216", said).lanes, 1 << 24);
    assert_false(with("MOKSCOPE_PROBES", "off", said).probes);
    assert_false(with("MOKSCOPE_ACTIVITY", "off", said).activity);
    assert_true(with("MOKSCOPE_ACTIVITY", "on", said).activity);
    assert_string_equal(said, "");
    assert_null(with("MOKSCOPE_OUTPUT", "", said).output); /* set and empty counts as not set */
    assert_null(with("MOKSCOPE_ROLES", "", said).roles);
}

/* Rounded up to powers of two. */
static void records(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t records;
    } cases[] = {{"2", 2}, {"3", 4}, {"4", 4}, {"1000", 1024}, {"1025", 2048}, {"16777215", 1 << 24}, {"16777216", 1 << 24}};
    char said[512];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(with("MOKSCOPE_RECORDS", cases[i].text, said).records, cases[i].records);
}

/* The default, and a line that names variable and value. */
static void nonsense(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"MOKSCOPE_LANES", "0"},      {"MOKSCOPE_LANES", "16777217"}, {"MOKSCOPE_LANES", "-1"},   {"MOKSCOPE_LANES", "8k"},
        {"MOKSCOPE_RECORDS", "1"},    {"MOKSCOPE_RECORDS", "x"},      {"MOKSCOPE_LEVEL", "fine"}, {"MOKSCOPE_LEVEL", "tasks"},
        {"MOKSCOPE_PROBES", "maybe"}, {"MOKSCOPE_ACTIVITY", "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char said[512], expected[64];
        struct recorder_options options = with(cases[i][0], cases[i][1], said);
        snprintf(expected, sizeof expected, "%s='%s' ", cases[i][0], cases[i][1]);
        if (strstr(said, expected) == NULL) fail_msg("%s says '%s'", expected, said);
        assert_int_equal(options.level, MOKSCOPE_LEVEL_PHASE);
        assert_int_equal(options.lanes, 8192);
        assert_int_equal(options.records, 2048);
        assert_true(options.probes && options.activity);
    }
}

static const struct mokscope_role_row forward_roles[] = {{"load", 0, ""}, {"mma", 0, ""}, {"store", 0, ""}};
static const struct mokscope_role_row backward_roles[] = {{"mma", 0, ""}, {"reduce", 0, ""}};
static const struct mokscope_module forward = {.name = "forward", .roles = forward_roles, .role_count = 3};
static const struct mokscope_module backward = {.name = "backward", .roles = backward_roles, .role_count = 2};

static void role_masks(void **state) {
    (void)state;
    static const struct {
        const char *roles;
        uint32_t forward, backward;
    } cases[] = {
        {NULL, 0xffffffff, 0xffffffff}, {"mma", 2, 1},           {"mma,store", 6, 1}, {"store,load", 5, 0xffffffff},
        {"reduce", 0xffffffff, 2},      {"mm", 0xffffffff, ~0u}, {"mmax,load", 1, ~0u}, {",mma,", 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct recorder_options options = {.roles = cases[i].roles};
        assert_int_equal(recorder_options_role_mask(&options, &forward), cases[i].forward);
        assert_int_equal(recorder_options_role_mask(&options, &backward), cases[i].backward);
    }
}

static void unknown_roles(void **state) {
    (void)state;
    const struct mokscope_module *const modules[] = {&forward, &backward};
    static const struct {
        const char *roles, *unknown;
    } cases[] = {{NULL, NULL}, {"load,reduce", NULL}, {"mma,,store,", NULL}, {"mna", "mna"}, {"mma,mna,x", "mna"}, {"mm", "mm"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct recorder_options options = {.roles = cases[i].roles};
        size_t length = 0;
        const char *unknown = recorder_options_unknown_role(&options, modules, 2, &length);
        if (cases[i].unknown == NULL) {
            assert_null(unknown);
        } else {
            assert_int_equal(length, strlen(cases[i].unknown));
            assert_memory_equal(unknown, cases[i].unknown, length);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(defaults, set_up), cmocka_unit_test_setup(values, set_up),     cmocka_unit_test_setup(records, set_up),
        cmocka_unit_test_setup(nonsense, set_up), cmocka_unit_test_setup(role_masks, set_up), cmocka_unit_test_setup(unknown_roles, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
