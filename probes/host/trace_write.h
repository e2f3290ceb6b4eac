/* The only writer of trace files (schemas/trace.sql); the recorder and the executor use it, readers use analyzer/trace_read.
 *
 * The writer owns its file handle and copies everything it is given. One thread at a time may use a writer. Functions return
 * 0 or a negative error_code; after a failure to write, every later call returns the same error and the file keeps what had
 * been committed. Rows are committed by trace_write_flush, by trace_write_close and every half million rows.
 *
 * States of the file  absent -> recording [trace_write_open, committed before anything else] -> complete [trace_write_close]
 *                     recording -> cut [trace_write_finalise, when the recorded program died]
 * A file left in state `recording` by a killed program is complete up to its last commit and is read as cut. */
#ifndef TRACE_WRITE_H
#define TRACE_WRITE_H

#include "../mokscope_describe.h"
#include "../mokscope_probe.h"
#include "clock_fit.h"
#include "error.h"

#include <stddef.h>
#include <stdint.h>

struct trace_writer;

/* Row of `run`. NULL strings count as ''; tool_version and git_revision default to the build's. */
struct trace_run {
    const char *producer; /* recorder, executor, importer */
    const char *tool_version;
    const char *git_revision;
    const char *command;
    const char *host; /* NULL: this host's name */
};

struct trace_device {
    int32_t device_id;
    const char *name;
    int32_t sm_count;
    int32_t sm_clock_khz;        /* 0: unknown; also the slope of lanes with a single clock pair */
    int32_t globaltimer_step_ns; /* 0: not measured */
    int64_t memory_bytes;        /* 0: unknown */
};

struct trace_kernel {
    int32_t device_id;
    uint32_t context_id, stream_id, correlation_id;
    int64_t grid_id;
    uint32_t graph_id;
    const char *name;
    int64_t begin_ns, end_ns;
    int32_t grid[3], block[3];
    int32_t registers, static_shared_bytes, dynamic_shared_bytes;
};

struct trace_copy {
    int32_t device_id;
    uint32_t stream_id, correlation_id;
    const char *kind;
    int64_t bytes;
    int64_t begin_ns, end_ns;
};

struct trace_marker {
    int64_t thread_id;
    const char *domain, *name;
    int64_t begin_ns, end_ns;
};

struct trace_host_activity {
    const char *kind; /* synchronise, overhead */
    const char *name;
    int64_t begin_ns, end_ns;
};

/* What a finished or abandoned file holds, for one line to the user. */
struct trace_summary {
    char state[16]; /* complete or cut */
    int64_t span_count, wait_count, signal_count, lane_count, launch_count, kernel_count;
    int64_t lost_count;   /* sum over loss */
    int64_t device_count; /* 0: the program described its run and never used a GPU */
};

/* Can a trace be created at path? Checks what can be known before the recorded program starts: folder, permission, free
 * space, an existing file. overwrite != 0 allows replacing an existing trace, never another kind of file. Creates nothing. */
int trace_write_check_path(const char *path, int overwrite, struct error *error);

/* Creates the file with schema, views and a run row in state `recording`, committed. An existing trace is removed first if
 * overwrite is set. */
int trace_write_open(struct trace_writer **writer, const char *path, int overwrite, const struct trace_run *run,
                     struct error *error);

/* Checks foreign keys, counts lost records into `loss`, writes the end of the run and leaves one file. state: "complete" or
 * "cut"; exit_status < 0: unknown. Releases the writer in any case; NULL is accepted. */
int trace_write_close(struct trace_writer *writer, const char *state, int exit_status, struct error *error);

/* Releases the writer without finishing the file, as if the process had been killed after the last commit. */
void trace_write_abandon(struct trace_writer *writer);

/* After the recorded program has ended: recovers a file whose writer died, marks it `cut` if it still says `recording`,
 * stores the exit status (< 0: leaves what is there) and leaves one file. summary may be NULL. */
int trace_write_finalise(const char *path, int exit_status, struct trace_summary *summary, struct error *error);

/* Commits what was written so far; while another program reads the file this is put off to a later flush or the close. */
int trace_write_flush(struct trace_writer *writer, struct error *error);

/* Stores a module's roles, edges and events with ids offset past those already there. The rows must live as long as the
 * writer. Errors: usage (nothing stored, the writer stays usable) when the table contradicts itself: an edge whose role, or
 * an event whose edge, the module does not have, an unknown kind or scope, more events than the record format holds. */
int trace_write_module(struct trace_writer *writer, const struct mokscope_module *module, int32_t *module_id,
                       struct error *error);

int trace_write_attribute(struct trace_writer *writer, const char *kind, const char *name, const char *value,
                          const char *unit, struct error *error);
/* Stores or replaces a device's row. Every device_id used elsewhere needs one. */
int trace_write_device(struct trace_writer *writer, const struct trace_device *device, struct error *error);
/* Stores or replaces. Ranks that only lanes mention get a row by themselves. */
int trace_write_rank(struct trace_writer *writer, int32_t rank, int32_t device_id, int64_t process_id,
                     struct error *error);
/* Sets a device's line to trace time and moves what the file holds of it (fits of lanes, hangs of ranks) onto it. Until it is
 * called the line is the identity. */
int trace_write_device_clock(struct trace_writer *writer, int32_t device_id, const struct clock_offset *offset,
                             struct error *error);
/* Tasks and targets may come before their ranks; those whose rank never comes are counted in `loss`. */
int trace_write_tasks(struct trace_writer *writer, const struct mokscope_task_row *rows, size_t count,
                      struct error *error);
int trace_write_targets(struct trace_writer *writer, const struct mokscope_target_row *rows, size_t count,
                        struct error *error);
int trace_write_hangs(struct trace_writer *writer, const struct mokscope_hang_row *rows, size_t count,
                      struct error *error);
/* kernel_id receives the row's id; NULL: not wanted. */
int trace_write_kernel(struct trace_writer *writer, const struct trace_kernel *kernel, int64_t *kernel_id,
                       struct error *error);
int trace_write_copy(struct trace_writer *writer, const struct trace_copy *copy, struct error *error);
int trace_write_marker(struct trace_writer *writer, const struct trace_marker *marker, struct error *error);
int trace_write_host_activity(struct trace_writer *writer, const struct trace_host_activity *activity,
                              struct error *error);
/* count 0 writes nothing. */
int trace_write_loss(struct trace_writer *writer, const char *source, const char *kind, int64_t count, const char *detail,
                     struct error *error);

/* The launch of (device, module, grid id), stored on first use. */
int trace_write_launch(struct trace_writer *writer, int32_t device_id, int32_t module_id, uint64_t grid_id,
                       int64_t *launch_id, struct error *error);
int trace_write_launch_kernel(struct trace_writer *writer, int64_t launch_id, int64_t kernel_id, struct error *error);

/* One lane with its rows: unwraps the ring, rebuilds clocks, fits them, sorts by begin.
 * records [capacity] the lane's ring, capacity a power of two. A role the module does not have is counted in `loss`. */
int trace_write_lane(struct trace_writer *writer, int64_t launch_id, const struct mokscope_lane_header *header,
                     const struct mokscope_record *records, uint32_t capacity, struct error *error);

#endif
