/* Load role: draws tasks, waits for their input rows, and feeds operand stages by TMA. One thread. */
#ifndef LOAD_CUH
#define LOAD_CUH

#include "ptx/tma.cuh"
#include "roles/compute_shared.cuh"

struct load_state {
    struct ring_position task, stage, ticket;
    uint32_t stages_filled; /* stages ever filled, up to STAGE_COUNT: those whose last load must land before the CTA exits */
};

/* Hands a task (or the end) to the other roles. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t task_put(const struct cta_view *v, struct mokscope_lane *lane,
                                                    struct compute_shared *shared, struct ring_position *position,
                                                    const struct task_slot *slot) {
    uint64_t *empty = &shared->task_empty[position->slot];
    uint32_t ready = wait_barrier_thread(v, lane, empty, position->parity ^ 1u, EDGE_TASK_EMPTY, position->slot);
    if (!ready) return 0;
    shared->task[position->slot] = *slot;
    mbarrier_arrive_shared(&shared->task_full[position->slot]);
    ring_advance(position, TASK_SLOTS);
    return 1;
}

/* First token of a shared expert's tile. */
static __device__ __forceinline__ int32_t shared_token(const struct cta_view *v, const struct task_slot *slot) {
    return slot->task.tile_row * TILE_ROWS - slot->expert * (schedule_shared_rows(&v->a->schedule) / v->a->schedule.shape.shared_experts);
}

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

/* Forward: A rows of the x or h ring (of x itself for a shared expert) in one box, B in two boxes of 128 rows. */
static __device__ __forceinline__ struct tile_plan plan_forward(const struct cta_view *v, const struct task_slot *slot) {
    const struct schedule *s = &v->a->schedule;
    const struct rank_arguments *r = v->r;
    bool shared = slot->expert < s->shape.shared_experts, gate_up = slot->task.phase == PHASE_GATE_UP;
    int32_t expert = shared ? slot->expert : slot->expert - s->shape.shared_experts;
    int32_t a_row = gate_up && shared ? shared_token(v, slot) : schedule_ring_row(s, slot->task.tile_row * TILE_ROWS);
    struct tile_plan p;
    p.a = gate_up ? shared ? &r->x_map : &r->x_ring_map : &r->h_ring_map;
    p.a_walk = {0, a_row, 0, 0, K_BLOCK, 0};
    p.b_by_half = gate_up;
    p.b_alternates = false;
    if (gate_up) {
        p.b[0] = shared ? &r->shared_gate_map : &r->w_gate_map;
        p.b[1] = shared ? &r->shared_up_map : &r->w_up_map;
        p.b_walk = {0, expert * s->shape.intermediate + slot->task.tile_column * GATE_UP_TILE_COLUMNS, 0, 0, K_BLOCK, 0};
    } else {
        p.b[0] = p.b[1] = shared ? &r->shared_down_map : &r->w_down_map;
        p.b_walk = {0, expert * s->shape.hidden + slot->task.tile_column * DOWN_TILE_COLUMNS, 0, TILE_N / 2, K_BLOCK, 0};
    }
    return p;
}

/* Backward, all in boxes of 64 x 64, two of A and four of B:
 *   replay         A x rows, B W_gate and W_up rows, both K-major over H
 *   dgrad down     A dY rows, K-major over H; B W_down [H, I], MN-major
 *   dgrad gate+up  A dGU rows, K-major over 2 I, where blocks of dG and dU alternate; B W_gate or W_up [I, H], MN-major
 *   wgrad          A and B rows of the expert, both MN-major, K over the rows: dY and s h; dG or dU, and x
 * A shared expert reads the rank's own x and dY, which have zeros past their last row for TMA. */
