/* See report_html.h: the page around the timeline. */
#include "report_html.h"

#include <math.h>
#include <string.h>

#include "command.h"
#include "report_style.h"
#include "report_timeline.h"
#include "text.h"
#include "timeline.h"

const char report_html_mark[] = "<!doctype html><html lang=\"en\" class=\"nojs\"><meta name=\"generator\" content=\"mokscope report\">";

bool report_html_is_report(const char *path) {
    char start[sizeof report_html_mark] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    size_t got = fread(start, 1, sizeof report_html_mark - 1, file);
    fclose(file);
    return got == sizeof report_html_mark - 1 && memcmp(start, report_html_mark, got) == 0;
}

struct page {
    FILE *stream;
    struct analysis *analysis;
    const struct report_source *source;
};

static void put(const struct page *p, const char *text) { text_write_html(p->stream, text); }

static bool is_number(const struct figure *figure) { return strncmp(figure->definition->id, "expert.", 7) == 0; }

static struct text value_text(const struct figure *figure, double value) {
    return text_value(value, figure->definition->unit, is_number(figure));
}

/* The figure's id with its definition on hover, linked to the definition below. */
static void put_id(const struct page *p, const struct definition *definition, const char *shown) {
    fprintf(p->stream, "<a href=\"#d-%s\"><abbr title=\"", definition->id);
    put(p, definition->title);
    fputs(": ", p->stream);
    put(p, definition->formula);
    fputs(". ", p->stream);
    put(p, definition->text);
    fputs("\">", p->stream);
    put(p, shown);
    fputs("</abbr></a>", p->stream);
}

/* --- top ------------------------------------------------------------------------------------------------------------- */

static void write_head(const struct page *p) {
    fputs(report_html_mark, p->stream);
    fputs("<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline';script-src 'unsafe-inline'\">\n<title>",
          p->stream);
    put(p, p->source->name);
    fprintf(p->stream, ": mokscope report</title>\n<style>\n%s</style>\n<body>\n", report_style);
}

static void write_title(const struct page *p) {
    const struct trace *trace = p->analysis->trace;
    static const char *const shown[][2] = {{"pass", ""}, {"precision", ""}, {"tokens", " tokens a rank"}, {"hidden", " hidden"}, {"intermediate", " intermediate"},
                                           {"top_k", " experts a token"}, {"experts_per_rank", " experts a rank"}, {"comm_sms", " communication SMs a rank"}};
    const char *separator = "";
    fputs("<h1>Where the time went: ", p->stream);
    put(p, p->source->name);
    fputs("</h1>\n<p class=\"sub\">", p->stream);
    put(p, trace->modules[p->analysis->iterations.module].name);
    fputs(" on ", p->stream);
    for (int32_t i = 0; i < trace->device_count; i++) {
        if (i > 0) fputs(", ", p->stream);
        put(p, trace->devices[i].name);
    }
    fprintf(p->stream, ", %d rank%s", trace->rank_count, trace->rank_count == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        const char *value = trace_attribute_find(trace, shown[i][0]);
        if (value == NULL) continue;
        fputs(separator[0] == '\0' ? ": " : separator, p->stream);
        put(p, value);
        fputs(shown[i][1], p->stream);
        separator = ", ";
    }
    fputs("</p>\n", p->stream);
}

static void write_verdict(const struct page *p) {
    const struct figure *figures[HEADLINE_COUNT];
    const char *sentences[VERDICT_COUNT];
    int count = analysis_verdict(p->analysis, sentences);
    fputs("<ul class=\"verdict\">", p->stream);
    for (int i = 0; i < count; i++) {
        fputs("<li>", p->stream);
        put(p, sentences[i]);
        fputs(".", p->stream);
    }
    fputs("</ul>\n<div class=\"cards\">", p->stream);
    analysis_headline(p->analysis, figures);
    for (int i = 0; i < HEADLINE_COUNT; i++) {
        if (figures[i] == NULL) continue;
        struct text low = value_text(figures[i], figures[i]->p5), high = value_text(figures[i], figures[i]->p95);
        fprintf(p->stream, "<div class=\"card\"><b>%s</b>", value_text(figures[i], figures[i]->value).bytes);
        put_id(p, figures[i]->definition, figures[i]->definition->title);
        if (strcmp(low.bytes, high.bytes) != 0)
            fprintf(p->stream, "<small>%s to %s over %d iterations</small>", low.bytes, high.bytes, figures[i]->iterations);
        fputs("</div>", p->stream);
    }
    fputs("</div>\n", p->stream);
    for (int32_t i = 0; i < p->analysis->note_count; i++) {
        fputs("<p class=\"note\">", p->stream);
        put(p, p->analysis->notes[i]);
        fputs(".</p>\n", p->stream);
    }
}

