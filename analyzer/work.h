/* What the task table says about the work: floating-point operations, padding, tiles, rows of experts.
 * Figures work.rate, padding, quantisation, expert.imbalance, expert.variation. Tasks are the same for each launch of a run. */
#ifndef WORK_H
#define WORK_H

#include "trace_read.h"

struct work {
    int64_t flops;        /* useful */
    int64_t rows, padding_rows; /* of tasks with floating-point work, a row once a task */
    int64_t tile_count;   /* tasks with floating-point work */
    int64_t bytes;        /* useful bytes moved between ranks */
};

/* Of one rank; rank -1: of all. tasks [count] of trace.tasks. O(count). */
struct work work_of(const struct trace_task *tasks, int32_t count, int32_t rank);

struct expert_rows {
    int32_t expert_count; /* 0: not known */
    int64_t max_rows, sum_rows;
    double deviation_rows; /* standard deviation over the experts */
};

/* Rows of each expert: those of the first phase with floating-point work, first tile column, every (rank, expert, tile row)
 * once. expert_count: how many experts there are if the trace says so (those without rows have no task), else 0.
 * rank -1: all. O(tasks log tasks) in arena. */
int expert_rows_of(const struct trace_task *tasks, int32_t count, int32_t rank, int32_t expert_count, struct arena *arena,
                   struct expert_rows *out, struct error *error);

#endif
