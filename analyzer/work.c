/* See work.h. */
#include "work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct work work_of(const struct trace_task *tasks, int32_t count, int32_t rank) {
    struct work work = {0};
    for (int32_t i = 0; i < count; i++) {
        if (rank >= 0 && tasks[i].rank != rank) continue;
        work.bytes += tasks[i].bytes;
        if (tasks[i].flops <= 0) continue;
        work.flops += tasks[i].flops;
        work.rows += tasks[i].row_count + tasks[i].padding_rows;
        work.padding_rows += tasks[i].padding_rows;
        work.tile_count++;
    }
    return work;
}

/* A tile row of an expert. */
struct tile {
    int32_t rank, expert, row;
    int64_t row_count;
};

static int by_tile(const void *a, const void *b) {
    const struct tile *x = a, *y = b;
    if (x->expert != y->expert) return x->expert < y->expert ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* First phase with work: its name, by the first such task. */
static const char *first_phase(const struct trace_task *tasks, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (tasks[i].flops > 0 && tasks[i].expert >= 0) return tasks[i].phase;
    return NULL;
}

static void sum_experts(const struct tile *tiles, int32_t count, int32_t expert_count, struct expert_rows *out) {
    double squares = 0;
    int32_t present = 0;
    for (int32_t i = 0; i < count;) {
        int64_t rows = 0;
        int32_t first = i;
        for (; i < count && tiles[i].expert == tiles[first].expert; i++)
            if (i == first || by_tile(&tiles[i - 1], &tiles[i]) != 0) rows += tiles[i].row_count;
        present++;
        out->sum_rows += rows;
        squares += (double)rows * (double)rows;
        if (rows > out->max_rows) out->max_rows = rows;
    }
    out->expert_count = expert_count > present ? expert_count : present;
    if (out->expert_count == 0) return;
    double mean = (double)out->sum_rows / out->expert_count, variance = squares / out->expert_count - mean * mean;
    out->deviation_rows = variance > 0 ? sqrt(variance) : 0;
}

int expert_rows_of(const struct trace_task *tasks, int32_t count, int32_t rank, int32_t expert_count, struct arena *arena,
                   struct expert_rows *out, struct error *error) {
    *out = (struct expert_rows){0};
    const char *phase = first_phase(tasks, count);
    struct tile *tiles = arena_allocate(arena, (size_t)count + 1, sizeof *tiles);
    int32_t used = 0;
    if (tiles == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; phase != NULL && i < count; i++) {
        if (tasks[i].flops < 0 || tasks[i].expert < 0 || tasks[i].tile_column != 0 || strcmp(tasks[i].phase, phase) != 0) continue;
        if (rank >= 0 && tasks[i].rank != rank) continue;
        tiles[used++] = (struct tile){tasks[i].rank, tasks[i].expert, tasks[i].tile_row, tasks[i].row_count};
    }
    if (used > 0) qsort(tiles, (size_t)used, sizeof *tiles, by_tile);
    sum_experts(tiles, used, expert_count, out);
    return 0;
}
