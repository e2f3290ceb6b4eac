/* The schedule does not deadlock: the graph of all ranks' tasks, with edges, slot reuse, rank barriers and the program order of
 * every executor, has no cycle, whoever draws which ticket. Random cases, and plants that must be found.
 *
 * A node happens when all nodes that it depends on have. Tasks are strict: a task waits for everything it ever waits for, runs, and
 * signals, before its executor goes on. The kernel overlaps these steps between tasks but keeps their order, so each of its
 * dependencies is implied here. Executors:
 *   warp   of a communication CTA: every n-th task of the communication order
 *   unit   a pair of computing CTAs, or one alone: the tickets it drew, increasing. Both tasks of a pair are one node, as the CTAs
 *          share operands: neither goes on without the other's inputs. A unit of communication CTAs begins after their last tasks */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule_cases.h"

enum { CASES = 1000, WARPS = 2, CTAS_MAX = 16 };

/* --- graph ----------------------------------------------------------------------------------------------------------- */

struct arc {
    int32_t from, to;
};

/* What a node is, for messages. */
struct node {
    const char *what;
    int32_t rank, first, second;
};

struct graph {
    struct node *nodes;
    struct arc *arcs;
    int32_t node_count, node_capacity;
    size_t arc_count, arc_capacity;
};

static int32_t graph_node(struct graph *g, const char *what, int32_t rank, int32_t first, int32_t second) {
    if (g->node_count == g->node_capacity) {
        g->node_capacity = 2 * g->node_capacity + 256;
        g->nodes = realloc(g->nodes, (size_t)g->node_capacity * sizeof *g->nodes);
    }
    g->nodes[g->node_count] = (struct node){what, rank, first, second};
    return g->node_count++;
}

/* `to` happens after `from`. */
static void graph_arc(struct graph *g, int32_t from, int32_t to) {
    if (g->arc_count == g->arc_capacity) {
        g->arc_capacity = 2 * g->arc_capacity + 1024;
        g->arcs = realloc(g->arcs, g->arc_capacity * sizeof *g->arcs);
    }
    g->arcs[g->arc_count++] = (struct arc){from, to};
}

static void graph_free(struct graph *g) {
    free(g->nodes);
    free(g->arcs);
}

/* Arcs in order of `from`: begins [nodes + 1], targets [arcs]. */
static void graph_index(const struct graph *g, size_t *begins, int32_t *targets) {
    memset(begins, 0, ((size_t)g->node_count + 2) * sizeof *begins);
    for (size_t i = 0; i < g->arc_count; i++) begins[g->arcs[i].from + 2]++;
    for (int32_t n = 0; n < g->node_count; n++) begins[n + 2] += begins[n + 1];
    for (size_t i = 0; i < g->arc_count; i++) targets[begins[g->arcs[i].from + 1]++] = g->arcs[i].to;
}

/* Happens everything? Takes nodes whose dependencies have all happened, as long as there are any (Kahn 1962). Returns how many never
 * happen, waiting [nodes] how many dependencies each of these still misses. */
static int32_t graph_sort(const struct graph *g, int32_t *waiting) {
    size_t *begins = malloc(((size_t)g->node_count + 2) * sizeof *begins);
    int32_t *targets = malloc((g->arc_count + 1) * sizeof *targets), *ready = malloc(((size_t)g->node_count + 1) * sizeof *ready);
    int32_t ready_count = 0, taken = 0;
    graph_index(g, begins, targets);
    memset(waiting, 0, (size_t)g->node_count * sizeof *waiting);
    for (size_t i = 0; i < g->arc_count; i++) waiting[g->arcs[i].to]++;
    for (int32_t n = 0; n < g->node_count; n++)
        if (waiting[n] == 0) ready[ready_count++] = n;
    while (taken < ready_count) {
        int32_t node = ready[taken++];
        for (size_t i = begins[node]; i < begins[node + 1]; i++)
            if (--waiting[targets[i]] == 0) ready[ready_count++] = targets[i];
    }
    free(begins);
    free(targets);
    free(ready);
    return g->node_count - taken;
}

