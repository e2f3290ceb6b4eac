/* Communication roles: dispatch pulls x rows from their owners into the x ring; on the combine path ring the same warps push
 * y rows from the y ring to their owners' combine slots. Every warp of a communication CTA is one executor with its own
 * chunks of shared memory; it takes every n-th task of the communication order. Finish tells the peers.
 *
 * PROTOCOL chunk ring of a warp
 *   A row is cut into chunks of COMM_CHUNK_BYTES; COMM_CHUNKS chunks are in flight. chunk i lives in slot i mod COMM_CHUNKS.
 *   full[slot]: 1 arrival + bytes of the bulk load. A slot is loaded again only after bulk_wait_group_read says that the bulk
 *   store of its previous chunk has left shared memory (one commit group a chunk). Everything stays in the async proxy, so no
 *   proxy fence is needed between load and store. Padding rows have no load: their chunks are stored from a block of zeros. */
#ifndef COMM_CUH
#define COMM_CUH

#include "ptx/tma.cuh"
#include "roles/route.cuh"

struct comm_shared {
    uint8_t chunk[CTA_WARPS][COMM_CHUNKS][COMM_CHUNK_BYTES];
    uint8_t zeros[COMM_CHUNK_BYTES];
    uint64_t full[CTA_WARPS][COMM_CHUNKS];
};

/* A warp's chunk ring; chunks are numbered over the whole launch. */
struct comm_state {
    uint8_t (*chunk)[COMM_CHUNK_BYTES];
    const uint8_t *zeros;
    uint64_t *full;
    uint32_t parity; /* bit s: parity that the next wait on slot s expects */
};

static __device__ void comm_shared_init(struct comm_shared *shared) {
    for (uint32_t i = threadIdx.x; i < COMM_CHUNK_BYTES / sizeof(uint4); i += blockDim.x)
        ((uint4 *)shared->zeros)[i] = make_uint4(0, 0, 0, 0);
    fence_proxy_async_shared_cta();
    if (threadIdx.x == 0) {
        for (int w = 0; w < CTA_WARPS; w++)
            for (int c = 0; c < COMM_CHUNKS; c++) mbarrier_init_shared(&shared->full[w][c], 1);
        mbarrier_init_fence();
    }
}

/* Source and target of one row of a task. source == NULL: zeros; target == NULL: nothing to do. */
struct comm_row {
    const uint8_t *source;
    uint8_t *target;
};

/* The backward pass dispatches two matrices, `operand` says which: 0 the gradient of the output, 1 x. Its rows stay in place. */
template <int pass>
static __device__ __forceinline__ struct comm_row comm_row_find(const struct cta_view *v, const struct schedule_task *task,
                                                                int32_t row, int operand) {
    const struct schedule *s = &v->a->schedule;
    int64_t row_bytes = (int64_t)s->shape.hidden * (int64_t)sizeof(uint16_t);
    int32_t peer = v->r->row_peer[row];
    int64_t ring_offset = schedule_ring_row(s, row) * row_bytes;
    int32_t route = peer < 0 ? 0 : v->r->row_route[row];
    struct comm_row result;
    if (pass == PASS_BACKWARD) {
        const struct backward_rank *b = &v->b->ranks[v->rank];
        const uint16_t *source = operand == 0 ? b->dy[peer < 0 ? 0 : peer] : v->r->x[peer < 0 ? 0 : peer];
        result.source = peer < 0 ? NULL : (const uint8_t *)source + route / schedule_slots(&s->shape) * row_bytes;
        result.target = (uint8_t *)(operand == 0 ? b->dy_rows : b->x_rows) + row * row_bytes;
    } else if (task->phase == PHASE_DISPATCH) {
        result.source = peer < 0 ? NULL : (const uint8_t *)v->r->x[peer] + route / schedule_slots(&s->shape) * row_bytes;
        result.target = (uint8_t *)v->r->x_ring + ring_offset;
    } else {
        result.source = (const uint8_t *)v->r->y_ring + ring_offset;
        result.target = peer < 0 ? NULL : (uint8_t *)v->r->combine[peer] + route * row_bytes;
    }
    return result;
}

/* Chunk n of a task: part of one of its rows. Whole warp; lane i of the caller holds row i. */
struct comm_chunk {
    const uint8_t *source;
    uint8_t *target;
    uint32_t bytes;
};

