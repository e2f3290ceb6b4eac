/* See pass_sweep.h. */
#include "pass_sweep.h"

int pass_sweep_run(const struct trace *trace, const struct pass *pass, struct arena *arena, struct pass_sweep *sweep,
                   struct error *error) {
    size_t count = (size_t)pass->lane_count;
    sweep->trace = trace;
    sweep->pass = pass;
    sweep->lane_count = pass->lane_count;
    sweep->segments.count = 0;
    sweep->first = arena_allocate(arena, count + 1, sizeof *sweep->first);
    sweep->views = arena_allocate(arena, count + 1, sizeof *sweep->views);
    sweep->sums = arena_allocate(arena, count + 1, sizeof *sweep->sums);
    if (sweep->first == NULL || sweep->views == NULL || sweep->sums == NULL)
        return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; i < pass->lane_count; i++) {
        const struct trace_lane *lane = pass_sweep_lane(sweep, i);
        sweep->views[i] = lane_view_of(trace, lane);
        sweep->first[i] = sweep->segments.count;
        int status = lane_sweep(&sweep->views[i], pass->begin_ns, pass->end_ns, &sweep->segments, error);
        if (status) return error_context(error, "lane %lld", (long long)lane->lane_id);
        sweep->sums[i] = lane_sums_of(&sweep->views[i], sweep->segments.rows + sweep->first[i],
                                      sweep->segments.count - sweep->first[i], pass->end_ns, lane->ns_per_tick);
    }
    sweep->first[count] = sweep->segments.count;
    return 0;
}

void pass_sweep_release(struct pass_sweep *sweep) { segment_list_release(&sweep->segments); }

const struct trace_lane *pass_sweep_lane(const struct pass_sweep *sweep, int32_t i) {
    return &sweep->trace->lanes[sweep->pass->lane_first + i];
}

const struct lane_segment *pass_sweep_segments(const struct pass_sweep *sweep, int32_t i, size_t *count) {
    *count = sweep->first[i + 1] - sweep->first[i];
    return sweep->segments.rows + sweep->first[i];
}
