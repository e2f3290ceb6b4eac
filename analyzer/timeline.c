/* See timeline.h. */
#include "timeline.h"

#include <string.h>

#include "wait_cause.h"

const char *timeline_category_name(enum timeline_category category) {
    static const char *const names[TIMELINE_CATEGORY_COUNT] = {"compute", "communicate", "wait for communication", "other wait",
                                                               "overhead", "unknown", "idle"};
    return category < TIMELINE_CATEGORY_COUNT ? names[category] : "?";
}

/* --- runs ------------------------------------------------------------------------------------------------------------ */

/* Pieces of waits, lane after lane, as the walk gives them. */
struct piece {
    int64_t begin_ns;
    int32_t lane;
    bool exposed;
};

struct pieces {
    struct piece *rows;
    size_t count, capacity;
    const bool *carries;
    struct arena *arena;
    bool failed;
};

static void keep_piece(void *context, int32_t lane, int32_t edge, int32_t owner, int64_t begin_ns, int64_t end_ns) {
    struct pieces *pieces = context;
    (void)edge, (void)end_ns;
    if (pieces->count == pieces->capacity) {
        size_t capacity = pieces->capacity * 2 + 1024;
        struct piece *grown = pieces->failed ? NULL : arena_allocate(pieces->arena, capacity, sizeof *grown);
        if (grown == NULL) {
            pieces->failed = true;
            return;
        }
        if (pieces->count > 0) memcpy(grown, pieces->rows, pieces->count * sizeof *grown);
        pieces->rows = grown;
        pieces->capacity = capacity;
    }
    pieces->rows[pieces->count++] = (struct piece){begin_ns, lane, owner >= 0 && pieces->carries[owner]};
}

static void add_run(struct timeline_lane *lane, int64_t begin_ns, enum timeline_category category) {
    if (lane->count > 0 && lane->runs[lane->count - 1].category == category) return;
    lane->runs[lane->count++] = (struct timeline_run){begin_ns, (uint8_t)category};
}

static void make_lane(const struct lane_segment *segments, size_t count, const struct pieces *pieces, size_t *piece, int32_t index,
                      struct timeline_lane *lane) {
    static const uint8_t categories[STATE_COUNT] = {[STATE_COMPUTE] = TIMELINE_COMPUTE,   [STATE_COMMUNICATE] = TIMELINE_COMMUNICATE,
                                                    [STATE_WAIT] = TIMELINE_WAIT,         [STATE_OVERHEAD] = TIMELINE_OVERHEAD,
                                                    [STATE_IDLE] = TIMELINE_IDLE,         [STATE_UNKNOWN] = TIMELINE_UNKNOWN};
    for (size_t i = 0; i < count; i++) {
        if (segments[i].state != STATE_WAIT) {
            add_run(lane, segments[i].begin_ns, (enum timeline_category)categories[segments[i].state]);
            continue;
        }
        int64_t end_ns = i + 1 < count ? segments[i + 1].begin_ns : INT64_MAX;
        for (; *piece < pieces->count && pieces->rows[*piece].lane == index && pieces->rows[*piece].begin_ns < end_ns; (*piece)++)
            add_run(lane, pieces->rows[*piece].begin_ns, pieces->rows[*piece].exposed ? TIMELINE_EXPOSED : TIMELINE_WAIT);
    }
}

int timeline_make(const struct pass_sweep *sweep, const bool *carries, struct arena *arena, struct timeline *timeline,
                  struct error *error) {
    struct arena scratch = {0};
    struct pieces pieces = {.carries = carries, .arena = &scratch};
    struct cause_lane *lanes = arena_allocate(&scratch, (size_t)sweep->lane_count + 1, sizeof *lanes);
    *timeline = (struct timeline){sweep->pass->rank, sweep->pass->begin_ns, sweep->pass->end_ns, NULL, sweep->lane_count};
    timeline->lanes = arena_allocate(arena, (size_t)sweep->lane_count + 1, sizeof *timeline->lanes);
    int status = lanes == NULL || timeline->lanes == NULL ? error_set(error, ERROR_FAILURE, "out of memory") : 0;
    for (int32_t i = 0; i < sweep->lane_count && !status; i++) {
        lanes[i].lane = pass_sweep_lane(sweep, i);
        lanes[i].segments = pass_sweep_segments(sweep, i, &lanes[i].count);
    }
    if (!status)
        status = wait_cause_walk(sweep->trace, lanes, sweep->lane_count, sweep->pass->end_ns, &scratch, keep_piece, &pieces, error);
    size_t piece = 0;
    for (int32_t i = 0; i < sweep->lane_count && !status; i++) {
        size_t first = piece, count = lanes[i].count;
        while (piece < pieces.count && pieces.rows[piece].lane == i) piece++;
        struct timeline_lane *lane = &timeline->lanes[i];
        lane->lane = lanes[i].lane;
        lane->runs = arena_allocate(arena, count + (piece - first), sizeof *lane->runs);
        if (lane->runs == NULL || pieces.failed)
            status = error_set(error, ERROR_FAILURE, "out of memory");
        else
            make_lane(lanes[i].segments, count, &pieces, &first, i, lane);
    }
    arena_release(&scratch);
    return status;
}