static __device__ __forceinline__ struct comm_chunk comm_chunk_find(struct comm_row mine, uint32_t n, uint32_t chunks_per_row,
                                                                    uint32_t row_bytes) {
    int row = (int)(n / chunks_per_row);
    uint32_t offset = n % chunks_per_row * COMM_CHUNK_BYTES;
    uint64_t source = __shfl_sync(0xffffffffu, (uint64_t)mine.source, row);
    uint64_t target = __shfl_sync(0xffffffffu, (uint64_t)mine.target, row);
    struct comm_chunk chunk;
    chunk.source = source != 0 && target != 0 ? (const uint8_t *)source + offset : NULL;
    chunk.target = target != 0 ? (uint8_t *)target + offset : NULL;
    chunk.bytes = row_bytes - offset < COMM_CHUNK_BYTES ? row_bytes - offset : COMM_CHUNK_BYTES;
    return chunk;
}

/* Copies the task's rows. Whole warp, lane 0 issues. Loads run COMM_LEAD chunks ahead of stores, so that the slot of a new
 * load was stored COMM_CHUNKS - COMM_LEAD steps ago and all but the last COMM_CHUNKS - COMM_LEAD - 1 groups must have left.
 * Returns 0 after an abort (poll_barrier's grace period has then let the loads in flight land). */
static __device__ __forceinline__ uint32_t comm_copy_rows(const struct cta_view *v, struct comm_state *state,
                                                          struct comm_row mine, int32_t rows) {
    uint32_t row_bytes = (uint32_t)v->a->schedule.shape.hidden * (uint32_t)sizeof(uint16_t);
    uint32_t chunks_per_row = (row_bytes + COMM_CHUNK_BYTES - 1) / COMM_CHUNK_BYTES;
    uint32_t chunks = chunks_per_row * (uint32_t)rows;
    bool leader = threadIdx.x % 32u == 0;
    for (uint32_t step = 0; step < chunks + COMM_LEAD; step++) {
        if (step < chunks) {
            uint32_t slot = step % COMM_CHUNKS;
            struct comm_chunk chunk = comm_chunk_find(mine, step, chunks_per_row, row_bytes);
            if (leader && chunk.source != NULL) {
                bulk_wait_group_read<COMM_CHUNKS - COMM_LEAD - 1>();
                mbarrier_arrive_expect_tx_shared(&state->full[slot], chunk.bytes);
                bulk_load_shared(state->chunk[slot], chunk.source, chunk.bytes, &state->full[slot]);
            }
        }
        if (step >= COMM_LEAD) {
            uint32_t slot = (step - COMM_LEAD) % COMM_CHUNKS;
            struct comm_chunk chunk = comm_chunk_find(mine, step - COMM_LEAD, chunks_per_row, row_bytes);
            if (chunk.source != NULL) {
                uint32_t unused = 0;
                uint32_t landed = wait_barrier_stall(v, &state->full[slot], state->parity >> slot & 1u, EDGE_STAGE_FULL, slot,
                                                     &unused);
                if (!__all_sync(0xffffffffu, landed)) return 0;
                state->parity ^= 1u << slot;
            }
            if (leader) {
                if (chunk.target != NULL)
                    bulk_store_global(chunk.target, chunk.source != NULL ? state->chunk[slot] : state->zeros, chunk.bytes);
                bulk_commit_group(); /* also when empty: the wait above counts groups */
            }
        }
    }
    return 1;
}

static __device__ __forceinline__ uint32_t comm_wait(const struct cta_view *v, struct mokscope_lane *lane,
                                                     struct schedule_wait wait, int32_t task_id) {
    if (wait.edge < 0) return 1;
    uint32_t ready = 1;
    if (threadIdx.x % 32u == 0) {
        uint32_t target = schedule_edge_target(&v->a->schedule, v->total_rows, (enum edge)wait.edge, wait.index, v->epoch);
        ready = wait_counter_thread(v, lane, wait.edge, wait.index, target, task_id);
        fence_proxy_async_global(); /* rows and slots were touched by the async proxy of other SMs; lane 0 issues the copies */
    }
    return __shfl_sync(0xffffffffu, ready, 0);
}

