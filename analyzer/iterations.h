/* Which lanes belong together. A pass is one rank's lanes in one launch; an iteration is one pass of every rank: the same
 * piece of work done once by the whole layer. With all ranks in one cooperative launch the launch is the iteration; with a
 * launch a rank, the n-th passes of all ranks are iteration n.
 *
 * A figure looks at the module (instrumented kernel) whose lanes lived longest in total; others are counted.
 * Warm-up: iteration 0 is dropped if three or more are complete. An iteration is complete if it has a pass of every rank and
 * every lane of it had closed, and, in a recording that was cut off, no other pass of the rank has more lanes; incomplete ones
 * are dropped if there is a complete one. */
#ifndef ITERATIONS_H
#define ITERATIONS_H

#include "trace_read.h"

struct pass {
    int32_t rank, launch, device; /* launch, device: positions */
    int32_t iteration;            /* number in order of time, from 0; of this rank */
    int32_t lane_first, lane_count; /* trace.lanes[lane_first ..]: they stand together */
    int64_t begin_ns, end_ns;     /* first lane's begin, last lane's end */
    int64_t lost_count;
    bool open; /* a lane had not closed, or lanes are missing */
};

enum iteration_use { ITERATION_USED, ITERATION_WARM_UP, ITERATION_INCOMPLETE, ITERATION_NOT_CHOSEN };

struct iteration {
    int32_t pass_first, pass_count; /* iterations.passes[pass_first ..], ordered by rank */
    enum iteration_use use;
    int64_t begin_ns, end_ns; /* over its passes */
    bool complete;
    bool apart; /* some passes do not overlap in time with the others: the grouping by order is doubtful */
};

struct iterations {
    struct pass *passes;
    struct iteration *rows;
    int32_t pass_count, count, used_count, rank_count;
    int32_t module;             /* position; -1: no lanes */
    int32_t other_module_count; /* instrumented kernels that were left out */
    int32_t device_count;       /* GPUs the used passes ran on */
};

struct iteration_choice {
    int64_t launch_id; /* only the iteration of this launch; -1: all */
    int32_t rank;      /* only this rank; -1: all */
};

/* Groups the lanes of a trace (trace_read_head is enough). Arrays are in the arena. O(lanes).
 * Errors  usage: the trace has no instrumented launch, no such launch, no such rank; failure: out of memory. */
int iterations_find(const struct trace *trace, const struct iteration_choice *choice, struct arena *arena,
                    struct iterations *out, struct error *error);

#endif
