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

/* --- owners of one wait ---------------------------------------------------------------------------------------------- */

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

static void follow(const struct cause *c, int32_t lane, int32_t edge, int64_t begin_ns, int64_t end_ns, struct way *way,
                   struct owners *owners) {
    int32_t producer = -1;
    if (edge >= 0 && c->trace->edges[edge].scope == TRACE_SCOPE_CTA && !on_way(way, c->trace->edges[edge].producer))
        producer = find_producer(c, lane, edge, begin_ns, end_ns);
    if (producer < 0) {
        add_part(owners, edge, end_ns - begin_ns);
        return;
    }
    const struct cause_lane *p = &c->lanes[producer];
    way->roles[way->count++] = p->lane->role;
    for (size_t i = find_segment(p, begin_ns); i < p->count && p->segments[i].begin_ns < end_ns; i++) {
        int64_t from = p->segments[i].begin_ns > begin_ns ? p->segments[i].begin_ns : begin_ns;
        int64_t to = segment_end(c, p, i) < end_ns ? segment_end(c, p, i) : end_ns;
        if (to <= from) continue;
        if (p->segments[i].state == STATE_WAIT && p->segments[i].edge >= 0)
            follow(c, producer, p->segments[i].edge, from, to, way, owners);
        else
            add_part(owners, edge, to - from);
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

static int flush(struct wait_table *table, const struct trace_lane *lane, int32_t edge, const struct owners *owners,
                 struct error *error) {
    for (int32_t i = 0; i < owners->count; i++) {
        struct wait_row key = {lane->rank, lane->role, edge, owners->parts[i].owner, 0, 0, 0};
        struct wait_row *row = find_row(table, &key);
        if (row == NULL) return error_set(error, ERROR_FAILURE, "out of memory for the waits");
        row->total_ns += owners->parts[i].ns;
        row->count++;
        if (owners->parts[i].ns > row->max_ns) row->max_ns = owners->parts[i].ns;
    }
    return 0;
}

/* Pieces of one wait (spans may be nested in it) count as one. */
static int add_lane(const struct cause *c, int32_t lane, struct wait_table *table, struct error *error) {
    const struct cause_lane *l = &c->lanes[lane];
    struct owners owners = {.count = 0};
    int64_t waited = 0, owned = 0, pending = -1;
    int32_t edge = -1;
    int status = 0;
    for (size_t i = 0; i < l->count && !status; i++) {
        const struct lane_segment *segment = &l->segments[i];
        if (segment->state != STATE_WAIT) continue;
        if (segment->record != pending) {
            status = flush(table, l->lane, edge, &owners, error);
            owners.count = 0;
            pending = segment->record;
            edge = segment->edge;
        }
        struct way way = {{l->lane->role}, 1};
        int64_t before = 0, after = 0;
        for (int32_t k = 0; k < owners.count; k++) before += owners.parts[k].ns;
        follow(c, lane, edge, segment->begin_ns, segment_end(c, l, i), &way, &owners);
        for (int32_t k = 0; k < owners.count; k++) after += owners.parts[k].ns;
        waited += segment_end(c, l, i) - segment->begin_ns;
        owned += after - before;
    }
    if (!status) status = flush(table, l->lane, edge, &owners, error);
    if (status || waited == owned) return status;
    error_set(error, ERROR_FAILURE, "internal error: owners have %lld of %lld ns of a lane's waits", (long long)owned,
              (long long)waited);
    return error_hint(error, "please report it with the trace");
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

int wait_cause_add(const struct trace *trace, const struct cause_lane *lanes, int32_t lane_count, int64_t end_ns,
                   struct arena *arena, struct wait_table *table, struct error *error) {
    struct cause c = {trace, lanes, NULL, NULL, lane_count, end_ns};
    struct wait_table own = {0}; /* a rank's rows are few, so that searching them for each wait is quick */
    if (make_places(&c, arena)) return error_set(error, ERROR_FAILURE, "out of memory");
    int status = 0;
    for (int32_t i = 0; i < lane_count && !status; i++) status = add_lane(&c, i, &own, error);
    if (!status) status = wait_table_merge(table, &own, error);
    wait_table_release(&own);
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
