/* See executor.h. Set-up, the scheduler of actors, and the verdict. */
#include "executor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor_internal.h"
#include "schedule_error.h"

const char *executor_fault_name(enum executor_fault fault) {
    static const char *const names[EXECUTOR_FAULT_COUNT] = {"none",           "wait-removed", "target-low", "target-high",
                                                            "signal-missing", "signal-early", "slot-early"};
    return fault >= 0 && fault < EXECUTOR_FAULT_COUNT ? names[fault] : "?";
}

int executor_fault_applies(const struct schedule *s, enum executor_fault fault, enum edge edge) {
    int ring_only = edge == EDGE_Y_READY || edge == EDGE_Y_FREE, flag = edge == EDGE_RANK_START || edge == EDGE_RANK_DONE;
    int slot = edge == EDGE_X_FREE || edge == EDGE_H_FREE || edge == EDGE_Y_FREE;
    int counter = slot || flag || edge == EDGE_X_READY || edge == EDGE_H_READY || edge == EDGE_Y_READY || edge == EDGE_PUSHED;
    if (!counter || (ring_only && s->knobs.combine != COMBINE_RING)) return 0;
    if (fault == EXECUTOR_FAULT_SLOT_EARLY) return slot;
    if (fault == EXECUTOR_FAULT_SIGNAL_EARLY) return edge != EDGE_RANK_START;
    return fault != EXECUTOR_FAULT_NONE;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
uint32_t executor_random(struct executor *x, uint32_t below) {
    uint64_t z = x->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

const char *executor_actor_name(const struct executor *x, const struct actor *a, char *text, size_t size) {
    static const char *const names[] = {"entry", "communication warp", "load", "MMA group", "store warp", "finish", "reduce"};
    if (a->kind == ACTOR_COMM || a->kind == ACTOR_MMA || a->kind == ACTOR_STORE)
        snprintf(text, size, "rank %d CTA %d %s %d", a->rank, x->ctas[a->cta].cta, names[a->kind], a->index);
    else
        snprintf(text, size, "rank %d CTA %d %s", a->rank, x->ctas[a->cta].cta, names[a->kind]);
    return text;
}

void executor_report(struct executor *x, const struct actor *a, const char *format, ...) {
    char name[64], what[400];
    va_list arguments;
    if (x->problem.code != ERROR_NONE) return;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    error_set(&x->problem, ERROR_FAILURE, "launch %d: %s %s", x->ranks[a->rank].launch, executor_actor_name(x, a, name, sizeof name), what);
}

void executor_wake(struct executor *x) {
    for (int32_t i = 0; i < x->actor_count; i++)
        if (x->actors[i].blocked && x->actors[i].time < 0) x->actors[i].time = x->now + 1 + executor_random(x, 4);
}

/* --- set-up ---------------------------------------------------------------------------------------------------------- */

static struct actor *add_actor(struct executor *x, enum actor_kind kind, int32_t rank, int32_t cta, int32_t index) {
    struct actor *a = &x->actors[x->actor_count++];
    a->kind = kind;
    a->rank = rank;
    a->cta = cta;
    a->index = index;
    return a;
}

static void add_cta_actors(struct executor *x, int32_t position) {
    struct executor_cta *cta = &x->ctas[position];
    int32_t comm = x->options.schedule.knobs.comm_sms;
    int joins = x->options.schedule.knobs.combine == COMBINE_DIRECT && (cta->cta | 1) < comm;
    cta->communicates = cta->cta < comm;
    cta->partner = position + ((cta->cta & 1) ? -1 : 1);
    cta->paired = (cta->cta | 1) < x->options.rank_ctas && (cta->communicates ? joins : (cta->cta & ~1) >= comm);
    for (int32_t w = 0; cta->communicates && w < x->options.comm_warps; w++) add_actor(x, ACTOR_COMM, cta->rank, position, w);
    if (cta->cta == 0) {
        add_actor(x, ACTOR_ENTRY, cta->rank, position, 0);
        add_actor(x, ACTOR_FINISH, cta->rank, position, 0);
        add_actor(x, ACTOR_REDUCE, cta->rank, position, 0);
    }
    if (cta->communicates && !joins) return;
    add_actor(x, ACTOR_LOAD, cta->rank, position, 0);
    for (int32_t g = 0; g < EXECUTOR_GROUPS; g++) add_actor(x, ACTOR_MMA, cta->rank, position, g);
    for (int32_t g = 0; g < EXECUTOR_GROUPS; g++) add_actor(x, ACTOR_STORE, cta->rank, position, g);
}

static int create_rank(struct executor *x, int32_t r, struct error *error) {
    const struct schedule *s = &x->options.schedule;
    struct executor_rank *rank = &x->ranks[r];
    size_t capacity = (size_t)s->knobs.capacity_rows, counters = (size_t)schedule_edge_counter_begin(s, EDGE_COUNT);
    int32_t slots = s->shape.tokens * s->shape.top_k, hidden = s->shape.hidden;
    rank->row_peer = calloc(capacity, sizeof *rank->row_peer);
    rank->row_route = calloc(capacity, sizeof *rank->row_route);
    rank->tile_expert = calloc(capacity / (size_t)s->tile.rows + 1, sizeof *rank->tile_expert);
    rank->counters = calloc(counters + 1, sizeof *rank->counters);
    rank->slots_reduced = malloc((size_t)slots * sizeof *rank->slots_reduced);
    rank->output = calloc((size_t)s->shape.tokens * (size_t)hidden, sizeof *rank->output);
    if (rank->row_peer == NULL || rank->row_route == NULL || rank->tile_expert == NULL || rank->counters == NULL ||
        rank->slots_reduced == NULL || rank->output == NULL || row_array_allocate(&rank->x_ring, "x ring", s->knobs.ring_rows, hidden) ||
        row_array_allocate(&rank->h_ring, "h ring", s->knobs.ring_rows, s->shape.intermediate) ||
        row_array_allocate(&rank->y_ring, "y ring", s->knobs.ring_rows, hidden) ||
        row_array_allocate(&rank->slots, "combine slots", slots, hidden))
        return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; i < slots; i++) rank->slots_reduced[i] = -1;
    if (routing_table_build(s, x->inputs->routes, r, &rank->rows, rank->row_peer, rank->row_route, error) != ERROR_NONE) return error->code;
    rank->total_rows = schedule_total_rows(s, &rank->rows);
    rank->compute = schedule_compute_order(s, rank->total_rows);
    rank->comm = schedule_comm_order(s, rank->total_rows);
    for (int32_t e = 0; e < s->shape.experts_per_rank; e++)
        for (int32_t t = rank->rows.expert_row_begin[e] / s->tile.rows; t < rank->rows.expert_row_begin[e + 1] / s->tile.rows; t++)
            rank->tile_expert[t] = e;
    return ERROR_NONE;
}

static int check_options(const struct executor_options *o, const struct executor_inputs *inputs, struct error *error) {
    enum schedule_error bad = schedule_check(&o->schedule, o->rank_ctas);
    if (bad != SCHEDULE_OK) return schedule_error_describe(&o->schedule, bad, o->rank_ctas, error);
    if (o->schedule.pass != PASS_FORWARD || o->schedule.shape.shared_experts != 0)
        return error_set(error, ERROR_USAGE, "the executor runs the forward pass without shared experts");
    if (o->schedule.tile.rows % EXECUTOR_GROUPS != 0)
        return error_set(error, ERROR_USAGE, "tile of %d rows cannot be halved", o->schedule.tile.rows);
    if (o->comm_warps < 1 || o->comm_warps > 64) return error_set(error, ERROR_USAGE, "communication warps %d are not in 1..64", o->comm_warps);
    if (o->launches < 1) return error_set(error, ERROR_USAGE, "launches %d are fewer than 1", o->launches);
    if (inputs->routes->ranks != o->schedule.shape.rank_count || inputs->routes->tokens != o->schedule.shape.tokens ||
        inputs->routes->top_k != o->schedule.shape.top_k)
        return error_set(error, ERROR_USAGE, "the routes are of another shape");
    return ERROR_NONE;
}

int executor_create(const struct executor_options *options, const struct executor_inputs *inputs, struct executor **result,
                    struct error *error) {
    *result = NULL;
    if (check_options(options, inputs, error) != ERROR_NONE) return error->code;
    int32_t ranks = options->schedule.shape.rank_count;
    struct executor *x = calloc(1, sizeof *x);
    if (x == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    x->options = *options;
    x->options.schedule.rank_ctas = 0; /* routing tables are made here, not by a launch */
    x->inputs = inputs;
    x->random = options->seed;
    x->cta_count = ranks * options->rank_ctas;
    x->ctas = calloc((size_t)x->cta_count, sizeof *x->ctas);
    x->actors = calloc((size_t)(x->cta_count * (3 + 5 + options->comm_warps)), sizeof *x->actors);
    x->launch_begin = calloc((size_t)(ranks * options->launches), sizeof *x->launch_begin);
    x->launch_end = calloc((size_t)(ranks * options->launches), sizeof *x->launch_end);
    int code = ERROR_NONE;
    if (x->ctas == NULL || x->actors == NULL || x->launch_begin == NULL || x->launch_end == NULL)
        code = error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t r = 0; code == ERROR_NONE && r < ranks; r++) code = create_rank(x, r, error);
    size_t counters = (size_t)schedule_edge_counter_begin(&x->options.schedule, EDGE_COUNT);
    for (int32_t i = 0; code == ERROR_NONE && i < x->cta_count; i++) {
        x->ctas[i].rank = i / options->rank_ctas;
        x->ctas[i].cta = i % options->rank_ctas;
        x->ctas[i].known = calloc(counters + 1, sizeof *x->ctas[i].known);
        for (int slot = 0; slot < 2; slot++)
            x->ctas[i].operands[slot] = calloc((size_t)options->schedule.tile.rows * (size_t)schedule_maximum(options->schedule.shape.hidden,
                                                                                                              options->schedule.shape.intermediate),
                                               sizeof *x->ctas[i].operands[slot]);
        if (x->ctas[i].known == NULL || x->ctas[i].operands[0] == NULL || x->ctas[i].operands[1] == NULL)
            code = error_set(error, ERROR_FAILURE, "out of memory");
        add_cta_actors(x, i);
    }
    if (code == ERROR_NONE)
        *result = x;
    else
        executor_destroy(x);
    return code;
}

void executor_destroy(struct executor *x) {
    if (x == NULL) return;
    for (int32_t i = 0; x->actors != NULL && i < x->actor_count; i++) free(x->actors[i].records);
    for (int32_t i = 0; x->ctas != NULL && i < x->cta_count; i++) {
        free(x->ctas[i].known);
        free(x->ctas[i].operands[0]);
        free(x->ctas[i].operands[1]);
    }
    for (int32_t r = 0; r < SCHEDULE_RANKS_MAX; r++) {
        struct executor_rank *rank = &x->ranks[r];
        void *pointers[] = {rank->row_peer, rank->row_route, rank->tile_expert, rank->counters, rank->slots_reduced, rank->output};
        for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) free(pointers[i]);
        row_array_free(&rank->x_ring);
        row_array_free(&rank->h_ring);
        row_array_free(&rank->y_ring);
        row_array_free(&rank->slots);
    }
    free(x->ctas);
    free(x->actors);
    free(x->launch_begin);
    free(x->launch_end);
    free(x);
}

