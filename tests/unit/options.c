/* Option tables: every kind and its limits, both ways to give a value, what is refused and what is suggested, commands after
 * options, help. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../analyzer/options.h"

struct values {
    bool json, force;
    int64_t count, any;
    double share;
    const char *output;
};

static const struct option_row rows[] = {
    {"json", 'j', OPTION_FLAG, offsetof(struct values, json), NULL, NULL, NULL, "print JSON", 0, 0},
    {"force", 0, OPTION_FLAG, offsetof(struct values, force), NULL, NULL, NULL, "replace the file", 0, 0},
    {"count", 'n', OPTION_INTEGER, offsetof(struct values, count), "N", "4", "rows", "rows to print", 1, 100},
    {"any", 0, OPTION_INTEGER, offsetof(struct values, any), "N", NULL, NULL, "any number", 0, 0},
    {"share", 0, OPTION_REAL, offsetof(struct values, share), "X", "0.5", NULL, "a share", 0, 0},
    {"output", 'o', OPTION_STRING, offsetof(struct values, output), "FILE", NULL, NULL, "where to", 0, 0},
};
enum { ROWS = sizeof rows / sizeof rows[0], ARGUMENTS = 16 };

static struct option_verb verb = {"test",
                                  "[options] TRACE [OTHER]",
                                  "Tests options.",
                                  rows,
                                  ROWS,
                                  1,
                                  2,
                                  false,
                                  {"mokscope test a.db", "mokscope test --json a.db"},
                                  "3 a threshold was passed"};

/* The command line split at blanks; argv lives until the next call. */
static struct {
    char text[512], *argv[ARGUMENTS + 1];
    int argc, positional;
    struct values values;
    struct error error;
} line;