/* --- partition ------------------------------------------------------------------------------------------------------- */

/* Shares of a row, in the order and colours of the timeline; waits split by owner. */
static void row_shares(const struct analysis *analysis, const struct partition_row *row, double shares[TIMELINE_CATEGORY_COUNT]) {
    int64_t exposed = 0;
    for (int32_t i = 0; i < analysis->waits.count; i++) {
        const struct wait_row *w = &analysis->waits.rows[i];
        if ((row->role >= 0 && w->role != row->role) || (row->rank >= 0 && w->rank != row->rank)) continue;
        if (w->owner >= 0 && analysis->carries[w->owner]) exposed += w->total_ns;
    }
    double all = (double)row->lane_ns;
    shares[TIMELINE_COMPUTE] = (double)row->ns[STATE_COMPUTE] / all;
    shares[TIMELINE_COMMUNICATE] = (double)row->ns[STATE_COMMUNICATE] / all;
    shares[TIMELINE_EXPOSED] = (double)exposed / all;
    shares[TIMELINE_WAIT] = (double)(row->ns[STATE_WAIT] - exposed) / all;
    shares[TIMELINE_OVERHEAD] = (double)row->ns[STATE_OVERHEAD] / all;
    shares[TIMELINE_UNKNOWN] = (double)row->ns[STATE_UNKNOWN] / all;
    shares[TIMELINE_IDLE] = (double)row->ns[STATE_IDLE] / all;
}

static void write_bar(const struct page *p, const double shares[TIMELINE_CATEGORY_COUNT]) {
    double x = 0;
    fputs("<svg class=\"bar\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"shares of the row\">", p->stream);
    for (int c = 0; c < TIMELINE_CATEGORY_COUNT; c++) {
        if (shares[c] <= 0) continue;
        fprintf(p->stream, "<rect class=\"f%d\" x=\"%.2f\" width=\"%.2f\" height=\"10\"><title>%s %s</title></rect>", c, x * 1000, shares[c] * 1000,
                timeline_category_name((enum timeline_category)c), text_share(shares[c]).bytes);
        x += shares[c];
    }
    fputs("</svg>", p->stream);
}

static void write_partition_row(const struct page *p, const char *name, const struct partition_row *row) {
    double shares[TIMELINE_CATEGORY_COUNT];
    row_shares(p->analysis, row, shares);
    fputs("<tr><td>", p->stream);
    put(p, name);
    fprintf(p->stream, "<td class=\"n\">%lld<td style=\"min-width:16rem\">", (long long)(row->lane_count / p->analysis->iterations.used_count));
    write_bar(p, shares);
    for (int c = 0; c < TIMELINE_CATEGORY_COUNT; c++) fprintf(p->stream, "<td class=\"n\">%s", shares[c] > 0 ? text_share(shares[c]).bytes : "0");
    fprintf(p->stream, "<td class=\"n\">%s\n", row->stalled_ns > 0 ? text_share((double)row->stalled_ns / (double)row->lane_ns).bytes : "0");
}

static void write_partition_head(const struct page *p, const char *what) {
    fprintf(p->stream, "<tr><th>%s<th class=\"n\">lanes<th>", what);
    for (int c = 0; c < TIMELINE_CATEGORY_COUNT; c++) fprintf(p->stream, "<th class=\"n\">%s", timeline_category_name((enum timeline_category)c));
    fputs("<th class=\"n\">(stalled)\n", p->stream);
}