static __device__ __forceinline__ struct tile_plan plan_backward(const struct cta_view *v, const struct task_slot *slot) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    const struct backward_rank *b = &v->b->ranks[v->rank];
    int32_t row = slot->task.tile_row * TILE_ROWS, column = slot->task.tile_column * TILE_N;
    bool shared = slot->expert < shape->shared_experts;
    int32_t expert = shared ? slot->expert : slot->expert - shape->shared_experts;
    const CUtensorMap *x_map = shared ? &b->shared_x_map : &b->x_map, *dy_map = shared ? &b->shared_dy_map : &b->dy_map;
    const CUtensorMap *gate_map = shared ? &b->shared_gate_map : &b->w_gate_map, *up_map = shared ? &b->shared_up_map : &b->w_up_map;
    int32_t input_row = shared ? shared_token(v, slot) : row;
    struct tile_plan p;
    p.b_by_half = slot->task.phase == PHASE_REPLAY;
    p.b_alternates = slot->task.phase == PHASE_DGRAD_GATE_UP;
    switch (slot->task.phase) {
    case PHASE_REPLAY:
        p.a = x_map;
        p.a_walk = {0, input_row, 0, BOX_ROWS, K_BLOCK, 0};
        p.b[0] = gate_map;
        p.b[1] = up_map;
        p.b_walk = {0, expert * shape->intermediate + slot->task.tile_column * GATE_UP_TILE_COLUMNS, 0, BOX_ROWS, K_BLOCK, 0};
        break;
    case PHASE_DGRAD_DOWN:
        p.a = dy_map;
        p.a_walk = {0, input_row, 0, BOX_ROWS, K_BLOCK, 0};
        p.b[0] = p.b[1] = shared ? &b->shared_down_map : &b->w_down_map;
        p.b_walk = {column, expert * shape->hidden, BOX_COLUMNS, 0, 0, K_BLOCK};
        break;
    case PHASE_DGRAD_GATE_UP:
        p.a = &b->dgu_map;
        p.a_walk = {0, row, 0, BOX_ROWS, K_BLOCK, 0};
        p.b[0] = gate_map;
        p.b[1] = up_map;
        p.b_walk = {column, expert * shape->intermediate, BOX_COLUMNS, 0, 0, K_BLOCK};
        break;
    default: {
        int32_t k_row = v->r->table->rows.expert_row_begin[slot->expert], k_input_row = shared ? 0 : k_row;
        bool down = slot->task.phase == PHASE_WGRAD_DOWN;
        p.a = down ? dy_map : &b->dgu_map;
        if (down)
            p.a_walk = {row, k_input_row, BOX_COLUMNS, 0, 0, K_BLOCK};
        else
            p.a_walk = {2 * row + (slot->task.phase == PHASE_WGRAD_UP ? BOX_COLUMNS : 0), k_row, 2 * BOX_COLUMNS, 0, 0, K_BLOCK};
        p.b[0] = p.b[1] = down ? &b->sh_map : x_map;
        p.b_walk = {column, down ? k_row : k_input_row, BOX_COLUMNS, 0, 0, K_BLOCK};
    }
    }
    return p;
}

/* Issues the loads of one k block. share: this member of the pair loads its half of B for both. */
template <int pass>
static __device__ __forceinline__ void load_k_block(const struct tile_plan *p, int32_t k, bool share, uint32_t member,
                                                    struct operand_stage *stage, uint64_t *full) {
    enum { A_BOXES = pass == PASS_FORWARD ? 1 : 2, B_BOXES = pass == PASS_FORWARD ? 2 : 4 };
    int32_t a_column = p->a_walk.column + k * p->a_walk.column_k, a_row = p->a_walk.row + k * p->a_walk.row_k;
    int32_t b_k = p->b_alternates ? k >> 1 : k;
    int32_t b_column = p->b_walk.column + b_k * p->b_walk.column_k, b_row = p->b_walk.row + b_k * p->b_walk.row_k;
#pragma unroll
    for (int i = 0; i < A_BOXES; i++)
        tma_load_2d_shared(stage->a + i * (TILE_ROWS / A_BOXES) * K_BLOCK, p->a, a_column + i * p->a_walk.column_box,
                           a_row + i * p->a_walk.row_box, full);
#pragma unroll
    for (int i = 0; i < B_BOXES; i++) {
        int half = i / (B_BOXES / 2), box = p->b_by_half ? i % (B_BOXES / 2) : i;
        const CUtensorMap *map = p->b[p->b_alternates ? k & 1 : half];
        int32_t column = b_column + box * p->b_walk.column_box, row = b_row + box * p->b_walk.row_box;
        uint16_t *target = stage->b + i * (TILE_N / B_BOXES) * K_BLOCK;
        if (!share)
            tma_load_2d_shared(target, map, column, row, full);
        else if ((uint32_t)half == member)
            tma_load_2d_shared_multicast(target, map, column, row, full, (1u << PAIR_CTAS) - 1u);
    }
}

