/* See wait_cause.h. */
#include "wait_cause.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAXIMUM = 8, OWNERS_OF_A_WAIT = 32 };

void wait_table_release(struct wait_table *table) {
    free(table->rows);
    *table = (struct wait_table){0};
}

/* --- lanes of a CTA -------------------------------------------------------------------------------------------------- */

/* A lane by its place: entries are ordered by cta, role, warp. */
struct place {
    int32_t cta, role, warp, lane;
};

struct cause {
    const struct trace *trace;
    const struct cause_lane *lanes;
    wait_cause_visit *visit;
    void *context;
    int32_t asked_lane, asked_edge; /* the wait whose owners are being found */
    struct place *places; /* [lane_count] */
    int32_t *place_of;    /* [lane_count] position in places */
    int32_t lane_count;
    int64_t end_ns;
};

static int by_place(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->cta != y->cta) return x->cta < y->cta ? -1 : 1;
    if (x->role != y->role) return x->role < y->role ? -1 : 1;
    if (x->warp != y->warp) return x->warp < y->warp ? -1 : 1;
    return x->lane < y->lane ? -1 : x->lane > y->lane;
}

static int make_places(struct cause *c, struct arena *arena) {
    c->places = arena_allocate(arena, (size_t)c->lane_count + 1, sizeof *c->places);
    c->place_of = arena_allocate(arena, (size_t)c->lane_count + 1, sizeof *c->place_of);
    if (c->places == NULL || c->place_of == NULL) return -1;
    for (int32_t i = 0; i < c->lane_count; i++) {
        const struct trace_lane *lane = c->lanes[i].lane;
        c->places[i] = (struct place){lane->cta, lane->role, lane->warp, i};
    }
    qsort(c->places, (size_t)c->lane_count, sizeof *c->places, by_place);
    for (int32_t i = 0; i < c->lane_count; i++) c->place_of[c->places[i].lane] = i;
    return 0;
}

/* Lanes of a role in a CTA: places[*first .. *first + count). */
static int32_t find_role(const struct cause *c, int32_t cta, int32_t role, int32_t *first) {
    int32_t low = 0, high = c->lane_count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const struct place *p = &c->places[middle];
        if (p->cta < cta || (p->cta == cta && p->role < role))
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    int32_t count = 0;
    while (low + count < c->lane_count && c->places[low + count].cta == cta && c->places[low + count].role == role) count++;
    return count;
}

/* --- segments -------------------------------------------------------------------------------------------------------- */

static int64_t segment_end(const struct cause *c, const struct cause_lane *lane, size_t i) {
    return i + 1 < lane->count ? lane->segments[i + 1].begin_ns : c->end_ns;
}

