/* Rows that actors share, and the shadow of each: what it holds, who reads it, which signal made it visible. */
#include <stdlib.h>
#include <string.h>

#include "executor_internal.h"
#include "schedule_error.h"

int row_array_allocate(struct row_array *array, const char *name, int32_t rows, int32_t columns) {
    array->name = name;
    array->row_count = rows;
    array->columns = columns;
    array->values = malloc(((size_t)rows * (size_t)columns + 1) * sizeof *array->values);
    array->rows = calloc((size_t)rows + 1, sizeof *array->rows);
    if (array->values == NULL || array->rows == NULL) return -1;
    memset(array->values, 0xff, (size_t)rows * (size_t)columns * sizeof *array->values); /* BF16 NaN */
    for (int32_t i = 0; i < rows; i++) array->rows[i].launch = -1;
    return 0;
}

void row_array_free(struct row_array *array) {
    free(array->values);
    free(array->rows);
}

/* Value of one of the rank's counters that the actor's CTA has acquired. */
static uint32_t known(const struct executor *x, const struct actor *a, int32_t edge, int32_t index) {
    return x->ctas[a->cta].known[schedule_edge_counter_begin(&x->options.schedule, edge) + index];
}

static void store(struct row_array *array, int32_t place, int32_t launch, int32_t row, int32_t first_column, const uint16_t *values,
                  int32_t count) {
    struct shadow_row *shadow = &array->rows[place];
    if (shadow->launch != launch || shadow->row != row) {
        *shadow = (struct shadow_row){.launch = launch, .row = row};
        memset(array->values + (size_t)place * (size_t)array->columns, 0xff, (size_t)array->columns * sizeof *array->values);
    }
    memcpy(array->values + (size_t)place * (size_t)array->columns + first_column, values, (size_t)count * sizeof *values);
    shadow->written += count;
}

void memory_write_ring(struct executor *x, struct actor *a, struct row_array *array, int32_t row, enum edge freed_by,
                       int32_t first_column, const uint16_t *values, int32_t count) {
    const struct schedule *s = &x->options.schedule;
    const struct executor_rank *rank = &x->ranks[a->rank];
    int32_t place = schedule_ring_row(s, row);
    const struct shadow_row *old = &array->rows[place];
    if (old->launch == rank->launch && old->row != row) {
        int32_t minibatch = old->row / s->knobs.minibatch_rows;
        uint32_t target = schedule_edge_target(s, rank->total_rows, freed_by, minibatch, 1);
        if (old->readers > 0) {
            executor_report(x, a, "writes row %d of the %s over row %d while %d are reading it", row, array->name, old->row, old->readers);
        } else if (known(x, a, (int32_t)freed_by, minibatch) < target) {
            executor_report(x, a, "writes row %d of the %s over row %d without having seen %s[%d] reach %u", row, array->name, old->row,
                            schedule_edge_name(freed_by), minibatch, target);
        }
    }
    store(array, place, rank->launch, row, first_column, values, count);
}

void memory_write_slot(struct executor *x, struct actor *a, int32_t peer, int32_t slot, int32_t first_column, const uint16_t *values,
                       int32_t count) {
    const struct executor_rank *rank = &x->ranks[a->rank];
    struct executor_rank *owner = &x->ranks[peer];
    struct shadow_row *shadow = &owner->slots.rows[slot];
    if (rank->started_known[peer] < (uint32_t)rank->launch + 1)
        executor_report(x, a, "writes slot %d of rank %d without having seen it start launch %d", slot, peer, rank->launch);
    else if (shadow->readers > 0 || (shadow->launch >= 0 && shadow->launch < rank->launch && owner->slots_reduced[slot] != shadow->launch))
        executor_report(x, a, "writes slot %d of rank %d before that has summed launch %d", slot, peer, shadow->launch);
    else if (shadow->launch == rank->launch && shadow->row != a->rank)
        executor_report(x, a, "writes slot %d of rank %d, which rank %d has written", slot, peer, shadow->row);
    store(&owner->slots, slot, rank->launch, a->rank, first_column, values, count);
    if (shadow->written > owner->slots.columns) executor_report(x, a, "writes slot %d of rank %d twice", slot, peer);
}

void memory_publish(struct row_array *array, int32_t place, int32_t columns, int32_t edge, int32_t index, uint32_t value) {
    struct shadow_row *shadow = &array->rows[place];
    shadow->published += columns;
    shadow->publication.edge = edge;
    shadow->publication.index = index;
    if (value > shadow->publication.value) shadow->publication.value = value;
}

const uint16_t *memory_read(struct executor *x, struct actor *a, struct row_array *array, int32_t row) {
    int32_t place = schedule_ring_row(&x->options.schedule, row);
    const struct shadow_row *shadow = &array->rows[place];
    const struct publication *p = &shadow->publication;
    if (shadow->launch < 0)
        executor_report(x, a, "reads row %d of the %s, which holds nothing yet", row, array->name);
    else if (shadow->launch != x->ranks[a->rank].launch || shadow->row != row)
        executor_report(x, a, "reads row %d of the %s, which holds row %d of launch %d", row, array->name, shadow->row, shadow->launch);
    else if (shadow->written < array->columns || shadow->published < shadow->written)
        executor_report(x, a, "reads row %d of the %s, of which %d columns are written and %d published, of %d", row, array->name,
                        shadow->written, shadow->published, array->columns);
    else if (known(x, a, p->edge, p->index) < p->value)
        executor_report(x, a, "reads row %d of the %s without having seen %s[%d] reach %u", row, array->name,
                        schedule_edge_name((enum edge)p->edge), p->index, p->value);
    else
        return array->values + (size_t)place * (size_t)array->columns;
    return NULL;
}

const uint16_t *memory_read_slot(struct executor *x, struct actor *a, int32_t peer, int32_t slot) {
    const struct executor_rank *rank = &x->ranks[a->rank];
    const struct shadow_row *shadow = &rank->slots.rows[slot];
    if (shadow->launch != rank->launch || shadow->row != peer || shadow->written < rank->slots.columns)
        executor_report(x, a, "sums slot %d, which holds %d columns of rank %d's launch %d instead of rank %d's", slot, shadow->written,
                        shadow->row, shadow->launch, peer);
    else if (rank->pushed_known[peer] < (uint32_t)rank->launch + 1)
        executor_report(x, a, "sums slot %d without having seen rank %d finish launch %d", slot, peer, rank->launch);
    else if (shadow->published < shadow->written || x->ranks[peer].pushed_cover < shadow->publication.value)
        executor_report(x, a, "sums slot %d, whose push rank %d had not published when it finished", slot, peer);
    else
        return rank->slots.values + (size_t)slot * (size_t)rank->slots.columns;
    return NULL;
}
