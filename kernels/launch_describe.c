/* What the recorder is told about a layer: shape and knobs as attributes, every task of the last pass, every counter's target. */
#include "launch_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "../probes/mokscope_describe.h"

static void describe_number(const char *kind, const char *name, int64_t value, const char *unit) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    mokscope_describe_attribute(kind, name, text, unit);
}

static void describe_options(const struct mok_layer *layer) {
    const struct mok_options *o = &layer->options;
    int registers = 0, shared_bytes = 0;
    describe_number("shape", "ranks", o->ranks, "");
    describe_number("shape", "experts_per_rank", o->experts_per_rank, "");
    describe_number("shape", "tokens", o->tokens, "tokens a rank");
    describe_number("shape", "hidden", o->hidden, "columns");
    describe_number("shape", "intermediate", o->intermediate, "columns");
    describe_number("shape", "top_k", o->top_k, "");
    describe_number("shape", "shared_experts", o->shared_experts, "");
    describe_number("knob", "rank_ctas", o->rank_ctas, "CTAs");
    describe_number("knob", "comm_sms", o->comm_sms, "CTAs");
    describe_number("knob", "minibatch_rows", o->minibatch_rows, "rows");
    describe_number("knob", "ring_rows", o->ring_rows, "rows");
    describe_number("knob", "lag", o->lag, "minibatches");
    describe_number("knob", "capacity_rows", o->capacity_rows, "rows");
    if (o->backward) describe_number("knob", "saved_rows", layer->arguments.schedule.knobs.saved_rows, "rows");
    if (o->backward) mokscope_describe_attribute("knob", "weight_gradients", o->accumulate ? "fp32 accumulated" : "bf16", "");
    mokscope_describe_attribute("knob", "combine", o->combine_ring ? "ring" : "direct", "");
    mokscope_describe_attribute("knob", "launch", o->one_launch ? "one" : "separate", "");
    mokscope_describe_attribute("shape", "pass", o->backward ? "forward+backward" : "forward", "");
    mokscope_describe_attribute("shape", "precision", "bf16", "");
    describe_number("knob", "tile_rows", TILE_ROWS, "rows");
    describe_number("knob", "tile_columns", TILE_N, "columns");
    describe_number("knob", "k_block", K_BLOCK, "columns");
    describe_number("knob", "stages", STAGE_COUNT, "");
    if (forward_describe(&registers, &shared_bytes) == 0) {
        describe_number("version", "kernel_registers", registers, "a thread");
        describe_number("version", "kernel_shared_bytes", shared_bytes, "bytes a CTA");
    }
}

static void describe_routing(const struct mok_layer *layer) {
    const struct layer_shape *shape = &layer->arguments.schedule.shape;
    for (int32_t rank = 0; rank < shape->rank_count; rank++) {
        for (int32_t e = 0; e < shape->experts_per_rank; e++) {
            char name[48];
            snprintf(name, sizeof name, "rows_expert_%03d", rank * shape->experts_per_rank + e);
            describe_number("routing", name, layer->tables[rank].rows.expert_rows[shape->shared_experts + e], "rows");
        }
    }
}

/* Rows of [first, first + count) that carry a route, and whether they belong to one expert (else -1). */
static int32_t count_rows(const struct routing_table *table, int32_t experts, int32_t first, int32_t count, int32_t *expert) {
    int32_t rows = 0;
    *expert = -1;
    for (int32_t e = 0; e < experts; e++) {
        int32_t begin = table->rows.expert_row_begin[e], end = begin + table->rows.expert_rows[e];
        int32_t low = schedule_maximum(begin, first), high = schedule_minimum(end, first + count);
        if (first >= begin && first < table->rows.expert_row_begin[e + 1]) *expert = e;
        if (high > low) rows += high - low;
    }
    return rows;
}

/* Useful floating-point operations of a tile with this many rows (wgrad: length of K). Replay counts, though a pass that saved
 * everything would not need it. */
static int64_t task_flops(const struct layer_shape *shape, int32_t phase, int64_t rows) {
    switch (phase) {
    case PHASE_GATE_UP:
    case PHASE_REPLAY: return 4 * rows * GATE_UP_TILE_COLUMNS * shape->hidden;
    case PHASE_DOWN: return 2 * rows * DOWN_TILE_COLUMNS * shape->intermediate;
    case PHASE_DGRAD_DOWN: return 2 * rows * TILE_N * shape->hidden;
    case PHASE_DGRAD_GATE_UP: return 4 * rows * TILE_N * shape->intermediate;
    case PHASE_WGRAD_DOWN:
    case PHASE_WGRAD_GATE:
    case PHASE_WGRAD_UP: return 2 * rows * TILE_ROWS * TILE_N;
    default: return 0;
    }
}