/* A cycle among the nodes that never happen: back along missing dependencies until a node comes again. */
static void graph_print_cycle(const struct graph *g, const int32_t *waiting) {
    int32_t node = 0, *from = calloc((size_t)g->node_count, sizeof *from), *visits = calloc((size_t)g->node_count, sizeof *visits);
    for (size_t i = 0; i < g->arc_count; i++)
        if (waiting[g->arcs[i].from] > 0 && waiting[g->arcs[i].to] > 0) from[g->arcs[i].to] = g->arcs[i].from;
    while (waiting[node] == 0) node++;
    while (visits[node] < 2) {
        if (visits[node] == 1)
            fprintf(stderr, "  %s %d %d of rank %d, which waits for\n", g->nodes[node].what, g->nodes[node].first, g->nodes[node].second,
                    g->nodes[node].rank);
        visits[node]++;
        node = from[node];
    }
    free(from);
    free(visits);
}

/* --- a case as a graph ----------------------------------------------------------------------------------------------- */

/* How tickets are drawn. */
enum draw { DRAW_ROUND, DRAW_RANDOM, DRAW_GREEDY, DRAW_RUNS, DRAW_COUNT };

/* What can be planted. */
struct plant {
    int32_t combine_early; /* minibatches by which combine comes too early */
    int32_t backwards;     /* 1: the first warp of rank 0 takes its tasks in decreasing order */
    int32_t start_late;    /* 1: rank 0 tells its peers that it has started only when its tasks are done */
};

struct builder {
    struct graph graph;
    const struct schedule_case *c;
    struct plant plant;
    struct random_source source;
    enum draw draw;
    int32_t start[SCHEDULE_RANKS_MAX], finish[SCHEDULE_RANKS_MAX];
    int32_t run[SCHEDULE_RANKS_MAX][CTAS_MAX];  /* node: the CTA has its routing table */
    int32_t last[SCHEDULE_RANKS_MAX][CTAS_MAX]; /* node: the CTA's roles are through */
    int32_t *counters;                          /* node: counter is on its target; of the current rank */
};

static int32_t counter_node(const struct builder *b, int32_t edge, int32_t index) {
    assert_in_range(index, 0, schedule_edge_counter_count(&b->c->schedule, (enum edge)edge) - 1);
    return b->counters[schedule_edge_counter_begin(&b->c->schedule, edge) + index];
}

static void add_wait(struct builder *b, struct schedule_wait wait, int32_t node) {
    if (wait.edge >= 0) graph_arc(&b->graph, counter_node(b, wait.edge, wait.index), node);
}

static void add_signal(struct builder *b, struct schedule_wait signal, int32_t node) {
    if (signal.edge >= 0) graph_arc(&b->graph, node, counter_node(b, signal.edge, signal.index));
}

/* What a task waits for and signals, at this node. */
static void add_task(struct builder *b, int32_t rank, const struct schedule_task *task, int32_t node) {
    const struct schedule *s = &b->c->schedule;
    add_wait(b, schedule_task_input(s, task), node);
    add_wait(b, schedule_task_second_input(s, task), node);
    add_wait(b, schedule_task_slot(s, task), node);
    add_signal(b, schedule_task_output(s, task), node);
    add_signal(b, schedule_task_release(s, task), node);
    if (task->phase == PHASE_DGRAD_DOWN) {
        struct schedule_wait expert = {EDGE_EXPERT_READY, case_tile_expert(b->c, rank, task->tile_row)};
        add_signal(b, expert, node);
    }
}