static __device__ __forceinline__ void comm_signal(const struct cta_view *v, struct mokscope_lane *lane,
                                                   struct schedule_wait signal, uint32_t rows) {
    if (signal.edge < 0) return;
    red_add_release_gpu_global_u32(counter_address(v, signal.edge, signal.index), rows);
    mokscope_instant_thread(lane, MOKSCOPE_LEVEL_TASK, EVENT_SIGNAL_FIRST + signal.edge, rows, (uint32_t)signal.index);
}

/* One dispatch or combine task; whole warp. Returns 0 after an abort. */
template <int pass>
static __device__ __forceinline__ uint32_t comm_task(const struct cta_view *v, struct mokscope_lane *lane,
                                                     struct comm_state *state, const struct schedule_task *task, int32_t id) {
    const struct schedule *s = &v->a->schedule;
    uint32_t lane_index = threadIdx.x % 32u;
    uint32_t begin = mokscope_clock();
    if (!comm_wait(v, lane, schedule_task_input(s, task), id)) return 0;
    if (!comm_wait(v, lane, schedule_task_slot(s, task), id)) return 0;
    uint32_t copy_begin = mokscope_clock(), done = 1;
    int operands = pass == PASS_BACKWARD ? 2 : 1;
    /* Tiles of the shared experts read x and dY where they are; the signal alone keeps the counters' targets. */
    if (task->phase == PHASE_DISPATCH && task->tile_row * UNIT_ROWS < schedule_shared_rows(s)) operands = 0;
    for (int operand = 0; done && operand < operands; operand++) {
        struct comm_row mine = {NULL, NULL};
        if (lane_index < UNIT_ROWS) mine = comm_row_find<pass>(v, task, task->tile_row * UNIT_ROWS + (int32_t)lane_index, operand);
        if (lane_index == 0) bulk_wait_group_read<0>(); /* chunk slots start anew with each call below */
        done = comm_copy_rows(v, state, mine, UNIT_ROWS);
    }
    if (lane_index == 0) {
        bulk_wait_group_all();
        fence_proxy_async_global();
        if (done) {
            bool dispatch = task->phase == PHASE_DISPATCH;
            comm_signal(v, lane, schedule_task_release(s, task), UNIT_ROWS);
            comm_signal(v, lane, schedule_task_output(s, task), UNIT_ROWS);
            mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, copy_begin, dispatch ? EVENT_PULL_X : EVENT_PUSH_Y, UNIT_ROWS,
                                 (uint32_t)id);
            mokscope_span_thread(lane, MOKSCOPE_LEVEL_TASK, begin, dispatch ? EVENT_TASK_DISPATCH : EVENT_TASK_COMBINE, UNIT_ROWS,
                                 (uint32_t)id);
            mokscope_sync_if_due_thread(lane);
            (void)dispatch;
        }
    }
    __syncwarp();
    (void)begin, (void)copy_begin;
    return done;
}

template <int pass>
static __device__ __forceinline__ uint32_t comm_role(const struct cta_view *v, struct mokscope_lane *lane,
                                                     struct comm_shared *shared) {
    const struct schedule *s = &v->a->schedule;
    int32_t warp = threadIdx.x / 32;
    struct comm_state state = {shared->chunk[warp], shared->zeros, shared->full[warp], 0};
    struct schedule_order compute_order = schedule_compute_order(s, v->total_rows);
    struct schedule_order order = schedule_comm_order(s, v->total_rows);
    struct schedule_cursor cursor = schedule_cursor_begin();
    int32_t count = schedule_order_task_count(&order), compute_count = schedule_order_task_count(&compute_order);
    for (int32_t i = v->cta * CTA_WARPS + warp; i < count; i += s->knobs.comm_sms * CTA_WARPS) {
        struct schedule_task task = schedule_cursor_seek_task(&order, &cursor, i);
        random_delay(v, ROLE_DISPATCH, (uint32_t)i);
        if (!comm_task<pass>(v, lane, &state, &task, schedule_compute_task_id(s, compute_count + i))) return 0;
    }
    return 1;
}

/* Tells the peers when this rank has pushed everything. One thread of CTA 0. */
static __device__ __forceinline__ uint32_t finish_role(const struct cta_view *v, struct mokscope_lane *lane) {
    uint32_t target = schedule_edge_target(&v->a->schedule, v->total_rows, EDGE_PUSHED, 0, v->epoch);
    if (!wait_counter_thread(v, lane, EDGE_PUSHED, 0, target, -1)) return 0;
    tell_peers(v, lane, v->r->rank_done, EDGE_RANK_DONE);
    return 1;
}

#endif
