/* One error: the first wins, context goes in front, texts are cut but always end, exit statuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "../../probes/host/error.h"

static void first_wins(void **state) {
    (void)state;
    struct error error = {0};
    assert_int_equal(error_set(&error, ERROR_USAGE, "no file '%s', %d tried", "a.db", 3), ERROR_USAGE);
    assert_int_equal(error.code, ERROR_USAGE);
    assert_string_equal(error.message, "no file 'a.db', 3 tried");
    assert_string_equal(error.hint, "");
    assert_int_equal(error_hint(&error, "try '%s'", "b.db"), ERROR_USAGE);
    assert_int_equal(error_set(&error, ERROR_FAILURE, "later"), ERROR_FAILURE); /* the call's own code, the old text */
    assert_int_equal(error.code, ERROR_USAGE);
    assert_string_equal(error.message, "no file 'a.db', 3 tried");
    assert_string_equal(error.hint, "try 'b.db'");
}

/* A struct that is used again has no hint left from before. */
static void used_again(void **state) {
    (void)state;
    struct error error = {0};
    error_set(&error, ERROR_FAILURE, "one");
    error_hint(&error, "do this");
    error.code = ERROR_NONE;
    assert_int_equal(error_set(&error, ERROR_GATE, "two"), ERROR_GATE);
    assert_string_equal(error.message, "two");
    assert_string_equal(error.hint, "");
}

static void context_in_front(void **state) {
    (void)state;
    struct error error = {0};
    error_set(&error, ERROR_FAILURE, "disk full");
    error_hint(&error, "free space");
    assert_int_equal(error_context(&error, "rank %d", 3), ERROR_FAILURE);
    assert_int_equal(error_context(&error, "run"), ERROR_FAILURE);
    assert_string_equal(error.message, "run: rank 3: disk full");
    assert_string_equal(error.hint, "free space");
}

static void long_texts(void **state) {
    (void)state;
    struct error error = {0};
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    error_set(&error, ERROR_FAILURE, "%s", text);
    error_hint(&error, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    assert_int_equal(strlen(error.hint), sizeof error.hint - 1);
    error_context(&error, "context");
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    assert_memory_equal(error.message, "context: xxx", 12);
    error_context(&error, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    error_context(&error, "%.509s", text); /* context and colon fill the message to the last byte but one */
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    assert_int_equal(error.code, ERROR_FAILURE);
}

/* Callers that want no text pass no struct. */
static void no_struct(void **state) {
    (void)state;
    assert_int_equal(error_set(NULL, ERROR_USAGE, "x"), ERROR_USAGE);
    assert_int_equal(error_hint(NULL, "x"), ERROR_FAILURE);
    assert_int_equal(error_context(NULL, "x"), ERROR_FAILURE);
}

static void exit_statuses(void **state) {
    (void)state;
    assert_int_equal(error_exit_status(ERROR_NONE), 0);
    assert_int_equal(error_exit_status(ERROR_FAILURE), 1);
    assert_int_equal(error_exit_status(ERROR_USAGE), 2);
    assert_int_equal(error_exit_status(ERROR_GATE), 3);
    assert_int_equal(error_exit_status(-77), 1);
    assert_int_equal(error_exit_status(1), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_wins), cmocka_unit_test(used_again), cmocka_unit_test(context_in_front),
        cmocka_unit_test(long_texts), cmocka_unit_test(no_struct),  cmocka_unit_test(exit_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
