/* Executor of the schedule on the CPU: every role of every CTA of every rank is an actor that takes its steps in virtual time with
 * random durations, on real (small) matrices, finite rings and the counters of edges.def. It proves the protocol: the kernels and
 * it share schedule.h, and what it finds wrong here would be a race or a hang there.
 *
 * What is checked, at once where it happens
 *   data       a row is read only when it holds what the schedule says, and by a CTA whose acquired counters cover the signal that
 *              published it, so that a missing wait shows even when timing happens to be kind
 *   slots      a ring row is overwritten only when nobody reads it and the writer has acquired that all readers are done; a combine
 *              slot has one writer a launch and is read only after its rank barrier
 *   progress   when no actor can go on: who waits for which counter, what it expects and sees
 *   counters   after each launch every counter stands exactly on its target
 * Results are BF16 outputs to compare with the reference. One thread; the same for a seed. Forward pass. */
#ifndef EXECUTOR_H
#define EXECUTOR_H

#include "../probes/host/error.h"
#include "routing.h"
#include "schedule.h"

enum executor_fault {
    EXECUTOR_FAULT_NONE,
    EXECUTOR_FAULT_WAIT_REMOVED,   /* the edge's consumer does not wait */
    EXECUTOR_FAULT_TARGET_LOW,     /* it waits for one less */
    EXECUTOR_FAULT_TARGET_HIGH,    /* it waits for one more */
    EXECUTOR_FAULT_SIGNAL_MISSING, /* the producer does not signal */
    EXECUTOR_FAULT_SIGNAL_EARLY,   /* the producer signals before its work is done */
    EXECUTOR_FAULT_SLOT_EARLY,     /* slot reuse waits for one minibatch earlier than the slot's */
    EXECUTOR_FAULT_COUNT
};

const char *executor_fault_name(enum executor_fault fault);

/* Whether the fault makes sense for the edge (one with a counter, used by the combine path). */
int executor_fault_applies(const struct schedule *schedule, enum executor_fault fault, enum edge edge);

/* BF16 matrices of all ranks, laid out as mok_layer_bind takes them; owned by the caller. x may change between launches: x of launch
 * l is x[l mod x_versions]. */
struct executor_inputs {
    const struct routes *routes;
    int32_t x_versions;
    const uint16_t *x[2][SCHEDULE_RANKS_MAX];
    const uint16_t *w_gate[SCHEDULE_RANKS_MAX], *w_up[SCHEDULE_RANKS_MAX], *w_down[SCHEDULE_RANKS_MAX];
};

struct executor_options {
    struct schedule schedule; /* small tiles; rank_ctas is set from the field below */
    int32_t rank_ctas;        /* at least 2 */
    int32_t comm_warps;       /* executors of a communication CTA */
    int32_t launches;
    uint64_t seed;
    enum executor_fault fault;
    enum edge fault_edge;
};

struct executor;

/* Checks the schedule, builds routing tables, makes the actors. inputs must live as long. */
int executor_create(const struct executor_options *options, const struct executor_inputs *inputs, struct executor **executor,
                    struct error *error);
void executor_destroy(struct executor *executor);

/* Runs all launches. ERROR_NONE: the protocol held; ERROR_FAILURE: it did not, error says what happened. */
int executor_run(struct executor *executor, struct error *error);

/* Output of a rank's last launch, [tokens, hidden] BF16. */
const uint16_t *executor_output(const struct executor *executor, int32_t rank);

struct executor_counts {
    int64_t steps, tasks, waits, time_ns;
};

struct executor_counts executor_count(const struct executor *executor);

/* Writes what the run did as a trace, as the recorder writes the GPU's: lanes, spans, waits, signals, tasks, targets. One virtual
 * clock of 1 GHz. overwrite as in trace_write_open. */
int executor_write_trace(const struct executor *executor, const char *path, int overwrite, const char *command, struct error *error);

#endif
