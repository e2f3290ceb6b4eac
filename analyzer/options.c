/* See options.h. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAXIMUM = 64, NAMES_MAXIMUM = 128 };

/* Levenshtein distance; words longer than NAME_MAXIMUM are far from everything. */
static size_t edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), row[NAME_MAXIMUM + 1];
    if (n > NAME_MAXIMUM || m > NAME_MAXIMUM) return NAME_MAXIMUM;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[m];
}

const char *options_nearest(const char *word, const char *const *names, size_t count) {
    const char *nearest = NULL;
    size_t best = 2 + strlen(word) / 3;
    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(word, names[i]);
        if (distance < best) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

static void print_row(const struct option_row *row) {
    char left[96];
    int length = 0;
    length += snprintf(left, sizeof left, row->letter != 0 ? "  -%c, " : "      ", row->letter);
    length += snprintf(left + length, sizeof left - (size_t)length, "--%s", row->name);
    if (row->value != NULL) snprintf(left + length, sizeof left - (size_t)length, " %s", row->value);
    printf("%-30s %s", left, row->help);
    if (row->unit != NULL) printf(" [%s]", row->unit);
    if (row->default_text != NULL) printf(" (default %s)", row->default_text);
    putchar('\n');
}

void options_print_help(const struct option_verb *verb) {
    printf("usage: mokscope %s %s\n\n%s\n\noptions:\n", verb->name, verb->usage, verb->summary);
    for (size_t i = 0; i < verb->row_count; i++) print_row(verb->rows + i);
    printf("%-30s %s\n", "  -h, --help", "print this help");
    printf("\nexamples:\n");
    for (size_t i = 0; i < 2; i++)
        if (verb->examples[i] != NULL) printf("  %s\n", verb->examples[i]);
    printf("\nexit status: 0 done, 1 failure, 2 wrong usage%s%s\n", verb->exits != NULL ? ", " : "",
           verb->exits != NULL ? verb->exits : "");
}

static int unknown_option(const struct option_verb *verb, const char *word, const char *shown, struct error *error) {
    const char *names[NAMES_MAXIMUM], *nearest;
    size_t count = 0;
    for (size_t i = 0; i < verb->row_count && count < NAMES_MAXIMUM; i++) names[count++] = verb->rows[i].name;
    nearest = options_nearest(word, names, count);
    error_set(error, ERROR_USAGE, "unknown option '%s'", shown);
    if (nearest != NULL) return error_hint(error, "did you mean '--%s'?", nearest);
    return error_hint(error, "'mokscope %s --help' lists the options", verb->name);
}

static int store_value(const struct option_row *row, const char *text, void *values, struct error *error) {
    char *target = (char *)values + row->offset, *end = NULL;
    errno = 0;
    if (row->kind == OPTION_STRING) {
        *(const char **)(void *)target = text;
    } else if (row->kind == OPTION_REAL) {
        double value = strtod(text, &end);
        if (end == text || *end != '\0' || errno != 0 || !isfinite(value)) {
            error_set(error, ERROR_USAGE, "value '%s' of option '--%s' is not a number", text, row->name);
            return error_hint(error, "--%s %s: %s", row->name, row->value, row->help);
        }
        *(double *)(void *)target = value;
    } else {
        long long value = strtoll(text, &end, 10);
        if (end == text || *end != '\0' || errno != 0) {
            error_set(error, ERROR_USAGE, "value '%s' of option '--%s' is not a whole number", text, row->name);
            return error_hint(error, "--%s %s: %s", row->name, row->value, row->help);
        }
        if ((row->minimum != 0 || row->maximum != 0) && (value < row->minimum || value > row->maximum)) {
            error_set(error, ERROR_USAGE, "value '%s' of option '--%s' is out of range", text, row->name);
            return error_hint(error, "allowed: %lld to %lld", (long long)row->minimum, (long long)row->maximum);
        }
        *(int64_t *)(void *)target = value;
    }
    return 0;
}

/* Row named by the argument at argv[i]; *inline_value is what follows '=' or NULL. */
static const struct option_row *find_row(const struct option_verb *verb, const char *argument, const char **inline_value) {
    *inline_value = NULL;
    if (argument[1] != '-') {
        for (size_t i = 0; i < verb->row_count; i++)
            if (verb->rows[i].letter != 0 && argument[1] == verb->rows[i].letter && argument[2] == '\0')
                return verb->rows + i;
        return NULL;
    }
    const char *equals = strchr(argument, '=');
    size_t length = equals != NULL ? (size_t)(equals - argument - 2) : strlen(argument + 2);
    if (equals != NULL) *inline_value = equals + 1;
    for (size_t i = 0; i < verb->row_count; i++)
        if (strlen(verb->rows[i].name) == length && strncmp(verb->rows[i].name, argument + 2, length) == 0)
            return verb->rows + i;
    return NULL;
}

static int parse_option(const struct option_verb *verb, int argc, char **argv, int *i, void *values, struct error *error) {
    const char *argument = argv[*i], *value = NULL;
    const struct option_row *row = find_row(verb, argument, &value);
    if (row == NULL) {
        char word[NAME_MAXIMUM];
        snprintf(word, sizeof word, "%s", argument + 1 + (argument[1] == '-'));
        word[strcspn(word, "=")] = '\0';
        return unknown_option(verb, word, argument, error);
    }
    if (row->kind == OPTION_FLAG) {
        if (value != NULL) return error_set(error, ERROR_USAGE, "option '--%s' takes no value", row->name);
        *(bool *)(void *)((char *)values + row->offset) = true;
        return 0;
    }
    if (value == NULL) {
        if (*i + 1 >= argc) {
            error_set(error, ERROR_USAGE, "option '%s' needs a value", argument);
            return error_hint(error, "--%s %s: %s", row->name, row->value, row->help);
        }
        value = argv[++*i];
    }
    return store_value(row, value, values, error);
}

int options_parse(const struct option_verb *verb, int argc, char **argv, void *values, int *positional_count,
                  struct error *error) {
    int positional = 0;
    for (int i = 1; i < argc; i++) {
        char *argument = argv[i];
        bool rest = strcmp(argument, "--") == 0;
        if (rest || (verb->command_after && argument[0] != '-')) {
            for (int j = i + rest; j < argc; j++) argv[1 + positional++] = argv[j];
            break;
        }
        if (argument[0] != '-' || argument[1] == '\0') {
            argv[1 + positional++] = argument;
        } else if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            options_print_help(verb);
            return OPTIONS_HELP;
        } else {
            int result = parse_option(verb, argc, argv, &i, values, error);
            if (result != 0) return result;
        }
    }
    *positional_count = positional;
    if (positional < verb->positional_minimum) {
        error_set(error, ERROR_USAGE, "an argument is missing");
        return error_hint(error, "usage: mokscope %s %s", verb->name, verb->usage);
    }
    if (!verb->command_after && positional > verb->positional_maximum) {
        error_set(error, ERROR_USAGE, "unexpected argument '%s'", argv[1 + verb->positional_maximum]);
        return error_hint(error, "usage: mokscope %s %s", verb->name, verb->usage);
    }
    return OPTIONS_GO;
}
