/* Routing table of one rank: where each row comes from, in the order of schedule_row_in_expert, without atomics that could
 * change a position. Host twin: routing.c. Two launches a pass, before the megakernel:
 *   route_count  grid [ranks]: routes of each source rank to each local expert; advances the epoch
 *   route_place  grid [experts, ranks]: rows, padding, tile experts; zeroes this rank's counters and ticket
 * Reads every peer's expert ids: the caller has them complete on all ranks before any rank's launch. Counters are local to
 * the rank and only its own megakernel touches them, so stream order is enough to reset them here. */
#include "layer.h"

#include <cuda_runtime.h>

static __global__ __launch_bounds__(ROUTE_THREADS) void route_count(const __grid_constant__ struct layer_arguments a,
                                                                    int32_t rank) {
    __shared__ int32_t counts[SCHEDULE_EXPERTS_PER_RANK_MAX];
    const struct rank_arguments *r = &a.ranks[rank];
    const struct layer_shape *shape = &a.schedule.shape;
    int32_t peer = blockIdx.x;
    int32_t first_expert = rank * shape->experts_per_rank;
    struct layer_control *control = r->control[rank];
    if (peer == 0 && threadIdx.x == 0) {
        control->epoch += 1;
        control->overflow = 0;
        control->bad_routes = 0;
    }
    for (int32_t e = threadIdx.x; e < shape->experts_per_rank; e += ROUTE_THREADS) counts[e] = 0;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < shape->tokens * shape->top_k; i += ROUTE_THREADS) {
        int32_t id = r->expert_ids[peer][i];
        int32_t local = id - first_expert;
        if (local >= 0 && local < shape->experts_per_rank) atomicAdd(&counts[local], 1);
    }
    __syncthreads();
    for (int32_t e = threadIdx.x; e < shape->experts_per_rank; e += ROUTE_THREADS) r->table->counts[e][peer] = counts[e];
}

/* Ordinal base of this iteration's matches before the calling warp, and the iteration's total. */
static __device__ int32_t block_exclusive_count(int32_t warp_count, int32_t *total) {
    __shared__ int32_t warp_counts[ROUTE_THREADS / 32];
    int32_t warp = threadIdx.x / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) warp_counts[warp] = warp_count;
    __syncthreads();
    int32_t before = 0, sum = 0;
    for (int32_t w = 0; w < ROUTE_THREADS / 32; w++) {
        before += w < warp ? warp_counts[w] : 0;
        sum += warp_counts[w];
    }
    *total = sum;
    return before;
}

static __device__ void place_rows(const struct layer_arguments *a, const struct rank_arguments *r, const int32_t *counts,
                                  int32_t row_begin, int32_t expert_id, int32_t peer, float *row_weight) {
    const struct layer_shape *shape = &a->schedule.shape;
    int32_t routes = shape->tokens * shape->top_k;
    int32_t ordinal_base = 0;
    for (int32_t first = 0; first < routes; first += ROUTE_THREADS) {
        int32_t route = first + (int32_t)threadIdx.x;
        bool match = route < routes && r->expert_ids[peer][route] == expert_id;
        uint32_t votes = __ballot_sync(0xffffffffu, match);
        int32_t total;
        int32_t before = block_exclusive_count(__popc(votes), &total);
        if (match) {
            int32_t ordinal = ordinal_base + before + __popc(votes & ((1u << (threadIdx.x & 31u)) - 1u));
            int32_t row = row_begin + schedule_row_in_expert(counts, shape->rank_count, peer, ordinal);
            r->row_peer[row] = peer;
            r->row_route[row] = route;
            if (row_weight != NULL) row_weight[row] = r->weights[peer][route];
        }
        ordinal_base += total;
    }
}

static __global__ __launch_bounds__(ROUTE_THREADS) void route_place(const __grid_constant__ struct layer_arguments a,
                                                                    int32_t rank, float *row_weight) {
    __shared__ struct schedule_rows rows;
    __shared__ int32_t overflow;
    const struct rank_arguments *r = &a.ranks[rank];
    const struct schedule *s = &a.schedule;
    int32_t expert = blockIdx.x, peer = blockIdx.y;
    struct layer_control *control = r->control[rank];
    bool first_block = expert == 0 && peer == 0;
    if (threadIdx.x == 0) {
        int32_t failed = -1;
        for (int32_t e = 0; e < s->shape.experts_per_rank; e++) {
            rows.expert_rows[e] = 0;
            for (int32_t p = 0; p < s->shape.rank_count; p++) rows.expert_rows[e] += r->table->counts[e][p];
        }
        overflow = schedule_rows_prefix(s, &rows, &failed) == SCHEDULE_OVERFLOW;
        if (first_block) {
            r->table->rows = rows;
            r->table->total_rows = overflow ? 0 : schedule_total_rows(s, &rows);
            *r->ticket = 0;
            if (overflow) {
                control->overflow_expert = failed;
                control->overflow_rows = schedule_total_rows(s, &rows);
                control->overflow = 1;
            }
        }
    }
    __syncthreads();
    int32_t counter_count = schedule_edge_counter_begin(s, EDGE_COUNT);
    int32_t block = peer * (int32_t)gridDim.x + expert, block_count = (int32_t)(gridDim.x * gridDim.y);
    for (int32_t i = block * ROUTE_THREADS + (int32_t)threadIdx.x; i < counter_count; i += block_count * ROUTE_THREADS)
        r->counters[i] = 0;
    if (first_block) {
        int32_t expert_count = s->shape.experts_per_rank * s->shape.rank_count;
        for (int32_t i = threadIdx.x; i < s->shape.tokens * s->shape.top_k; i += ROUTE_THREADS) {
            int32_t id = r->expert_ids[rank][i];
            if (id < -1 || id >= expert_count) {
                control->bad_expert = id;
                atomicAdd(&control->bad_routes, 1u);
            }
        }
    }
    if (overflow) return;
    int32_t begin = rows.expert_row_begin[expert], end = rows.expert_row_begin[expert + 1];
    if (peer == 0) {
        for (int32_t row = begin + rows.expert_rows[expert] + (int32_t)threadIdx.x; row < end; row += ROUTE_THREADS) {
            r->row_peer[row] = -1;
            if (row_weight != NULL) row_weight[row] = 0.0f;
        }
        for (int32_t tile = begin / s->tile.rows + (int32_t)threadIdx.x; tile < end / s->tile.rows; tile += ROUTE_THREADS)
            r->tile_expert[tile] = expert;
    }
    place_rows(&a, r, r->table->counts[expert], begin, rank * s->shape.experts_per_rank + expert, peer, row_weight);
}

int route_launch(const struct layer_arguments *arguments, int32_t rank, float *row_weight, void *stream) {
    const struct layer_shape *shape = &arguments->schedule.shape;
    route_count<<<(unsigned)shape->rank_count, ROUTE_THREADS, 0, (cudaStream_t)stream>>>(*arguments, rank);
    dim3 grid((unsigned)shape->experts_per_rank, (unsigned)shape->rank_count);
    route_place<<<grid, ROUTE_THREADS, 0, (cudaStream_t)stream>>>(*arguments, rank, row_weight);
    return (int)cudaGetLastError();
}