/* K loop of one tile. Returns 0 after an abort. */
template <int pass> static __device__ __forceinline__ uint32_t load_tile(const struct cta_view *v, struct compute_shared *shared,
                                                                         struct load_state *state, const struct task_slot *slot,
                                                                         uint32_t *stall) {
    const struct tile_plan plan = pass == PASS_FORWARD ? plan_forward(v, slot) : plan_backward(v, slot);
    const int32_t k_blocks = task_k_blocks<pass>(v, slot);
    const bool share = slot->share;
    const uint32_t member = v->pair_member;
    struct ring_position position = state->stage;
    for (int32_t k = 0; k < k_blocks; k++) {
        uint32_t stage = position.slot;
        if (!wait_barrier_stall(v, &shared->stage_empty[stage], position.parity ^ 1u, EDGE_STAGE_EMPTY, stage, stall)) {
            state->stages_filled = schedule_minimum((int32_t)state->stages_filled + k, STAGE_COUNT);
            state->stage = position;
            return 0;
        }
        uint64_t *full = &shared->stage_full[stage];
        mbarrier_arrive_expect_tx_shared(full, STAGE_BYTES);
        load_k_block<pass>(&plan, k, share, member, &shared->stage[stage], full);
        ring_advance(&position, STAGE_COUNT);
    }
    state->stages_filled = schedule_minimum((int32_t)state->stages_filled + k_blocks, STAGE_COUNT);
    state->stage = position;
    return 1;
}

/* Every load that was issued has landed: no copy outlives the CTA. The last fill of a stage is the one before the position.
 * After an abort a stage may lack the half that the other CTA did not issue: what was issued lands within the grace period. */
static __device__ __forceinline__ void load_drain(struct compute_shared *shared, const struct load_state *state) {
    struct ring_position p = state->stage;
    uint64_t grace_end = global_timer_ns() + 10 * ABORT_GRACE_NS;
    if (state->stages_filled < STAGE_COUNT) p.slot = 0, p.parity = 1;
    for (uint32_t i = 0; i < state->stages_filled; i++) {
        while (!mbarrier_try_wait_parity_shared(&shared->stage_full[p.slot], p.parity ^ 1u) && global_timer_ns() < grace_end) {}
        ring_advance(&p, STAGE_COUNT);
    }
}

/* Member 0 of a pair: tells member 1 the ticket. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t ticket_give(const struct cta_view *v, struct compute_shared *shared, struct load_state *state,
                                                       uint32_t ticket) {
    uint32_t slot = state->ticket.slot, unused = 0;
    if (!wait_barrier_stall(v, &shared->ticket_empty[slot], state->ticket.parity ^ 1u, EDGE_TASK_EMPTY, slot, &unused)) return 0;
    st_shared_cluster_u32(cluster_address(&shared->ticket[slot], 1), ticket);
    mbarrier_arrive_release_cluster(cluster_address(&shared->ticket_full[slot], 1));
    ring_advance(&state->ticket, TICKET_SLOTS);
    return 1;
}

/* Member 1: takes it. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t ticket_take(const struct cta_view *v, struct compute_shared *shared, struct load_state *state,
                                                       uint32_t *ticket) {
    uint32_t slot = state->ticket.slot, unused = 0;
    if (!wait_barrier_stall(v, &shared->ticket_full[slot], state->ticket.parity, EDGE_TASK_FULL, slot, &unused)) return 0;
    fence_acq_rel_cluster();
    *ticket = *(volatile uint32_t *)&shared->ticket[slot];
    mbarrier_arrive_release_cluster(cluster_address(&shared->ticket_empty[slot], 0));
    ring_advance(&state->ticket, TICKET_SLOTS);
    return 1;
}

/* Draws the next pair of tasks, for both members of a pair or for a CTA alone. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t ticket_draw(const struct cta_view *v, struct compute_shared *shared, struct load_state *state,
                                                       uint32_t *ticket) {
    if (v->paired && v->pair_member == 1) return ticket_take(v, shared, state, ticket);
    *ticket = atom_add_relaxed_gpu_global_u32(word_address(v, WORD_TICKET), 1);
    return v->paired ? ticket_give(v, shared, state, *ticket) : 1u;
}

static __device__ __forceinline__ uint32_t load_wait(const struct cta_view *v, struct mokscope_lane *lane, struct schedule_wait wait,
                                                     int32_t task_id) {
    if (wait.edge < 0) return 1;
    const struct schedule *s = &v->a->schedule;
    uint32_t target = wait.edge == EDGE_EXPERT_READY
                          ? schedule_expert_target(s, &v->r->table->rows, wait.index)
                          : schedule_edge_target(s, v->total_rows, (enum edge)wait.edge, wait.index, v->epoch);
    return wait_counter_thread(v, lane, wait.edge, wait.index, target, task_id);
}

template <int pass>
static __device__ __forceinline__ uint32_t load_task(const struct cta_view *v, struct mokscope_lane *lane,
                                                     struct compute_shared *shared, struct load_state *state,
                                                     const struct task_slot *slot) {
    const struct schedule *s = &v->a->schedule;
    uint32_t begin = mokscope_clock();
    if (!task_put(v, lane, shared, &state->task, slot)) return 0;
    if (!load_wait(v, lane, schedule_task_input(s, &slot->task), slot->id)) return 0;
    if (pass == PASS_BACKWARD && !load_wait(v, lane, schedule_task_second_input(s, &slot->task), slot->id)) return 0;
    /* The rows were written by bulk stores or plain stores of other SMs, ordered by the acquire above for this thread's
     * generic accesses; TMA reads through the async proxy. */
    fence_proxy_async_global();
    uint32_t load_begin = mokscope_clock(), stall = 0;
    if (!load_tile<pass>(v, shared, state, slot, &stall)) return 0;
    mokscope_span_thread(lane, MOKSCOPE_LEVEL_PHASE, load_begin, EVENT_LOAD_TILE, stall >> 6, (uint32_t)slot->id);
    mokscope_span_thread(lane, MOKSCOPE_LEVEL_TASK, begin, task_event(slot->task.phase), slot->expert, (uint32_t)slot->id);
    mokscope_sync_if_due_thread(lane);
    (void)begin, (void)load_begin, (void)stall;
    return 1;
}

