/* See partition.h. */
#include "partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- one lane -------------------------------------------------------------------------------------------------------- */

static int64_t stall_of(const struct lane_view *view, uint32_t record, double ns_per_tick) {
    const struct trace_record *span = &view->spans[record];
    if (span->event == TRACE_EVENT_UNKNOWN || view->events[span->event].stall_cycles == 0) return 0;
    double ns = (double)span->small * view->events[span->event].stall_cycles * ns_per_tick;
    int64_t length = span->end_ns - span->begin_ns;
    return ns > (double)length ? length : llround(ns);
}

static void look_at_records(const struct lane_view *view, int64_t end_ns, struct lane_sums *sums) {
    int64_t container_end = TRACE_TIME_NONE;
    for (size_t i = 0; i < view->span_count; i++) {
        const struct trace_record *span = &view->spans[i];
        if (span->end_ns == span->begin_ns) sums->zero_count++;
        if (span->event == TRACE_EVENT_UNKNOWN || view->events[span->event].event_class != TRACE_EVENT_CONTAINER) continue;
        int64_t clipped = span->end_ns < end_ns ? span->end_ns : end_ns;
        if (clipped > container_end) container_end = clipped;
    }
    for (size_t i = 0; i < view->wait_count; i++) sums->zero_count += view->waits[i].end_ns == view->waits[i].begin_ns;
    if (container_end != TRACE_TIME_NONE) sums->work_end_ns = container_end;
}

struct lane_sums lane_sums_of(const struct lane_view *view, const struct lane_segment *segments, size_t count, int64_t end_ns,
                              double ns_per_tick) {
    int64_t stalled_ns[STATE_COUNT] = {0};
    struct lane_sums sums = {.first_compute_ns = TRACE_TIME_NONE, .work_end_ns = TRACE_TIME_NONE};
    for (size_t i = 0; i < count; i++) {
        const struct lane_segment *segment = &segments[i];
        int64_t to = i + 1 < count ? segments[i + 1].begin_ns : end_ns;
        sums.ns[segment->state] += to - segment->begin_ns;
        if (segment->state != STATE_COMPUTE && segment->state != STATE_COMMUNICATE) continue;
        sums.work_end_ns = to;
        if (segment->state == STATE_COMPUTE && sums.first_compute_ns == TRACE_TIME_NONE) sums.first_compute_ns = segment->begin_ns;
        if (view->spans[segment->record].begin_ns == segment->begin_ns)
            stalled_ns[segment->state] += stall_of(view, segment->record, ns_per_tick);
    }
    if (count > 0) sums.window_ns = end_ns - segments[0].begin_ns;
    for (int state = 0; state < STATE_COUNT; state++)
        sums.stalled_ns += stalled_ns[state] < sums.ns[state] ? stalled_ns[state] : sums.ns[state];
    look_at_records(view, end_ns, &sums);
    return sums;
}

/* --- groups ---------------------------------------------------------------------------------------------------------- */

const char *partition_by_name(enum partition_by by) {
    static const char *const names[] = {"total", "role", "rank", "rank_role", "sm"};
    return by < PARTITION_BY_COUNT ? names[by] : "?";
}

void partition_init(struct partition *partition, struct arena *arena) { *partition = (struct partition){.arena = arena}; }

static bool same_key(const struct partition_row *a, const struct partition_row *b) {
    return a->rank == b->rank && a->role == b->role && a->device == b->device && a->sm == b->sm;
}

static uint32_t hash(const struct partition_row *key) {
    uint32_t value = (uint32_t)key->rank * 0x9e3779b1u ^ (uint32_t)key->role * 0x85ebca77u ^
                     (uint32_t)key->device * 0xc2b2ae3du ^ (uint32_t)key->sm * 0x27d4eb2fu;
    return value ^ value >> 15;
}

static bool group_grow(struct partition_group *group, struct arena *arena) {
    int32_t capacity = group->capacity * 2 + 64, slot_count = 256;
    while (slot_count < capacity * 2) slot_count *= 2;
    struct partition_row *rows = arena_allocate(arena, (size_t)capacity, sizeof *rows);
    int32_t *slots = arena_allocate(arena, (size_t)slot_count, sizeof *slots);
    if (rows == NULL || slots == NULL) return false;
    if (group->count > 0) memcpy(rows, group->rows, (size_t)group->count * sizeof *rows);
    for (int32_t i = 0; i < group->count; i++) {
        uint32_t slot = hash(&rows[i]) & (uint32_t)(slot_count - 1);
        while (slots[slot] != 0) slot = (slot + 1) & (uint32_t)(slot_count - 1);
        slots[slot] = i + 1;
    }
    group->rows = rows;
    group->capacity = capacity;
    group->slots = slots;
    group->slot_count = slot_count;
    return true;
}

static struct partition_row *group_row(struct partition_group *group, struct arena *arena, const struct partition_row *key) {
    if (group->count == group->capacity && !group_grow(group, arena)) return NULL;
    uint32_t mask = (uint32_t)(group->slot_count - 1), slot = hash(key) & mask;
    for (; group->slots[slot] != 0; slot = (slot + 1) & mask)
        if (same_key(&group->rows[group->slots[slot] - 1], key)) return &group->rows[group->slots[slot] - 1];
    group->rows[group->count] = *key;
    group->slots[slot] = ++group->count;
    return &group->rows[group->count - 1];
}

int partition_add(struct partition *partition, const struct trace_lane *lane, int32_t device, const struct lane_sums *sums,
                  struct error *error) {
    const struct partition_row keys[PARTITION_BY_COUNT] = {
        [PARTITION_TOTAL] = {.rank = -1, .role = -1, .device = -1, .sm = -1},
        [PARTITION_ROLE] = {.rank = -1, .role = lane->role, .device = -1, .sm = -1},
        [PARTITION_RANK] = {.rank = lane->rank, .role = -1, .device = -1, .sm = -1},
        [PARTITION_RANK_ROLE] = {.rank = lane->rank, .role = lane->role, .device = -1, .sm = -1},
        [PARTITION_SM] = {.rank = -1, .role = -1, .device = device, .sm = lane->sm},
    };
    for (int by = 0; by < PARTITION_BY_COUNT; by++) {
        struct partition_row *row = group_row(&partition->groups[by], partition->arena, &keys[by]);
        if (row == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
        row->lane_count++;
        row->lane_ns += sums->window_ns;
        row->stalled_ns += sums->stalled_ns;
        for (int state = 0; state < STATE_COUNT; state++) row->ns[state] += sums->ns[state];
    }
    return 0;
}

static int by_key(const void *a, const void *b) {
    const struct partition_row *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->role != y->role) return x->role < y->role ? -1 : 1;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    return x->sm < y->sm ? -1 : x->sm > y->sm;
}

int partition_finish(struct partition *partition, struct error *error) {
    for (int by = 0; by < PARTITION_BY_COUNT; by++) {
        struct partition_group *group = &partition->groups[by];
        if (group->count > 0) qsort(group->rows, (size_t)group->count, sizeof *group->rows, by_key);
        for (int32_t i = 0; i < group->count; i++) {
            int64_t sum = 0;
            for (int state = 0; state < STATE_COUNT; state++) sum += group->rows[i].ns[state];
            if (sum == group->rows[i].lane_ns) continue;
            error_set(error, ERROR_FAILURE, "internal error: states by %s sum to %lld ns, the lanes' windows to %lld ns",
                      partition_by_name((enum partition_by)by), (long long)sum, (long long)group->rows[i].lane_ns);
            return error_hint(error, "please report it with the trace");
        }
    }
    return 0;
}
