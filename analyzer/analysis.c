/* See analysis.h: the order in which passes run, and what a reader must know beside the figures. */
#include "analysis.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../probes/host/clock_fit.h"
#include "analysis_internal.h"
#include "edge_carry.h"
#include "text.h"

const char *lane_class_name(enum lane_class lanes) {
    static const char *const names[] = {"compute lanes", "communication lanes", "support lanes", "all lanes"};
    return lanes < LANES_CLASS_COUNT ? names[lanes] : "?";
}

void analysis_note(struct analysis *analysis, const char *format, ...) {
    va_list arguments;
    char text[512];
    if (analysis->note_count == ANALYSIS_NOTES_MAXIMUM) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *copy = arena_copy(&analysis->arena, text);
    if (copy != NULL) analysis->notes[analysis->note_count++] = copy;
}

void analysis_add_rank(struct analysis *analysis, const char *id, int32_t rank, int32_t slot, struct figure_sample sample) {
    char scope[32];
    snprintf(scope, sizeof scope, "rank %d", rank);
    figures_add(&analysis->figures, id, scope, slot, sample);
    figures_add(&analysis->figures, id, "all", slot, sample);
}

/* --- notes ----------------------------------------------------------------------------------------------------------- */

static void note_iterations(struct analysis *analysis) {
    const struct iterations *its = &analysis->iterations;
    int32_t by_use[4] = {0}, apart = 0;
    char dropped[128] = "";
    for (int32_t i = 0; i < its->count; i++) {
        by_use[its->rows[i].use]++;
        if (its->rows[i].use == ITERATION_USED && its->rows[i].apart) apart++;
    }
    if (by_use[ITERATION_WARM_UP] > 0) strcat(dropped, ", the first left out as warm-up");
    if (by_use[ITERATION_INCOMPLETE] > 0)
        snprintf(dropped + strlen(dropped), sizeof dropped - strlen(dropped), ", %d incomplete left out", by_use[ITERATION_INCOMPLETE]);
    if (by_use[ITERATION_NOT_CHOSEN] > 0) strcat(dropped, ", the others not asked for");
    analysis_note(analysis, "%d of %d iteration%s used%s%s", by_use[ITERATION_USED], its->count, its->count == 1 ? "" : "s", dropped,
                  by_use[ITERATION_WARM_UP] == 0 && by_use[ITERATION_USED] > 1 && by_use[ITERATION_USED] < 3
                      ? "; fewer than three, so the first is not left out as warm-up" : "");
    if (apart > 0)
        analysis_note(analysis, "in %d iteration%s the ranks' launches do not overlap in time: which belong together is doubtful",
                      apart, apart == 1 ? "" : "s");
    if (its->other_module_count > 0)
        analysis_note(analysis, "figures are of '%s'; %d other instrumented kernel%s left out",
                      analysis->trace->modules[its->module].name, its->other_module_count,
                      its->other_module_count == 1 ? " was" : "s were");
    if (its->device_count > 1)
        analysis_note(analysis, "ranks ran on %d GPUs: figures that compare ranks (skew, time.kernel of all) carry the clocks' error",
                      its->device_count);
}