static void write_partition(const struct page *p) {
    const struct partition *partition = &p->analysis->partition;
    char name[32];
    fputs("<h2 id=\"partition\">", p->stream);
    put_id(p, definition_find("lanes.partition"), "Lane time by state");
    fputs("</h2>\n<p>Every lane is in one state at every moment; each row sums to 100 %, to the nanosecond. ", p->stream);
    put_id(p, definition_find("lanes.stalled"), "Stalled");
    fputs(" time is part of compute and communicate.</p>\n<div class=\"wide\"><table>\n", p->stream);
    write_partition_head(p, "role");
    for (int32_t i = 0; i < partition->groups[PARTITION_ROLE].count; i++) {
        const struct partition_row *row = &partition->groups[PARTITION_ROLE].rows[i];
        write_partition_row(p, p->analysis->trace->roles[row->role].name, row);
    }
    if (partition->groups[PARTITION_RANK].count > 1) {
        write_partition_head(p, "rank");
        for (int32_t i = 0; i < partition->groups[PARTITION_RANK].count; i++) {
            snprintf(name, sizeof name, "%d", partition->groups[PARTITION_RANK].rows[i].rank);
            write_partition_row(p, name, &partition->groups[PARTITION_RANK].rows[i]);
        }
    }
    write_partition_row(p, "all", &partition->groups[PARTITION_TOTAL].rows[0]);
    fputs("</table></div>\n", p->stream);
}

/* --- waits ----------------------------------------------------------------------------------------------------------- */

enum { WAITS_SHOWN = 60 };

static int64_t role_time(const struct analysis *analysis, int32_t role) {
    const struct partition_group *group = &analysis->partition.groups[PARTITION_ROLE];
    for (int32_t i = 0; i < group->count; i++)
        if (group->rows[i].role == role) return group->rows[i].lane_ns;
    return 0;
}

static void put_edge(const struct page *p, int32_t edge) {
    if (edge < 0) {
        fputs("(none)", p->stream);
        return;
    }
    const struct trace_edge *e = &p->analysis->trace->edges[edge];
    fputs("<abbr title=\"", p->stream);
    put(p, e->description);
    fputs("; signalled by ", p->stream);
    put(p, p->analysis->trace->roles[e->producer].name);
    fputs("\">", p->stream);
    put(p, e->name);
    fputs("</abbr>", p->stream);
}

static void write_waits(const struct page *p) {
    const struct analysis *analysis = p->analysis;
    const struct wait_table *waits = &analysis->waits_all_ranks;
    fputs("<h2 id=\"waits\">", p->stream);
    put_id(p, definition_find("wait.by_edge"), "Waits by edge");
    fputs("</h2>\n<p>Each nanosecond of waiting has one owner: the edge waited on, or, for edges inside a CTA, what their producer was itself waiting "
          "for at that moment. Over all ranks, largest first.</p>\n<div class=\"wide\"><table>\n<tr><th>role<th>waits on<th>owned by<th class=\"n\">of its lanes' time"
          "<th class=\"n\">waits<th class=\"n\">mean<th class=\"n\">longest<th>kind\n", p->stream);
    for (int32_t i = 0; i < waits->count && i < WAITS_SHOWN; i++) {
        const struct wait_row *row = &waits->rows[i];
        int64_t time_ns = role_time(analysis, row->role);
        fputs("<tr><td>", p->stream);
        put(p, analysis->trace->roles[row->role].name);
        fputs("<td>", p->stream);
        put_edge(p, row->edge);
        fputs("<td>", p->stream);
        put_edge(p, row->owner);
        fprintf(p->stream, "<td class=\"n\">%s<td class=\"n\">%s<td class=\"n\">%s<td class=\"n\">%s<td>%s\n",
                text_share(time_ns > 0 ? (double)row->total_ns / (double)time_ns : NAN).bytes, text_count(row->count).bytes,
                text_duration((double)row->total_ns / (double)row->count).bytes, text_duration((double)row->max_ns).bytes,
                row->owner >= 0 && analysis->carries[row->owner]                        ? "communication"
                : row->owner >= 0 && analysis->trace->edges[row->owner].slot_reuse      ? "slot reuse"
                                                                                        : "");
    }
    fputs("</table></div>\n", p->stream);
    if (waits->count == 0) fputs("<p>No wait was recorded.</p>\n", p->stream);
    if (waits->count > WAITS_SHOWN)
        fprintf(p->stream, "<p><small>and %d smaller rows: <code>mokscope analyze --json</code></small></p>\n", waits->count - WAITS_SHOWN);
}