/* Rank barrier and routing table: start of every rank, then two barriers of the rank's CTAs. */
static void add_entries(struct builder *b) {
    const struct schedule *s = &b->c->schedule;
    struct graph *g = &b->graph;
    for (int32_t rank = 0; rank < s->shape.rank_count; rank++) {
        b->start[rank] = graph_node(g, "start", rank, 0, 0);
        b->finish[rank] = graph_node(g, "finish", rank, 0, 0);
    }
    for (int32_t rank = 0; rank < s->shape.rank_count; rank++) {
        int32_t counted = graph_node(g, "routes counted", rank, 0, 0), placed = graph_node(g, "routes placed", rank, 0, 0);
        for (int32_t cta = 0; cta < s->rank_ctas; cta++) {
            int32_t count = graph_node(g, "count of cta", rank, cta, 0), place = graph_node(g, "place of cta", rank, cta, 0);
            b->run[rank][cta] = graph_node(g, "run of cta", rank, cta, 0);
            b->last[rank][cta] = graph_node(g, "last of cta", rank, cta, 0);
            for (int32_t peer = 0; peer < s->shape.rank_count; peer++) graph_arc(g, b->start[peer], count);
            graph_arc(g, count, counted);
            graph_arc(g, counted, place);
            graph_arc(g, place, placed);
            graph_arc(g, placed, b->run[rank][cta]);
        }
    }
}

/* Strided over the warps of all communication CTAs; `last` of a CTA follows all its warps. */
static void add_comm(struct builder *b, int32_t rank) {
    const struct schedule *s = &b->c->schedule;
    struct schedule_order order = schedule_comm_order(s, b->c->total_rows[rank]);
    int32_t workers = s->knobs.comm_sms * WARPS;
    if (order.stage_count == 2) order.stages[1].lag = schedule_maximum(0, order.stages[1].lag - b->plant.combine_early);
    int32_t count = schedule_order_task_count(&order);
    for (int32_t worker = 0; worker < workers; worker++) {
        int32_t cta = worker / WARPS, before = b->run[rank][cta], mine = worker < count ? (count - 1 - worker) / workers + 1 : 0;
        for (int32_t i = 0; i < mine; i++) {
            int32_t index = worker + (b->plant.backwards && rank == 0 && worker == 0 ? mine - 1 - i : i) * workers;
            struct schedule_task task = schedule_order_task(&order, index);
            int32_t node = graph_node(&b->graph, task.phase == PHASE_DISPATCH ? "dispatch" : "combine", rank, task.minibatch, task.tile_row);
            graph_arc(&b->graph, before, node);
            add_task(b, rank, &task, node);
            before = node;
        }
        graph_arc(&b->graph, before, b->last[rank][cta]);
    }
}

/* A computing CTA or two. */
struct unit {
    int32_t first_cta, cta_count, joins; /* joins: of communication CTAs */
    int32_t before;                      /* node of its last task so far */
};

/* As kernels/roles/cta.cuh pairs CTAs. */
static int32_t make_units(struct builder *b, int32_t rank, struct unit *units) {
    const struct schedule *s = &b->c->schedule;
    int32_t count = 0, comm = s->knobs.comm_sms, join = s->pass == PASS_BACKWARD || s->knobs.combine == COMBINE_DIRECT;
    for (int32_t cta = 0; cta < s->rank_ctas; cta++) {
        int32_t joins = cta < comm;
        if (joins && !(join && (cta | 1) < comm)) continue;
        int32_t pair = cta % 2 == 0 && cta + 1 < s->rank_ctas;
        int32_t begin = graph_node(&b->graph, "begin of unit", rank, cta, 0);
        for (int32_t member = cta; member <= cta + pair; member++)
            graph_arc(&b->graph, joins ? b->last[rank][member] : b->run[rank][member], begin);
        units[count++] = (struct unit){cta, 1 + pair, joins, begin};
        cta += pair;
    }
    return count;
}

/* Units may draw any ticket, except that one of communication CTAs comes when all its dispatches are done, for which the gate+up
 * tiles of all minibatches that give up ring slots have been drawn: those stand before step `minibatches - ring`. */
