/* Everything of one recording that ends up in the file: takes lanes, activity and descriptions from any thread, writes them
 * through the trace writer, matches launches to kernels and fits device clocks at the end. Knows no CUDA, so tests drive it.
 *
 * The collector owns the writer, the queue of lane blocks and its own thread. Its lock is a leaf: nothing but SQLite is
 * called under it. After a failure to write it says so once, drops what follows and stays callable. */
#ifndef COLLECTOR_H
#define COLLECTOR_H

#include "../host/trace_write.h"
#include "rings.h"

struct collector;

/* Creates the trace and starts the writing thread. */
int collector_open(struct collector **collector, const char *path, const char *command, struct error *error);

/* Writes everything queued, matches, fits clocks, closes the file; state is "complete" or "cut". Releases the collector. */
int collector_close(struct collector *collector, const char *state, struct error *error);

/* Stores the module's tables if they are new. */
void collector_module(struct collector *collector, const struct mokscope_module *module);

/* Queues a list of blocks and takes them; waits while more than a gigabyte is queued. */
void collector_lanes(struct collector *collector, struct lane_block *blocks);

/* A lane that has waited for long and waits on (ring_hangs): a row of `hang`. The same wait is not stored again when the lane
 * itself arrives. The first one is said on stderr. */
void collector_stuck(struct collector *collector, const struct mokscope_module *module, const struct mokscope_lane_header *header);

/* 1 once: the writer has failed since the last call. */
int collector_failed(struct collector *collector);

void collector_attribute(struct collector *collector, const char *kind, const char *name, const char *value,
                         const char *unit);
void collector_device(struct collector *collector, const struct trace_device *device);
int collector_has_device(struct collector *collector, int32_t device_id);
void collector_rank(struct collector *collector, int32_t rank, int32_t device_id);
void collector_tasks(struct collector *collector, const struct mokscope_task_row *rows, size_t count);
void collector_targets(struct collector *collector, const struct mokscope_target_row *rows, size_t count);
void collector_hangs(struct collector *collector, const struct mokscope_hang_row *rows, size_t count);
void collector_kernel(struct collector *collector, const struct trace_kernel *kernel);
void collector_copy(struct collector *collector, const struct trace_copy *copy);
void collector_marker(struct collector *collector, const struct trace_marker *marker);
void collector_host_activity(struct collector *collector, const struct trace_host_activity *activity);
void collector_loss(struct collector *collector, const char *source, const char *kind, int64_t count, const char *detail);

/* A bracketed reading of a device's globaltimer against CLOCK_REALTIME. */
void collector_reading(struct collector *collector, int32_t device_id, const struct clock_reading *reading);

/* Commits what was written so far. */
void collector_flush(struct collector *collector);

#endif
