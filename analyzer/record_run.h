/* Runs a program with the recorder injected, into a trace. Used by `mokscope record` and `mokscope run`. */
#ifndef RECORD_RUN_H
#define RECORD_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "../probes/host/trace_write.h"

struct record_options {
    const char *output; /* path of the trace */
    bool force;         /* an existing trace is replaced */
    const char *level;  /* task, phase, kblock; NULL: the recorder's default, phase */
    const char *roles;  /* names separated by commas; NULL: all */
    int64_t lanes;      /* ring slots a module and GPU; 0: default */
    int64_t records;    /* records a slot, rounded up to a power of two; 0: default */
    bool no_probes, no_activity;
};

/* Defaults: trace.db, everything recorded. */
void record_options_init(struct record_options *options);

/* Runs argv (NULL-terminated, argv[0] searched in PATH) to its end and finishes its trace. Checks before anything starts that the
 * trace can be written and the recorder library is found. With force an old trace is moved aside and comes back if the program
 * leaves no new one. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 of this process are passed on, but for those that a
 * terminal has sent to the program as well; one at a time, from one thread.
 * status   exit status of the program, 128 + n for signal n
 * summary  what the trace holds; state is '' if the program never used CUDA, and then no file is left
 * Errors   ERROR_USAGE for options and paths, ERROR_FAILURE where starting the program or finishing the trace failed; *status is -1
 *          if the program did not run. */
int record_run(const struct record_options *options, char *const argv[], int *status, struct trace_summary *summary,
               struct error *error);

/* Finishes the traces that other processes of the same command left beside output (NAME.PID.db, probes/recorder/session.h): those
 * written since `since`, a time before record_run was called. Returns how many there are; the name of one is in name [size]. */
int record_run_others(const char *output, time_t since, char *name, size_t size);

#endif