static int32_t draw_unit(struct builder *b, const struct unit *units, int32_t unit_count, int32_t ticket, int32_t joined) {
    int32_t allowed[CTAS_MAX], count = 0;
    for (int32_t i = 0; i < unit_count; i++)
        if (joined || !units[i].joins) allowed[count++] = i;
    switch (b->draw) {
    case DRAW_ROUND: return allowed[ticket % count];
    case DRAW_GREEDY: return allowed[random_below(&b->source, 20) == 0 ? (int32_t)random_below(&b->source, (uint64_t)count) : 0];
    case DRAW_RUNS: return allowed[ticket / 7 % count];
    default: return allowed[random_below(&b->source, (uint64_t)count)];
    }
}

static void add_compute(struct builder *b, int32_t rank) {
    const struct schedule *s = &b->c->schedule;
    struct schedule_order order = schedule_compute_order(s, b->c->total_rows[rank]);
    struct unit units[CTAS_MAX];
    int32_t unit_count = make_units(b, rank, units);
    int32_t minibatches = schedule_minibatch_count(s, b->c->total_rows[rank]);
    int32_t free_step = s->pass == PASS_BACKWARD ? 0 : schedule_maximum(0, minibatches - schedule_ring_minibatches(s));
    int32_t joined_from = schedule_order_step_pairs(&order, free_step);
    for (int32_t ticket = 0; ticket < schedule_order_pair_count(&order); ticket++) {
        struct schedule_pair pair = schedule_order_pair(&order, ticket);
        struct unit *unit = &units[draw_unit(b, units, unit_count, ticket, ticket >= joined_from)];
        for (int32_t i = 0; i < pair.count; i++) {
            struct schedule_task task = schedule_order_task(&order, pair.first + i);
            int32_t node = unit->before;
            if (i == 0 || unit->cta_count == 1) {
                node = graph_node(&b->graph, "phase and ticket", rank, task.phase, ticket);
                graph_arc(&b->graph, unit->before, node);
                unit->before = node;
            }
            add_task(b, rank, &task, node);
        }
    }
    for (int32_t i = 0; i < unit_count; i++)
        for (int32_t cta = units[i].first_cta; cta < units[i].first_cta + units[i].cta_count; cta++) {
            int32_t end = graph_node(&b->graph, "end of cta", rank, cta, 0);
            graph_arc(&b->graph, units[i].before, end);
            for (int32_t peer = 0; peer < s->shape.rank_count; peer++) graph_arc(&b->graph, b->finish[peer], end);
        }
}

/* All that pushes, then the peers may reduce. A communication CTA that does not join finishes after its own tasks. */
static void add_finish(struct builder *b, int32_t rank) {
    const struct schedule *s = &b->c->schedule;
    graph_arc(&b->graph, counter_node(b, EDGE_PUSHED, 0), b->finish[rank]);
    graph_arc(&b->graph, b->last[rank][0], b->finish[rank]);
    for (int32_t cta = 0; cta < s->knobs.comm_sms; cta++) {
        int32_t reduce = graph_node(&b->graph, "reduce of cta", rank, cta, 0);
        graph_arc(&b->graph, b->last[rank][cta], reduce);
        for (int32_t peer = 0; peer < s->shape.rank_count; peer++) graph_arc(&b->graph, b->finish[peer], reduce);
    }
    if (b->plant.start_late && rank == 0) graph_arc(&b->graph, b->last[0][0], b->start[0]);
}

static struct graph build(const struct schedule_case *c, enum draw draw, struct plant plant) {
    struct builder b = {.c = c, .plant = plant, .source = random_seeded(c->seed + 1), .draw = draw};
    const struct schedule *s = &c->schedule;
    size_t counters = (size_t)schedule_edge_counter_begin(s, EDGE_COUNT);
    assert_in_range(s->rank_ctas, 2, CTAS_MAX);
    b.counters = malloc(counters * sizeof *b.counters);
    add_entries(&b);
    for (int32_t rank = 0; rank < s->shape.rank_count; rank++) {
        size_t next = 0;
        for (int32_t edge = 0; edge < EDGE_COUNT; edge++)
            for (int32_t i = 0; i < schedule_edge_counter_count(s, (enum edge)edge); i++)
                b.counters[next++] = graph_node(&b.graph, schedule_edge_name((enum edge)edge), rank, i, 0);
        add_comm(&b, rank);
        add_compute(&b, rank);
        add_finish(&b, rank);
    }
    free(b.counters);
    return b.graph;
}

