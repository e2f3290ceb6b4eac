/* Figures of one iteration of all ranks (analysis_internal.h): times, skew, work, clocks. */
#include <stdio.h>
#include <stdlib.h>

#include "analysis_internal.h"
#include "work.h"

/* Begin and end of a pass: the kernel record's if all launches have one, else its lanes'. */
struct extent {
    int64_t begin_ns, end_ns;
};

static struct extent extent_of(const struct analysis *analysis, const struct pass *pass) {
    int32_t kernel = analysis->trace->launches[pass->launch].kernel;
    if (!analysis->time_from_cupti || kernel < 0) return (struct extent){pass->begin_ns, pass->end_ns};
    return (struct extent){analysis->trace->kernels[kernel].begin_ns, analysis->trace->kernels[kernel].end_ns};
}

static void add_rate(struct analysis *analysis, const char *scope, int32_t slot, int32_t rank, int64_t time_ns) {
    struct work work = work_of(analysis->trace->tasks, analysis->trace->task_count, rank);
    if (work.flops > 0)
        figures_add_plain(&analysis->figures, "work.rate", scope, slot, (double)work.flops, (double)time_ns * 1e-9, time_ns);
}

static void add_times(struct analysis *analysis, const struct pass *passes, int32_t count, int32_t slot) {
    struct extent all = {INT64_MAX, INT64_MIN};
    char scope[32];
    for (int32_t i = 0; i < count; i++) {
        struct extent e = extent_of(analysis, &passes[i]);
        if (e.begin_ns < all.begin_ns) all.begin_ns = e.begin_ns;
        if (e.end_ns > all.end_ns) all.end_ns = e.end_ns;
        snprintf(scope, sizeof scope, "rank %d", passes[i].rank);
        figures_add_plain(&analysis->figures, "time.kernel", scope, slot, (double)(e.end_ns - e.begin_ns), 1,
                          e.end_ns - e.begin_ns);
        add_rate(analysis, scope, slot, passes[i].rank, e.end_ns - e.begin_ns);
    }
    figures_add_plain(&analysis->figures, "time.kernel", "all", slot, (double)(all.end_ns - all.begin_ns), 1,
                      all.end_ns - all.begin_ns);
    if (count == analysis->iterations.rank_count) {
        int32_t rank = count == 1 ? passes[0].rank : -1;
        add_rate(analysis, "all", slot, rank, all.end_ns - all.begin_ns);
    }
}

/* Bound for comparing two ranks: within a GPU the lanes' bound, else both clocks' brackets too. */
static int64_t skew_error(const struct analysis *analysis, const struct pass *passes, int32_t count) {
    int64_t width = 0;
    bool several = false;
    for (int32_t i = 0; i < count; i++) {
        const struct recorded_device *device = &analysis->trace->devices[passes[i].device];
        if (passes[i].device != passes[0].device) several = true;
        if (device->width_ns + device->residual_ns > width) width = device->width_ns + device->residual_ns;
    }
    return analysis->clock_error_ns + (several ? 2 * width : 0);
}

static void add_skew_figure(struct analysis *analysis, const char *id, const char *scope, int32_t slot, int64_t ns,
                            int64_t error_ns, int64_t window_ns) {
    double value = (double)ns, low = ns > error_ns ? (double)(ns - error_ns) : 0;
    figures_add(&analysis->figures, id, scope, slot,
                (struct figure_sample){value, 1, low, (double)(ns + error_ns), window_ns, error_ns});
}

static void add_skew(struct analysis *analysis, const struct iteration *iteration, const struct pass *passes, int32_t slot) {
    int64_t largest_start = 0, largest_end = 0, window_ns = iteration->end_ns - iteration->begin_ns;
    int64_t error_ns = skew_error(analysis, passes, iteration->pass_count);
    char scope[32];
    if (iteration->pass_count < 2) return;
    for (int32_t i = 0; i < iteration->pass_count; i++) {
        int64_t start = passes[i].begin_ns - iteration->begin_ns, end = iteration->end_ns - passes[i].end_ns;
        snprintf(scope, sizeof scope, "rank %d", passes[i].rank);
        add_skew_figure(analysis, "skew.start", scope, slot, start, error_ns, window_ns);
        add_skew_figure(analysis, "skew.end", scope, slot, end, error_ns, window_ns);
        if (start > largest_start) largest_start = start;
        if (end > largest_end) largest_end = end;
    }
    add_skew_figure(analysis, "skew.start", "all", slot, largest_start, error_ns, window_ns);
    add_skew_figure(analysis, "skew.end", "all", slot, largest_end, error_ns, window_ns);
}

