/* What the executor did, as a trace: every actor is a lane of each launch, on a virtual clock of 1 GHz. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOK_EVENTS_ROWS
#include "executor_internal.h"

#include "../probes/host/trace_write.h"

enum { TIME_BASE_NS = 1000000000 };

/* A record's begin, for the launch it belongs to, is in argument order with the actor's others: launches follow each other. */
void actor_record(struct executor *x, struct actor *a, uint32_t event, int64_t begin, uint32_t small, uint32_t argument) {
    if (event >= EVENT_WAIT_FIRST && event < EVENT_SIGNAL_FIRST) x->counts.waits += 1;
    if (a->record_count == a->record_capacity) {
        size_t capacity = a->record_capacity > 0 ? 2 * a->record_capacity : 64;
        struct mokscope_record *grown = realloc(a->records, capacity * sizeof *grown);
        if (grown == NULL) return;
        a->records = grown;
        a->record_capacity = capacity;
    }
    a->records[a->record_count++] = (struct mokscope_record){(uint32_t)begin, (uint32_t)(x->now - begin), (uint16_t)event,
                                                             (uint16_t)(small > 65535 ? 65535 : small), argument};
}

static uint32_t role_of(const struct actor *a) {
    static const uint32_t roles[] = {ROLE_ENTRY, ROLE_DISPATCH, ROLE_LOAD, ROLE_MMA, ROLE_STORE, ROLE_FINISH, ROLE_REDUCE};
    return roles[a->kind];
}

static const struct mokscope_module *module_rows(void) {
    static struct mokscope_module module;
    module.size = sizeof module;
    module.version = MOKSCOPE_PROBE_VERSION;
    module.name = "mok forward";
    module.roles = mok_role_rows;
    module.role_count = sizeof mok_role_rows / sizeof mok_role_rows[0];
    module.events = mok_event_rows;
    module.event_count = sizeof mok_event_rows / sizeof mok_event_rows[0];
    module.edges = mok_edge_rows;
    module.edge_count = sizeof mok_edge_rows / sizeof mok_edge_rows[0];
    return &module;
}

static int describe_number(struct trace_writer *w, const char *kind, const char *name, int64_t value, const char *unit, struct error *error) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return trace_write_attribute(w, kind, name, text, unit, error);
}

static int write_attributes(const struct executor *x, struct trace_writer *w, struct error *error) {
    const struct schedule *s = &x->options.schedule;
    const struct {
        const char *kind, *name, *unit;
        int64_t value;
    } rows[] = {{"shape", "ranks", "", s->shape.rank_count}, {"shape", "experts_per_rank", "", s->shape.experts_per_rank},
                {"shape", "tokens", "tokens a rank", s->shape.tokens}, {"shape", "hidden", "columns", s->shape.hidden},
                {"shape", "intermediate", "columns", s->shape.intermediate}, {"shape", "top_k", "", s->shape.top_k},
                {"knob", "rank_ctas", "CTAs", x->options.rank_ctas}, {"knob", "comm_sms", "CTAs", s->knobs.comm_sms},
                {"knob", "minibatch_rows", "rows", s->knobs.minibatch_rows}, {"knob", "ring_rows", "rows", s->knobs.ring_rows},
                {"knob", "lag", "minibatches", s->knobs.lag}, {"knob", "tile_rows", "rows", s->tile.rows}};
    int code = ERROR_NONE;
    for (size_t i = 0; code == ERROR_NONE && i < sizeof rows / sizeof rows[0]; i++)
        code = describe_number(w, rows[i].kind, rows[i].name, rows[i].value, rows[i].unit, error);
    if (code == ERROR_NONE) code = trace_write_attribute(w, "knob", "combine", s->knobs.combine == COMBINE_RING ? "ring" : "direct", "", error);
    if (code == ERROR_NONE) code = trace_write_attribute(w, "shape", "pass", "forward", "", error);
    return code;
}

static struct mokscope_task_row task_row(const struct executor *x, int32_t r, const struct schedule_task *task, int32_t id) {
    static const char *const phases[] = {"dispatch", "gate+up", "down", "combine"};
    const struct schedule *s = &x->options.schedule;
    const struct executor_rank *rank = &x->ranks[r];
    int communication = task->phase == PHASE_DISPATCH || task->phase == PHASE_COMBINE;
    int32_t height = communication ? s->tile.unit_rows : s->tile.rows, rows = 0;
    for (int32_t i = 0; i < height; i++) rows += rank->row_peer[task->tile_row * height + i] >= 0;
    struct mokscope_task_row row = {.rank = r, .task_id = id, .phase = phases[task->phase], .minibatch = task->minibatch};
    row.expert = r * s->shape.experts_per_rank + rank->tile_expert[task->tile_row * height / s->tile.rows];
    row.tile_row = task->tile_row;
    row.tile_column = task->tile_column;
    row.row_count = rows;
    row.padding_rows = height - rows;
    if (task->phase == PHASE_GATE_UP) row.flops = 4LL * rows * s->tile.gate_up_columns * s->shape.hidden;
    if (task->phase == PHASE_DOWN) row.flops = 2LL * rows * s->tile.down_columns * s->shape.intermediate;
    if (communication) row.bytes = 2LL * rows * s->shape.hidden;
    return row;
}