/* Nodes that never happen. */
static int32_t deadlocked(const struct schedule_case *c, enum draw draw, struct plant plant, int print) {
    struct graph g = build(c, draw, plant);
    int32_t *waiting = malloc((size_t)g.node_count * sizeof *waiting), count = graph_sort(&g, waiting);
    if (count > 0 && print) graph_print_cycle(&g, waiting);
    free(waiting);
    graph_free(&g);
    return count;
}

/* --- tests ----------------------------------------------------------------------------------------------------------- */

static const struct plant nothing = {0, 0, 0};

static void check_free(const struct schedule_case *c, const char *what) {
    assert_int_equal(schedule_check(&c->schedule, c->schedule.rank_ctas), SCHEDULE_OK);
    for (int draw = 0; draw < DRAW_COUNT; draw++)
        if (deadlocked(c, (enum draw)draw, nothing, 1) > 0) fail_msg("seed %llu, %s, draw %d: a cycle", (unsigned long long)c->seed, what, draw);
}

static void random_schedules_have_no_cycle(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct schedule_case c = case_make(seed, seed % 2 ? PASS_BACKWARD : PASS_FORWARD);
        check_free(&c, "random");
    }
}

/* One computing CTA and one communicating, then one more of each kind at a time; every lag the ring allows, both combine paths. */
static void any_number_of_executors_will_do(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct schedule_case c = case_make(1000 + seed, seed % 3 == 2 ? PASS_BACKWARD : PASS_FORWARD);
        struct schedule_knobs *knobs = &c.schedule.knobs;
        for (int32_t variant = 0; variant < 2 * 4 * 5; variant++) {
            int32_t comm = variant / 2 % 4 + 1, ctas = schedule_maximum(2, comm + variant / 8 + 1 + (comm > 1));
            knobs->combine = variant % 2;
            knobs->comm_sms = comm;
            c.schedule.rank_ctas = ctas;
            for (knobs->lag = 0; knobs->lag < schedule_ring_minibatches(&c.schedule); knobs->lag++) check_free(&c, "executors");
        }
    }
}

/* Unequal ranks: one holds all rows, some experts or ranks have none, everything was dropped. */
static void extreme_rows_have_no_cycle(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct schedule_case c = case_make(2000 + seed, seed % 2 ? PASS_BACKWARD : PASS_FORWARD);
        const struct schedule *s = &c.schedule;
        int32_t tiles = s->knobs.capacity_rows / s->tile.rows, failed, kind = (int32_t)seed / 2 % 3;
        for (int32_t rank = 0; rank < s->shape.rank_count; rank++) {
            memset(&c.rows[rank], 0, sizeof c.rows[rank]);
            if (kind == 1 && rank == 0) c.rows[rank].expert_rows[0] = tiles * s->tile.rows;
            if (kind == 2) c.rows[rank].expert_rows[schedule_local_experts(&s->shape) - 1] = (rank + 1) % 2 * tiles * s->tile.rows;
            assert_int_equal(schedule_rows_prefix(s, &c.rows[rank], &failed), SCHEDULE_OK);
            c.total_rows[rank] = schedule_total_rows(s, &c.rows[rank]);
        }
        check_free(&c, "extreme");
    }
}

/* A case with work for many minibatches: one rank or several, one CTA of each kind, a ring of `ring` minibatches. */
static struct schedule_case long_case(int32_t ranks, int32_t ring, int32_t lag, int32_t combine) {
    struct schedule_case c = {.seed = 77};
    struct schedule *s = &c.schedule;
    s->shape = (struct layer_shape){ranks, 1, 64, 16, 8, 1, 0};
    s->tile = (struct schedule_tile){4, 4, 8, 2};
    s->knobs = (struct schedule_knobs){1, 8, 8 * ring, lag, combine, 0, 0};
    s->rank_ctas = 2;
    s->knobs.capacity_rows = (int32_t)schedule_capacity_rows_safe(&s->shape, &s->tile);
    for (int32_t rank = 0; rank < ranks; rank++) {
        int32_t failed;
        c.rows[rank].expert_rows[0] = 64;
        assert_int_equal(schedule_rows_prefix(s, &c.rows[rank], &failed), SCHEDULE_OK);
        c.total_rows[rank] = 64;
    }
    return c;
}