/* --- figures --------------------------------------------------------------------------------------------------------- */

static void write_range(const struct page *p, const struct figure *f, double low, double high) {
    struct text a = value_text(f, low), b = value_text(f, high);
    fprintf(p->stream, "<td class=\"n\">%s%s%s", strcmp(a.bytes, b.bytes) != 0 ? a.bytes : "", strcmp(a.bytes, b.bytes) != 0 ? " to " : "",
            strcmp(a.bytes, b.bytes) != 0 ? b.bytes : "");
}

static void write_figures(const struct page *p) {
    const struct figures *figures = &p->analysis->figures;
    fputs("<h2 id=\"figures\">Figures</h2>\n<p>Hover a name for its definition, or see <a href=\"#definitions\">below</a>. Ratios are ratios of sums over the used "
          "iterations, times are medians; p5 to p95 are over the iterations' own values; the clock error says what the value could be if "
          "two lanes' clocks differ by their bound.</p>\n<div class=\"wide\"><table>\n<tr><th>figure<th>scope<th class=\"n\">value<th class=\"n\">p5 to p95"
          "<th class=\"n\">with clock error<th class=\"n\">numerator<th class=\"n\">denominator<th class=\"n\">iterations\n", p->stream);
    for (int32_t i = 0; i < figures->count; i++) {
        const struct figure *f = &figures->rows[i];
        if (f->definition->kind != FIGURE_MEDIAN && f->numerator == 0 && strcmp(f->definition->id, "wait.by_edge") == 0) continue;
        bool again = i > 0 && figures->rows[i - 1].definition == f->definition;
        fputs("<tr><td>", p->stream);
        if (!again) put_id(p, f->definition, f->definition->id);
        fputs("<td>", p->stream);
        put(p, f->scope);
        fprintf(p->stream, "<td class=\"n\">%s", value_text(f, f->value).bytes);
        write_range(p, f, f->p5, f->p95);
        write_range(p, f, f->low, f->high);
        fprintf(p->stream, "<td class=\"n\">%.6g<td class=\"n\">%.6g<td class=\"n\">%d\n", f->numerator, f->denominator, f->iterations);
    }
    fputs("</table></div>\n", p->stream);
}

static void write_definitions(const struct page *p) {
    int32_t count;
    const struct definition *rows = definitions(&count);
    fputs("<h2 id=\"definitions\">Definitions</h2>\n<p>C, X: union of a rank's time in compute and in communicate; T: its window; L: its lanes, Lc and Lx those of "
          "compute and communication roles; c(t), x(t): how many of these are in their state.</p>\n<dl>\n", p->stream);
    for (int32_t i = 0; i < count; i++) {
        fprintf(p->stream, "<dt id=\"d-%s\">%s: ", rows[i].id, rows[i].id);
        put(p, rows[i].title);
        fputs("<dd><code>", p->stream);
        put(p, rows[i].formula);
        fputs("</code>", p->stream);
        if (rows[i].unit[0] != '\0') fprintf(p->stream, " [%s]", rows[i].unit);
        fputs(". ", p->stream);
        put(p, rows[i].text);
        fputs(" <small>After: ", p->stream);
        put(p, rows[i].source);
        fputs(".</small>\n", p->stream);
    }
    fputs("</dl>\n", p->stream);
}

/* --- run ------------------------------------------------------------------------------------------------------------- */

static void write_term(const struct page *p, const char *name, const char *value) {
    if (value[0] == '\0') return;
    fputs("<dt>", p->stream);
    put(p, name);
    fputs("<dd>", p->stream);
    put(p, value);
    fputc('\n', p->stream);
}

