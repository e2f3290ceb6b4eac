/* Figures of one rank in one launch (analysis_internal.h): partition, overlap, waits, fill, tail, losses. */
#include <stdio.h>
#include <string.h>

#include "analysis_internal.h"
#include "overlap.h"

static enum lane_class class_of(const struct trace *trace, const struct trace_lane *lane) {
    switch (trace->roles[lane->role].role_class) {
    case TRACE_ROLE_COMPUTE: return LANES_COMPUTE;
    case TRACE_ROLE_COMMUNICATE: return LANES_COMMUNICATION;
    default: return LANES_SUPPORT;
    }
}

/* --- partition ------------------------------------------------------------------------------------------------------- */

struct class_sums {
    int64_t ns[STATE_COUNT], stalled_ns, lane_ns;
};

static void add_class(struct class_sums *class, const struct lane_sums *sums) {
    class->lane_ns += sums->window_ns;
    class->stalled_ns += sums->stalled_ns;
    for (int state = 0; state < STATE_COUNT; state++) class->ns[state] += sums->ns[state];
}

static int add_partition(struct analysis *analysis, const struct pass_sweep *sweep, int32_t slot, struct error *error) {
    struct class_sums classes[LANES_CLASS_COUNT] = {0};
    int64_t window_ns = sweep->pass->end_ns - sweep->pass->begin_ns;
    for (int32_t i = 0; i < sweep->lane_count; i++) {
        const struct trace_lane *lane = pass_sweep_lane(sweep, i);
        int status = partition_add(&analysis->partition, lane, sweep->pass->device, &sweep->sums[i], error);
        if (status) return status;
        add_class(&classes[class_of(sweep->trace, lane)], &sweep->sums[i]);
        add_class(&classes[LANES_ALL], &sweep->sums[i]);
        analysis->zero_length_count += sweep->sums[i].zero_count;
    }
    for (int class = 0; class < LANES_CLASS_COUNT; class++) {
        const struct class_sums *sums = &classes[class];
        if (sums->lane_ns == 0) continue;
        const char *name = lane_class_name((enum lane_class)class);
        char scope[64];
        analysis->lane_ns[class] += sums->lane_ns;
        for (int state = 0; state < STATE_COUNT; state++) {
            snprintf(scope, sizeof scope, "%s, %s", name, lane_state_name((enum lane_state)state));
            figures_add_plain(&analysis->figures, "lanes.partition", scope, slot, (double)sums->ns[state],
                              (double)sums->lane_ns, window_ns);
        }
        figures_add_plain(&analysis->figures, "lanes.stalled", name, slot, (double)sums->stalled_ns, (double)sums->lane_ns,
                          window_ns);
    }
    return 0;
}

/* --- overlap --------------------------------------------------------------------------------------------------------- */

/* Value, and what it could be: [0] as recorded, [1] eroded, [2] dilated. */
static struct figure_sample triple(double value, double low, double high, double denominator, const struct analysis *analysis,
                                   int64_t window_ns) {
    return (struct figure_sample){value, denominator, low, high, window_ns, analysis->clock_error_ns};
}

static int add_overlap(struct analysis *analysis, const struct pass_sweep *sweep, int32_t slot, struct arena *scratch,
                       struct error *error) {
    const struct pass *pass = sweep->pass;
    const int64_t shifts[3] = {0, analysis->clock_error_ns, -analysis->clock_error_ns};
    struct overlap_lane *lanes = arena_allocate(scratch, (size_t)sweep->lane_count + 1, sizeof *lanes);
    struct overlap_sums sums[3];
    if (lanes == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; i < sweep->lane_count; i++) {
        lanes[i].segments = pass_sweep_segments(sweep, i, &lanes[i].count);
        lanes[i].role_class = sweep->trace->roles[pass_sweep_lane(sweep, i)->role].role_class;
    }
    for (int i = 0; i < 3; i++) {
        int status = overlap_sweep(lanes, sweep->lane_count, pass->begin_ns, pass->end_ns, shifts[i], scratch, &sums[i], error);
        if (status) return status;
    }
    int64_t window_ns = pass->end_ns - pass->begin_ns;
    double c = (double)sums[0].compute_ns, x = (double)sums[0].communicate_ns;
    double both = (double)sums[0].both_ns, low = (double)sums[1].both_ns, high = (double)sums[2].both_ns;
    analysis_add_rank(analysis, "overlap.of_comm", pass->rank, slot, triple(both, low, high, x, analysis, window_ns));
    analysis_add_rank(analysis, "overlap.of_compute", pass->rank, slot, triple(both, low, high, c, analysis, window_ns));
    analysis_add_rank(analysis, "exposed.time", pass->rank, slot, triple(x - both, x - high, x - low, 1, analysis, window_ns));
    analysis_add_rank(analysis, "exposed.share", pass->rank, slot,
                      triple(x - both, x - high, x - low, (double)window_ns, analysis, window_ns));
    analysis_add_rank(analysis, "lanes.capacity_overlap", pass->rank, slot,
                      triple(sums[0].matched_lane_ns, sums[1].matched_lane_ns, sums[2].matched_lane_ns,
                             sums[0].communicate_lane_ns, analysis, window_ns));
    return 0;
}

