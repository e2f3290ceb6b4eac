/* See analysis_text.h. */
#include "analysis_text.h"

#include <math.h>
#include <string.h>

#include "text.h"

struct out {
    FILE *file;
    bool colour;
};

static void heading(const struct out *out, const char *text) {
    fprintf(out->file, "\n%s%s%s\n", out->colour ? "\033[1m" : "", text, out->colour ? "\033[0m" : "");
}

/* Figures of unit '' that are no shares. */
static bool is_number(const struct figure *figure) { return strncmp(figure->definition->id, "expert.", 7) == 0; }

static struct text value_text(const struct figure *figure, double value) {
    return text_value(value, figure->definition->unit, is_number(figure));
}

/* "A to B", or nothing where both read the same. */
static void print_range(const struct figure *figure, double low, double high, char *text, size_t size) {
    struct text a = value_text(figure, low), b = value_text(figure, high);
    text[0] = '\0';
    if (strcmp(a.bytes, b.bytes) != 0) snprintf(text, size, "%s to %s", a.bytes, b.bytes);
}

/* --- headline -------------------------------------------------------------------------------------------------------- */

static void write_run(const struct out *out, const struct trace *trace) {
    static const char *const shown[] = {"pass", "precision", "ranks", "tokens", "hidden", "intermediate", "top_k", "experts_per_rank", "comm_sms"};
    const char *separator = "";
    for (int32_t i = 0; i < trace->device_count; i++)
        fprintf(out->file, "%s%s", i == 0 ? "" : ", ", trace->devices[i].name);
    fprintf(out->file, ", %d rank%s", trace->rank_count, trace->rank_count == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        const char *value = trace_attribute_find(trace, shown[i]);
        if (value == NULL || strcmp(shown[i], "ranks") == 0) continue;
        fprintf(out->file, "%s%s %s", separator[0] == '\0' ? "; " : separator, shown[i], value);
        separator = ", ";
    }
    fprintf(out->file, "\n");
}

static void write_headline(const struct out *out, struct analysis *analysis) {
    const struct figure *figures[HEADLINE_COUNT];
    const char *sentences[VERDICT_COUNT];
    int count = analysis_verdict(analysis, sentences);
    for (int i = 0; i < count; i++) fprintf(out->file, "%s.\n", sentences[i]);
    analysis_headline(analysis, figures);
    fprintf(out->file, "\n");
    for (int i = 0; i < HEADLINE_COUNT; i++) {
        if (figures[i] == NULL) continue;
        const struct figure *f = figures[i];
        char spread[80];
        fprintf(out->file, "  %s%14s%s  %-24s %s", out->colour ? "\033[1m" : "", value_text(f, f->value).bytes,
                out->colour ? "\033[0m" : "", f->definition->id, f->definition->title);
        print_range(f, f->p5, f->p95, spread, sizeof spread);
        if (spread[0] != '\0') fprintf(out->file, " (%s over %d iterations)", spread, f->iterations);
        fprintf(out->file, "\n");
    }
}

/* --- tables ---------------------------------------------------------------------------------------------------------- */

static void write_partition_row(const struct out *out, const char *name, const struct partition_row *row, int32_t iterations) {
    fprintf(out->file, "  %-18s %7.0f", name, (double)row->lane_count / iterations);
    for (int state = 0; state < STATE_COUNT; state++)
        fprintf(out->file, " %11s", text_share((double)row->ns[state] / (double)row->lane_ns).bytes);
    fprintf(out->file, " %10s\n", text_share((double)row->stalled_ns / (double)row->lane_ns).bytes);
}

static void write_partition_heading(const struct out *out, const char *what) {
    fprintf(out->file, "  %-18s %7s", what, "lanes");
    for (int state = 0; state < STATE_COUNT; state++) fprintf(out->file, " %11s", lane_state_name((enum lane_state)state));
    fprintf(out->file, " %10s\n", "(stalled)");
}

enum { RANKS_SHOWN = 16 };

