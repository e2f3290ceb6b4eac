/* Plan role: draws tasks, works out what their tiles load, and waits for their input rows, one task ahead of the load role, so that
 * neither the arithmetic nor the latency of tables and counters stands between two tiles. One thread. */
#ifndef PLAN_CUH
#define PLAN_CUH

#include "roles/compute_shared.cuh"

struct plan_state {
    struct ring_position task, ticket;
};

/* Hands a task (or the end) to the other roles. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t task_put(const struct cta_view *v, struct mokscope_lane *lane,
                                                    struct compute_shared *shared, struct ring_position *position,
                                                    const struct task_slot *slot, const struct tile_plan *plan) {
    uint32_t unused = 0;
    /* Not recorded: the planner is a task ahead, so it waits here each time, and nobody waits for that. */
    if (!wait_barrier_stall(v, &shared->task_empty[position->slot], position->parity ^ 1u, EDGE_TASK_EMPTY, position->slot, &unused)) return 0;
    (void)lane;
    shared->task[position->slot] = *slot;
    if (plan != NULL) shared->plan[position->slot] = *plan;
    mbarrier_arrive_shared(&shared->task_full[position->slot]);
    ring_advance(position, TASK_SLOTS);
    return 1;
}

/* Length of the task's K loop in blocks; 0 for a weight gradient of an expert without rows. */
template <int pass> static __device__ __forceinline__ int32_t task_k_blocks(const struct cta_view *v, const struct task_slot *slot) {
    const struct layer_shape *shape = &v->a->schedule.shape;
    if (pass == PASS_FORWARD) return (slot->task.phase == PHASE_GATE_UP ? shape->hidden : shape->intermediate) / K_BLOCK;
    switch (slot->task.phase) {
    case PHASE_REPLAY:
    case PHASE_DGRAD_DOWN: return shape->hidden / K_BLOCK;
    case PHASE_DGRAD_GATE_UP: return 2 * shape->intermediate / K_BLOCK;
    default: {
        const int32_t *row_begin = v->r->table->rows.expert_row_begin + slot->expert;
        return (row_begin[1] - row_begin[0]) / K_BLOCK;
    }
    }
}

/* First token of a shared expert's tile. */
static __device__ __forceinline__ int32_t shared_token(const struct cta_view *v, const struct task_slot *slot) {
    return slot->task.tile_row * TILE_ROWS - slot->expert * (schedule_shared_rows(&v->a->schedule) / v->a->schedule.shape.shared_experts);
}

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