/* lag = ring: gate+up of minibatch m waits for down of m - ring, which stands after it. schedule_check refuses exactly these. */
static void the_bound_of_the_lag_is_tight(void **state) {
    (void)state;
    for (int32_t ring = 1; ring <= 4; ring++)
        for (int32_t lag = 0; lag <= 5; lag++)
            for (int32_t combine = 0; combine < 2; combine++) {
                struct schedule_case c = long_case(2, ring, lag, combine);
                int refused = schedule_check(&c.schedule, 2) == SCHEDULE_BAD_LAG;
                assert_int_equal(refused, lag >= ring);
                assert_int_equal(deadlocked(&c, DRAW_ROUND, nothing, 0) > 0, refused);
            }
}

/* Combine of minibatch m needs dispatch of m + lag, because down(m) stands after gate+up(m + lag). The order lets combine trail by
 * lag + 1; by lag it still stands after that dispatch, by less before it. */
static void combining_early_is_found(void **state) {
    (void)state;
    for (int32_t lag = 1; lag < 4; lag++) {
        struct schedule_case c = long_case(1, 4, lag, COMBINE_RING);
        assert_int_equal(deadlocked(&c, DRAW_ROUND, nothing, 0), 0);
        for (int32_t early = 1; early <= lag + 1; early++) {
            struct plant plant = {.combine_early = early};
            assert_int_equal(deadlocked(&c, DRAW_ROUND, plant, 0) > 0, early > 1);
        }
    }
}

static void tasks_in_decreasing_order_are_found(void **state) {
    (void)state;
    struct schedule_case c = long_case(2, 2, 1, COMBINE_DIRECT);
    struct plant plant = {.backwards = 1};
    assert_true(deadlocked(&c, DRAW_ROUND, plant, 0) > 0);
    c.schedule.pass = PASS_BACKWARD; /* no ring: dispatch waits for nothing, in any order */
    assert_int_equal(deadlocked(&c, DRAW_ROUND, plant, 0), 0);
}

/* A rank that lets its peers begin only after its own tasks waits for itself. */
static void a_late_rank_barrier_is_found(void **state) {
    (void)state;
    struct schedule_case c = long_case(3, 2, 1, COMBINE_RING);
    struct plant plant = {.start_late = 1};
    assert_true(deadlocked(&c, DRAW_ROUND, plant, 0) > 0);
}

/* --- edges point backwards ------------------------------------------------------------------------------------------- */

/* One order that agrees with both executors' orders: in step n dispatch(n), combine(n - lag - 1), then the compute tasks of the step.
 * Lags of the backward pass are limited to the number of minibatches, as in the order itself. */
static int32_t combined_step(const struct schedule *s, const struct schedule_task *task, int32_t minibatches) {
    int32_t lag = s->knobs.lag, step = task->minibatch;
    if (task->phase == PHASE_DOWN) step += lag;
    if (task->phase == PHASE_COMBINE) step += lag + 1;
    if (task->phase == PHASE_DGRAD_DOWN) step += schedule_minimum(lag, minibatches);
    if (task->phase == PHASE_DGRAD_GATE_UP) step += schedule_minimum(2 * lag, minibatches);
    return task->minibatch < 0 ? 1 << 20 : step;
}

static int32_t combined_place(const struct schedule *s, const struct schedule_task *task, int32_t minibatches) {
    static const int32_t phases[] = {[PHASE_DISPATCH] = 0, [PHASE_COMBINE] = 1, [PHASE_GATE_UP] = 2, [PHASE_REPLAY] = 2, [PHASE_DOWN] = 3,
                                     [PHASE_DGRAD_DOWN] = 3, [PHASE_DGRAD_GATE_UP] = 4, [PHASE_WGRAD_DOWN] = 5, [PHASE_WGRAD_GATE] = 6,
                                     [PHASE_WGRAD_UP] = 7};
    return combined_step(s, task, minibatches) * 8 + phases[task->phase];
}