/* CTAs of a pass that have a compute lane. Lanes are ordered by role, then CTA: each role's are counted, the most wins. */
static int64_t count_compute_ctas(const struct trace *trace, const struct pass *pass) {
    int64_t count = 0, most = 0;
    for (int32_t i = pass->lane_first; i < pass->lane_first + pass->lane_count; i++) {
        const struct trace_lane *lane = &trace->lanes[i];
        bool new_role = i == pass->lane_first || lane[-1].role != lane->role;
        if (new_role) count = 0;
        if (trace->roles[lane->role].role_class != TRACE_ROLE_COMPUTE) continue;
        if (new_role || lane[-1].cta != lane->cta) count++;
        if (count > most) most = count;
    }
    return most;
}

static int32_t described_experts(const struct trace *trace, int32_t rank) {
    const char *each = trace_attribute_find(trace, "experts_per_rank"), *ranks = trace_attribute_find(trace, "ranks");
    int64_t experts = each != NULL ? atoll(each) : 0, count = rank >= 0 ? 1 : ranks != NULL ? atoll(ranks) : trace->rank_count;
    return experts > 0 && count > 0 && experts * count < 1 << 20 ? (int32_t)(experts * count) : 0;
}

static int add_experts(struct analysis *analysis, const char *scope, int32_t rank, int32_t slot, struct error *error) {
    const struct trace *trace = analysis->trace;
    struct expert_rows experts;
    int status = expert_rows_of(trace->tasks, trace->task_count, rank, described_experts(trace, rank), &analysis->arena,
                                &experts, error);
    if (status || experts.expert_count == 0 || experts.sum_rows == 0) return status;
    double mean = (double)experts.sum_rows / experts.expert_count;
    figures_add_plain(&analysis->figures, "expert.imbalance", scope, slot, (double)experts.max_rows, mean, 0);
    figures_add_plain(&analysis->figures, "expert.variation", scope, slot, experts.deviation_rows, mean, 0);
    return 0;
}

/* The task table holds for every launch: its figures are samples of the first iteration alone. */
static int add_work(struct analysis *analysis, const struct pass *passes, int32_t count, int32_t slot, struct error *error) {
    const struct trace *trace = analysis->trace;
    int status = 0;
    for (int32_t i = 0; i < count && !status && slot == 0; i++) {
        struct work work = work_of(trace->tasks, trace->task_count, passes[i].rank);
        int64_t sms = count_compute_ctas(trace, &passes[i]);
        char scope[32];
        snprintf(scope, sizeof scope, "rank %d", passes[i].rank);
        if (work.tile_count == 0) continue;
        if (sms > 0)
            analysis_add_rank(analysis, "quantisation", passes[i].rank, slot,
                              (struct figure_sample){.numerator = (double)work.tile_count,
                                                     .denominator = (double)((work.tile_count + sms - 1) / sms * sms),
                                                     .low_numerator = (double)work.tile_count,
                                                     .high_numerator = (double)work.tile_count});
        analysis_add_rank(analysis, "padding", passes[i].rank, slot,
                          (struct figure_sample){.numerator = (double)work.padding_rows, .denominator = (double)work.rows,
                                                 .low_numerator = (double)work.padding_rows,
                                                 .high_numerator = (double)work.padding_rows});
        status = add_experts(analysis, scope, passes[i].rank, slot, error);
    }
    if (!status && slot == 0) status = add_experts(analysis, "all", -1, slot, error);
    return status;
}

static void add_clock(struct analysis *analysis, const struct pass *passes, int32_t count, int32_t slot) {
    int64_t largest = 0;
    for (int32_t i = 0; i < count; i++)
        for (int32_t lane = passes[i].lane_first; lane < passes[i].lane_first + passes[i].lane_count; lane++)
            if (analysis->trace->lanes[lane].residual_ns > largest) largest = analysis->trace->lanes[lane].residual_ns;
    figures_add_plain(&analysis->figures, "clock.residual", "all", slot, (double)largest, 1, 0);
}

/* The slowest rank's fill. */
static void add_fill(struct analysis *analysis, const struct pass *passes, int32_t count, int32_t slot, int64_t window_ns) {
    double largest = -1;
    for (int32_t i = 0; i < count; i++) {
        char scope[32];
        double ns;
        snprintf(scope, sizeof scope, "rank %d", passes[i].rank);
        if (figures_sample(&analysis->figures, "fill", scope, slot, &ns) && ns > largest) largest = ns;
    }
    if (largest >= 0) figures_add_plain(&analysis->figures, "fill", "all", slot, largest, 1, window_ns);
}

int iteration_figures_add(struct analysis *analysis, const struct iteration *iteration, int32_t slot, struct error *error) {
    const struct pass *passes = analysis->iterations.passes + iteration->pass_first;
    int32_t count = iteration->pass_count;
    add_times(analysis, passes, count, slot);
    add_skew(analysis, iteration, passes, slot);
    add_clock(analysis, passes, count, slot);
    add_fill(analysis, passes, count, slot, iteration->end_ns - iteration->begin_ns);
    return add_work(analysis, passes, count, slot, error);
}