/* Segment that holds the moment; segments cover the window. */
static size_t find_segment(const struct cause_lane *lane, int64_t at_ns) {
    size_t low = 0, high = lane->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (lane->segments[middle].begin_ns <= at_ns)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t waited_ns(const struct cause *c, const struct cause_lane *lane, int64_t begin_ns, int64_t end_ns) {
    int64_t sum = 0;
    for (size_t i = find_segment(lane, begin_ns); i < lane->count && lane->segments[i].begin_ns < end_ns; i++) {
        if (lane->segments[i].state != STATE_WAIT) continue;
        int64_t from = lane->segments[i].begin_ns > begin_ns ? lane->segments[i].begin_ns : begin_ns;
        int64_t to = segment_end(c, lane, i) < end_ns ? segment_end(c, lane, i) : end_ns;
        sum += to - from;
    }
    return sum;
}

/* Lane of the edge's producer that the waiting lane depends on, or -1. */
static int32_t find_producer(const struct cause *c, int32_t lane, int32_t edge, int64_t begin_ns, int64_t end_ns) {
    const struct trace_lane *consumer = c->lanes[lane].lane;
    int32_t first, own_first, best = -1;
    int32_t count = find_role(c, consumer->cta, c->trace->edges[edge].producer, &first);
    if (count == 0) return -1;
    if (count == 1) return c->places[first].lane;
    if (find_role(c, consumer->cta, consumer->role, &own_first) == count)
        return c->places[first + (c->place_of[lane] - own_first)].lane;
    int64_t best_ns = -1;
    for (int32_t i = first; i < first + count; i++) {
        int64_t ns = waited_ns(c, &c->lanes[c->places[i].lane], begin_ns, end_ns);
        if (ns > best_ns) {
            best_ns = ns;
            best = c->places[i].lane;
        }
    }
    return best;
}

/* --- following ------------------------------------------------------------------------------------------------------- */

/* Roles on the way from the lane asked about to here. */
struct way {
    int32_t roles[DEPTH_MAXIMUM];
    int32_t count;
};

static bool on_way(const struct way *way, int32_t role) {
    for (int32_t i = 0; i < way->count; i++)
        if (way->roles[i] == role) return true;
    return way->count == DEPTH_MAXIMUM;
}

static void own(const struct cause *c, int32_t owner, int64_t begin_ns, int64_t end_ns) {
    c->visit(c->context, c->asked_lane, c->asked_edge, owner, begin_ns, end_ns);
}

static void follow(const struct cause *c, int32_t lane, int32_t edge, int64_t begin_ns, int64_t end_ns, struct way *way) {
    int32_t producer = -1;
    if (edge >= 0 && c->trace->edges[edge].scope == TRACE_SCOPE_CTA && !on_way(way, c->trace->edges[edge].producer))
        producer = find_producer(c, lane, edge, begin_ns, end_ns);
    if (producer < 0) {
        own(c, edge, begin_ns, end_ns);
        return;
    }
    const struct cause_lane *p = &c->lanes[producer];
    way->roles[way->count++] = p->lane->role;
    for (size_t i = find_segment(p, begin_ns); i < p->count && p->segments[i].begin_ns < end_ns; i++) {
        int64_t from = p->segments[i].begin_ns > begin_ns ? p->segments[i].begin_ns : begin_ns;
        int64_t to = segment_end(c, p, i) < end_ns ? segment_end(c, p, i) : end_ns;
        if (to <= from) continue;
        if (p->segments[i].state == STATE_WAIT && p->segments[i].edge >= 0)
            follow(c, producer, p->segments[i].edge, from, to, way);
        else
            own(c, edge, from, to);
    }
    way->count--;
}

/* --- the table ------------------------------------------------------------------------------------------------------- */

static struct wait_row *find_row(struct wait_table *table, const struct wait_row *key) {
    for (int32_t i = table->count - 1; i >= 0; i--) {
        struct wait_row *row = &table->rows[i];
        if (row->rank == key->rank && row->role == key->role && row->edge == key->edge && row->owner == key->owner) return row;
    }
    if (table->count == table->capacity) {
        int32_t capacity = table->capacity * 2 + 64;
        struct wait_row *grown = realloc(table->rows, (size_t)capacity * sizeof *grown);
        if (grown == NULL) return NULL;
        table->rows = grown;
        table->capacity = capacity;
    }
    table->rows[table->count] = *key;
    return &table->rows[table->count++];
}

/* --- summing one wait ------------------------------------------------------------------------------------------------ */

struct owner_part {
    int32_t owner;
    int64_t ns;
};

struct owners {
    struct owner_part parts[OWNERS_OF_A_WAIT];
    int32_t count;
};

/* More owners than places: the last place takes the rest, so that the sum stays right. */
static void add_part(struct owners *owners, int32_t owner, int64_t ns) {
    int32_t i = 0;
    if (ns <= 0) return;
    while (i < owners->count && owners->parts[i].owner != owner) i++;
    if (i == OWNERS_OF_A_WAIT) i--;
    if (i == owners->count) owners->parts[owners->count++] = (struct owner_part){owner, 0};
    owners->parts[i].ns += ns;
}

/* Gathers the parts of a wait; a wait's pieces follow each other. */
struct summing {
    const struct cause_lane *lanes;
    struct wait_table *table;
    struct owners owners; /* of the wait being summed */
    int32_t lane, edge;
    uint32_t record;
    int64_t owned_ns;
    struct error *error;
    int status;
};

static void flush(struct summing *s) {
    for (int32_t i = 0; i < s->owners.count && !s->status; i++) {
        const struct trace_lane *lane = s->lanes[s->lane].lane;
        struct wait_row key = {lane->rank, lane->role, s->edge, s->owners.parts[i].owner, 0, 0, 0};
        struct wait_row *row = find_row(s->table, &key);
        if (row == NULL) {
            s->status = error_set(s->error, ERROR_FAILURE, "out of memory for the waits");
            return;
        }
        row->total_ns += s->owners.parts[i].ns;
        row->count++;
        if (s->owners.parts[i].ns > row->max_ns) row->max_ns = s->owners.parts[i].ns;
    }
    s->owners.count = 0;
}

/* Pieces of one wait (spans may be nested in it) count as one. */
static void sum_piece(void *context, int32_t lane, int32_t edge, int32_t owner, int64_t begin_ns, int64_t end_ns) {
    struct summing *s = context;
    uint32_t record = s->lanes[lane].segments[find_segment(&s->lanes[lane], begin_ns)].record;
    if (lane != s->lane || record != s->record) flush(s);
    s->lane = lane;
    s->edge = edge;
    s->record = record;
    s->owned_ns += end_ns - begin_ns;
    add_part(&s->owners, owner, end_ns - begin_ns);
}

int wait_table_merge(struct wait_table *table, const struct wait_table *other, struct error *error) {
    for (int32_t i = 0; i < other->count; i++) {
        struct wait_row key = other->rows[i];
        key.total_ns = key.count = key.max_ns = 0;
        struct wait_row *row = find_row(table, &key);
        if (row == NULL) return error_set(error, ERROR_FAILURE, "out of memory for the waits");
        row->total_ns += other->rows[i].total_ns;
        row->count += other->rows[i].count;
        if (other->rows[i].max_ns > row->max_ns) row->max_ns = other->rows[i].max_ns;
    }
    return 0;
}

int wait_cause_walk(const struct trace *trace, const struct cause_lane *lanes, int32_t lane_count, int64_t end_ns,
                    struct arena *arena, wait_cause_visit *visit, void *context, struct error *error) {
    struct cause c = {.trace = trace, .lanes = lanes, .visit = visit, .context = context, .lane_count = lane_count, .end_ns = end_ns};
    if (make_places(&c, arena)) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t lane = 0; lane < lane_count; lane++) {
        for (size_t i = 0; i < lanes[lane].count; i++) {
            const struct lane_segment *segment = &lanes[lane].segments[i];
            if (segment->state != STATE_WAIT) continue;
            struct way way = {{lanes[lane].lane->role}, 1};
            c.asked_lane = lane;
            c.asked_edge = segment->edge;
            follow(&c, lane, segment->edge, segment->begin_ns, segment_end(&c, &lanes[lane], i), &way);
        }
    }
    return 0;
}