static void write_partition(const struct out *out, const struct analysis *analysis) {
    const struct partition *partition = &analysis->partition;
    int32_t iterations = analysis->iterations.used_count;
    char name[32];
    heading(out, "Lane time by state (lanes.partition; each row sums to 100 %)");
    write_partition_heading(out, "role");
    for (int32_t i = 0; i < partition->groups[PARTITION_ROLE].count; i++) {
        const struct partition_row *row = &partition->groups[PARTITION_ROLE].rows[i];
        write_partition_row(out, analysis->trace->roles[row->role].name, row, iterations);
    }
    const struct partition_group *ranks = &partition->groups[PARTITION_RANK];
    if (ranks->count > 1) write_partition_heading(out, "rank");
    for (int32_t i = 0; i < ranks->count && i < RANKS_SHOWN && ranks->count > 1; i++) {
        snprintf(name, sizeof name, "%d", ranks->rows[i].rank);
        write_partition_row(out, name, &ranks->rows[i], iterations);
    }
    if (ranks->count > RANKS_SHOWN) fprintf(out->file, "  and %d more: --json\n", ranks->count - RANKS_SHOWN);
    write_partition_row(out, "all", &partition->groups[PARTITION_TOTAL].rows[0], iterations);
}

/* SMs differ little; the ones that differ most are worth a line. */
static void write_sms(const struct out *out, const struct analysis *analysis) {
    const struct partition_group *group = &analysis->partition.groups[PARTITION_SM];
    const struct partition_row *low = NULL, *high = NULL;
    double lowest = 2, highest = -1;
    for (int32_t i = 0; i < group->count; i++) {
        double share = (double)(group->rows[i].ns[STATE_COMPUTE] + group->rows[i].ns[STATE_COMMUNICATE]) / (double)group->rows[i].lane_ns;
        if (share < lowest) lowest = share, low = &group->rows[i];
        if (share > highest) highest = share, high = &group->rows[i];
    }
    if (group->count > 1)
        fprintf(out->file, "  %d SMs: work from %s (SM %d) to %s (SM %d) of their lanes' time; all of them: --json\n", group->count,
                text_share(lowest).bytes, low->sm, text_share(highest).bytes, high->sm);
}

enum { WAITS_SHOWN = 24 };

static int64_t role_time(const struct analysis *analysis, int32_t role) {
    const struct partition_group *group = &analysis->partition.groups[PARTITION_ROLE];
    for (int32_t i = 0; i < group->count; i++)
        if (group->rows[i].role == role) return group->rows[i].lane_ns;
    return 0;
}

static void write_wait(const struct out *out, const struct analysis *analysis, const struct wait_row *row) {
    const struct trace *trace = analysis->trace;
    int64_t time_ns = role_time(analysis, row->role);
    const char *edge = row->edge >= 0 ? trace->edges[row->edge].name : "?";
    const char *owner = row->owner == row->edge ? "itself" : row->owner >= 0 ? trace->edges[row->owner].name : "?";
    const char *kind = "";
    if (row->owner >= 0 && analysis->carries[row->owner]) kind = "  communication";
    if (row->owner >= 0 && trace->edges[row->owner].slot_reuse) kind = "  slot reuse";
    fprintf(out->file, "  %-10s %-15s %-15s %12s %9s %10s %10s%s\n", trace->roles[row->role].name, edge, owner,
            text_share(time_ns > 0 ? (double)row->total_ns / (double)time_ns : NAN).bytes, text_count(row->count).bytes,
            text_duration((double)row->total_ns / (double)row->count).bytes, text_duration((double)row->max_ns).bytes, kind);
}

static void write_waits(const struct out *out, const struct analysis *analysis) {
    const struct wait_table *waits = &analysis->waits_all_ranks;
    heading(out, "Waits by edge (wait.by_edge; each nanosecond has one owner)");
    if (waits->count == 0)
        fprintf(out->file, "  none recorded\n");
    else
        fprintf(out->file, "  %-10s %-15s %-15s %12s %9s %10s %10s\n", "role", "waits on", "owned by", "of its time", "waits", "mean", "longest");
    for (int32_t i = 0; i < waits->count && i < WAITS_SHOWN; i++) write_wait(out, analysis, &waits->rows[i]);
    if (waits->count > WAITS_SHOWN) fprintf(out->file, "  and %d more: --json\n", waits->count - WAITS_SHOWN);
}