/* Task number `member` of the pair, as this CTA runs it. */
static __device__ __forceinline__ struct task_slot load_slot(const struct cta_view *v, const struct schedule_cursor *cursor,
                                                             const struct schedule_pair *pair, int32_t member) {
    struct task_slot slot;
    int32_t own = schedule_minimum(member, pair->count - 1);
    slot.task = schedule_cursor_task(cursor, pair->first + own);
    slot.id = schedule_compute_task_id(&v->a->schedule, pair->first + own);
    slot.expert = slot.task.expert >= 0 ? slot.task.expert : v->r->tile_expert[slot.task.tile_row];
    slot.echo = own != member;
    slot.share = v->paired && pair->count == 1;
    if (v->paired && pair->count == 2) {
        struct schedule_task other = schedule_cursor_task(cursor, pair->first + (own ^ 1));
        int32_t other_expert = other.expert >= 0 ? other.expert : v->r->tile_expert[other.tile_row];
        slot.share = other.tile_column == slot.task.tile_column && other_expert == slot.expert;
    }
    return slot;
}

/* The ticket of the next pair is drawn while the current one loads, so that its latency is hidden. A CTA takes its tasks in
 * increasing order, which is what keeps the schedule free of deadlock. A CTA that is not paired runs both tasks of a pair. */
template <int pass>
static __device__ __forceinline__ void load_role(const struct cta_view *v, struct mokscope_lane *lane,
                                                 struct compute_shared *shared) {
    struct schedule_order order = schedule_compute_order(&v->a->schedule, v->total_rows);
    struct schedule_cursor cursor = schedule_cursor_begin();
    uint32_t pair_count = (uint32_t)schedule_order_pair_count(&order), ticket = 0, next = 0;
    struct load_state state = {{0, 0}, {0, 0}, {0, 0}, 0};
    struct task_slot slot;
    uint32_t running = ticket_draw(v, shared, &state, &ticket);
    while (running && ticket < pair_count) {
        struct schedule_pair pair = schedule_cursor_seek_pair(&order, &cursor, (int32_t)ticket);
        running = ticket_draw(v, shared, &state, &next);
        int32_t first = v->paired ? (int32_t)v->pair_member : 0, end = v->paired ? first + 1 : pair.count;
        for (int32_t member = first; running && member < end; member++) {
            slot = load_slot(v, &cursor, &pair, member);
            random_delay(v, ROLE_LOAD, (uint32_t)slot.id);
            running = load_task<pass>(v, lane, shared, &state, &slot);
        }
        ticket = next;
    }
    if (running) {
        slot.task.phase = PHASE_NONE;
        task_put(v, lane, shared, &state.task, &slot);
    }
    load_drain(shared, &state);
}

#endif