/* Model's id of a local expert; shared ones follow after the routed ones. */
static int32_t model_expert(const struct layer_shape *shape, int32_t rank, int32_t local) {
    if (local < 0) return -1;
    if (local < shape->shared_experts) return shape->rank_count * shape->experts_per_rank + local;
    return rank * shape->experts_per_rank + local - shape->shared_experts;
}

static struct mokscope_task_row describe_task(const struct mok_layer *layer, int32_t rank, const struct schedule_task *task,
                                              int32_t id) {
    static const char *const phases[] = {"dispatch", "gate+up", "down", "combine", "replay", "dgrad down", "dgrad gate+up", "wgrad down", "wgrad gate", "wgrad up"};
    const struct layer_shape *shape = &layer->arguments.schedule.shape;
    int communication = task->phase == PHASE_DISPATCH || task->phase == PHASE_COMBINE;
    int32_t height = communication ? UNIT_ROWS : TILE_ROWS, expert = task->expert, rows;
    struct mokscope_task_row row = {.rank = rank, .task_id = id, .phase = phases[task->phase]};
    if (expert >= 0) { /* weight gradient: K runs over all rows of the expert */
        rows = layer->tables[rank].rows.expert_rows[expert];
        height = layer->tables[rank].rows.expert_row_begin[expert + 1] - layer->tables[rank].rows.expert_row_begin[expert];
    } else {
        rows = count_rows(&layer->tables[rank], schedule_local_experts(shape), task->tile_row * height, height, &expert);
    }
    row.minibatch = task->minibatch;
    row.expert = model_expert(shape, rank, expert);
    row.tile_row = task->tile_row;
    row.tile_column = task->tile_column;
    row.row_count = rows;
    row.padding_rows = height - rows;
    row.flops = task_flops(shape, task->phase, rows);
    if (communication) row.bytes = 2LL * rows * shape->hidden * (layer->arguments.schedule.pass == PASS_BACKWARD ? 2 : 1);
    if ((task->phase == PHASE_DOWN && layer->arguments.schedule.knobs.combine == COMBINE_DIRECT) || task->phase == PHASE_DGRAD_GATE_UP)
        row.bytes = 2LL * rows * DOWN_TILE_COLUMNS;
    return row;
}

static void describe_tasks(const struct mok_layer *layer, int32_t rank) {
    const struct schedule *s = &layer->arguments.schedule;
    struct schedule_order compute = schedule_compute_order(s, layer->tables[rank].total_rows);
    struct schedule_order comm = schedule_comm_order(s, layer->tables[rank].total_rows);
    int32_t compute_count = schedule_order_task_count(&compute), comm_count = schedule_order_task_count(&comm);
    struct mokscope_task_row *rows = calloc((size_t)(compute_count + comm_count) + 1, sizeof *rows);
    if (rows == NULL) return;
    for (int32_t i = 0; i < compute_count; i++) {
        struct schedule_task task = schedule_order_task(&compute, i);
        rows[i] = describe_task(layer, rank, &task, schedule_compute_task_id(s, i));
    }
    for (int32_t i = 0; i < comm_count; i++) {
        struct schedule_task task = schedule_order_task(&comm, i);
        rows[compute_count + i] = describe_task(layer, rank, &task, schedule_comm_task_id(s, &compute, i));
    }
    mokscope_describe_tasks(rows, (size_t)(compute_count + comm_count));
    free(rows);
}

static void describe_targets(const struct mok_layer *layer, int32_t rank) {
    const struct schedule *s = &layer->arguments.schedule;
    int32_t total_rows = layer->tables[rank].total_rows;
    const char *module = s->pass == PASS_FORWARD ? "mok forward" : "mok backward";
    size_t count = 0;
    struct mokscope_target_row *rows = calloc((size_t)schedule_edge_counter_begin(s, EDGE_COUNT) + 1, sizeof *rows);
    if (rows == NULL) return;
    for (int32_t e = 0; e < EDGE_COUNT; e++) {
        for (int32_t i = 0; i < schedule_edge_counter_count(s, (enum edge)e); i++) {
            uint32_t target = e == EDGE_EXPERT_READY ? schedule_expert_target(s, &layer->tables[rank].rows, i)
                                                     : schedule_edge_target(s, total_rows, (enum edge)e, i, 1);
            if (target == 0) continue;
            rows[count++] = (struct mokscope_target_row){module, rank, e, (uint32_t)i, target};
        }
    }
    mokscope_describe_targets(rows, count);
    free(rows);
}

void mok_layer_describe(const struct mok_layer *layer) {
    if (!mokscope_describe_recording()) return;
    describe_options(layer);
    if (!layer->checked) return;
    describe_routing(layer);
    for (int32_t rank = 0; rank < layer->options.ranks; rank++) {
        describe_tasks(layer, rank);
        describe_targets(layer, rank);
    }
}