static void note_losses(struct analysis *analysis) {
    const struct trace *trace = analysis->trace;
    int64_t lost = 0, lossy = 0, open = 0, moved = 0, stepped = 0;
    for (int32_t i = 0; i < trace->lane_count; i++) {
        lost += trace->lanes[i].lost_count;
        lossy += trace->lanes[i].lost_count > 0;
        open += !trace->lanes[i].closed;
        moved += trace->lanes[i].void_clock;
        stepped += trace->lanes[i].residual_ns > CLOCK_STEP_RESIDUAL_NS;
    }
    if (trace->run.unfinished)
        analysis_note(analysis, "the recording did not end: the trace is read as cut, with what had arrived");
    else if (strcmp(trace->run.state, "cut") == 0)
        analysis_note(analysis, "the recorded program was cut off: the trace holds what had arrived");
    if (lost > 0)
        analysis_note(analysis, "%s records of %s lanes were overwritten before they were read; that time is unknown",
                      text_count(lost).bytes, text_count(lossy).bytes);
    if (open > 0) analysis_note(analysis, "%s lanes had not ended when they were read", text_count(open).bytes);
    if (moved > 0) analysis_note(analysis, "%s lanes changed their SM: their time is unknown", text_count(moved).bytes);
    if (stepped > 0)
        analysis_note(analysis, "the SM clock changed its frequency in %s lanes: their times may be off by up to %lld ns",
                      text_count(stepped).bytes, (long long)analysis->clock_error_ns);
    if (trace->unknown_event_count > 0)
        analysis_note(analysis, "%s records have an event that the trace does not describe", text_count((int64_t)trace->unknown_event_count).bytes);
    if (trace->orphan_count > 0)
        analysis_note(analysis, "%s records belong to no lane and were left out", text_count((int64_t)trace->orphan_count).bytes);
    if (trace->reversed_count > 0)
        analysis_note(analysis, "%s records end before they begin and were left out", text_count((int64_t)trace->reversed_count).bytes);
    if (analysis->zero_length_count > 0)
        analysis_note(analysis, "%s records have no length and were left out", text_count(analysis->zero_length_count).bytes);
    for (int32_t i = 0; i < trace->loss_count; i++)
        if (trace->losses[i].count > 0 && !(strcmp(trace->losses[i].source, "probes") == 0 && strcmp(trace->losses[i].kind, "record") == 0))
            analysis_note(analysis, "%s lost %s %s: %s", trace->losses[i].source, text_count(trace->losses[i].count).bytes,
                          trace->losses[i].kind, trace->losses[i].detail);
    if (trace->hang_count > 0)
        analysis_note(analysis, "%d waits timed out or were still polling; 'mokscope info' lists them", trace->hang_count);
}

/* --- the run --------------------------------------------------------------------------------------------------------- */

static int by_length(const void *a, const void *b) {
    const struct iteration *const *x = a, *const *y = b;
    int64_t p = (*x)->end_ns - (*x)->begin_ns, q = (*y)->end_ns - (*y)->begin_ns;
    if (p != q) return p < q ? -1 : 1;
    return *x < *y ? -1 : *x > *y;
}

static int choose_shown(struct analysis *analysis) {
    const struct iterations *its = &analysis->iterations;
    const struct iteration **used = arena_allocate(&analysis->arena, (size_t)its->count + 1, sizeof *used);
    int32_t count = 0;
    if (used == NULL) return -1;
    for (int32_t i = 0; i < its->count; i++)
        if (its->rows[i].use == ITERATION_USED) used[count++] = &its->rows[i];
    qsort(used, (size_t)count, sizeof(*used), by_length);
    analysis->shown_iteration = (int32_t)(used[(count - 1) / 2] - its->rows);
    return 0;
}

static void look_at_clocks(struct analysis *analysis) {
    const struct trace *trace = analysis->trace;
    analysis->clock_error_ns = CLOCK_STEP_RESIDUAL_NS;
    analysis->time_from_cupti = true;
    for (int32_t i = 0; i < analysis->iterations.pass_count; i++) {
        const struct pass *pass = &analysis->iterations.passes[i];
        if (analysis->iterations.rows[pass->iteration].use != ITERATION_USED) continue;
        if (trace->launches[pass->launch].kernel < 0) analysis->time_from_cupti = false;
        for (int32_t l = pass->lane_first; l < pass->lane_first + pass->lane_count; l++)
            if (!trace->lanes[l].void_clock && trace->lanes[l].residual_ns > analysis->clock_error_ns)
                analysis->clock_error_ns = trace->lanes[l].residual_ns;
    }
}

static int run_iteration(struct analysis *analysis, const struct iteration *iteration, int32_t slot, struct pass_sweep *sweep,
                         struct error *error) {
    for (int32_t i = 0; i < iteration->pass_count; i++) {
        struct arena scratch = {0};
        const struct pass *pass = &analysis->iterations.passes[iteration->pass_first + i];
        int status = pass_sweep_run(analysis->trace, pass, &scratch, sweep, error);
        if (!status) status = pass_figures_add(analysis, sweep, slot, &scratch, error);
        arena_release(&scratch);
        if (status) return status;
    }
    return iteration_figures_add(analysis, iteration, slot, error);
}