/* --- waits ----------------------------------------------------------------------------------------------------------- */

static int64_t lanes_time(const struct pass_sweep *sweep, enum lane_class class) {
    int64_t sum = 0;
    for (int32_t i = 0; i < sweep->lane_count; i++)
        if (class_of(sweep->trace, pass_sweep_lane(sweep, i)) == class) sum += sweep->sums[i].window_ns;
    return sum;
}

/* Class of a role's lanes; rows name the role of the lane. */
static enum lane_class role_class(const struct trace *trace, int32_t role) {
    struct trace_lane lane = {.role = role};
    return class_of(trace, &lane);
}

static void add_wait_figures(struct analysis *analysis, const struct pass_sweep *sweep, const struct wait_table *waits,
                             int32_t slot) {
    const struct trace *trace = sweep->trace;
    int64_t window_ns = sweep->pass->end_ns - sweep->pass->begin_ns, time_ns[LANES_CLASS_COUNT], exposed_ns = 0;
    for (int class = 0; class < LANES_ALL; class++) time_ns[class] = lanes_time(sweep, (enum lane_class)class);
    /* Every edge that has an event gets a sample, so that an iteration without waits on it counts as zero. */
    for (int class = 0; class < LANES_ALL; class++) {
        for (int32_t owner = -1; owner < trace->edge_count && time_ns[class] > 0; owner++) {
            int64_t sum = 0;
            for (int32_t i = 0; i < waits->count; i++)
                if (waits->rows[i].owner == owner && (int)role_class(trace, waits->rows[i].role) == class)
                    sum += waits->rows[i].total_ns;
            if (owner < 0 && sum == 0) continue;
            if (owner >= 0 && trace->edges[owner].module != analysis->iterations.module) continue;
            char scope[128];
            snprintf(scope, sizeof scope, "%s, %s", lane_class_name((enum lane_class)class),
                     owner < 0 ? "no edge" : trace->edges[owner].name);
            figures_add_plain(&analysis->figures, "wait.by_edge", scope, slot, (double)sum, (double)time_ns[class], window_ns);
            if (class == LANES_COMPUTE && owner >= 0 && analysis->carries[owner]) exposed_ns += sum;
        }
    }
    if (time_ns[LANES_COMPUTE] > 0)
        analysis_add_rank(analysis, "exposed.in_kernel", sweep->pass->rank, slot,
                          (struct figure_sample){(double)exposed_ns, (double)time_ns[LANES_COMPUTE], (double)exposed_ns,
                                                 (double)exposed_ns, window_ns, 0});
}

static int add_waits(struct analysis *analysis, const struct pass_sweep *sweep, int32_t slot, struct arena *scratch,
                     struct error *error) {
    struct cause_lane *lanes = arena_allocate(scratch, (size_t)sweep->lane_count + 1, sizeof *lanes);
    struct wait_table own = {0};
    if (lanes == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; i < sweep->lane_count; i++) {
        lanes[i].lane = pass_sweep_lane(sweep, i);
        lanes[i].segments = pass_sweep_segments(sweep, i, &lanes[i].count);
    }
    int status = wait_cause_add(sweep->trace, lanes, sweep->lane_count, sweep->pass->end_ns, scratch, &own, error);
    if (!status) add_wait_figures(analysis, sweep, &own, slot);
    if (!status) status = wait_table_merge(&analysis->waits, &own, error);
    wait_table_release(&own);
    return status;
}

