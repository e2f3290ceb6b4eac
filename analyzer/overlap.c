/* See overlap.h. Each lane gives two streams of runs, one of compute and one of communication; a heap over the streams' next
 * transitions merges them. */
#include "overlap.h"

#include <assert.h>

/* Runs of one state of one lane, one after the other. */
struct stream {
    const struct overlap_lane *lane;
    size_t next;       /* segment after the pending run */
    int64_t time_ns;   /* of the next transition */
    int64_t run_end_ns; /* end of the run that is on or comes next */
    int64_t shift_ns;
    uint8_t state;
    bool on;
};

struct overlap_heap {
    struct stream **streams; /* [count] smallest time first */
    int32_t count;
};

/* --- runs ------------------------------------------------------------------------------------------------------------ */

/* The next run of the stream's state from segment `*at` on, shifted and clipped; false: none left. */
static bool find_run(const struct stream *s, size_t *at, int64_t window_begin_ns, int64_t window_end_ns, int64_t *begin_ns,
                     int64_t *end_ns) {
    const struct lane_segment *rows = s->lane->segments;
    size_t count = s->lane->count, i = *at;
    while (i < count) {
        while (i < count && rows[i].state != s->state) i++;
        if (i == count) break;
        *begin_ns = rows[i].begin_ns + s->shift_ns;
        while (i < count && rows[i].state == s->state) i++;
        *end_ns = (i < count ? rows[i].begin_ns : window_end_ns) - s->shift_ns;
        if (*begin_ns < window_begin_ns) *begin_ns = window_begin_ns;
        if (*end_ns > window_end_ns) *end_ns = window_end_ns;
        if (*end_ns > *begin_ns) {
            *at = i;
            return true;
        }
    }
    *at = count;
    return false;
}

/* Makes the next run pending: time_ns is its begin. Dilated runs that meet become one. */
static bool load_run(struct stream *s, int64_t window_begin_ns, int64_t window_end_ns) {
    int64_t begin_ns, end_ns;
    if (!find_run(s, &s->next, window_begin_ns, window_end_ns, &s->time_ns, &s->run_end_ns)) return false;
    for (size_t at = s->next; find_run(s, &at, window_begin_ns, window_end_ns, &begin_ns, &end_ns); s->next = at) {
        if (begin_ns > s->run_end_ns) break;
        if (end_ns > s->run_end_ns) s->run_end_ns = end_ns;
    }
    return true;
}

/* --- heap ------------------------------------------------------------------------------------------------------------ */

static void sift_down(struct overlap_heap *heap, int32_t i) {
    struct stream *moving = heap->streams[i];
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= heap->count) break;
        if (child + 1 < heap->count && heap->streams[child + 1]->time_ns < heap->streams[child]->time_ns) child++;
        if (heap->streams[child]->time_ns >= moving->time_ns) break;
        heap->streams[i] = heap->streams[child];
        i = child;
    }
    heap->streams[i] = moving;
}

/* --- the sweep ------------------------------------------------------------------------------------------------------- */

struct counters {
    int64_t any_compute, any_communicate;   /* lanes of any role in the state */
    int64_t compute_lanes, communicate_lanes; /* of these, lanes of the matching role */
    int64_t compute_capacity, communicate_capacity; /* Lc, Lx */
};

static void toggle(struct counters *c, const struct stream *s) {
    int64_t step = s->on ? -1 : 1;
    if (s->state == STATE_COMPUTE) {
        c->any_compute += step;
        if (s->lane->role_class == TRACE_ROLE_COMPUTE) c->compute_lanes += step;
    } else {
        c->any_communicate += step;
        if (s->lane->role_class == TRACE_ROLE_COMMUNICATE) c->communicate_lanes += step;
    }
}

static void measure(struct overlap_sums *sums, const struct counters *c, int64_t length_ns) {
    if (c->any_compute > 0) sums->compute_ns += length_ns;
    if (c->any_communicate > 0) sums->communicate_ns += length_ns;
    if (c->any_compute > 0 && c->any_communicate > 0) sums->both_ns += length_ns;
    if (c->communicate_lanes == 0) return;
    double x = (double)c->communicate_lanes, length = (double)length_ns;
    double matched = c->compute_capacity > 0
                         ? (double)c->compute_lanes * (double)c->communicate_capacity / (double)c->compute_capacity
                         : 0;
    sums->communicate_lane_ns += x * length;
    sums->matched_lane_ns += (matched < x ? matched : x) * length;
}

/* The stream at the top has just made its transition: what comes next. */
static void step(struct overlap_heap *heap, int64_t begin_ns, int64_t end_ns) {
    struct stream *s = heap->streams[0];
    if (!s->on) {
        s->on = true;
        s->time_ns = s->run_end_ns;
    } else {
        s->on = false;
        if (!load_run(s, begin_ns, end_ns)) heap->streams[0] = heap->streams[--heap->count];
    }
    if (heap->count > 0) sift_down(heap, 0);
}

int overlap_sweep(const struct overlap_lane *lanes, int32_t lane_count, int64_t begin_ns, int64_t end_ns, int64_t shift_ns,
                  struct arena *arena, struct overlap_sums *sums, struct error *error) {
    size_t limit = (size_t)lane_count * 2;
    struct stream *streams = arena_allocate(arena, limit + 1, sizeof *streams);
    struct overlap_heap heap = {arena_allocate(arena, limit + 1, sizeof *heap.streams), 0};
    struct counters counters = {0};
    *sums = (struct overlap_sums){0};
    if (streams == NULL || heap.streams == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; i < lane_count; i++) {
        if (lanes[i].role_class == TRACE_ROLE_COMPUTE) counters.compute_capacity++;
        if (lanes[i].role_class == TRACE_ROLE_COMMUNICATE) counters.communicate_capacity++;
        for (int which = 0; which < 2; which++) {
            struct stream *s = &streams[heap.count];
            *s = (struct stream){.lane = &lanes[i], .state = which ? STATE_COMMUNICATE : STATE_COMPUTE,
                                 .shift_ns = which ? 0 : shift_ns};
            if (load_run(s, begin_ns, end_ns)) {
                heap.streams[heap.count] = s;
                heap.count++;
            }
        }
    }
    for (int32_t i = heap.count / 2; i-- > 0;) sift_down(&heap, i);
    int64_t now_ns = begin_ns;
    while (heap.count > 0) {
        struct stream *s = heap.streams[0];
        assert(s->time_ns >= now_ns && s->time_ns <= end_ns);
        measure(sums, &counters, s->time_ns - now_ns);
        now_ns = s->time_ns;
        toggle(&counters, s);
        step(&heap, begin_ns, end_ns);
    }
    assert(counters.any_compute == 0 && counters.any_communicate == 0);
    return 0;
}
