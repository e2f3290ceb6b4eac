/* Bounded waits: the only places of the kernels that spin. Each samples the clock, records the wait if its first try failed,
 * and gives up when the limit passes or another role of any rank gave up.
 *
 * PROTOCOL abort
 *   A wait that passes wait_limit_ns writes one hang record in its rank's control block, then sets `abort` in every rank's
 *   control block (relaxed, system scope: it orders nothing). Every slow wait polls its own rank's word. A role whose wait
 *   returns 0 leaves its loop; roles drain what they have in flight (TMA loads, bulk stores, wgmma) before they return, so
 *   that no copy outlives the CTA. The host sees the records and must reset the layer (mok_layer_reset). */
#ifndef WAIT_CUH
#define WAIT_CUH

#include "layer.h"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "mok_events.h"

enum { WAIT_POLLS_BETWEEN_CHECKS = 64, WAIT_LONG_NS = 100000, ABORT_GRACE_NS = 100000 };

/* What every role of a CTA knows. */
struct cta_view {
    const struct layer_arguments *a;
    const struct rank_arguments *r;
    int32_t rank;       /* of the layer */
    int32_t cta;        /* in the rank, 0..rank_ctas-1; the first comm_sms are communication CTAs */
    int32_t total_rows; /* padded */
    uint32_t epoch;     /* launches of this rank, this one included */
    uint32_t *counters;                 /* of this epoch */
    uint32_t pair_member;               /* 0 or 1: this CTA's place in its pair (cluster) */
    bool paired;                        /* both CTAs of the pair compute; a pair of a communication and a compute CTA is not */
    const struct backward_arguments *b; /* NULL in the forward pass */
};

static __device__ __forceinline__ uint32_t *counter_address(const struct cta_view *v, int32_t edge, int32_t index) {
    return v->counters + v->a->counter_begin[edge] + index;
}

/* Words of a rank and epoch: counters of all edges, then enum layer_word. */
static __device__ __forceinline__ uint32_t counter_words(const struct layer_arguments *a) {
    return a->counter_begin[EDGE_COUNT] + WORD_COUNT;
}

static __device__ __forceinline__ uint32_t *word_address(const struct cta_view *v, enum layer_word word) {
    return v->counters + v->a->counter_begin[EDGE_COUNT] + word;
}

static __device__ __forceinline__ uint32_t aborted(const struct cta_view *v) {
    return ld_relaxed_sys_global_u32(&v->r->control[v->rank]->abort);
}

/* One thread: leaves a record and tells everybody. Inlined, because a call inside a wgmma pipeline serialises it. */
static __device__ __forceinline__ void give_up(const struct cta_view *v, uint32_t edge, uint32_t index, uint32_t expected,
                                               uint32_t observed, int32_t task, uint64_t since_ns) {
    struct layer_control *control = v->r->control[v->rank];
    uint32_t slot = atomicAdd(&control->hang_count, 1u);
    if (slot < HANG_RECORDS) {
        struct hang_record *record = &control->hangs[slot];
        record->edge = edge;
        record->index = index;
        record->expected = expected;
        record->observed = observed;
        record->rank = (uint32_t)v->rank;
        record->cta = (uint32_t)v->cta;
        record->warp = threadIdx.x / 32u;
        record->task = task;
        record->since_ns = since_ns;
    }
    __threadfence_system();
    for (int32_t peer = 0; peer < v->a->schedule.shape.rank_count; peer++)
        st_relaxed_sys_global_u32(&v->r->control[peer]->abort, 1u);
}

/* Until *counter >= target, acquire at the edge's scope. Every calling thread polls. Returns 0 if the launch was aborted. */
static __device__ __noinline__ uint32_t poll_counter(const struct cta_view *v, struct mokscope_lane lane,
                                                     const uint32_t *counter, uint32_t edge, uint32_t index, uint32_t target,
                                                     uint32_t system_scope, int32_t task) {
    uint64_t since = global_timer_ns();
    uint32_t reported = 0;
    for (uint32_t polls = 1;; polls++) {
        uint32_t value = system_scope ? ld_acquire_sys_global_u32(counter) : ld_acquire_gpu_global_u32(counter);
        if (value >= target) {
            if (reported) mokscope_long_wait(lane, 0, 0, 0, 0, 0);
            return 1;
        }
        if (polls % WAIT_POLLS_BETWEEN_CHECKS != 0) continue;
        if (aborted(v)) return 0;
        uint64_t waited = global_timer_ns() - since;
        if (waited > WAIT_LONG_NS && !reported) {
            mokscope_long_wait(lane, EVENT_WAIT_FIRST + edge, index, target, value, since);
            reported = 1;
        }
        if (waited > v->a->wait_limit_ns) {
            give_up(v, edge, index, target, value, task, since);
            return 0;
        }
    }
    (void)lane;
}