/* --- levels of detail ------------------------------------------------------------------------------------------------ */

/* Columns of a window, filled from left to right. */
struct columns {
    int64_t begin_ns;
    double width_ns;
    int32_t count;
};

static int32_t column_of(const struct columns *c, int64_t at_ns) {
    double column = (double)(at_ns - c->begin_ns) / c->width_ns;
    return column < 0 ? 0 : column >= c->count ? c->count - 1 : (int32_t)column;
}

/* One cell of a lane's picture: time of each category in column `at`. */
struct cell {
    double ns[TIMELINE_CATEGORY_COUNT];
    int32_t at;
};

struct quantiser {
    struct columns columns;
    struct cell cell;
    struct timeline_column_run run;
    int64_t run_count;
    timeline_visit *visit;
    void *context;
};

static void close_run(struct quantiser *q) {
    if (q->run.end > q->run.begin && q->run.category != TIMELINE_IDLE) {
        q->run_count++;
        if (q->visit != NULL) q->visit(q->context, q->run);
    }
    q->run.begin = q->run.end;
}

static void put_columns(struct quantiser *q, int32_t count, uint8_t category) {
    if (category != q->run.category) close_run(q);
    q->run.category = category;
    q->run.end += count;
}

static void close_cell(struct quantiser *q) {
    uint8_t best = TIMELINE_IDLE;
    double most = 0;
    for (uint8_t i = 0; i < TIMELINE_CATEGORY_COUNT; i++)
        if (q->cell.ns[i] > most) most = q->cell.ns[i], best = i;
    put_columns(q, 1, best);
    memset(q->cell.ns, 0, sizeof q->cell.ns);
    q->cell.at++;
}

/* Time [from, to) of one category, in order of time; the columns between are filled. */
static void put_time(struct quantiser *q, int64_t from_ns, int64_t to_ns, uint8_t category) {
    const struct columns *c = &q->columns;
    int32_t last = column_of(c, to_ns - 1);
    double from = (double)(from_ns - c->begin_ns), to = (double)(to_ns - c->begin_ns);
    while (q->cell.at < last) {
        double edge = (q->cell.at + 1) * c->width_ns;
        if (edge > from) q->cell.ns[category] += edge - from, from = edge;
        close_cell(q);
        if (from == edge && q->cell.at < last) { /* whole columns at once */
            put_columns(q, last - q->cell.at, category);
            q->cell.at = last;
            from = last * c->width_ns;
        }
    }
    if (to > from) q->cell.ns[category] += to - from;
}

int64_t timeline_quantise(const struct timeline_lane *lane, int64_t lane_end_ns, int64_t begin_ns, int64_t end_ns, int32_t columns,
                          timeline_visit *visit, void *context) {
    struct quantiser q = {.columns = {begin_ns, (double)(end_ns - begin_ns) / columns, columns}, .visit = visit, .context = context};
    q.run.category = TIMELINE_IDLE;
    int64_t first_ns = lane->count > 0 ? lane->runs[0].begin_ns : end_ns;
    if (first_ns > begin_ns) put_time(&q, begin_ns, first_ns < end_ns ? first_ns : end_ns, TIMELINE_IDLE);
    for (size_t i = 0; i < lane->count; i++) {
        int64_t from = lane->runs[i].begin_ns, to = i + 1 < lane->count ? lane->runs[i + 1].begin_ns : lane_end_ns;
        if (from < begin_ns) from = begin_ns;
        if (to > end_ns) to = end_ns;
        if (to > from) put_time(&q, from, to, lane->runs[i].category);
    }
    if (lane_end_ns < end_ns) put_time(&q, lane_end_ns > begin_ns ? lane_end_ns : begin_ns, end_ns, TIMELINE_IDLE);
    while (q.cell.at < columns) close_cell(&q);
    close_run(&q);
    return q.run_count;
}

void timeline_add_to_bins(const struct timeline_lane *lane, int64_t lane_end_ns, int64_t begin_ns, int64_t end_ns, int32_t bin_count,
                          double *bins) {
    const struct columns c = {begin_ns, (double)(end_ns - begin_ns) / bin_count, bin_count};
    for (size_t i = 0; i < lane->count; i++) {
        int64_t from_ns = lane->runs[i].begin_ns, to_ns = i + 1 < lane->count ? lane->runs[i + 1].begin_ns : lane_end_ns;
        if (from_ns < begin_ns) from_ns = begin_ns;
        if (to_ns > end_ns) to_ns = end_ns;
        if (to_ns <= from_ns) continue;
        double from = (double)(from_ns - begin_ns), to = (double)(to_ns - begin_ns);
        for (int32_t bin = column_of(&c, from_ns); bin < bin_count && from < to; bin++) {
            double edge = bin + 1 == bin_count ? to : (bin + 1) * c.width_ns;
            double until = edge < to ? edge : to;
            if (until > from) bins[(size_t)bin * TIMELINE_CATEGORY_COUNT + lane->runs[i].category] += until - from;
            if (until > from) from = until;
        }
    }
}
