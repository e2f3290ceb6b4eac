/* Entry of a CTA: the rank barrier, then the rank's routing table, built by all its CTAs: where each row comes from, in the
 * order of schedule_row_in_expert, without atomics that could change a position. Host twin: routing.c.
 *
 * PROTOCOL entry
 *   start    CTA 0 of each rank tells every peer (RANK_START, release at system scope): its inputs are frozen, its last launch
 *            is over. Every CTA waits for all peers.
 *   count    CTA c counts chunk c / ranks of peer c mod ranks's routes, by local expert -> chunk_counts; ROUTES_COUNTED
 *   place    every CTA sums the counts (so each has the whole table), writes rows of its chunk, padding and tile experts of some
 *            experts, and its part of zeros in the next epoch's counters; CTA 0 writes the table; ROUTES_PLACED
 *   epoch    read from the control block by every CTA before it arrives at ROUTES_COUNTED; advanced by CTA 0 after that wait.
 * Thread 0 arrives (release) after a CTA barrier and waits (acquire) before one, for the whole CTA. */
#ifndef ROUTE_CUH
#define ROUTE_CUH

#include "roles/wait.cuh"

struct route_shared {
    struct schedule_rows rows;
    int32_t counts[SCHEDULE_LOCAL_EXPERTS_MAX][SCHEDULE_RANKS_MAX];
    int32_t base[SCHEDULE_LOCAL_EXPERTS_MAX]; /* routes to the expert before the current position of the chunk */
    int32_t warp_counts[CTA_WARPS][SCHEDULE_LOCAL_EXPERTS_MAX];
    int32_t overflow, overflow_expert;
};

/* The part of a peer's routes that this CTA counts and places: [begin, end), empty for CTAs left over. */
struct route_chunk {
    int32_t peer, index, begin, end;
};

static __device__ __forceinline__ struct route_chunk route_chunk_of(const struct cta_view *v, int32_t cta) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    int32_t routes = shape->tokens * shape->top_k, chunks = schedule_maximum(1, v->a->rank_ctas / shape->rank_count);
    int32_t size = schedule_divide_up(routes, chunks);
    struct route_chunk chunk;
    chunk.peer = cta % shape->rank_count;
    chunk.index = cta / shape->rank_count;
    chunk.begin = schedule_minimum(chunk.index * size, routes);
    chunk.end = chunk.index < chunks ? schedule_minimum(chunk.begin + size, routes) : chunk.begin;
    return chunk;
}

/* Local expert of a route, -1: not of this rank. */
static __device__ __forceinline__ int32_t route_expert(const struct cta_view *v, int32_t peer, int32_t route) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    int32_t own = v->r->expert_ids[peer][route] - v->rank * shape->experts_per_rank;
    return own >= 0 && own < shape->experts_per_rank ? shape->shared_experts + own : -1;
}

/* Entry and finish of a rank: one thread tells every peer. The release at system scope also publishes what this thread
 * acquired from its own SMs (PUSHED), so a peer that acquires the flag sees the pushed rows. */
static __device__ __forceinline__ void tell_peers(const struct cta_view *v, struct mokscope_lane *lane,
                                                  uint32_t *const *flags, int32_t edge) {
    for (int32_t peer = 0; peer < v->a->schedule.shape.rank_count; peer++) {
        red_add_release_sys_global_u32(flags[peer] + v->rank, 1);
        mokscope_instant_thread(lane, MOKSCOPE_LEVEL_TASK, EVENT_SIGNAL_FIRST + edge, v->epoch, (uint32_t)v->rank);
    }
}

/* Arrives at a barrier of the rank's CTAs and waits for the others. Whole CTA; returns 0 after an abort. */
static __device__ __forceinline__ uint32_t route_barrier(const struct cta_view *v, struct mokscope_lane *lane, int32_t edge) {
    uint32_t ready = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        red_add_release_gpu_global_u32(counter_address(v, edge, 0), 1);
        ready = wait_counter_thread(v, lane, edge, 0, (uint32_t)v->a->rank_ctas, -1);
    }
    return (uint32_t)__syncthreads_and((int)ready);
}

