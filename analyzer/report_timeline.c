/* See report_timeline.h. A strip is a stacked area: x are bins of the iteration, y the share of the role's lanes. A lane is a
 * row; runs of one category of all rows are one path, drawn as horizontal strokes, so that a run costs about eight bytes.
 * x of the lanes are columns; their number is halved until the runs fit the budget. */
#include "report_timeline.h"

#include <stdlib.h>
#include <string.h>

#include "pass_sweep.h"
#include "text.h"
#include "timeline.h"

enum {
    COLUMNS_MAXIMUM = 1 << 16,
    RUNS_MAXIMUM = 450000, /* of the whole page: about 4 MB */
    BINS_OF_ALL_STRIPS = 16000,
    STRIP_HEIGHT = 40,
    LANE_HEIGHT = 5
};

/* Lanes of one role of one rank. */
struct group {
    const struct timeline *timeline;
    int32_t first, count;
};

struct picture {
    FILE *stream;
    struct analysis *analysis;
    struct arena arena;
    struct timeline *timelines; /* [rank_count] */
    int32_t rank_count, group_count, bin_count, column_count;
    int64_t begin_ns, end_ns;
};

/* --- level of detail ------------------------------------------------------------------------------------------------- */

static int64_t count_runs(const struct picture *p, int32_t columns) {
    int64_t count = 0;
    for (int32_t r = 0; r < p->rank_count; r++)
        for (int32_t i = 0; i < p->timelines[r].lane_count && count <= RUNS_MAXIMUM; i++)
            count += timeline_quantise(&p->timelines[r].lanes[i], p->timelines[r].end_ns, p->begin_ns, p->end_ns, columns, NULL, NULL);
    return count;
}

/* Most columns, up to the limit, whose runs fit: halved until they do, then halfway back as long as they do. */
static int32_t find_columns(const struct picture *p, int32_t limit) {
    int32_t fits = limit, fails = limit;
    while (fits > 64 && count_runs(p, fits) > RUNS_MAXIMUM) fails = fits, fits /= 2;
    while (fails - fits > fits / 8) {
        int32_t middle = fits + (fails - fits) / 2;
        if (count_runs(p, middle) > RUNS_MAXIMUM)
            fails = middle;
        else
            fits = middle;
    }
    return fits;
}

static int32_t group_end(const struct timeline *timeline, int32_t first) {
    int32_t end = first;
    while (end < timeline->lane_count && timeline->lanes[end].lane->role == timeline->lanes[first].lane->role) end++;
    return end;
}

static void choose_detail(struct picture *p) {
    int64_t length_ns = p->end_ns - p->begin_ns;
    p->column_count = COLUMNS_MAXIMUM;
    while (p->column_count > length_ns && p->column_count > 1) p->column_count /= 2;
    p->column_count = find_columns(p, p->column_count);
    for (int32_t r = 0; r < p->rank_count; r++)
        for (int32_t first = 0; first < p->timelines[r].lane_count; first = group_end(&p->timelines[r], first)) p->group_count++;
    p->bin_count = p->group_count > 0 ? BINS_OF_ALL_STRIPS / p->group_count : 1;
    if (p->bin_count > 1000) p->bin_count = 1000;
    if (p->bin_count < 50) p->bin_count = 50;
    if (p->bin_count > length_ns) p->bin_count = (int32_t)length_ns;
}

static int prepare(struct picture *p, struct error *error) {
    const struct analysis *analysis = p->analysis;
    const struct iteration *iteration = &analysis->iterations.rows[analysis->shown_iteration];
    struct pass_sweep sweep = {0};
    int status = 0;
    p->begin_ns = iteration->begin_ns;
    p->end_ns = iteration->end_ns > iteration->begin_ns ? iteration->end_ns : iteration->begin_ns + 1;
    p->rank_count = iteration->pass_count;
    p->timelines = arena_allocate(&p->arena, (size_t)p->rank_count + 1, sizeof *p->timelines);
    if (p->timelines == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; i < p->rank_count && !status; i++) {
        struct arena scratch = {0};
        status = pass_sweep_run(analysis->trace, &analysis->iterations.passes[iteration->pass_first + i], &scratch, &sweep, error);
        if (!status) status = timeline_make(&sweep, analysis->carries, &p->arena, &p->timelines[i], error);
        arena_release(&scratch);
    }
    pass_sweep_release(&sweep);
    if (!status) choose_detail(p);
    return status;
}

/* --- strips ---------------------------------------------------------------------------------------------------------- */

static int round_share(double share) { return (int)(share * 400 + 0.5); }