static int64_t all_waits(const struct cause_lane *lanes, int32_t lane_count, int64_t end_ns) {
    int64_t sum = 0;
    for (int32_t lane = 0; lane < lane_count; lane++)
        for (size_t i = 0; i < lanes[lane].count; i++)
            if (lanes[lane].segments[i].state == STATE_WAIT)
                sum += (i + 1 < lanes[lane].count ? lanes[lane].segments[i + 1].begin_ns : end_ns) - lanes[lane].segments[i].begin_ns;
    return sum;
}

int wait_cause_add(const struct trace *trace, const struct cause_lane *lanes, int32_t lane_count, int64_t end_ns,
                   struct arena *arena, struct wait_table *table, struct error *error) {
    struct wait_table own_rows = {0}; /* a rank's rows are few, so that searching them for each wait is quick */
    struct summing s = {.lanes = lanes, .table = &own_rows, .lane = -1, .error = error};
    int status = wait_cause_walk(trace, lanes, lane_count, end_ns, arena, sum_piece, &s, error);
    flush(&s);
    if (!status) status = s.status;
    int64_t waited_ns_all = all_waits(lanes, lane_count, end_ns);
    if (!status && s.owned_ns != waited_ns_all) {
        status = error_set(error, ERROR_FAILURE, "internal error: owners have %lld of %lld ns of a rank's waits", (long long)s.owned_ns,
                           (long long)waited_ns_all);
        error_hint(error, "please report it with the trace");
    }
    if (!status) status = wait_table_merge(table, &own_rows, error);
    wait_table_release(&own_rows);
    return status;
}

static int by_total(const void *a, const void *b) {
    const struct wait_row *x = a, *y = b;
    if (x->total_ns != y->total_ns) return x->total_ns > y->total_ns ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->role != y->role) return x->role < y->role ? -1 : 1;
    if (x->edge != y->edge) return x->edge < y->edge ? -1 : 1;
    return x->owner < y->owner ? -1 : x->owner > y->owner;
}

void wait_table_order(struct wait_table *table) {
    if (table->count > 0) qsort(table->rows, (size_t)table->count, sizeof *table->rows, by_total);
}

int wait_table_over_ranks(const struct wait_table *table, struct wait_table *out, struct error *error) {
    for (int32_t i = 0; i < table->count; i++) {
        struct wait_row row = table->rows[i];
        struct wait_table one = {&row, 1, 1};
        row.rank = -1;
        int status = wait_table_merge(out, &one, error);
        if (status) return status;
    }
    wait_table_order(out);
    return 0;
}
