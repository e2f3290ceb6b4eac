/* State of the executor, shared by executor.c (set-up, scheduler, verdict), executor_memory.c (rows and their shadows),
 * executor_actors.c (what each role does) and executor_trace.c. */
#ifndef EXECUTOR_INTERNAL_H
#define EXECUTOR_INTERNAL_H

#include "../probes/mok_events.h"
#include "executor.h"

enum { EXECUTOR_TASK_SLOTS = 2, EXECUTOR_TICKET_SLOTS = 2, EXECUTOR_GROUPS = 2 };

enum actor_kind { ACTOR_ENTRY, ACTOR_COMM, ACTOR_LOAD, ACTOR_MMA, ACTOR_STORE, ACTOR_FINISH, ACTOR_REDUCE };

/* Which counter made a row's content visible, and to what value. */
struct publication {
    int32_t edge, index;
    uint32_t value; /* 0: not published yet */
};

/* A row of a ring, or a combine slot: what it holds and who is at it. */
struct shadow_row {
    int32_t launch, row; /* content: absolute row of the rank (ring) or writer rank (slot) in this launch; launch -1: nothing */
    int32_t written, published; /* columns written, and of these signalled; a row is complete with all of them */
    int32_t readers;     /* reading now */
    struct publication publication; /* of the writer that signalled last */
};

struct row_array {
    uint16_t *values;
    struct shadow_row *rows;
    int32_t row_count, columns;
    const char *name;
};

struct executor_task {
    struct schedule_task task;
    int32_t index;  /* in the compute order */
    int32_t expert; /* local */
    int32_t echo;   /* the pair has one task, this CTA only keeps step */
};

struct executor_cta {
    int32_t rank, cta;
    int32_t communicates, paired, partner; /* partner: position in the executor's CTAs, -1: alone */
    int32_t comm_left;    /* communication warps that have not finished */
    int32_t computes;     /* compute roles may run */
    uint32_t *known;      /* [counters] what this CTA has acquired of its rank's counters */
    int32_t tickets[EXECUTOR_TICKET_SLOTS], tickets_given, tickets_taken; /* of member 1 */
    struct executor_task tasks[EXECUTOR_TASK_SLOTS];
    int32_t tasks_put, tasks_taken[2 * EXECUTOR_GROUPS], ended;
    int32_t loads_begun, mma_begun[EXECUTOR_GROUPS], landed; /* tiles: loads begun, K loops begun, all operands in shared memory */
    uint16_t *operands[2];                                     /* [tile rows, columns] of the last two tiles that landed */
    int32_t targets_free[EXECUTOR_GROUPS], tiles_stored[EXECUTOR_GROUPS];
};

struct actor {
    enum actor_kind kind;
    int32_t rank, cta, index; /* cta: position in the executor's CTAs; index: warp or group */
    int32_t state, done, blocked;
    int64_t time, since;      /* virtual ns: next step; begin of the wait or work in hand */
    int32_t wait_edge, wait_index;
    uint32_t wait_target, wait_seen;
    /* Registers of the role. */
    struct executor_task task, before;
    int32_t has_before, pending, ticket, next_ticket, member, count, own;
    struct schedule_cursor cursor;
    /* Its lane. */
    int64_t opened, closed;
    struct mokscope_record *records;
    size_t record_count, record_capacity;
};

struct executor_rank {
    int32_t launch, active, finished;
    struct schedule_rows rows;
    int32_t total_rows;
    int32_t *row_peer, *row_route, *tile_expert;
    struct schedule_order compute, comm;
    uint32_t *counters;
    int32_t ticket;
    uint32_t started[SCHEDULE_RANKS_MAX], pushed[SCHEDULE_RANKS_MAX]; /* flags of this rank, one a peer: epochs */
    uint32_t started_known[SCHEDULE_RANKS_MAX], pushed_known[SCHEDULE_RANKS_MAX];
    uint32_t pushed_cover; /* PUSHED that the finish role had acquired when it told the peers in this launch */
    struct row_array x_ring, h_ring, y_ring, slots;
    int32_t *slots_reduced; /* last launch in which a slot was summed, a token */
    uint16_t *output;
};

struct executor {
    struct executor_options options;
    const struct executor_inputs *inputs;
    struct executor_rank ranks[SCHEDULE_RANKS_MAX];
    struct executor_cta *ctas;
    struct actor *actors;
    int32_t cta_count, actor_count;
    int64_t now;
    uint64_t random;
    int64_t *launch_begin, *launch_end; /* [ranks * launches] */
    struct executor_counts counts;
    struct error problem;
};

/* --- executor.c */
uint32_t executor_random(struct executor *x, uint32_t below);
/* The first thing found wrong wins. */
void executor_report(struct executor *x, const struct actor *a, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *executor_actor_name(const struct executor *x, const struct actor *a, char *text, size_t size);
/* All blocked actors look again. */
void executor_wake(struct executor *x);

/* --- executor_memory.c */
int row_array_allocate(struct row_array *array, const char *name, int32_t rows, int32_t columns);
void row_array_free(struct row_array *array);
/* The writer is about to write a row that holds something else: nobody may be reading, and the writer must know it. */
void memory_write_ring(struct executor *x, struct actor *a, struct row_array *array, int32_t row, enum edge freed_by,
                       int32_t first_column, const uint16_t *values, int32_t count);
/* A slot of a peer: one writer a launch, after the peer has started it. */
void memory_write_slot(struct executor *x, struct actor *a, int32_t peer, int32_t slot, int32_t first_column, const uint16_t *values,
                       int32_t count);
void memory_publish(struct row_array *array, int32_t place, int32_t columns, int32_t edge, int32_t index, uint32_t value);
/* Row `row` of the actor's rank in its ring: right content, complete, and covered by what the CTA has acquired. NULL after a
 * report. */
const uint16_t *memory_read(struct executor *x, struct actor *a, struct row_array *array, int32_t row);
/* A slot of the actor's own rank, written by `peer`, covered by the rank barrier. NULL after a report. */
const uint16_t *memory_read_slot(struct executor *x, struct actor *a, int32_t peer, int32_t slot);

/* --- executor_actors.c */
/* One step of the actor: sets its next time, blocks it, or ends it. */
void actor_step(struct executor *x, struct actor *a);

/* --- executor_trace.c */
void actor_record(struct executor *x, struct actor *a, uint32_t event, int64_t begin, uint32_t small, uint32_t argument);

#endif