/* Waits of a role that one thread runs. */
static __device__ __forceinline__ uint32_t wait_counter_thread(const struct cta_view *v, struct mokscope_lane *lane,
                                                               int32_t edge, int32_t index, uint32_t target, int32_t task) {
    const uint32_t *counter = counter_address(v, edge, index);
    if (ld_acquire_gpu_global_u32(counter) >= target) return 1;
    uint32_t begin = mokscope_clock();
    uint32_t done = poll_counter(v, *lane, counter, (uint32_t)edge, (uint32_t)index, target, 0, task);
    mokscope_span_thread(lane, MOKSCOPE_LEVEL_TASK, begin, EVENT_WAIT_FIRST + edge, target, (uint32_t)index);
    (void)begin;
    return done;
}

static __device__ __forceinline__ uint32_t wait_peer_thread(const struct cta_view *v, struct mokscope_lane *lane,
                                                            const uint32_t *flag, int32_t edge, int32_t peer) {
    if (ld_acquire_sys_global_u32(flag) >= v->epoch) return 1;
    uint32_t begin = mokscope_clock();
    uint32_t done = poll_counter(v, *lane, flag, (uint32_t)edge, (uint32_t)peer, v->epoch, 1, -1);
    mokscope_span_thread(lane, MOKSCOPE_LEVEL_TASK, begin, EVENT_WAIT_FIRST + edge, v->epoch, (uint32_t)peer);
    (void)begin;
    return done;
}

/* Slow path of an mbarrier wait, inlined for the same reason as give_up. Index is the slot. After an abort the barrier gets a
 * grace period and is looked at once more: the warps of a warpgroup must agree whether a stage arrived, or some of them would
 * execute a wgmma without the others; what was in flight lands within the grace period, and nothing is issued after an abort. */
static __device__ __forceinline__ uint32_t poll_barrier(const struct cta_view *v, uint64_t *barrier, uint32_t parity,
                                                        uint32_t edge, uint32_t index) {
    uint64_t since = 0;
    for (uint32_t polls = 1;; polls++) {
        if (mbarrier_try_wait_parity_shared(barrier, parity)) return 1;
        if (polls % WAIT_POLLS_BETWEEN_CHECKS != 0) continue;
        if (since == 0) since = global_timer_ns();
        if (aborted(v)) {
            uint64_t grace_end = global_timer_ns() + ABORT_GRACE_NS;
            while (global_timer_ns() < grace_end) __nanosleep(256);
            return mbarrier_try_wait_parity_shared(barrier, parity);
        }
        if (global_timer_ns() - since > v->a->wait_limit_ns) {
            if (threadIdx.x % 32u == 0) give_up(v, edge, index, parity, parity ^ 1u, -1, since);
            return 0;
        }
    }
}

/* mbarrier waits. The thread and warp forms record the wait; the stall form adds its cycles to *stall instead, for waits so
 * frequent that a record each would be a finer level. */
static __device__ __forceinline__ uint32_t wait_barrier_thread(const struct cta_view *v, struct mokscope_lane *lane,
                                                               uint64_t *barrier, uint32_t parity, int32_t edge,
                                                               uint32_t index) {
    if (mbarrier_try_wait_parity_shared(barrier, parity)) return 1;
    uint32_t begin = mokscope_clock();
    uint32_t done = poll_barrier(v, barrier, parity, (uint32_t)edge, index);
    mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, begin, EVENT_WAIT_FIRST + edge, parity, index);
    (void)begin;
    return done;
}

static __device__ __forceinline__ uint32_t wait_barrier_warp(const struct cta_view *v, struct mokscope_lane *lane,
                                                             uint64_t *barrier, uint32_t parity, int32_t edge, uint32_t index) {
    uint32_t first = mbarrier_try_wait_parity_shared(barrier, parity);
    if (__all_sync(0xffffffffu, first)) return 1;
    uint32_t begin = mokscope_clock();
    uint32_t done = poll_barrier(v, barrier, parity, (uint32_t)edge, index);
    done = __all_sync(0xffffffffu, done);
    mokscope_span(lane, MOKSCOPE_LEVEL_PHASE, begin, EVENT_WAIT_FIRST + edge, parity, index);
    (void)begin;
    return done;
}

static __device__ __forceinline__ uint32_t wait_barrier_stall(const struct cta_view *v, uint64_t *barrier, uint32_t parity,
                                                              int32_t edge, uint32_t index, uint32_t *stall) {
    if (mbarrier_try_wait_parity_shared(barrier, parity)) return 1;
    uint32_t begin = mokscope_clock();
    uint32_t done = poll_barrier(v, barrier, parity, (uint32_t)edge, index);
    *stall += mokscope_clock() - begin;
    return done;
}

/* Test knob: a random pause before a task, different for each role and task. */
static __device__ __forceinline__ void random_delay(const struct cta_view *v, uint32_t role, uint32_t task) {
    if (v->a->delay_limit_ns == 0) return;
    uint32_t hash = v->a->delay_seed ^ role * 0x9e3779b9u ^ task * 0x85ebca6bu ^ (uint32_t)(v->rank << 8 | v->cta) * 0xc2b2ae35u;
    hash = (hash ^ hash >> 16) * 0x7feb352du;
    hash = (hash ^ hash >> 15) * 0x846ca68bu;
    uint64_t end = global_timer_ns() + (hash ^ hash >> 16) % v->a->delay_limit_ns;
    while (global_timer_ns() < end) __nanosleep(64);
}

#endif