static int write_tasks(const struct executor *x, struct trace_writer *w, int32_t r, struct error *error) {
    const struct schedule *s = &x->options.schedule;
    const struct executor_rank *rank = &x->ranks[r];
    int32_t compute = schedule_order_task_count(&rank->compute), comm = schedule_order_task_count(&rank->comm);
    struct mokscope_task_row *rows = calloc((size_t)(compute + comm) + 1, sizeof *rows);
    if (rows == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; i < compute + comm; i++) {
        struct schedule_task task = i < compute ? schedule_order_task(&rank->compute, i) : schedule_order_task(&rank->comm, i - compute);
        rows[i] = task_row(x, r, &task, i < compute ? schedule_compute_task_id(s, i) : schedule_comm_task_id(s, &rank->compute, i - compute));
    }
    int code = trace_write_tasks(w, rows, (size_t)(compute + comm), error);
    free(rows);
    for (int32_t e = 0; code == ERROR_NONE && e < EDGE_COUNT; e++) {
        for (int32_t i = 0; code == ERROR_NONE && i < schedule_edge_counter_count(s, (enum edge)e); i++) {
            struct mokscope_target_row target = {NULL, r, e, (uint32_t)i, schedule_edge_target(s, rank->total_rows, (enum edge)e, i, 1)};
            if (target.target > 0) code = trace_write_targets(w, &target, 1, error);
        }
    }
    return code;
}

/* Records of the actor that begin in [begin, end], as one lane. */
static int write_lane(const struct executor *x, struct trace_writer *w, const struct actor *a, int64_t launch_id, int64_t grid, int64_t begin,
                      int64_t end, struct error *error) {
    struct mokscope_record *records;
    size_t count = 0, capacity = 2;
    for (size_t i = 0; i < a->record_count; i++) count += a->records[i].begin_clock >= begin && a->records[i].begin_clock <= end;
    while (capacity < count) capacity *= 2;
    records = calloc(capacity, sizeof *records);
    if (records == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (size_t i = 0, n = 0; i < a->record_count; i++)
        if (a->records[i].begin_clock >= begin && a->records[i].begin_clock <= end) records[n++] = a->records[i];
    const struct executor_cta *cta = &x->ctas[a->cta];
    struct mokscope_lane_header header = {.state = MOKSCOPE_LANE_CLOSED, .count = (uint32_t)count, .grid_id = (uint64_t)grid};
    header.clock_begin = (uint64_t)begin;
    header.clock_end = (uint64_t)end;
    header.globaltimer_begin = (uint64_t)(TIME_BASE_NS + begin);
    header.globaltimer_end = (uint64_t)(TIME_BASE_NS + end);
    header.cta = (uint32_t)cta->cta;
    header.cluster = (uint32_t)a->cta / 2;
    header.rank = (uint32_t)a->rank;
    header.role = role_of(a);
    header.warp = (uint32_t)a->kind * 4u + (uint32_t)a->index;
    header.sm_begin = header.sm_end = (uint32_t)a->cta;
    int code = trace_write_lane(w, launch_id, &header, records, (uint32_t)capacity, error);
    free(records);
    return code;
}

static int write_launch(const struct executor *x, struct trace_writer *w, int32_t r, int32_t launch, int32_t module, struct error *error) {
    int64_t begin = x->launch_begin[r * x->options.launches + launch], end = x->launch_end[r * x->options.launches + launch];
    int64_t grid = launch * x->options.schedule.shape.rank_count + r + 1, launch_id = 0, kernel_id = 0;
    struct trace_kernel kernel = {.stream_id = (uint32_t)r, .correlation_id = (uint32_t)grid, .grid_id = grid, .name = "executor",
                                  .begin_ns = TIME_BASE_NS + begin, .end_ns = TIME_BASE_NS + end, .grid = {x->options.rank_ctas, 1, 1},
                                  .block = {384, 1, 1}};
    int code = trace_write_launch(w, 0, module, (uint64_t)grid, &launch_id, error);
    if (code == ERROR_NONE) code = trace_write_kernel(w, &kernel, &kernel_id, error);
    if (code == ERROR_NONE) code = trace_write_launch_kernel(w, launch_id, kernel_id, error);
    for (int32_t i = 0; code == ERROR_NONE && i < x->actor_count; i++)
        if (x->actors[i].rank == r) code = write_lane(x, w, &x->actors[i], launch_id, grid, begin, end, error);
    return code;
}

static int write_all(const struct executor *x, struct trace_writer *w, struct error *error) {
    struct trace_device device = {.name = "executor, virtual time", .sm_count = x->cta_count, .sm_clock_khz = 1000000, .globaltimer_step_ns = 1};
    int32_t module = 0;
    int code = trace_write_device(w, &device, error);
    if (code == ERROR_NONE) code = trace_write_module(w, module_rows(), &module, error);
    if (code == ERROR_NONE) code = write_attributes(x, w, error);
    for (int32_t r = 0; code == ERROR_NONE && r < x->options.schedule.shape.rank_count; r++) {
        code = trace_write_rank(w, r, 0, 0, error);
        if (code == ERROR_NONE) code = write_tasks(x, w, r, error);
    }
    for (int32_t l = 0; code == ERROR_NONE && l < x->options.launches; l++)
        for (int32_t r = 0; code == ERROR_NONE && r < x->options.schedule.shape.rank_count; r++) code = write_launch(x, w, r, l, module, error);
    return code;
}

int executor_write_trace(const struct executor *x, const char *path, int overwrite, const char *command, struct error *error) {
    struct trace_writer *writer = NULL;
    struct trace_run run = {.producer = "executor", .command = command};
    int code = trace_write_open(&writer, path, overwrite, &run, error);
    if (code != ERROR_NONE) return code;
    code = write_all(x, writer, error);
    if (code == ERROR_NONE) return trace_write_close(writer, "complete", 0, error);
    trace_write_abandon(writer);
    remove(path);
    return code;
}