int analysis_run(const struct trace *trace, const struct iteration_choice *choice, struct analysis *analysis,
                 struct error *error) {
    struct pass_sweep sweep = {0};
    *analysis = (struct analysis){.trace = trace};
    int status = iterations_find(trace, choice, &analysis->arena, &analysis->iterations, error);
    if (status) goto cleanup;
    analysis->carries = arena_allocate(&analysis->arena, (size_t)trace->edge_count + 1, sizeof *analysis->carries);
    if (analysis->carries == NULL || choose_shown(analysis)) {
        status = error_set(error, ERROR_FAILURE, "out of memory");
        goto cleanup;
    }
    status = edge_carry_find(trace, &analysis->arena, analysis->carries, error);
    look_at_clocks(analysis);
    figures_init(&analysis->figures, &analysis->arena, analysis->iterations.used_count);
    partition_init(&analysis->partition, &analysis->arena);
    for (int32_t i = 0, slot = 0; i < analysis->iterations.count && !status; i++)
        if (analysis->iterations.rows[i].use == ITERATION_USED)
            status = run_iteration(analysis, &analysis->iterations.rows[i], slot++, &sweep, error);
    if (!status) status = partition_finish(&analysis->partition, error);
    if (!status) status = figures_finish(&analysis->figures, error);
    if (!status) status = wait_table_over_ranks(&analysis->waits, &analysis->waits_all_ranks, error);
    if (status) goto cleanup;
    wait_table_order(&analysis->waits);
    note_iterations(analysis);
    note_losses(analysis);
cleanup:
    pass_sweep_release(&sweep);
    if (status) analysis_release(analysis);
    return status;
}

void analysis_release(struct analysis *analysis) {
    wait_table_release(&analysis->waits);
    wait_table_release(&analysis->waits_all_ranks);
    arena_release(&analysis->arena);
    *analysis = (struct analysis){0};
}

/* --- the short answer ------------------------------------------------------------------------------------------------ */

void analysis_headline(const struct analysis *analysis, const struct figure *figures[HEADLINE_COUNT]) {
    const struct figures *all = &analysis->figures;
    figures[0] = figures_find(all, "time.kernel", "all");
    figures[1] = figures_find(all, "work.rate", "all");
    figures[2] = figures_find(all, "exposed.in_kernel", "all");
    figures[3] = figures_find(all, "lanes.capacity_overlap", "all");
    figures[4] = figures_find(all, "tail", lane_class_name(LANES_COMPUTE));
}

static double value_of(const struct analysis *analysis, const char *id, enum lane_class class, const char *what) {
    char scope[96];
    snprintf(scope, sizeof scope, what != NULL ? "%s, %s" : "%s", lane_class_name(class), what);
    const struct figure *figure = figures_find(&analysis->figures, id, scope);
    return figure != NULL ? figure->value : 0;
}

/* Edge that owns most of the class's waiting, or NULL. */
static const struct figure *largest_wait(const struct analysis *analysis, enum lane_class class) {
    const char *name = lane_class_name(class);
    const struct figure *largest = NULL;
    for (int32_t i = 0; i < analysis->figures.count; i++) {
        const struct figure *figure = &analysis->figures.rows[i];
        if (strcmp(figure->definition->id, "wait.by_edge") != 0 || strncmp(figure->scope, name, strlen(name)) != 0) continue;
        if (figure->value > 0 && (largest == NULL || figure->value > largest->value)) largest = figure;
    }
    return largest;
}

static const char *edge_of(const struct figure *figure) { return strchr(figure->scope, ',') + 2; }

static const char *describe_compute(struct analysis *analysis) {
    double compute = value_of(analysis, "lanes.partition", LANES_COMPUTE, "compute");
    double wait = value_of(analysis, "lanes.partition", LANES_COMPUTE, "wait");
    double stalled = value_of(analysis, "lanes.stalled", LANES_COMPUTE, NULL);
    double idle = value_of(analysis, "lanes.partition", LANES_COMPUTE, "idle");
    const struct figure *largest = largest_wait(analysis, LANES_COMPUTE);
    return arena_print(&analysis->arena, "Compute lanes compute %s of the time%s%s%s, wait %s%s%s%s%s and are idle %s",
                       text_share(compute).bytes, stalled > 0 ? " (" : "", stalled > 0 ? text_share(stalled).bytes : "",
                       stalled > 0 ? " stalled on operands)" : "", text_share(wait).bytes, largest != NULL ? " (most on " : "",
                       largest != NULL ? edge_of(largest) : "", largest != NULL ? ", " : "",
                       largest != NULL ? arena_print(&analysis->arena, "%s)", text_share(largest->value).bytes) : "",
                       text_share(idle).bytes);
}

