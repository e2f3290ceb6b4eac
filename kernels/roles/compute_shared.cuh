/* Shared memory of a compute CTA and the barriers between its roles.
 *
 * PROTOCOL compute CTA
 *   Roles      load: warp 0 of warpgroup 0, one thread; plan: warp 1, one thread, a task ahead of it; store 0 and 1: warps 2 and 3 of warpgroup 0, one for each MMA
 *              warpgroup, whose tiles it publishes; MMA 0 and 1: warpgroups 1 and 2, rows 0-63 and 64-127 of the tile
 *   task       full[slot]: 1 arrival (plan, after writing task and tile plan); empty[slot]: a thread of each warp that
 *              reads it (MMA 8, store 2, load 1); input[slot]: 1 arrival (plan, when the task's input rows are there), for load alone. The slot is
 *              generic-proxy data only.
 *   stage      full[s]: 1 arrival + bytes (load announces, TMA delivers A and B, of which half of a shared B comes from the
 *              other CTA of the pair); empty[s]: one thread of each MMA warpgroup of both CTAs, after wgmma_wait_group says that
 *              the stage was read. So the CTAs of a pair go through their k blocks in step. A CTA that is not paired counts
 *              its own two warpgroups only.
 *   ticket     of a pair: member 0 draws, writes into member 1's shared memory, and arrives on its ticket_full (1 arrival, release
 *              at cluster scope); member 1 reads and arrives on member 0's ticket_empty (1 arrival)
 *   target     free[w]: 1 arrival (store w, when the ring rows that a tile overwrites have been read); done[w]: 4 arrivals (a
 *              thread of each warp of MMA w, when the warp's stores of the tile to global memory are complete), upon which store w signals.
 *              Both once a tile, in turn.
 *   staging    of one warp, 16 rows: nobody else touches it
 *   Phase      a waiter of full starts with parity 0, a waiter of empty with parity 1 (the phase before the first) */
#ifndef COMPUTE_SHARED_CUH
#define COMPUTE_SHARED_CUH

#include "ptx/cluster.cuh"
#include "roles/wait.cuh"

/* Rows of 128 bytes in the 128-byte swizzle. K-major: TILE_ROWS (a) and TILE_N (b) rows of one k block. MN-major: boxes of 64
 * columns by K_BLOCK rows, 2 in a, 4 in b. */
struct operand_stage {
    uint16_t a[TILE_ROWS * K_BLOCK];
    uint16_t b[TILE_N * K_BLOCK]; /* gate+up and replay: 128 rows of W_gate, then 128 of W_up */
};

enum { STAGE_BYTES = sizeof(struct operand_stage), STORE_WARPS = MMA_WARPGROUPS };

/* A task as the planner hands it to the others; phase == PHASE_NONE ends every role. */
struct task_slot {
    struct schedule_task task;
    int32_t id;
    int32_t expert;
    int32_t k_blocks; /* of the K loop; 0 for a weight gradient of an expert without rows */
    bool share; /* both CTAs of the pair read the same B */
    bool echo;  /* the pair has one task, this CTA only keeps step: it computes the same tile, from rows that may be overwritten
                   meanwhile, and drops it */
};

/* Where an operand's boxes lie: box i of k block k at column + i * column_box + k * column_k, and row alike. */
struct operand_walk {
    int32_t column, row, column_box, row_box, column_k, row_k;
};

/* The loads of a tile, worked out once, so that the K loop does nothing but issue them. */
struct tile_plan {
    const CUtensorMap *a, *b[2]; /* forward gate+up and replay: gate, up halves of B; dgrad gate+up: even, odd k blocks */
    struct operand_walk a_walk, b_walk;
    bool b_by_half;              /* b[0] is the first half of B, b[1] the second, with the same coordinates */
    bool b_alternates;           /* b[k mod 2], k blocks of each advance by k / 2 */
};