static void raise(int32_t *latest, const struct schedule *s, struct schedule_wait signal, int32_t place) {
    if (signal.edge < 0) return;
    int32_t at = schedule_edge_counter_begin(s, signal.edge) + signal.index;
    latest[at] = schedule_maximum(latest[at], place);
}

static void check_wait(const int32_t *latest, const struct schedule_case *c, int32_t rank, struct schedule_wait wait, int32_t place) {
    const struct schedule *s = &c->schedule;
    if (wait.edge < 0) return;
    int32_t produced = latest[schedule_edge_counter_begin(s, wait.edge) + wait.index];
    uint32_t target = wait.edge == EDGE_EXPERT_READY ? schedule_expert_target(s, &c->rows[rank], wait.index)
                                                     : schedule_edge_target(s, c->total_rows[rank], (enum edge)wait.edge, wait.index, 1);
    if (produced >= place || (produced < 0) != (target == 0))
        fail_msg("seed %llu rank %d: %s[%d] awaited at %d, complete at %d, target %u", (unsigned long long)c->seed, rank,
                 schedule_edge_name((enum edge)wait.edge), wait.index, place, produced, target);
}

static void check_backwards(const struct schedule_case *c, int32_t rank) {
    const struct schedule *s = &c->schedule;
    size_t counters = (size_t)schedule_edge_counter_begin(s, EDGE_COUNT);
    int32_t *latest = malloc(counters * sizeof *latest), minibatches = schedule_minibatch_count(s, c->total_rows[rank]);
    struct schedule_order orders[2] = {schedule_compute_order(s, c->total_rows[rank]), schedule_comm_order(s, c->total_rows[rank])};
    for (size_t i = 0; i < counters; i++) latest[i] = -1;
    for (int32_t sweep = 0; sweep < 2; sweep++)
        for (int32_t o = 0; o < 2; o++) {
            int32_t before = 0;
            for (int32_t i = 0; i < schedule_order_task_count(&orders[o]); i++) {
                struct schedule_task task = schedule_order_task(&orders[o], i);
                int32_t place = combined_place(s, &task, minibatches);
                if (task.minibatch >= 0) assert_true(place >= before); /* the combined order agrees with the executors' */
                before = place;
                if (sweep == 0) {
                    raise(latest, s, schedule_task_output(s, &task), place);
                    raise(latest, s, schedule_task_release(s, &task), place);
                    struct schedule_wait expert = {task.phase == PHASE_DGRAD_DOWN ? (int32_t)EDGE_EXPERT_READY : -1, 0};
                    if (expert.edge >= 0) expert.index = case_tile_expert(c, rank, task.tile_row);
                    raise(latest, s, expert, place);
                    continue;
                }
                check_wait(latest, c, rank, schedule_task_input(s, &task), place);
                check_wait(latest, c, rank, schedule_task_second_input(s, &task), place);
                check_wait(latest, c, rank, schedule_task_slot(s, &task), place);
            }
        }
    free(latest);
}

static void every_edge_points_backwards(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct schedule_case c = case_make(3000 + seed, seed % 2 ? PASS_BACKWARD : PASS_FORWARD);
        for (int32_t rank = 0; rank < c.schedule.shape.rank_count; rank++) check_backwards(&c, rank);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules_have_no_cycle),
        cmocka_unit_test(any_number_of_executors_will_do),
        cmocka_unit_test(extreme_rows_have_no_cycle),
        cmocka_unit_test(the_bound_of_the_lag_is_tight),
        cmocka_unit_test(combining_early_is_found),
        cmocka_unit_test(tasks_in_decreasing_order_are_found),
        cmocka_unit_test(a_late_rank_barrier_is_found),
        cmocka_unit_test(every_edge_points_backwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