/* --- begin, end, losses ---------------------------------------------------------------------------------------------- */

static void add_tail(struct analysis *analysis, const struct pass_sweep *sweep, int32_t first, int32_t count, const char *scope,
                     int32_t slot) {
    const struct pass *pass = sweep->pass;
    int64_t sum = 0, maximum = 0;
    for (int32_t i = first; i < first + count; i++) {
        int64_t end_ns = sweep->sums[i].work_end_ns;
        int64_t lasted = end_ns == TRACE_TIME_NONE ? 0 : end_ns - pass->begin_ns;
        sum += lasted;
        if (lasted > maximum) maximum = lasted;
    }
    figures_add_plain(&analysis->figures, "tail", scope, slot, (double)sum, (double)maximum * count, pass->end_ns - pass->begin_ns);
}

/* Lanes are ordered by role. A class's lanes may have several roles: they are added up role by role. */
static void add_tails(struct analysis *analysis, const struct pass_sweep *sweep, int32_t slot) {
    for (int32_t first = 0, count; first < sweep->lane_count; first += count) {
        const struct trace_lane *lane = pass_sweep_lane(sweep, first);
        char scope[96];
        for (count = 1; first + count < sweep->lane_count && pass_sweep_lane(sweep, first + count)->role == lane->role;) count++;
        snprintf(scope, sizeof scope, "role %s", sweep->trace->roles[lane->role].name);
        add_tail(analysis, sweep, first, count, scope, slot);
        if (class_of(sweep->trace, lane) == LANES_COMPUTE)
            add_tail(analysis, sweep, first, count, lane_class_name(LANES_COMPUTE), slot);
    }
}

static void add_losses(struct analysis *analysis, const struct pass_sweep *sweep, int32_t slot) {
    for (int32_t i = 0; i < sweep->lane_count; i++) {
        const struct trace_lane *lane = pass_sweep_lane(sweep, i);
        char scope[96];
        snprintf(scope, sizeof scope, "role %s", sweep->trace->roles[lane->role].name);
        figures_add_plain(&analysis->figures, "probe.lost", "all", slot, (double)lane->lost_count, (double)lane->record_count, 0);
        if (lane->lost_count > 0)
            figures_add_plain(&analysis->figures, "probe.lost", scope, slot, (double)lane->lost_count,
                              (double)lane->record_count, 0);
    }
}

static void add_fill(struct analysis *analysis, const struct pass_sweep *sweep, int32_t slot) {
    int64_t first_ns = TRACE_TIME_NONE;
    for (int32_t i = 0; i < sweep->lane_count; i++) {
        int64_t begin_ns = sweep->sums[i].first_compute_ns;
        if (class_of(sweep->trace, pass_sweep_lane(sweep, i)) != LANES_COMPUTE || begin_ns == TRACE_TIME_NONE) continue;
        if (first_ns == TRACE_TIME_NONE || begin_ns < first_ns) first_ns = begin_ns;
    }
    if (first_ns == TRACE_TIME_NONE) return;
    char scope[32];
    snprintf(scope, sizeof scope, "rank %d", sweep->pass->rank);
    figures_add_plain(&analysis->figures, "fill", scope, slot, (double)(first_ns - sweep->pass->begin_ns), 1,
                      sweep->pass->end_ns - sweep->pass->begin_ns);
}

int pass_figures_add(struct analysis *analysis, const struct pass_sweep *sweep, int32_t slot, struct arena *scratch,
                     struct error *error) {
    int status = add_partition(analysis, sweep, slot, error);
    if (!status) status = add_overlap(analysis, sweep, slot, scratch, error);
    if (!status) status = add_waits(analysis, sweep, slot, scratch, error);
    if (status) return status;
    add_tails(analysis, sweep, slot);
    add_losses(analysis, sweep, slot);
    add_fill(analysis, sweep, slot);
    return 0;
}