/* --- launches -------------------------------------------------------------------------------------------------------- */

static void start_launch(struct executor *x, int32_t r) {
    struct executor_rank *rank = &x->ranks[r];
    size_t counters = (size_t)schedule_edge_counter_begin(&x->options.schedule, EDGE_COUNT);
    memset(rank->counters, 0, counters * sizeof *rank->counters);
    rank->ticket = 0;
    rank->active = 0;
    for (int32_t i = 0; i < x->cta_count; i++) {
        struct executor_cta *cta = &x->ctas[i];
        if (cta->rank != r) continue;
        memset(cta->known, 0, counters * sizeof *cta->known);
        cta->comm_left = cta->communicates ? x->options.comm_warps : 0;
        cta->computes = 0;
        cta->tickets_given = cta->tickets_taken = cta->tasks_put = cta->ended = cta->loads_begun = cta->landed = 0;
        memset(cta->tasks_taken, 0, sizeof cta->tasks_taken);
        for (int g = 0; g < EXECUTOR_GROUPS; g++)
            cta->mma_begun[g] = cta->targets_free[g] = cta->tiles_stored[g] = 0;
    }
    x->launch_begin[r * x->options.launches + rank->launch] = x->now;
    for (int32_t i = 0; i < x->actor_count; i++) {
        struct actor *a = &x->actors[i];
        if (a->rank != r) continue;
        struct actor fresh = {.kind = a->kind, .rank = r, .cta = a->cta, .index = a->index, .opened = -1, .records = a->records,
                              .record_count = a->record_count, .record_capacity = a->record_capacity};
        *a = fresh;
        a->cursor = schedule_cursor_begin();
        a->time = x->now + 1 + executor_random(x, 500);
        if (a->kind == ACTOR_ENTRY) a->opened = x->now;
    }
}