static void write_attributes(const struct page *p, const char *kind, const char *name) {
    const struct trace *trace = p->analysis->trace;
    const char *separator = "";
    for (int32_t i = 0; i < trace->attribute_count; i++) {
        const struct trace_attribute *a = &trace->attributes[i];
        if (strcmp(a->kind, kind) != 0) continue;
        if (separator[0] == '\0') fprintf(p->stream, "<dt>%s<dd>", name);
        fputs(separator, p->stream);
        put(p, a->name);
        fputc(' ', p->stream);
        put(p, a->value);
        if (a->unit[0] != '\0') fputc(' ', p->stream);
        put(p, a->unit);
        separator = ", ";
    }
    if (separator[0] != '\0') fputc('\n', p->stream);
}

static void write_devices(const struct page *p) {
    const struct trace *trace = p->analysis->trace;
    for (int32_t i = 0; i < trace->device_count; i++) {
        const struct recorded_device *d = &trace->devices[i];
        fprintf(p->stream, "<dt>GPU %lld<dd>", (long long)d->device_id);
        put(p, d->name);
        fprintf(p->stream, ", %lld SMs", (long long)d->sm_count);
        if (d->sm_clock_khz > 0) fprintf(p->stream, ", %.2f GHz", (double)d->sm_clock_khz * 1e-6);
        if (d->clock_known)
            fprintf(p->stream, "; clock to host: bracket %lld ns, residual %lld ns, drift %.2f ppm", (long long)d->width_ns, (long long)d->residual_ns, d->drift * 1e6);
        fputc('\n', p->stream);
    }
}

static void write_run(const struct page *p) {
    const struct trace *trace = p->analysis->trace;
    const struct analysis *analysis = p->analysis;
    fputs("<h2 id=\"run\">Run and provenance</h2>\n<dl class=\"run\">\n<dt>trace<dd>", p->stream);
    put(p, p->source->name);
    fprintf(p->stream, ", %s%s, state %s, written by the %s\n<dt>recorded with<dd>mokscope %s %s\n<dt>analysed with<dd>mokscope %s %s\n",
            text_bytes((double)p->source->byte_count).bytes, p->source->compressed ? " compressed" : "", trace->run.state, trace->run.producer,
            trace->run.tool_version, trace->run.git_revision, command_version(), command_git_revision());
    write_term(p, "command", trace->run.command);
    write_term(p, "host", trace->run.host);
    write_devices(p);
    write_attributes(p, "shape", "shape");
    write_attributes(p, "knob", "knobs");
    write_attributes(p, "routing", "routing");
    write_attributes(p, "version", "versions");
    write_attributes(p, "clock", "clocks");
    write_attributes(p, "note", "notes");
    fprintf(p->stream, "<dt>iterations<dd>%d of %d used, time.kernel from %s\n", analysis->iterations.used_count, analysis->iterations.count,
            analysis->time_from_cupti ? "CUPTI's kernel records" : "the lanes");
    fprintf(p->stream, "<dt>records<dd>%s spans, %s waits, %s signals in %s lanes\n", text_count((int64_t)trace->record_count[TRACE_SPAN]).bytes,
            text_count((int64_t)trace->record_count[TRACE_WAIT]).bytes, text_count((int64_t)trace->record_count[TRACE_SIGNAL]).bytes,
            text_count(trace->lane_count).bytes);
    for (int32_t i = 0; i < trace->loss_count; i++) {
        fprintf(p->stream, "<dt>lost<dd>%s ", text_count(trace->losses[i].count).bytes);
        put(p, trace->losses[i].source);
        fputc(' ', p->stream);
        put(p, trace->losses[i].kind);
        fputs(": ", p->stream);
        put(p, trace->losses[i].detail);
        fputc('\n', p->stream);
    }
    if (trace->loss_count == 0) fputs("<dt>lost<dd>nothing\n", p->stream);
    fputs("</dl>\n", p->stream);
}

int report_html_write(FILE *stream, struct analysis *analysis, const struct report_source *source, struct error *error) {
    const struct page page = {stream, analysis, source};
    write_head(&page);
    write_title(&page);
    write_verdict(&page);
    int status = report_timeline_write(stream, analysis, error);
    if (status) return status;
    write_partition(&page);
    write_waits(&page);
    write_run(&page);
    write_figures(&page);
    write_definitions(&page);
    fprintf(stream, "<script>\n%s</script>\n</body></html>\n", report_script);
    return 0;
}
