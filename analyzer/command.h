/* The verbs of the command line, and how each of them fails. A verb is int cmd_<verb>(int argc, char **argv) in
 * cmd_<verb>.c; argv[0] is the verb; the result is the exit status: 0, 1 failure, 2 usage, 3 gate exceeded, 128+n the
 * target's signal. To add a verb: a row in command_table (main.c), a declaration here, a file cmd_<verb>.c. */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "../probes/host/error.h"

/* What a verb needs beside the binary. */
enum command_needs { COMMAND_NEEDS_NOTHING, COMMAND_NEEDS_TRACE, COMMAND_NEEDS_GPU };

struct command {
    const char *name;
    int (*function)(int argc, char **argv); /* NULL: not built into this binary */
    enum command_needs needs;
    const char *help; /* one line */
};

/* Weak: a build without the CUDA toolkit has no cmd_run. */
int cmd_record(int argc, char **argv) __attribute__((weak));
int cmd_run(int argc, char **argv) __attribute__((weak));
int cmd_execute(int argc, char **argv) __attribute__((weak));
int cmd_analyze(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_info(int argc, char **argv);

/* Prints the error: "mokscope VERB: message" and "hint: ..." on stderr, or with json one object on stdout.
 * Returns the exit status. */
int command_fail(const char *verb, const struct error *error, bool json);

/* A warning on stderr; the verb goes on. */
void command_warn(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Version of mokscope and revision it was built from; '' if unknown. */
const char *command_version(void);
const char *command_git_revision(void);

#endif