/* One category's area: along its upper edge, back along its lower one. heights [bin_count] in 1/400 of the strip. */
static void write_area(const struct picture *p, int category, const int *below, const int *above) {
    bool any = false;
    for (int32_t b = 0; b < p->bin_count && !any; b++) any = above[b] != below[b];
    if (!any) return;
    fprintf(p->stream, "<path class=\"f%d\" d=\"M0 %d", category, 400 - above[0]);
    for (int32_t b = 0; b < p->bin_count; b++) {
        int32_t last = b;
        while (last + 1 < p->bin_count && above[last + 1] == above[b]) last++;
        if (b > 0) fprintf(p->stream, "V%d", 400 - above[b]);
        fprintf(p->stream, "H%d", last + 1);
        b = last;
    }
    for (int32_t b = p->bin_count - 1; b >= 0; b--) {
        int32_t first = b;
        while (first > 0 && below[first - 1] == below[b]) first--;
        fprintf(p->stream, "V%dH%d", 400 - below[b], first);
        b = first;
    }
    fputs("z\"/>", p->stream);
}

static int write_strip(struct picture *p, const struct group *group, struct error *error) {
    size_t bins = (size_t)p->bin_count;
    double *sums = arena_allocate(&p->arena, bins * TIMELINE_CATEGORY_COUNT, sizeof *sums);
    int *below = arena_allocate(&p->arena, bins, sizeof *below), *above = arena_allocate(&p->arena, bins, sizeof *above);
    double whole = (double)(p->end_ns - p->begin_ns) / p->bin_count * group->count;
    if (sums == NULL || below == NULL || above == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = group->first; i < group->first + group->count; i++)
        timeline_add_to_bins(&group->timeline->lanes[i], group->timeline->end_ns, p->begin_ns, p->end_ns, p->bin_count, sums);
    fprintf(p->stream, "<svg class=\"t s\" data-w=\"%d\" viewBox=\"0 0 %d 400\" preserveAspectRatio=\"none\" height=\"%d\" role=\"img\" aria-label=\"",
            p->bin_count, p->bin_count, STRIP_HEIGHT);
    fprintf(p->stream, "rank %d, role ", group->timeline->rank);
    text_write_html(p->stream, p->analysis->trace->roles[group->timeline->lanes[group->first].lane->role].name);
    fputs(": share of lanes in each state over time\">", p->stream);
    for (int category = 0; category < TIMELINE_IDLE; category++) {
        for (size_t b = 0; b < bins; b++) {
            double share = 0;
            for (int c = 0; c <= category; c++) share += sums[b * TIMELINE_CATEGORY_COUNT + (size_t)c] / whole;
            above[b] = round_share(share > 1 ? 1 : share);
        }
        write_area(p, category, below, above);
        memcpy(below, above, bins * sizeof *below);
    }
    fputs("</svg>", p->stream);
    return 0;
}

/* --- lanes ----------------------------------------------------------------------------------------------------------- */

struct row_writer {
    FILE *stream;
    int category, row;
    int32_t pen_column, pen_row2; /* where the path's pen is; y in half units */
    bool started;
};

/* Relative moves: the pen stands at the end of the run before. */
static void write_run(void *context, struct timeline_column_run run) {
    struct row_writer *w = context;
    if (run.category != w->category) return;
    int32_t y2 = w->row * 2 * LANE_HEIGHT + LANE_HEIGHT;
    if (!w->started) fprintf(w->stream, "<path class=\"s%d\" d=\"", w->category);
    w->started = true;
    fprintf(w->stream, "m%d ", run.begin - w->pen_column);
    if ((y2 - w->pen_row2) % 2 == 0)
        fprintf(w->stream, "%d", (y2 - w->pen_row2) / 2);
    else
        fprintf(w->stream, "%d.5", (y2 - w->pen_row2) / 2);
    fprintf(w->stream, "h%d", run.end - run.begin);
    w->pen_column = run.end;
    w->pen_row2 = y2;
}

static void write_lane_names(const struct picture *p, const struct group *group) {
    for (int32_t i = group->first; i < group->first + group->count; i++) {
        const struct trace_lane *lane = group->timeline->lanes[i].lane;
        fprintf(p->stream, "%s%d,%d,%d", i > group->first ? ";" : "", lane->sm, lane->cta, lane->warp);
    }
}

static void write_lanes(const struct picture *p, const struct group *group) {
    fprintf(p->stream, "<svg class=\"t l\" data-w=\"%d\" data-lanes=\"", p->column_count);
    write_lane_names(p, group);
    fprintf(p->stream, "\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" height=\"%d\">", p->column_count, group->count * LANE_HEIGHT,
            group->count * LANE_HEIGHT);
    for (int category = 0; category < TIMELINE_IDLE; category++) {
        struct row_writer w = {.stream = p->stream, .category = category};
        for (int32_t i = 0; i < group->count; i++) {
            w.row = i;
            timeline_quantise(&group->timeline->lanes[group->first + i], group->timeline->end_ns, p->begin_ns, p->end_ns, p->column_count,
                              write_run, &w);
        }
        if (w.started) fputs("\"/>", p->stream);
    }
    fputs("</svg>", p->stream);
}