struct compute_shared {
    struct operand_stage stage[STAGE_COUNT];
    __align__(16) uint16_t staging[MMA_WARPGROUPS * WARPGROUP_THREADS / 32][STAGING_ROWS * STAGING_PITCH];
    uint64_t stage_full[STAGE_COUNT], stage_empty[STAGE_COUNT];
    uint64_t task_full[TASK_SLOTS], task_empty[TASK_SLOTS];
    uint64_t target_free[MMA_WARPGROUPS], target_done[MMA_WARPGROUPS];
    uint32_t issue_clock[MMA_WARPGROUPS]; /* probes: when the tile's first stores were issued; handed over with target_done */
    struct task_slot task[TASK_SLOTS];
    struct tile_plan plan[TASK_SLOTS];
    uint64_t task_input[TASK_SLOTS];
    uint64_t gu_full[MMA_WARPGROUPS * WARPGROUP_THREADS / 32]; /* backward: a warp's g and u have landed in its staging */
    uint64_t ticket_full[TICKET_SLOTS], ticket_empty[TICKET_SLOTS];
    uint32_t ticket[TICKET_SLOTS];
};

enum { TASK_READERS = MMA_WARPGROUPS * WARPGROUP_THREADS / 32 + STORE_WARPS + 1 }; /* an arrival a warp, and the load thread's */

/* Whether the gate+up tile of a forward pass keeps g and u for the backward pass. */
static __device__ __forceinline__ bool task_saves(const struct cta_view *v, const struct task_slot *slot) {
    return slot->task.tile_row * TILE_ROWS < v->a->schedule.knobs.saved_rows;
}

/* Event of the task's container span. */
static __device__ __forceinline__ uint32_t task_event(int32_t phase) {
    switch (phase) {
    case PHASE_GATE_UP: return EVENT_TASK_GATE_UP;
    case PHASE_DOWN: return EVENT_TASK_DOWN;
    case PHASE_REPLAY: return EVENT_TASK_REPLAY;
    case PHASE_DGRAD_DOWN: return EVENT_TASK_DGRAD_DOWN;
    case PHASE_DGRAD_GATE_UP: return EVENT_TASK_DGRAD_GATE_UP;
    default: return EVENT_TASK_WGRAD;
    }
}

/* Position in a ring of barriers: which slot, and the parity a waiter of `full` expects. One owner a role. */
struct ring_position {
    uint32_t slot, parity;
};

static __device__ __forceinline__ void ring_advance(struct ring_position *p, uint32_t slots) {
    p->slot += 1;
    if (p->slot == slots) {
        p->slot = 0;
        p->parity ^= 1u;
    }
}

static __device__ void compute_barriers_init(struct compute_shared *shared, bool paired) {
    for (int i = 0; i < STAGE_COUNT; i++) {
        mbarrier_init_shared(&shared->stage_full[i], 1);
        mbarrier_init_shared(&shared->stage_empty[i], MMA_WARPGROUPS * (paired ? PAIR_CTAS : 1));
    }
    for (int i = 0; i < TICKET_SLOTS; i++) {
        mbarrier_init_shared(&shared->ticket_full[i], 1);
        mbarrier_init_shared(&shared->ticket_empty[i], 1);
    }
    for (int i = 0; i < TASK_SLOTS; i++) {
        mbarrier_init_shared(&shared->task_full[i], 1);
        mbarrier_init_shared(&shared->task_input[i], 1);
        mbarrier_init_shared(&shared->task_empty[i], TASK_READERS);
    }
    for (int i = 0; i < MMA_WARPGROUPS; i++) {
        mbarrier_init_shared(&shared->target_free[i], 1);
        mbarrier_init_shared(&shared->target_done[i], WARPGROUP_THREADS / 32);
    }
    for (int i = 0; i < MMA_WARPGROUPS * WARPGROUP_THREADS / 32; i++) mbarrier_init_shared(&shared->gu_full[i], 1);
    mbarrier_init_fence();
}

/* Reads the next task; whole warp. Returns PHASE_NONE at the end and after an abort. */
static __device__ __forceinline__ struct task_slot task_take(const struct cta_view *v, struct mokscope_lane *lane,
                                                             struct compute_shared *shared, struct ring_position *position,
                                                             bool record) {
    struct task_slot slot;
    uint64_t *full = &shared->task_full[position->slot];
    uint32_t unused = 0;
    uint32_t ready = record ? wait_barrier_warp(v, lane, full, position->parity, EDGE_TASK_FULL, position->slot)
                            : wait_barrier_stall(v, full, position->parity, EDGE_TASK_FULL, position->slot, &unused);
    if (__all_sync(0xffffffffu, ready)) {
        slot = shared->task[position->slot];
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive_shared(&shared->task_empty[position->slot]);
        ring_advance(position, TASK_SLOTS);
    } else {
        slot.task.phase = PHASE_NONE;
    }
    return slot;
}

#endif
