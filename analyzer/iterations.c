/* See iterations.h. */
#include "iterations.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- the module ------------------------------------------------------------------------------------------------------ */

static int choose_module(const struct trace *trace, struct arena *arena, struct iterations *out) {
    double *life = arena_allocate(arena, (size_t)trace->module_count + 1, sizeof *life);
    if (life == NULL) return -1;
    out->module = -1;
    for (int32_t i = 0; i < trace->lane_count; i++) {
        const struct trace_lane *lane = &trace->lanes[i];
        life[trace->launches[lane->launch].module] += 1.0 + (double)(lane->end_ns - lane->begin_ns);
    }
    for (int32_t m = 0; m < trace->module_count; m++) {
        if (life[m] <= 0) continue;
        if (out->module >= 0) out->other_module_count++;
        if (out->module < 0 || life[m] > life[out->module]) out->module = m;
    }
    return 0;
}

/* --- passes ---------------------------------------------------------------------------------------------------------- */

static void add_lane(struct pass *pass, const struct trace_lane *lane) {
    if (pass->lane_count == 0 || lane->begin_ns < pass->begin_ns) pass->begin_ns = lane->begin_ns;
    if (pass->lane_count == 0 || lane->end_ns > pass->end_ns) pass->end_ns = lane->end_ns;
    pass->lane_count++;
    pass->lost_count += lane->lost_count;
    if (!lane->closed) pass->open = true;
}

/* Lanes are ordered by launch, then rank. */
static void collect_passes(const struct trace *trace, int32_t rank, struct iterations *out) {
    struct pass *pass = NULL;
    for (int32_t i = 0; i < trace->lane_count; i++) {
        const struct trace_lane *lane = &trace->lanes[i];
        const struct trace_launch *launch = &trace->launches[lane->launch];
        if (launch->module != out->module || (rank >= 0 && lane->rank != rank)) continue;
        if (pass == NULL || pass->launch != lane->launch || pass->rank != lane->rank) {
            pass = &out->passes[out->pass_count++];
            *pass = (struct pass){.rank = lane->rank, .launch = lane->launch, .device = launch->device, .lane_first = i};
        }
        add_lane(pass, lane);
    }
}

static int by_rank_and_time(const void *a, const void *b) {
    const struct pass *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->launch < y->launch ? -1 : x->launch > y->launch;
}

