/* Options of a verb as a table: parsing, --help, errors with the nearest match come from it. The verb owns its struct of
 * values, filled with defaults before parsing; strings point into argv. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../probes/host/error.h"

enum option_kind {
    OPTION_FLAG,    /* bool, no value: --json */
    OPTION_INTEGER, /* int64_t */
    OPTION_REAL,    /* double */
    OPTION_STRING   /* const char * */
};

struct option_row {
    const char *name;          /* without dashes */
    char letter;               /* single letter, 0: none */
    enum option_kind kind;
    size_t offset;             /* offsetof(struct <verb>_options, field) */
    const char *value;         /* name of the value in help; NULL for flags */
    const char *default_text;  /* printed default; NULL: none worth printing */
    const char *unit;          /* printed unit; NULL: none */
    const char *help;          /* a sentence without full stop */
    int64_t minimum, maximum;  /* OPTION_INTEGER: allowed range, both 0: any */
};

struct option_verb {
    const char *name;
    const char *usage;         /* what follows "mokscope VERB", e.g. "[options] TRACE" */
    const char *summary;       /* what the verb does, a few lines */
    const struct option_row *rows;
    size_t row_count;
    int positional_minimum, positional_maximum; /* arguments that are no options */
    bool command_after;        /* everything from the first non-option (or after --) belongs to a command */
    const char *examples[2];   /* whole command lines */
    const char *exits;         /* exit statuses beside 0, 1 and 2, e.g. "128+n the program's signal n"; NULL: none */
};

enum option_result { OPTIONS_GO = 0, OPTIONS_HELP = 1 }; /* negative: error_code */

/* Parses argv[1..argc) into values (the verb's struct). Options may stand before and after positional arguments, except with
 * command_after; "--" ends them; --name VALUE and --name=VALUE. Positional arguments are moved to the front of
 * argv: argv[1..*positional_count]. Prints help to stdout and returns OPTIONS_HELP for --help and -h. */
int options_parse(const struct option_verb *verb, int argc, char **argv, void *values, int *positional_count,
                  struct error *error);

void options_print_help(const struct option_verb *verb);

/* Nearest of names to word by edit distance, or NULL if none is near (distance <= 1 + length / 3). */
const char *options_nearest(const char *word, const char *const *names, size_t count);

#endif