static const char *describe_exposed(struct analysis *analysis) {
    const struct figure *exposed = figures_find(&analysis->figures, "exposed.in_kernel", "all");
    const char *name = NULL;
    double most = 0;
    if (exposed == NULL) return NULL;
    for (int32_t e = 0; e < analysis->trace->edge_count; e++) {
        double share = analysis->carries[e] ? value_of(analysis, "wait.by_edge", LANES_COMPUTE, analysis->trace->edges[e].name) : 0;
        if (share <= most) continue;
        most = share;
        name = analysis->trace->edges[e].name;
    }
    if (name == NULL) return arena_copy(&analysis->arena, "No compute lane waits for data that communication had not delivered");
    return arena_print(&analysis->arena, "They wait %s of the time for data that communication had not delivered (most on %s, %s)",
                       text_share(exposed->value).bytes, name, text_share(most).bytes);
}

/* Edge that owns most of a role's waiting, or NULL. */
static const char *largest_wait_of_role(const struct analysis *analysis, int32_t role) {
    int64_t most = 0;
    const char *name = NULL;
    for (int32_t e = 0; e < analysis->trace->edge_count; e++) {
        int64_t sum = 0;
        for (int32_t i = 0; i < analysis->waits_all_ranks.count; i++) {
            const struct wait_row *row = &analysis->waits_all_ranks.rows[i];
            if (row->role == role && row->owner == e) sum += row->total_ns;
        }
        if (sum <= most) continue;
        most = sum;
        name = analysis->trace->edges[e].name;
    }
    return name;
}

static const char *describe_communication(struct analysis *analysis) {
    const struct partition_group *group = &analysis->partition.groups[PARTITION_ROLE];
    const char *text = NULL;
    for (int32_t i = 0; i < group->count; i++) {
        const struct partition_row *row = &group->rows[i];
        const struct trace_role *role = &analysis->trace->roles[row->role];
        if (role->role_class != TRACE_ROLE_COMMUNICATE || row->lane_ns == 0) continue;
        const char *edge = largest_wait_of_role(analysis, row->role);
        text = arena_print(&analysis->arena, "%s %s lanes move data %s of the time%s%s%s%s%s", text != NULL ? text : "Of communication,",
                           role->name, text_share((double)row->ns[STATE_COMMUNICATE] / (double)row->lane_ns).bytes,
                           edge != NULL ? " and wait " : "",
                           edge != NULL ? text_share((double)row->ns[STATE_WAIT] / (double)row->lane_ns).bytes : "",
                           edge != NULL ? " (most on " : "", edge != NULL ? edge : "", edge != NULL ? ")" : "");
        text = text != NULL ? arena_print(&analysis->arena, "%s;", text) : NULL;
        if (text == NULL) return NULL;
    }
    if (text == NULL) return NULL;
    char *cut = arena_copy(&analysis->arena, text);
    if (cut != NULL) cut[strlen(cut) - 1] = '\0'; /* the last semicolon */
    return cut;
}

int analysis_verdict(struct analysis *analysis, const char *sentences[VERDICT_COUNT]) {
    int count = 0;
    memset(sentences, 0, VERDICT_COUNT * sizeof *sentences);
    const char *all[VERDICT_COUNT] = {NULL};
    if (analysis->lane_ns[LANES_COMPUTE] > 0) {
        all[0] = describe_compute(analysis);
        all[1] = describe_exposed(analysis);
    }
    all[2] = describe_communication(analysis);
    for (int i = 0; i < VERDICT_COUNT; i++)
        if (all[i] != NULL) sentences[count++] = all[i];
    return count;
}