static void check_counters(struct executor *x, int32_t r) {
    const struct schedule *s = &x->options.schedule;
    const struct executor_rank *rank = &x->ranks[r];
    for (int32_t e = 0; e < EDGE_COUNT; e++) {
        for (int32_t i = 0; i < schedule_edge_counter_count(s, (enum edge)e); i++) {
            uint32_t epoch = (uint32_t)rank->launch + 1, target = schedule_edge_target(s, rank->total_rows, (enum edge)e, i, epoch);
            uint32_t value = rank->counters[schedule_edge_counter_begin(s, e) + i];
            /* A peer may have started the next launch, hence raised this rank's flag once more. */
            if (e == EDGE_RANK_START) value = rank->started[i] < epoch ? rank->started[i] : epoch;
            if (e == EDGE_RANK_DONE) value = rank->pushed[i];
            if (value == target || x->problem.code != ERROR_NONE) continue;
            error_set(&x->problem, ERROR_FAILURE, "launch %d: rank %d's counter %s[%d] ended on %u, its target is %u", rank->launch, r,
                      schedule_edge_name((enum edge)e), i, value, target);
        }
    }
}

static int rank_done(const struct executor *x, int32_t r) {
    for (int32_t i = 0; i < x->actor_count; i++)
        if (x->actors[i].rank == r && !x->actors[i].done) return 0;
    return 1;
}