/* Member 0 of a pair: tells member 1 the ticket. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t ticket_give(const struct cta_view *v, struct compute_shared *shared, struct plan_state *state,
                                                       uint32_t ticket) {
    uint32_t slot = state->ticket.slot, unused = 0;
    if (!wait_barrier_stall(v, &shared->ticket_empty[slot], state->ticket.parity ^ 1u, EDGE_TASK_EMPTY, slot, &unused)) return 0;
    st_shared_cluster_u32(cluster_address(&shared->ticket[slot], 1), ticket);
    mbarrier_arrive_release_cluster(cluster_address(&shared->ticket_full[slot], 1));
    ring_advance(&state->ticket, TICKET_SLOTS);
    return 1;
}

/* Member 1: takes it. Returns 0 after an abort. */
static __device__ __forceinline__ uint32_t ticket_take(const struct cta_view *v, struct compute_shared *shared, struct plan_state *state,
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
static __device__ __forceinline__ uint32_t ticket_draw(const struct cta_view *v, struct compute_shared *shared, struct plan_state *state,
                                                       uint32_t *ticket) {
    if (v->paired && v->pair_member == 1) return ticket_take(v, shared, state, ticket);
    *ticket = atom_add_relaxed_gpu_global_u32(word_address(v, WORD_TICKET), 1);
    return v->paired ? ticket_give(v, shared, state, *ticket) : 1u;
}

static __device__ __forceinline__ uint32_t plan_wait(const struct cta_view *v, struct mokscope_lane *lane, struct schedule_wait wait,
                                                     int32_t task_id) {
    if (wait.edge < 0) return 1;
    const struct schedule *s = &v->a->schedule;
    uint32_t target = wait.edge == EDGE_EXPERT_READY
                          ? schedule_expert_target(s, &v->r->table->rows, wait.index)
                          : schedule_edge_target(s, v->total_rows, (enum edge)wait.edge, wait.index, v->epoch);
    return wait_counter_thread(v, lane, wait.edge, wait.index, target, task_id);
}

/* Task number `member` of the pair, as this CTA runs it. */
template <int pass>
static __device__ __forceinline__ struct task_slot plan_slot(const struct cta_view *v, const struct schedule_cursor *cursor,
                                                             const struct schedule_pair *pair, int32_t member) {
    struct task_slot slot;
    int32_t own = schedule_minimum(member, pair->count - 1);
    slot.task = schedule_cursor_task(cursor, pair->first + own);
    slot.id = schedule_compute_task_id(&v->a->schedule, pair->first + own);
    slot.expert = slot.task.expert >= 0 ? slot.task.expert : v->r->tile_expert[slot.task.tile_row];
    slot.echo = own != member;
    slot.k_blocks = task_k_blocks<pass>(v, &slot);
    slot.share = v->paired && pair->count == 1;
    if (v->paired && pair->count == 2) {
        struct schedule_task other = schedule_cursor_task(cursor, pair->first + (own ^ 1));
        int32_t other_expert = other.expert >= 0 ? other.expert : v->r->tile_expert[other.tile_row];
        slot.share = other.tile_column == slot.task.tile_column && other_expert == slot.expert;
    }
    return slot;
}

/* Hands on one task, then waits for its input. Returns 0 after an abort. */
template <int pass>
static __device__ __forceinline__ uint32_t plan_task(const struct cta_view *v, struct mokscope_lane *lane, struct compute_shared *shared,
                                                     struct plan_state *state, const struct task_slot *slot) {
    const struct schedule *s = &v->a->schedule;
    const struct tile_plan plan = pass == PASS_FORWARD ? plan_forward(v, slot) : plan_backward(v, slot);
    uint64_t *input = &shared->task_input[state->task.slot];
    if (!task_put(v, lane, shared, &state->task, slot, &plan)) return 0;
    if (!plan_wait(v, lane, schedule_task_input(s, &slot->task), slot->id)) return 0;
    if (pass == PASS_BACKWARD && !plan_wait(v, lane, schedule_task_second_input(s, &slot->task), slot->id)) return 0;
    mbarrier_arrive_shared(input);
    mokscope_sync_if_due_thread(lane);
    return 1;
}

/* The ticket of the next pair is drawn before the current one is handed on, so that its latency is hidden. A CTA takes its tasks in
 * increasing order, which is what keeps the schedule free of deadlock. A CTA that is not paired runs both tasks of a pair. */
template <int pass>
static __device__ __forceinline__ void plan_role(const struct cta_view *v, struct mokscope_lane *lane, struct compute_shared *shared) {
    struct schedule_order order = schedule_compute_order(&v->a->schedule, v->total_rows);
    struct schedule_cursor cursor = schedule_cursor_begin();
    uint32_t pair_count = (uint32_t)schedule_order_pair_count(&order), ticket = 0, next = 0;
    struct plan_state state = {{0, 0}, {0, 0}};
    struct task_slot slot;
    uint32_t running = ticket_draw(v, shared, &state, &ticket);
    while (running && ticket < pair_count) {
        struct schedule_pair pair = schedule_cursor_seek_pair(&order, &cursor, (int32_t)ticket);
        running = ticket_draw(v, shared, &state, &next);
        int32_t first = v->paired ? (int32_t)v->pair_member : 0, end = v->paired ? first + 1 : pair.count;
        for (int32_t member = first; running && member < end; member++) {
            slot = plan_slot<pass>(v, &cursor, &pair, member);
            random_delay(v, ROLE_PLAN, (uint32_t)slot.id);
            running = plan_task<pass>(v, lane, shared, &state, &slot);
        }
        ticket = next;
    }
    if (running) {
        slot.task.phase = PHASE_NONE;
        task_put(v, lane, shared, &state.task, &slot, NULL);
    }
}

#endif
