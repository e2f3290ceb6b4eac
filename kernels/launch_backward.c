/* The backward pass on the host: its memory, tensor maps and launch. Documented in mok.h. */
#include "launch_internal.h"

/* Rows that stand in boxes of 64 columns: all arrays of the pass, and the weights. */
static int encode_boxes(CUtensorMap *map, const void *matrix, int64_t rows, int64_t columns, const char *name, struct error *error) {
    return launch_encode_map(map, matrix, rows, columns, BOX_ROWS, name, error);
}

int launch_backward_allocate(struct mok_layer *layer, int32_t rank, struct error *error) {
    const struct schedule *s = &layer->arguments.schedule;
    struct rank_memory *m = &layer->memory[rank];
    struct backward_rank *b = &layer->backward->ranks[rank];
    size_t capacity = (size_t)s->knobs.capacity_rows, hidden = (size_t)s->shape.hidden, intermediate = (size_t)s->shape.intermediate;
    size_t tiles = (size_t)schedule_dgrad_tile_columns(s);
    int64_t rows = s->knobs.capacity_rows;
    int code = launch_allocate_poisoned(&m->x_rows, capacity * hidden, "x rows", error);
    if (code == ERROR_NONE) code = launch_allocate_poisoned(&m->dy_rows, capacity * hidden, "dY rows", error);
    if (code == ERROR_NONE) code = launch_allocate_poisoned(&m->gu_rows, 2 * capacity * intermediate, "g and u rows", error);
    if (code == ERROR_NONE) code = launch_allocate_poisoned(&m->dgu_rows, 2 * capacity * intermediate, "dG and dU rows", error);
    if (code == ERROR_NONE) code = launch_allocate_poisoned(&m->sh_rows, capacity * intermediate, "s h rows", error);
    if (code == ERROR_NONE) code = launch_allocate((void **)&m->row_weight, capacity, sizeof(float), "row weights", error);
    if (code == ERROR_NONE) code = launch_allocate((void **)&m->ds_partial, capacity * tiles, sizeof(float), "partial sums", error);
    if (code == ERROR_NONE) code = encode_boxes(&b->x_map, m->x_rows, rows, s->shape.hidden, "x rows", error);
    if (code == ERROR_NONE) code = encode_boxes(&b->dy_map, m->dy_rows, rows, s->shape.hidden, "dY rows", error);
    if (code == ERROR_NONE) code = encode_boxes(&b->dgu_map, m->dgu_rows, rows, 2 * (int64_t)s->shape.intermediate, "dG and dU rows", error);
    if (code == ERROR_NONE) code = encode_boxes(&b->sh_map, m->sh_rows, rows, s->shape.intermediate, "s h rows", error);
    return code;
}

void launch_backward_release(struct rank_memory *m) {
    void *pointers[] = {m->x_rows, m->dy_rows, m->gu_rows, m->dgu_rows, m->sh_rows, m->row_weight, m->ds_partial};
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) cudaFree(pointers[i]);
}

void launch_backward_fill(struct mok_layer *layer) {
    layer->backward->accumulate = layer->options.accumulate;
    for (int32_t rank = 0; rank < layer->options.ranks; rank++) {
        struct backward_rank *b = &layer->backward->ranks[rank];
        const struct rank_memory *m = &layer->memory[rank];
        b->x_rows = m->x_rows;
        b->dy_rows = m->dy_rows;
        b->dgu_rows = m->dgu_rows;
        b->sh_rows = m->sh_rows;
        b->ds_partial = m->ds_partial;
    }
}

int launch_backward_bind_weights(struct mok_layer *layer, int32_t rank, int shared, const void *w_gate, const void *w_up,
                                 const void *w_down, struct error *error) {
    const struct layer_shape *shape = &layer->arguments.schedule.shape;
    struct backward_rank *b = &layer->backward->ranks[rank];
    int64_t experts = shared ? shape->shared_experts : shape->experts_per_rank;
    int64_t hidden = shape->hidden, intermediate = shape->intermediate;
    CUtensorMap *gate = shared ? &b->shared_gate_map : &b->w_gate_map, *up = shared ? &b->shared_up_map : &b->w_up_map;
    CUtensorMap *down = shared ? &b->shared_down_map : &b->w_down_map;
    int code = encode_boxes(gate, w_gate, experts * intermediate, hidden, "w_gate", error);
    if (code == ERROR_NONE) code = encode_boxes(up, w_up, experts * intermediate, hidden, "w_up", error);
    if (code == ERROR_NONE) code = encode_boxes(down, w_down, experts * hidden, intermediate, "w_down", error);
    return code;
}

int mok_layer_bind_backward(struct mok_layer *layer, int32_t rank, const void *dy, void *dx, void *d_weights, void *dw_gate,
                            void *dw_up, void *dw_down, struct error *error) {
    const void *pointers[] = {dy, dx, d_weights, dw_gate, dw_up, dw_down};
    if (layer->backward == NULL) return error_set(error, ERROR_USAGE, "the layer was made without options.backward");
    if (rank < 0 || rank >= layer->options.ranks)
        return error_set(error, ERROR_USAGE, "rank %d is not in 0..%d", rank, layer->options.ranks - 1);
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++)
        if (pointers[i] == NULL || (uintptr_t)pointers[i] % 16 != 0)
            return error_set(error, ERROR_USAGE, "rank %d: buffer %zu of mok_layer_bind_backward is null or not 16-byte aligned", rank, i);
    for (int32_t peer = 0; peer < layer->options.ranks; peer++) {
        layer->backward->ranks[peer].dy[rank] = dy;
        layer->backward->ranks[peer].d_weights[rank] = d_weights;
    }
    struct backward_rank *b = &layer->backward->ranks[rank];
    b->dw_gate = dw_gate;
    b->dw_up = dw_up;
    b->dw_down = dw_down;
    layer->memory[rank].dx = dx;
    layer->memory[rank].bound_backward = 1;
    const struct layer_shape *shape = &layer->arguments.schedule.shape;
    return encode_boxes(&b->shared_dy_map, dy, shape->tokens, shape->hidden, "dY", error);
}

int mok_layer_backward(struct mok_layer *layer, void *stream, struct error *error) {
    for (int32_t rank = 0; rank < layer->options.ranks; rank++)
        if (!layer->memory[rank].bound || !layer->memory[rank].bound_backward)
            return error_set(error, ERROR_USAGE, "rank %d has no gradient buffers: call mok_layer_bind and mok_layer_bind_backward", rank);
    return launch_pass(layer, PASS_BACKWARD, stream, error);
}