static int parse(const char *text) {
    memset(&line, 0, sizeof line);
    line.values.count = 4;
    line.values.share = 0.5;
    line.positional = -1;
    snprintf(line.text, sizeof line.text, "test %s", text);
    for (char *word = strtok(line.text, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(line.argc < ARGUMENTS);
        line.argv[line.argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    }
    return options_parse(&verb, line.argc, line.argv, &line.values, &line.positional, &line.error);
}

static void accept(const char *text) {
    if (parse(text) != OPTIONS_GO) fail_msg("'%s': %s", text, line.error.message);
    assert_int_equal(line.error.code, 0);
}

static void refuse(const char *text, const char *message, const char *hint) {
    int result = parse(text);
    if (result != ERROR_USAGE || line.error.code != ERROR_USAGE || strcmp(line.error.message, message) != 0 ||
        strcmp(line.error.hint, hint) != 0)
        fail_msg("'%s': %d: %s (%s)", text, result, line.error.message, line.error.hint);
}

/* The positional arguments after parsing, with blanks between. */
static const char *positional(void) {
    static char text[256];
    text[0] = '\0';
    for (int i = 1; i <= line.positional; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 1 ? " " : "", line.argv[i]);
    return text;
}

/* --- values ---------------------------------------------------------------------------------------------------------- */

static void defaults_stay(void **state) {
    (void)state;
    accept("a.db");
    assert_false(line.values.json);
    assert_int_equal(line.values.count, 4);
    assert_true(line.values.share == 0.5);
    assert_null(line.values.output);
    assert_string_equal(positional(), "a.db");
}

static void every_kind(void **state) {
    (void)state;
    accept("--json --count 7 --any -12 --share 2.5e-1 --output out.db a.db");
    assert_true(line.values.json);
    assert_false(line.values.force);
    assert_int_equal(line.values.count, 7);
    assert_int_equal(line.values.any, -12);
    assert_true(line.values.share == 0.25);
    assert_string_equal(line.values.output, "out.db");
    assert_ptr_equal(line.values.output,
                     line.argv[0] + strlen("test --json --count 7 --any -12 --share 2.5e-1 --output "));
    accept("--count=9 --any=-1 --share=1e3 --output=x=y=z --force a.db");
    assert_int_equal(line.values.count, 9);
    assert_int_equal(line.values.any, -1);
    assert_true(line.values.share == 1000);
    assert_string_equal(line.values.output, "x=y=z"); /* the first equals sign divides */
    assert_true(line.values.force);
    accept("-j -n 3 -o out.db a.db");
    assert_true(line.values.json);
    assert_int_equal(line.values.count, 3);
    assert_string_equal(line.values.output, "out.db");
    accept("--output= a.db");
    assert_string_equal(line.values.output, "");
    accept("--output --json a.db"); /* a value may look like an option */
    assert_string_equal(line.values.output, "--json");
    assert_false(line.values.json);
    accept("--count 5 --count 6 a.db"); /* the last wins */
    assert_int_equal(line.values.count, 6);
}

static void ranges(void **state) {
    (void)state;
    accept("--count 1 a");
    accept("--count 100 a");
    assert_int_equal(line.values.count, 100);
    refuse("--count 0 a", "value '0' of option '--count' is out of range", "allowed: 1 to 100");
    refuse("--count=101 a", "value '101' of option '--count' is out of range", "allowed: 1 to 100");
    assert_int_equal(line.values.count, 4); /* untouched */
    accept("--any 9223372036854775807 a");
    assert_true(line.values.any == INT64_MAX);
    accept("--any -9223372036854775808 a");
    assert_true(line.values.any == INT64_MIN);
    refuse("--any 9223372036854775808 a", "value '9223372036854775808' of option '--any' is not a whole number",
           "--any N: any number");
}

static void values_that_are_none(void **state) {
    (void)state;
    static const char *const words[] = {"x", "''", "7x", "1.5", "0x10", "--", "1e3", "7,5"};
    char text[64], message[128];
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        snprintf(text, sizeof text, "--count %s a", words[i]);
        snprintf(message, sizeof message, "value '%s' of option '--count' is not a whole number",
                 strcmp(words[i], "''") ? words[i] : "");
        refuse(text, message, "--count N: rows to print");
    }
    refuse("--share ten a", "value 'ten' of option '--share' is not a number", "--share X: a share");
    refuse("--share= a", "value '' of option '--share' is not a number", "--share X: a share");
    refuse("--share 0.5s a", "value '0.5s' of option '--share' is not a number", "--share X: a share");
    refuse("--share nan a", "value 'nan' of option '--share' is not a number",
           "--share X: a share"); /* no threshold fails it */
    refuse("--share -inf a", "value '-inf' of option '--share' is not a number", "--share X: a share");
    refuse("--share 1e999 a", "value '1e999' of option '--share' is not a number", "--share X: a share");
}

static void missing_values(void **state) {
    (void)state;
    refuse("a --output", "option '--output' needs a value", "--output FILE: where to");
    refuse("a -o", "option '-o' needs a value", "--output FILE: where to");
    refuse("--count", "option '--count' needs a value", "--count N: rows to print");
    refuse("--json=yes a", "option '--json' takes no value", "");
}

/* --- names ----------------------------------------------------------------------------------------------------------- */

static void unknown_names(void **state) {
    (void)state;
    refuse("--jsn a", "unknown option '--jsn'", "did you mean '--json'?");
    refuse("--jsno=3 a", "unknown option '--jsno=3'", "did you mean '--json'?");
    refuse("--outptu=3 a", "unknown option '--outptu=3'", "did you mean '--output'?");
    refuse("--jso a", "unknown option '--jso'", "did you mean '--json'?"); /* no abbreviations */
    refuse("--entirely a", "unknown option '--entirely'", "'mokscope test --help' lists the options");
    refuse("-x a", "unknown option '-x'", "'mokscope test --help' lists the options");
    refuse("-jn a", "unknown option '-jn'", "'mokscope test --help' lists the options"); /* letters do not join */
    refuse("-count 3 a", "unknown option '-count'", "did you mean '--count'?");
    refuse("--=3 a", "unknown option '--=3'", "'mokscope test --help' lists the options");
    char text[300];
    memset(text, 'y', sizeof text - 1);
    memcpy(text, "--", 2);
    text[sizeof text - 1] = '\0';
    assert_int_equal(parse(text), ERROR_USAGE);
    assert_string_equal(line.error.hint, "'mokscope test --help' lists the options");
}

static void nearest_name(void **state) {
    (void)state;
    static const char *const names[] = {"record", "report", "analyze", "info", "export", "diff"};
    static const struct {
        const char *word, *nearest;
    } cases[] = {{"record", "record"}, {"recrod", "record"},     {"rep", NULL},         {"analyse", "analyze"},
                 {"nifo", "info"},     {"infos", "info"},        {"expert", "export"},  {"x", NULL},
                 {"", NULL},           {"dif", "diff"},          {"dxxf", "diff"},      {"dxxx", NULL},
                 {"porter", NULL},     {"recordings", "record"}, {"recordings2", NULL}, {"analyzer", "analyze"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *nearest = options_nearest(cases[i].word, names, 6);
        if (nearest == NULL ? cases[i].nearest != NULL
                            : cases[i].nearest == NULL || strcmp(nearest, cases[i].nearest) != 0)
            fail_msg("nearest to '%s' is '%s'", cases[i].word, nearest != NULL ? nearest : "(none)");
    }
    assert_null(options_nearest("record", names, 0));
}

/* --- arguments that are no options ------------------------------------------------------------------------------------ */

static void positional_arguments(void **state) {
    (void)state;
    accept("a --json b");
    assert_string_equal(positional(), "a b");
    assert_true(line.values.json);
    accept("- --json");
    assert_string_equal(positional(), "-");
    accept("--json -- --count -n");
    assert_string_equal(positional(), "--count -n");
    assert_int_equal(line.values.count, 4);
    accept("a --");
    assert_string_equal(positional(), "a");
    refuse("", "an argument is missing", "usage: mokscope test [options] TRACE [OTHER]");
    refuse("--json", "an argument is missing", "usage: mokscope test [options] TRACE [OTHER]");
    refuse("a b c d", "unexpected argument 'c'", "usage: mokscope test [options] TRACE [OTHER]");
    refuse("-- a b --json", "unexpected argument '--json'", "usage: mokscope test [options] TRACE [OTHER]");
}

static void command_after(void **state) {
    (void)state;
    verb.command_after = true;
    verb.positional_maximum = 0; /* says nothing about a command */
    accept("--json app --json -n 3 -- x");
    assert_string_equal(positional(), "app --json -n 3 -- x");
    assert_true(line.values.json);
    assert_int_equal(line.values.count, 4);
    accept("-n 3 -- --app --json -- x");
    assert_string_equal(positional(), "--app --json -- x");
    assert_int_equal(line.values.count, 3);
    refuse("--json", "an argument is missing", "usage: mokscope test [options] TRACE [OTHER]");
    refuse("--json --", "an argument is missing", "usage: mokscope test [options] TRACE [OTHER]");
    refuse("--jsn app", "unknown option '--jsn'", "did you mean '--json'?");
    verb.command_after = false;
    verb.positional_maximum = 2;
}

/* --- help ------------------------------------------------------------------------------------------------------------ */

/* What parsing a line prints on stdout. */
static char *printed(const char *text, int *result) {
    static char output[4096];
    FILE *file = tmpfile();
    int kept = dup(1);
    assert_true(file != NULL && kept >= 0);
    fflush(stdout);
    dup2(fileno(file), 1);
    *result = parse(text);
    fflush(stdout);
    dup2(kept, 1);
    close(kept);
    ssize_t got = pread(fileno(file), output, sizeof output - 1, 0);
    fclose(file);
    assert_true(got >= 0);
    output[got] = '\0';
    return output;
}

static void help(void **state) {
    (void)state;
    static const char expected[] = "usage: mokscope test [options] TRACE [OTHER]\n\nTests options.\n\noptions:\n"
                                   "  -j, --json                   print JSON\n"
                                   "      --force                  replace the file\n"
                                   "  -n, --count N                rows to print [rows] (default 4)\n"
                                   "      --any N                  any number\n"
                                   "      --share X                a share (default 0.5)\n"
                                   "  -o, --output FILE            where to\n"
                                   "  -h, --help                   print this help\n"
                                   "\nexamples:\n  mokscope test a.db\n  mokscope test --json a.db\n"
                                   "\nexit status: 0 done, 1 failure, 2 wrong usage, 3 a threshold was passed\n";
    static const char *const lines[] = {"--help", "-h", "a b c --help", "--json -h --unknown"};
    for (int i = 0; i < 4; i++) {
        int result = 0;
        const char *text = printed(lines[i], &result);
        assert_int_equal(result, OPTIONS_HELP);
        for (size_t at = 0, line_begin = 0; expected[at] != '\0';
             at++) { /* blanks between columns are the table's business */
            if (expected[at] != '\n') continue;
            char wanted[128];
            snprintf(wanted, sizeof wanted, "%.*s", (int)(at - line_begin), expected + line_begin);
            char *name = strstr(wanted, "--"), *gap = name != NULL ? strstr(name, "  ") : NULL;
            if (gap != NULL) *gap = '\0';
            if (strstr(text, wanted) == NULL) fail_msg("help lacks '%s':\n%s", wanted, text);
            line_begin = at + 1;
        }
        assert_non_null(strstr(text, " rows to print [rows] (default 4)\n"));
    }
    int result;
    assert_string_equal(printed("-- --help", &result), "");
    assert_int_equal(result, OPTIONS_GO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_stay),  cmocka_unit_test(every_kind),
        cmocka_unit_test(ranges),         cmocka_unit_test(values_that_are_none),
        cmocka_unit_test(missing_values), cmocka_unit_test(unknown_names),
        cmocka_unit_test(nearest_name),   cmocka_unit_test(positional_arguments),
        cmocka_unit_test(command_after),  cmocka_unit_test(help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