static __device__ __forceinline__ void route_count(const struct cta_view *v, struct route_shared *shared) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    struct route_chunk chunk = route_chunk_of(v, v->cta);
    int32_t expert_count = shape->experts_per_rank * shape->rank_count;
    for (int32_t e = threadIdx.x; e < schedule_local_experts(shape); e += CTA_THREADS) shared->base[e] = 0;
    __syncthreads();
    for (int32_t i = chunk.begin + (int32_t)threadIdx.x; i < chunk.end; i += CTA_THREADS) {
        int32_t local = route_expert(v, chunk.peer, i), id = v->r->expert_ids[chunk.peer][i];
        if (local >= 0) atomicAdd(&shared->base[local], 1);
        if (chunk.peer == v->rank && (id < -1 || id >= expert_count)) {
            v->r->control[v->rank]->bad_expert = id;
            atomicAdd(word_address(v, WORD_BAD_ROUTES), 1u);
        }
    }
    __syncthreads();
    int32_t *counts = v->r->chunk_counts + v->cta * SCHEDULE_LOCAL_EXPERTS_MAX;
    for (int32_t e = threadIdx.x; e < schedule_local_experts(shape); e += CTA_THREADS) counts[e] = shared->base[e];
}

/* Sums the chunks' counts: the table of the rank, and where this CTA's chunk begins in each expert. */
static __device__ __forceinline__ void route_sum(const struct cta_view *v, struct route_shared *shared) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    int32_t chunks = schedule_maximum(1, v->a->rank_ctas / shape->rank_count);
    struct route_chunk mine = route_chunk_of(v, v->cta);
    for (int32_t i = threadIdx.x; i < schedule_local_experts(shape) * shape->rank_count; i += CTA_THREADS) {
        int32_t e = i / shape->rank_count, peer = i % shape->rank_count, sum = 0, before = 0;
        for (int32_t c = 0; c < chunks; c++) {
            int32_t count = v->r->chunk_counts[(c * shape->rank_count + peer) * SCHEDULE_LOCAL_EXPERTS_MAX + e];
            before += c < mine.index ? count : 0;
            sum += count;
        }
        if (e < shape->shared_experts) sum = peer == v->rank ? shape->tokens : 0;
        shared->counts[e][peer] = sum;
        if (peer == mine.peer) shared->base[e] = before;
    }
    for (int32_t i = threadIdx.x; i < CTA_WARPS * SCHEDULE_LOCAL_EXPERTS_MAX; i += CTA_THREADS) (&shared->warp_counts[0][0])[i] = 0;
    __syncthreads();
    for (int32_t e = threadIdx.x; e < schedule_local_experts(shape); e += CTA_THREADS) {
        int32_t sum = 0;
        for (int32_t peer = 0; peer < shape->rank_count; peer++) sum += shared->counts[e][peer];
        shared->rows.expert_rows[e] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        shared->overflow = schedule_rows_prefix(&v->a->schedule, &shared->rows, &shared->overflow_expert) == SCHEDULE_OVERFLOW;
    __syncthreads();
}

/* Rows of the chunk's routes. Routes of a round are numbered by warp votes, rounds by a running count: route order. */
static __device__ __forceinline__ void route_place_chunk(const struct cta_view *v, struct route_shared *shared) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    struct route_chunk chunk = route_chunk_of(v, v->cta);
    int32_t warp = threadIdx.x / 32;
    for (int32_t first = chunk.begin; first < chunk.end; first += CTA_THREADS) {
        int32_t route = first + (int32_t)threadIdx.x;
        int32_t expert = route < chunk.end ? route_expert(v, chunk.peer, route) : -1;
        uint32_t same = __match_any_sync(0xffffffffu, expert);
        int32_t ordinal = __popc(same & ((1u << (threadIdx.x & 31u)) - 1u));
        if (expert >= 0 && ordinal == 0) shared->warp_counts[warp][expert] = __popc(same);
        __syncthreads();
        if (expert >= 0) {
            ordinal += shared->base[expert];
            for (int32_t w = 0; w < warp; w++) ordinal += shared->warp_counts[w][expert];
            int32_t row = shared->rows.expert_row_begin[expert] +
                          schedule_row_in_expert(shared->counts[expert], shape->rank_count, chunk.peer, ordinal);
            v->r->row_peer[row] = chunk.peer;
            v->r->row_route[row] = route / shape->top_k * schedule_slots(shape) + shape->shared_experts + route % shape->top_k;
            if (v->r->row_weight != NULL) v->r->row_weight[row] = v->r->weights[chunk.peer][route];
        }
        __syncthreads();
        for (int32_t e = threadIdx.x; e < schedule_local_experts(shape); e += CTA_THREADS) {
            for (int32_t w = 0; w < CTA_WARPS; w++) {
                shared->base[e] += shared->warp_counts[w][e];
                shared->warp_counts[w][e] = 0;
            }
        }
        __syncthreads();
    }
}