static int by_iteration_and_rank(const void *a, const void *b) {
    const struct pass *x = a, *y = b;
    if (x->iteration != y->iteration) return x->iteration < y->iteration ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void number_passes(struct iterations *out) {
    qsort(out->passes, (size_t)out->pass_count, sizeof *out->passes, by_rank_and_time);
    for (int32_t i = 0; i < out->pass_count; i++) {
        bool first = i == 0 || out->passes[i].rank != out->passes[i - 1].rank;
        out->passes[i].iteration = first ? 0 : out->passes[i - 1].iteration + 1;
        if (first) out->rank_count++;
        if (out->passes[i].iteration + 1 > out->count) out->count = out->passes[i].iteration + 1;
    }
    qsort(out->passes, (size_t)out->pass_count, sizeof *out->passes, by_iteration_and_rank);
}

/* --- iterations ------------------------------------------------------------------------------------------------------ */

/* Most lanes of any of the rank's passes. */
static int32_t most_lanes(const struct iterations *out, int32_t rank) {
    int32_t most = 0;
    for (int32_t i = 0; i < out->pass_count; i++)
        if (out->passes[i].rank == rank && out->passes[i].lane_count > most) most = out->passes[i].lane_count;
    return most;
}

/* A recording that was cut off may lack lanes of its last launches. */
static void mark_short_passes(const struct trace *trace, struct iterations *out) {
    if (strcmp(trace->run.state, "cut") != 0) return;
    for (int32_t i = 0; i < out->pass_count; i++)
        if (out->passes[i].lane_count < most_lanes(out, out->passes[i].rank)) out->passes[i].open = true;
}

static void describe_iteration(struct iterations *out, struct iteration *row) {
    const struct pass *passes = out->passes + row->pass_first;
    int64_t last_begin = INT64_MIN, first_end = INT64_MAX;
    row->complete = row->pass_count == out->rank_count;
    row->begin_ns = INT64_MAX;
    row->end_ns = INT64_MIN;
    for (int32_t i = 0; i < row->pass_count; i++) {
        if (passes[i].open) row->complete = false;
        if (passes[i].begin_ns < row->begin_ns) row->begin_ns = passes[i].begin_ns;
        if (passes[i].end_ns > row->end_ns) row->end_ns = passes[i].end_ns;
        if (passes[i].begin_ns > last_begin) last_begin = passes[i].begin_ns;
        if (passes[i].end_ns < first_end) first_end = passes[i].end_ns;
    }
    row->apart = last_begin >= first_end;
}

static void collect_iterations(struct iterations *out) {
    for (int32_t i = 0; i < out->pass_count; i++) {
        struct iteration *row = &out->rows[out->passes[i].iteration];
        if (row->pass_count == 0) row->pass_first = i;
        row->pass_count++;
    }
    for (int32_t i = 0; i < out->count; i++) describe_iteration(out, &out->rows[i]);
}

static void choose_iterations(const struct trace *trace, const struct iteration_choice *choice, struct iterations *out) {
    int32_t complete = 0;
    for (int32_t i = 0; i < out->count; i++) complete += out->rows[i].complete;
    for (int32_t i = 0; i < out->count; i++) {
        struct iteration *row = &out->rows[i];
        if (choice->launch_id >= 0) {
            row->use = ITERATION_NOT_CHOSEN;
            for (int32_t p = 0; p < row->pass_count; p++)
                if (trace->launches[out->passes[row->pass_first + p].launch].launch_id == choice->launch_id)
                    row->use = ITERATION_USED;
        } else if (complete > 0 && !row->complete) {
            row->use = ITERATION_INCOMPLETE;
        } else if (i == 0 && complete >= 3) {
            row->use = ITERATION_WARM_UP;
        }
        if (row->use == ITERATION_USED) out->used_count++;
    }
}

static int count_devices(const struct trace *trace, struct arena *arena, struct iterations *out) {
    bool *seen = arena_allocate(arena, (size_t)trace->device_count + 1, sizeof *seen);
    if (seen == NULL) return -1;
    for (int32_t i = 0; i < out->pass_count; i++) {
        if (out->rows[out->passes[i].iteration].use != ITERATION_USED || seen[out->passes[i].device]) continue;
        seen[out->passes[i].device] = true;
        out->device_count++;
    }
    return 0;
}

int iterations_find(const struct trace *trace, const struct iteration_choice *choice, struct arena *arena,
                    struct iterations *out, struct error *error) {
    *out = (struct iterations){.module = -1};
    out->passes = arena_allocate(arena, (size_t)trace->lane_count + 1, sizeof *out->passes);
    out->rows = arena_allocate(arena, (size_t)trace->lane_count + 1, sizeof *out->rows);
    if (out->passes == NULL || out->rows == NULL || choose_module(trace, arena, out))
        return error_set(error, ERROR_FAILURE, "out of memory");
    if (out->module < 0) {
        error_set(error, ERROR_USAGE, "the trace has no instrumented launch: nothing to analyse");
        return error_hint(error, "did the program launch a kernel that includes mokscope_probe.h? 'mokscope info' shows what is there");
    }
    collect_passes(trace, choice->rank, out);
    if (out->pass_count == 0) return error_set(error, ERROR_USAGE, "the trace has no rank %d", choice->rank);
    mark_short_passes(trace, out);
    number_passes(out);
    collect_iterations(out);
    choose_iterations(trace, choice, out);
    if (out->used_count == 0)
        return error_set(error, ERROR_USAGE, "the trace has no instrumented launch %lld", (long long)choice->launch_id);
    if (count_devices(trace, arena, out)) return error_set(error, ERROR_FAILURE, "out of memory");
    return 0;
}