/* --- the section ----------------------------------------------------------------------------------------------------- */

static void write_legend(const struct picture *p) {
    fputs("<p class=\"legend\">", p->stream);
    for (int category = 0; category < TIMELINE_CATEGORY_COUNT; category++)
        fprintf(p->stream, "<span><i class=\"b%d\"></i>%s</span> ", category, timeline_category_name((enum timeline_category)category));
    fputs("</p>\n", p->stream);
}

static void write_introduction(const struct picture *p) {
    double length = (double)(p->end_ns - p->begin_ns);
    fprintf(p->stream, "<h2 id=\"timeline\">Timeline</h2>\n<p>Iteration %d of %d%s, %s long. Each strip shows the share of a role's lanes in each "
            "state; open it to see every lane (one row a lane, in order of CTA and warp). Lanes are drawn in steps of %s; "
            "for single events export the trace and open it in Perfetto: <code>mokscope export</code>.</p>\n",
            p->analysis->shown_iteration + 1, p->analysis->iterations.count, p->analysis->iterations.used_count > 1 ? " (the one of median length)" : "",
            text_duration(length).bytes, text_duration(length / p->column_count).bytes);
    write_legend(p);
    fputs("<p class=\"tools\"><button id=\"zi\" type=\"button\">zoom in</button> <button id=\"zo\" type=\"button\">zoom out</button> <button id=\"zl\" type=\"button\">&larr;</button> "
          "<button id=\"zr\" type=\"button\">&rarr;</button> <button id=\"za\" type=\"button\">whole</button> <button id=\"zx\" type=\"button\">open all lanes</button> "
          "<span class=\"hint\">drag to move, Ctrl + wheel to zoom; with the timeline focused: + &minus; &larr; &rarr; 0</span></p>\n", p->stream);
}

static int write_group(struct picture *p, const struct group *group, bool open, struct error *error) {
    const struct trace *trace = p->analysis->trace;
    const struct trace_role *role = &trace->roles[group->timeline->lanes[group->first].lane->role];
    fputs("<div class=\"row\"><div class=\"name\" title=\"", p->stream);
    text_write_html(p->stream, role->description);
    fputs("\">", p->stream);
    text_write_html(p->stream, role->name);
    fprintf(p->stream, "<small>%d lane%s</small></div>", group->count, group->count == 1 ? "" : "s");
    int status = write_strip(p, group, error);
    fprintf(p->stream, "</div>\n<details%s><summary>every lane of ", open ? " open" : "");
    text_write_html(p->stream, role->name);
    fprintf(p->stream, ", rank %d</summary><div class=\"row\"><div class=\"name\"><small>CTA %d&hellip;</small></div>", group->timeline->rank,
            group->timeline->lanes[group->first].lane->cta);
    if (!status) write_lanes(p, group);
    fputs("</div></details>\n", p->stream);
    return status;
}

/* The first rank's first compute role is shown lane by lane at once. */
static int write_ranks(struct picture *p, struct error *error) {
    bool opened = false;
    int status = 0;
    for (int32_t r = 0; r < p->rank_count && !status; r++) {
        const struct timeline *timeline = &p->timelines[r];
        fprintf(p->stream, "<h3>rank %d</h3>\n", timeline->rank);
        for (int32_t first = 0; first < timeline->lane_count && !status; first = group_end(timeline, first)) {
            struct group group = {timeline, first, group_end(timeline, first) - first};
            bool open = !opened && p->analysis->trace->roles[timeline->lanes[first].lane->role].role_class == TRACE_ROLE_COMPUTE;
            opened = opened || open;
            status = write_group(p, &group, open, error);
        }
    }
    return status;
}

int report_timeline_write(FILE *stream, struct analysis *analysis, struct error *error) {
    struct picture p = {.stream = stream, .analysis = analysis};
    int status = prepare(&p, error);
    if (!status) {
        write_introduction(&p);
        fprintf(stream, "<div id=\"tl\" tabindex=\"0\" role=\"group\" aria-label=\"timeline\" data-ns=\"%lld\" data-names=\"",
                (long long)(p.end_ns - p.begin_ns));
        for (int category = 0; category < TIMELINE_CATEGORY_COUNT; category++)
            fprintf(stream, "%s%s", category > 0 ? ";" : "", timeline_category_name((enum timeline_category)category));
        fputs("\">\n<div class=\"row axis\"><div class=\"name\"></div><div id=\"ax\">", stream);
        for (int tick = 0; tick < 5; tick++)
            fprintf(stream, "<span style=\"left:%d%%\">%s</span>", tick * 25, text_duration((double)(p.end_ns - p.begin_ns) * tick / 4).bytes);
        fputs("</div></div>\n", stream);
        status = write_ranks(&p, error);
        fputs("</div>\n<div id=\"tip\" hidden></div>\n", stream);
    }
    arena_release(&p.arena);
    return status;
}