/* Rows of the shared experts: the rank's tokens in order. */
static __device__ __forceinline__ void route_place_shared(const struct cta_view *v, const struct route_shared *shared) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    int32_t stride = v->a->rank_ctas * CTA_THREADS;
    for (int32_t i = v->cta * CTA_THREADS + (int32_t)threadIdx.x; i < shape->shared_experts * shape->tokens; i += stride) {
        int32_t e = i / shape->tokens, token = i % shape->tokens, row = shared->rows.expert_row_begin[e] + token;
        v->r->row_peer[row] = v->rank;
        v->r->row_route[row] = token * schedule_slots(shape) + e;
        if (v->r->row_weight != NULL) v->r->row_weight[row] = 1.0f;
    }
}

static __device__ __forceinline__ void route_place_padding(const struct cta_view *v, const struct route_shared *shared) {
    for (int32_t e = v->cta; e < schedule_local_experts(&v->a->schedule.shape); e += v->a->rank_ctas) {
        int32_t begin = shared->rows.expert_row_begin[e], end = shared->rows.expert_row_begin[e + 1];
        for (int32_t row = begin + shared->rows.expert_rows[e] + (int32_t)threadIdx.x; row < end; row += CTA_THREADS) {
            v->r->row_peer[row] = -1;
            if (v->r->row_weight != NULL) v->r->row_weight[row] = 0.0f;
        }
        for (int32_t tile = begin / TILE_ROWS + (int32_t)threadIdx.x; tile < end / TILE_ROWS; tile += CTA_THREADS)
            v->r->tile_expert[tile] = e;
    }
}

/* CTA 0: the table for later readers and the host, and the epoch. */
static __device__ __forceinline__ void route_publish(const struct cta_view *v, const struct route_shared *shared) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    struct layer_control *control = v->r->control[v->rank];
    for (int32_t i = threadIdx.x; i < SCHEDULE_LOCAL_EXPERTS_MAX * shape->rank_count; i += CTA_THREADS)
        v->r->table->counts[i / shape->rank_count][i % shape->rank_count] = shared->counts[i / shape->rank_count][i % shape->rank_count];
    if (threadIdx.x != 0) return;
    v->r->table->rows = shared->rows;
    v->r->table->total_rows = v->total_rows;
    control->epoch = v->epoch;
    if (shared->overflow) {
        control->overflow_epoch = v->epoch;
        control->overflow_expert = shared->overflow_expert;
        control->overflow_rows = schedule_total_rows(&v->a->schedule, &shared->rows);
    }
}

/* Whole CTA. Fills v->total_rows (0 after an overflow); returns 0 after an abort. lane: of warp 0, null in others. */
static __device__ __forceinline__ uint32_t entry_role(struct cta_view *v, struct mokscope_lane *lane, struct route_shared *shared) {
    uint32_t ready = 1;
    if (v->cta == 0 && threadIdx.x == 0) tell_peers(v, lane, v->r->rank_start, EDGE_RANK_START);
    if (threadIdx.x == 0)
        for (int32_t peer = 0; ready && peer < v->a->schedule.shape.rank_count; peer++)
            ready = wait_peer_thread(v, lane, v->r->rank_start[v->rank] + peer, EDGE_RANK_START, peer);
    if (!__syncthreads_and((int)ready)) return 0;
    uint32_t begin = mokscope_clock();
    route_count(v, shared);
    if (threadIdx.x == 0) mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, begin, EVENT_ROUTE, 0, 0);
    if (!route_barrier(v, lane, EDGE_ROUTES_COUNTED)) return 0;
    begin = mokscope_clock();
    route_sum(v, shared);
    v->total_rows = shared->overflow ? 0 : schedule_total_rows(&v->a->schedule, &shared->rows);
    if (!shared->overflow) {
        route_place_shared(v, shared);
        route_place_padding(v, shared);
        route_place_chunk(v, shared);
    }
    if (v->cta == 0) route_publish(v, shared);
    uint32_t words = counter_words(v->a);
    uint32_t *next = v->r->counters + (v->epoch + 1) % 2 * words;
    for (uint32_t i = (uint32_t)v->cta * CTA_THREADS + threadIdx.x; i < words; i += (uint32_t)v->a->rank_ctas * CTA_THREADS) next[i] = 0;
    if (threadIdx.x == 0) mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, begin, EVENT_ROUTE, 0, 1);
    (void)begin;
    return route_barrier(v, lane, EDGE_ROUTES_PLACED);
}

#endif