static void end_launch(struct executor *x, int32_t r) {
    struct executor_rank *rank = &x->ranks[r];
    check_counters(x, r);
    x->launch_end[r * x->options.launches + rank->launch] = x->now;
    if (rank->launch + 1 < x->options.launches) {
        rank->launch += 1;
        start_launch(x, r);
    } else {
        rank->finished = 1;
    }
    executor_wake(x);
}

/* Who waits for what, a few of them. */
static void report_deadlock(struct executor *x) {
    char text[480], name[64];
    int length = 0, shown = 0, blocked = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < x->actor_count; i++) {
        const struct actor *a = &x->actors[i];
        if (a->done || !a->blocked) continue;
        blocked++;
        int is_counter = a->wait_edge >= 0 && schedule_edge_scope((enum edge)a->wait_edge) != EDGE_SCOPE_CTA;
        /* Waits for x ring rows and for the end of the rank follow from others: those say more. */
        if (!is_counter || !x->ranks[a->rank].active || shown == 4 || length > 380) continue;
        if (a->wait_edge == EDGE_X_FREE || a->wait_edge == EDGE_PUSHED) continue;
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%s for %s[%d] to reach %u, sees %u", shown > 0 ? "; " : "",
                           executor_actor_name(x, a, name, sizeof name), schedule_edge_name((enum edge)a->wait_edge), a->wait_index,
                           a->wait_target, a->wait_seen);
        shown++;
    }
    if (x->problem.code == ERROR_NONE)
        error_set(&x->problem, ERROR_FAILURE, "deadlock, %d actors wait: %s", blocked, shown > 0 ? text : "none of them for a counter");
}

/* The actor whose turn it is; NULL: nobody can go on. */
static struct actor *next_actor(struct executor *x) {
    struct actor *next = NULL;
    for (int32_t i = 0; i < x->actor_count; i++) {
        struct actor *a = &x->actors[i];
        if (!a->done && a->time >= 0 && (next == NULL || a->time < next->time)) next = a;
    }
    return next;
}

int executor_run(struct executor *x, struct error *error) {
    int32_t ranks = x->options.schedule.shape.rank_count, running = ranks;
    for (int32_t r = 0; r < ranks; r++) start_launch(x, r);
    while (running > 0 && x->problem.code == ERROR_NONE) {
        struct actor *a = next_actor(x);
        if (a == NULL) {
            report_deadlock(x);
            break;
        }
        x->now = a->time > x->now ? a->time : x->now;
        a->time = -1;
        x->counts.steps += 1;
        actor_step(x, a);
        if (!a->done || !rank_done(x, a->rank)) continue;
        end_launch(x, a->rank);
        running -= x->ranks[a->rank].finished;
    }
    x->counts.time_ns = x->now;
    if (x->problem.code == ERROR_NONE) return ERROR_NONE;
    if (error != NULL) *error = x->problem;
    return x->problem.code;
}

const uint16_t *executor_output(const struct executor *x, int32_t rank) { return x->ranks[rank].output; }

struct executor_counts executor_count(const struct executor *x) { return x->counts; }