/* Figures that the tables above hold already. */
static bool in_tables(const struct figure *figure) {
    static const char *const ids[] = {"lanes.partition", "lanes.stalled", "wait.by_edge"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (strcmp(figure->definition->id, ids[i]) == 0) return true;
    return false;
}

/* Lowest and highest rank of a figure whose row for all ranks is rows[i]; empty if there are not two ranks. */
static void print_ranks(const struct figures *figures, int32_t i, char *text, size_t size) {
    const struct figure *low = NULL, *high = NULL;
    for (int32_t k = i + 1; k < figures->count && figures->rows[k].definition == figures->rows[i].definition; k++) {
        const struct figure *f = &figures->rows[k];
        if (strncmp(f->scope, "rank ", 5) != 0 || isnan(f->value)) continue;
        if (low == NULL || f->value < low->value) low = f;
        if (high == NULL || f->value > high->value) high = f;
    }
    text[0] = '\0';
    if (low == high || value_text(low, low->value).bytes[0] == '\0') return;
    snprintf(text, size, "%s (rank %s) to %s (rank %s)", value_text(low, low->value).bytes, low->scope + 5, value_text(high, high->value).bytes,
             high->scope + 5);
}

static void write_figure(const struct out *out, const struct figures *figures, int32_t i) {
    const struct figure *f = &figures->rows[i];
    char spread[80], bounds[80], ranks[120] = "", line[400];
    print_range(f, f->p5, f->p95, spread, sizeof spread);
    print_range(f, f->low, f->high, bounds, sizeof bounds);
    if (strcmp(f->scope, "all") == 0) print_ranks(figures, i, ranks, sizeof ranks);
    int length = snprintf(line, sizeof line, "  %-24s %-14s %14s   %-30s %-22s %s", f->definition->id, f->scope, value_text(f, f->value).bytes,
                          spread, bounds, ranks);
    while (length > 0 && line[length - 1] == ' ') length--;
    fprintf(out->file, "%.*s\n", length, line);
}

/* Single ranks stand in JSON and in the report; the terminal shows the lowest and the highest. */
static void write_figures(const struct out *out, const struct analysis *analysis) {
    const struct figures *figures = &analysis->figures;
    heading(out, "Figures (--definitions explains them; every rank: --json)");
    fprintf(out->file, "  %-24s %-14s %14s   %-30s %-22s %s\n", "figure", "scope", "value", "p5 to p95", "with clock error", "ranks");
    for (int32_t i = 0; i < figures->count; i++)
        if (!in_tables(&figures->rows[i]) && strncmp(figures->rows[i].scope, "rank ", 5) != 0) write_figure(out, figures, i);
}

void analysis_text_brief(FILE *file, struct analysis *analysis, bool colour) {
    const struct out out = {file, colour};
    write_headline(&out, analysis);
}

void analysis_text_write(FILE *file, struct analysis *analysis, bool colour) {
    const struct out out = {file, colour};
    write_run(&out, analysis->trace);
    for (int32_t i = 0; i < analysis->note_count; i++) fprintf(file, "note: %s\n", analysis->notes[i]);
    fprintf(file, "\n");
    write_headline(&out, analysis);
    write_partition(&out, analysis);
    write_sms(&out, analysis);
    write_waits(&out, analysis);
    write_figures(&out, analysis);
}

/* --- definitions ----------------------------------------------------------------------------------------------------- */

static void write_wrapped(FILE *file, const char *label, const char *text) {
    const int width = 100, indent = 12;
    fprintf(file, "  %-*s", indent - 2, label);
    for (int column = indent; *text != '\0';) {
        int length = (int)strcspn(text, " ");
        if (column > indent && column + 1 + length > width) {
            fprintf(file, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', file);
            column++;
        }
        fprintf(file, "%.*s", length, text);
        column += length;
        text += length;
        while (*text == ' ') text++;
    }
    fputc('\n', file);
}

void analysis_text_definitions(FILE *file, const char *id) {
    static const char *const kinds[] = {"ratio of sums over iterations, spread p5 to p95", "1 - ratio of sums over iterations, spread p5 to p95",
                                        "median over iterations, spread p5 to p95"};
    int32_t count;
    const struct definition *rows = definitions(&count);
    for (int32_t i = 0; i < count; i++) {
        if (id != NULL && strcmp(id, rows[i].id) != 0) continue;
        fprintf(file, "%s: %s\n", rows[i].id, rows[i].title);
        write_wrapped(file, "formula", rows[i].formula);
        write_wrapped(file, "unit", rows[i].unit[0] != '\0' ? rows[i].unit : "1");
        write_wrapped(file, "statistic", kinds[rows[i].kind]);
        write_wrapped(file, "meaning", rows[i].text);
        write_wrapped(file, "after", rows[i].source);
    }
}
