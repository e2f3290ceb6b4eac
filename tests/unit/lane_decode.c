/* Decoding a lane: the limits of the record format, wrapped clocks and rings, and random lanes against the 64-bit truth they
 * were made from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../probes/host/lane_decode.h"
#include "random_source.h"

enum { SPAN = 1, WAIT = 2, SIGNAL = 3, UNUSED = 4, LAST = MOKSCOPE_EVENT_MASK, EVENTS = LAST + 1 };

static const int64_t TURN = (int64_t)1 << 32; /* of the 32-bit clock */

static uint8_t event_kinds[EVENTS];

static int set_kinds(void **state) {
    (void)state;
    memset(event_kinds, 255, sizeof event_kinds);
    event_kinds[SPAN] = MOKSCOPE_KIND_SPAN;
    event_kinds[WAIT] = MOKSCOPE_KIND_WAIT;
    event_kinds[SIGNAL] = MOKSCOPE_KIND_SIGNAL;
    event_kinds[LAST] = MOKSCOPE_KIND_SPAN;
    return 0;
}

/* --- a device in 64 bits --------------------------------------------------------------------------------------------- */

/* A lane as the device writes it; every record is kept, so that rings of any capacity can be made of it. */
struct device_lane {
    struct mokscope_lane_header header;
    struct mokscope_record *records;
    uint32_t capacity;
};

static void put(struct device_lane *lane, struct mokscope_record record) {
    if (lane->header.count == lane->capacity) {
        lane->capacity = 2 * lane->capacity + 64;
        lane->records = realloc(lane->records, lane->capacity * sizeof record);
        assert_non_null(lane->records);
    }
    lane->records[lane->header.count++] = record;
}

static void put_span(struct device_lane *lane, int64_t begin, int64_t length, uint32_t event, uint16_t small,
                     uint32_t argument) {
    uint32_t kept = length < (int64_t)MOKSCOPE_LENGTH_MAXIMUM ? (uint32_t)length : MOKSCOPE_LENGTH_MAXIMUM;
    put(lane, (struct mokscope_record){(uint32_t)begin, kept, (uint16_t)event, small, argument});
}

static void put_sync(struct device_lane *lane, int64_t clock, int64_t time_ns) {
    put(lane, (struct mokscope_record){(uint32_t)clock, MOKSCOPE_LENGTH_SYNC, 0, 0, (uint32_t)(clock >> 32)});
    put(lane, (struct mokscope_record){(uint32_t)time_ns, MOKSCOPE_LENGTH_SYNC | 1, 0, 0, (uint32_t)(time_ns >> 32)});
}

static struct device_lane open_lane(int64_t clock) {
    struct device_lane lane = {0};
    lane.header.state = MOKSCOPE_LANE_OPEN;
    lane.header.clock_begin = (uint64_t)clock;
    lane.header.globaltimer_begin = (uint64_t)clock * 2;
    return lane;
}

static void close_lane(struct device_lane *lane, int64_t clock) {
    lane->header.state = MOKSCOPE_LANE_CLOSED;
    lane->header.clock_end = (uint64_t)clock;
    lane->header.globaltimer_end = (uint64_t)clock * 2;
}

/* Decodes the lane from a ring of exactly the records that a copy holds, so that a sanitizer sees reads beyond them. */
static void decode(struct lane_decoder *decoder, const struct device_lane *lane, uint32_t capacity) {
    uint32_t count = lane->header.count, kept = count < capacity ? count : capacity;
    struct mokscope_record *ring = malloc((kept > 0 ? kept : 1) * sizeof *ring);
    struct error error = {0};
    assert_non_null(ring);
    for (uint32_t i = count - kept; i < count; i++) ring[i % capacity] = lane->records[i];
    int status = lane_decode(decoder, &lane->header, ring, capacity, event_kinds, EVENTS, &error);
    free(ring);
    if (status) fail_msg("lane_decode: %s", error.message);
    assert_int_equal(decoder->lost_count, count - kept);
}

static void expect_row(const struct lane_row *row, int64_t begin, int64_t length, uint16_t event, uint16_t phase,
                       uint16_t small, uint32_t argument) {
    assert_int_equal(row->begin_ticks, begin);
    assert_int_equal(row->length_ticks, length);
    assert_int_equal(row->event, event);
    assert_int_equal(row->phase, phase);
    assert_int_equal(row->small, small);
    assert_int_equal(row->argument, argument);
}

static void expect_counts(const struct lane_decoder *decoder, uint32_t spans, uint32_t waits, uint32_t signals) {
    assert_int_equal(decoder->row_count[MOKSCOPE_KIND_SPAN], spans);
    assert_int_equal(decoder->row_count[MOKSCOPE_KIND_WAIT], waits);
    assert_int_equal(decoder->row_count[MOKSCOPE_KIND_SIGNAL], signals);
}

/* --- cases ----------------------------------------------------------------------------------------------------------- */

static void empty_lanes(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    struct device_lane lane = open_lane(5 * TURN + 7);
    decode(&decoder, &lane, 8);
    expect_counts(&decoder, 0, 0, 0);
    assert_int_equal(decoder.pair_count, 1);
    assert_int_equal(decoder.pairs[0].ticks, 5 * TURN + 7);
    assert_int_equal(decoder.pairs[0].time_ns, 10 * TURN + 14);
    assert_int_equal(decoder.end_ticks, 5 * TURN + 7);
    close_lane(&lane, 9 * TURN);
    decode(&decoder, &lane, 8);
    expect_counts(&decoder, 0, 0, 0);
    assert_int_equal(decoder.pair_count, 2);
    assert_int_equal(decoder.pairs[1].ticks, 9 * TURN);
    assert_int_equal(decoder.end_ticks, 9 * TURN);
    close_lane(&lane, 5 * TURN + 7); /* closed within the tick it opened in: one pair */
    decode(&decoder, &lane, 8);
    assert_int_equal(decoder.pair_count, 1);
    lane_decode_release(&decoder);
    lane_decode_release(&decoder); /* again: nothing left to free */
}

static void limits_of_fields(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    const int64_t open = 3 * TURN - 1000, maximum = MOKSCOPE_LENGTH_MAXIMUM;
    struct device_lane lane = open_lane(open);
    put_span(&lane, open, 0, SPAN, 0, 0);
    put_span(&lane, 3 * TURN - 1, 1, LAST | 15u << MOKSCOPE_PHASE_SHIFT, 65535, UINT32_MAX);
    put_span(&lane, 3 * TURN, 0, SIGNAL | 1u << MOKSCOPE_PHASE_SHIFT, 65535, UINT32_MAX);
    put_span(&lane, 3 * TURN, maximum - 1, WAIT | 8u << MOKSCOPE_PHASE_SHIFT, 1, 1);
    put_span(&lane, 3 * TURN, maximum, SPAN, 2, 0x80000000u);
    close_lane(&lane, 3 * TURN + maximum);
    decode(&decoder, &lane, 8);
    expect_counts(&decoder, 3, 1, 1);
    expect_row(&decoder.rows[MOKSCOPE_KIND_SPAN][0], open, 0, SPAN, 0, 0, 0);
    expect_row(&decoder.rows[MOKSCOPE_KIND_SPAN][1], 3 * TURN - 1, 1, LAST, 15, 65535, UINT32_MAX);
    expect_row(&decoder.rows[MOKSCOPE_KIND_SPAN][2], 3 * TURN, maximum, SPAN, 0, 2, 0x80000000u);
    expect_row(&decoder.rows[MOKSCOPE_KIND_WAIT][0], 3 * TURN, maximum - 1, WAIT, 8, 1, 1);
    expect_row(&decoder.rows[MOKSCOPE_KIND_SIGNAL][0], 3 * TURN, 0, SIGNAL, 1, 65535, UINT32_MAX);
    free(lane.records);
    lane_decode_release(&decoder);
}

/* Nearly a whole turn of the 32-bit clock between ends, several times over. */
static void clock_wraps(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    const int64_t open = 7 * TURN + 12345, apart = TURN - ((int64_t)1 << 24) - 1;
    struct device_lane lane = open_lane(open);
    for (uint32_t i = 0; i < 20; i++) put_span(&lane, open + i * apart, 100, SPAN, 0, i);
    close_lane(&lane, open + 19 * apart + 100 + apart);
    decode(&decoder, &lane, 32);
    expect_counts(&decoder, 20, 0, 0);
    for (uint32_t i = 0; i < 20; i++)
        expect_row(&decoder.rows[MOKSCOPE_KIND_SPAN][i], open + i * apart, 100, SPAN, 0, 0, i);
    free(lane.records);
    lane_decode_release(&decoder);
}

/* A length saturates at half a turn. Begins stay exact, also those of spans inside and before the long one. */
static void lengths_saturate(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    const int64_t open = 2 * TURN - 5, length = (TURN / 4) * 3, begin = open + 1000;
    struct device_lane lane = open_lane(open);
    put_span(&lane, open + 10, 50, SPAN, 0, 1);
    put_span(&lane, begin + 500, 50, SPAN, 0, 2);
    put_span(&lane, begin + length - 900, 50, SPAN, 0, 3);
    put_span(&lane, begin, length, SPAN, 0, 4);
    close_lane(&lane, begin + length + 77);
    decode(&decoder, &lane, 4);
    expect_counts(&decoder, 4, 0, 0);
    const struct lane_row *rows = decoder.rows[MOKSCOPE_KIND_SPAN];
    expect_row(&rows[0], open + 10, 50, SPAN, 0, 0, 1);
    expect_row(&rows[1], begin, MOKSCOPE_LENGTH_MAXIMUM, SPAN, 0, 0, 4);
    expect_row(&rows[2], begin + 500, 50, SPAN, 0, 0, 2);
    expect_row(&rows[3], begin + length - 900, 50, SPAN, 0, 0, 3);
    free(lane.records);
    lane_decode_release(&decoder);
}

/* Sync entries carry whole clocks: any number of turns may lie between them. */
static void sync_entries(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    const int64_t open = 100, second = 10 * TURN + 50, third = 1000 * TURN + 3;
    struct device_lane lane = open_lane(open);
    put_span(&lane, open + 5, 5, SPAN, 0, 1);
    put_sync(&lane, open + 20, 0x7fffffff80000001);
    put_span(&lane, second - 40, 20, WAIT, 0, 2);
    put_sync(&lane, second, 777);
    put_sync(&lane, third, 778);
    put_span(&lane, third + 1, 9, SPAN, 0, 3);
    close_lane(&lane, third + 10);
    decode(&decoder, &lane, 16);
    expect_counts(&decoder, 2, 1, 0);
    expect_row(&decoder.rows[MOKSCOPE_KIND_SPAN][0], open + 5, 5, SPAN, 0, 0, 1);
    expect_row(&decoder.rows[MOKSCOPE_KIND_WAIT][0], second - 40, 20, WAIT, 0, 0, 2);
    expect_row(&decoder.rows[MOKSCOPE_KIND_SPAN][1], third + 1, 9, SPAN, 0, 0, 3);
    assert_int_equal(decoder.pair_count, 5);
    const struct clock_pair expected[] = {
        {open, 2 * open}, {open + 20, 0x7fffffff80000001}, {second, 777}, {third, 778}, {third + 10, 2 * (third + 10)}};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(decoder.pairs[i].ticks, expected[i].ticks);
        assert_int_equal(decoder.pairs[i].time_ns, expected[i].time_ns);
    }
    assert_int_equal(decoder.unknown_count, 0);
    free(lane.records);
    lane_decode_release(&decoder);
}

/* The oldest record kept is the second half of a sync entry, or the entry lies across the ring's end. */
static void sync_entries_in_wrapped_rings(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    for (uint32_t before = 0; before < 8; before++) {
        struct device_lane lane = open_lane(0);
        for (uint32_t i = 0; i < before; i++) put_span(&lane, 10 * i, 5, SPAN, 0, i);
        put_sync(&lane, 100, 200);
        for (uint32_t i = 0; i < 3; i++) put_span(&lane, 110 + 10 * i, 5, SPAN, 0, 100 + i);
        close_lane(&lane, 150);
        decode(&decoder, &lane, 4); /* first half overwritten */
        expect_counts(&decoder, 3, 0, 0);
        assert_int_equal(decoder.pair_count, 2);
        assert_int_equal(decoder.lost_count, before + 1);
        assert_int_equal(decoder.rows[MOKSCOPE_KIND_SPAN][0].begin_ticks, 110);
        decode(&decoder, &lane, 8);
        assert_int_equal(decoder.pair_count, 3);
        assert_int_equal(decoder.pairs[1].ticks, 100);
        assert_int_equal(decoder.pairs[1].time_ns, 200);
        expect_counts(&decoder, 3 + (before < 3 ? before : 3), 0, 0);
        free(lane.records);
    }
    lane_decode_release(&decoder);
}

/* lost = count - capacity, exactly; what is left are the last records in their order. */
static void wrapped_rings(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    for (uint32_t count = 0; count < 40; count++) {
        struct device_lane lane = open_lane(TURN - 50);
        for (uint32_t i = 0; i < count; i++) put_span(&lane, TURN - 50 + 10 * i, 5, SPAN, (uint16_t)i, i);
        close_lane(&lane, TURN + 1000);
        for (uint32_t capacity = 1; capacity <= 16; capacity *= 2) {
            uint32_t kept = count < capacity ? count : capacity;
            decode(&decoder, &lane, capacity);
            expect_counts(&decoder, kept, 0, 0);
            for (uint32_t i = 0; i < kept; i++) {
                uint32_t written = count - kept + i;
                expect_row(&decoder.rows[MOKSCOPE_KIND_SPAN][i], TURN - 50 + 10 * written, 5, SPAN, 0,
                           (uint16_t)written, written);
            }
        }
        free(lane.records);
    }
    lane_decode_release(&decoder);
}

static void largest_count(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    struct mokscope_record ring[4];
    struct mokscope_lane_header header = {.state = MOKSCOPE_LANE_CLOSED, .count = UINT32_MAX, .clock_end = 1000};
    struct error error = {0};
    for (uint32_t i = 0; i < 4; i++) ring[i] = (struct mokscope_record){500 + 10 * ((i + 1) % 4), 5, SPAN, 0, i};
    assert_int_equal(lane_decode(&decoder, &header, ring, 4, event_kinds, EVENTS, &error), 0);
    assert_int_equal(decoder.lost_count, UINT32_MAX - 4);
    expect_counts(&decoder, 4, 0, 0);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(decoder.rows[MOKSCOPE_KIND_SPAN][i].argument, (i + 3) % 4);
    lane_decode_release(&decoder);
}

/* What the module's table does not have, and what does not fit into the lane, is counted and left out. */
static void strange_records(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    struct device_lane lane = open_lane(TURN);
    struct error error = {0};
    put_span(&lane, TURN + 10, 5, UNUSED, 0, 0);
    put_span(&lane, TURN + 20, 5, 0, 0, 0);
    put_span(&lane, TURN + 30, 5, SPAN, 0, 9);
    put_span(&lane, TURN + 100000000, 5, SPAN, 0, 0); /* ends long after the lane: must be a turn too early */
    put(&lane, (struct mokscope_record){77, MOKSCOPE_LENGTH_SYNC | 1, 0, 0, 1}); /* half a sync entry */
    put_span(&lane, TURN + 40, 5, LAST, 0, 0);
    close_lane(&lane, TURN + 50);
    decode(&decoder, &lane, 8);
    assert_int_equal(decoder.pair_count, 2);
    assert_int_equal(decoder.unknown_count, 2);
    assert_int_equal(decoder.misplaced_count, 1);
    expect_counts(&decoder, 2, 0, 0);
    expect_row(&decoder.rows[MOKSCOPE_KIND_SPAN][0], TURN + 30, 5, SPAN, 0, 0, 9);
    assert_int_equal(lane_decode(&decoder, &lane.header, lane.records, 8, event_kinds, LAST, &error),
                     0); /* one id less */
    assert_int_equal(decoder.unknown_count, 3);
    expect_counts(&decoder, 1, 0, 0);
    free(lane.records);
    lane_decode_release(&decoder);
}

static void capacity_no_power_of_two(void **state) {
    (void)state;
    const struct mokscope_lane_header header = {0};
    for (uint32_t capacity = 0; capacity <= 12; capacity += 3) {
        struct lane_decoder decoder = {0};
        struct error error = {0};
        assert_int_equal(lane_decode(&decoder, &header, NULL, capacity, event_kinds, EVENTS, &error), ERROR_FAILURE);
        assert_non_null(strstr(error.message, "not a power of two"));
        lane_decode_release(&decoder);
    }
}

/* A lane that never closed: records up to its last sync entry; without one, up to what the header counts. */
static void unfinished_lanes(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    const int64_t open = TURN - 100, sync = 5 * TURN;
    struct device_lane lane = open_lane(open);
    put_span(&lane, open + 60, 80, SPAN, 0, 1); /* over the turn */
    put_span(&lane, open + 200, 50, WAIT, 0, 2);
    put_span(&lane, open + 220, 10, SIGNAL, 0, 3); /* by another thread of the lane, a little late */
    lane.header.clock_end = (uint64_t)(9 * TURN);  /* means nothing yet */
    decode(&decoder, &lane, 4);
    expect_counts(&decoder, 1, 1, 1);
    expect_row(&decoder.rows[MOKSCOPE_KIND_SPAN][0], open + 60, 80, SPAN, 0, 0, 1);
    expect_row(&decoder.rows[MOKSCOPE_KIND_SIGNAL][0], open + 220, 10, SIGNAL, 0, 0, 3);
    expect_row(&decoder.rows[MOKSCOPE_KIND_WAIT][0], open + 200, 50, WAIT, 0, 0, 2);
    assert_int_equal(decoder.end_ticks, open + 250);
    assert_int_equal(decoder.pair_count, 1);
    put_span(&lane, sync - 1000, 900, SPAN, 0, 3);
    put_sync(&lane, sync, 55);
    decode(&decoder, &lane, 4);
    assert_int_equal(decoder.lost_count, 2);
    expect_counts(&decoder, 1, 0, 1);
    expect_row(&decoder.rows[MOKSCOPE_KIND_SPAN][0], sync - 1000, 900, SPAN, 0, 0, 3);
    assert_int_equal(decoder.end_ticks, sync);
    assert_int_equal(decoder.pair_count, 2);
    free(lane.records);
    lane_decode_release(&decoder);
}

/* Longer first at the same begin, then in the order they were written. */
static void order_of_rows(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    struct device_lane lane = open_lane(0);
    put_span(&lane, 100, 10, SPAN, 0, 1);
    put_span(&lane, 100, 10, SPAN, 0, 2);
    put_span(&lane, 50, 60, SPAN, 0, 3);
    put_span(&lane, 100, 20, SPAN, 0, 4);
    put_span(&lane, 0, 200, SPAN, 0, 5);
    close_lane(&lane, 300);
    decode(&decoder, &lane, 8);
    const uint32_t expected[] = {5, 3, 4, 1, 2};
    expect_counts(&decoder, 5, 0, 0);
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(decoder.rows[MOKSCOPE_KIND_SPAN][i].argument, expected[i]);
    free(lane.records);
    lane_decode_release(&decoder);
}

/* --- random lanes against their truth -------------------------------------------------------------------------------- */

enum { MODEL_RECORDS = 700 };

struct true_row {
    int64_t begin, end, length; /* end true, length as kept */
    uint32_t position, argument;
    uint16_t kind, event, phase, small;
    int sync;
};

struct true_lane {
    struct device_lane device;
    struct true_row rows[MODEL_RECORDS]; /* [device.header.count] in order of writing */
    struct clock_pair pairs[MODEL_RECORDS];
    int32_t pair_count;
    int64_t now;
};

static void true_sync(struct true_lane *lane) {
    uint32_t at = lane->device.header.count;
    lane->now++;
    put_sync(&lane->device, lane->now, 3 * lane->now);
    lane->rows[at] = (struct true_row){.position = at, .sync = 1};
    lane->rows[at + 1] = (struct true_row){.position = at + 1, .sync = 2, .begin = lane->now, .end = 3 * lane->now};
}

static void true_span(struct true_lane *lane, struct random_source *source, int64_t begin, int64_t end) {
    static const uint16_t events[] = {SPAN, WAIT, SIGNAL, LAST, UNUSED};
    uint32_t at = lane->device.header.count;
    uint16_t event = events[random_below(source, 40) == 0 ? 4 : random_below(source, 4)];
    struct true_row row = {begin,
                           end,
                           end - begin,
                           at,
                           (uint32_t)random_next(source),
                           event_kinds[event],
                           event,
                           (uint16_t)random_below(source, 16),
                           (uint16_t)random_below(source, 65536),
                           0};
    if (row.length > (int64_t)MOKSCOPE_LENGTH_MAXIMUM) row.length = MOKSCOPE_LENGTH_MAXIMUM;
    lane->rows[at] = row;
    put_span(&lane->device, begin, end - begin, (uint32_t)event | (uint32_t)row.phase << MOKSCOPE_PHASE_SHIFT,
             row.small, row.argument);
}

/* Two threads share a lane: neighbours in the ring whose ends are close may stand in the other order. */
static void swap_neighbours(struct true_lane *lane, uint32_t i) {
    struct true_row row = lane->rows[i];
    struct mokscope_record record = lane->device.records[i];
    if (row.sync || lane->rows[i + 1].sync || lane->rows[i + 1].end - row.end >= 1 << 23) return;
    if (row.length == MOKSCOPE_LENGTH_MAXIMUM || lane->rows[i + 1].length == MOKSCOPE_LENGTH_MAXIMUM) return;
    lane->rows[i] = lane->rows[i + 1];
    lane->rows[i + 1] = row;
    lane->rows[i].position = i;
    lane->rows[i + 1].position = i + 1;
    lane->device.records[i] = lane->device.records[i + 1];
    lane->device.records[i + 1] = record;
}

static void make_lane(struct true_lane *lane, struct random_source *source, uint32_t count) {
    lane->now = random_between(source, 0, 4 * TURN);
    lane->device = open_lane(lane->now);
    int64_t longest = random_below(source, 2) ? 3000 : 1 << 29;
    while (lane->device.header.count + 10 < count) {
        if (random_below(source, 30) == 0) {
            true_sync(lane);
            lane->now += random_between(source, 0, 20) * TURN;
            true_sync(lane);
        }
        int64_t outer = lane->now += random_between(source, 0, longest);
        for (int64_t inner = random_between(source, 0, 2); inner > 0; inner--) {
            int64_t begin = lane->now += random_between(source, 0, longest / 8);
            lane->now += random_between(source, 0, longest / 8);
            true_span(lane, source, begin, lane->now);
        }
        if (random_below(source, 50) == 0) { /* may saturate; the record after it is the decoder's next firm ground */
            int64_t end = outer + (TURN / 2) + random_between(source, -5, TURN / 8);
            true_span(lane, source, outer, end);
            outer = lane->now = end;
        }
        true_span(lane, source, outer, lane->now);
    }
    for (uint32_t i = 0; i + 1 < lane->device.header.count; i++)
        if (random_below(source, 10) == 0) swap_neighbours(lane, i++);
}

static int by_row_order(const void *a, const void *b) {
    const struct true_row *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

static int same_row(const struct lane_row *row, const struct true_row *expected) {
    return row->begin_ticks == expected->begin && row->length_ticks == expected->length &&
           row->event == expected->event && row->phase == expected->phase && row->small == expected->small &&
           row->argument == expected->argument;
}

/* Compares rows and pairs with those of the truth that a ring of this capacity keeps; 1 if they agree. */
static int agrees(const struct lane_decoder *decoder, struct true_lane *lane, uint32_t capacity) {
    static struct true_row expected[MODEL_RECORDS];
    uint32_t count = lane->device.header.count, first = count > capacity ? count - capacity : 0, unknown = 0;
    int closed = lane->device.header.state == MOKSCOPE_LANE_CLOSED, ok = decoder->misplaced_count == 0;
    for (uint32_t kind = 0; kind < LANE_KIND_COUNT; kind++) {
        uint32_t rows = 0;
        for (uint32_t i = first; i < count; i++)
            if (!lane->rows[i].sync && lane->rows[i].kind == kind) expected[rows++] = lane->rows[i];
        qsort(expected, rows, sizeof *expected, by_row_order);
        ok = ok && decoder->row_count[kind] == rows;
        for (uint32_t i = 0; ok && i < rows; i++) ok = same_row(&decoder->rows[kind][i], &expected[i]);
    }
    struct clock_pair pairs[MODEL_RECORDS] = {
        {(int64_t)lane->device.header.clock_begin, (int64_t)lane->device.header.globaltimer_begin}};
    int32_t pair_count = 1;
    for (uint32_t i = first; i < count; i++) {
        unknown += !lane->rows[i].sync && lane->rows[i].kind == 255;
        if (lane->rows[i].sync == 2 && i > first)
            pairs[pair_count++] = (struct clock_pair){lane->rows[i].begin, lane->rows[i].end};
    }
    if (closed)
        pairs[pair_count++] =
            (struct clock_pair){(int64_t)lane->device.header.clock_end, (int64_t)lane->device.header.globaltimer_end};
    ok = ok && decoder->unknown_count == unknown && decoder->pair_count == pair_count;
    for (int32_t i = 0; ok && i < pair_count; i++)
        ok = decoder->pairs[i].ticks == pairs[i].ticks && decoder->pairs[i].time_ns == pairs[i].time_ns;
    return ok && decoder->end_ticks == lane->now;
}

static void random_lanes(void **state) {
    (void)state;
    struct lane_decoder decoder = {0}; /* one for all: capacities go up and down */
    static struct true_lane lane;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct random_source source = random_seeded(seed);
        uint32_t capacity = 1u << random_below(&source, 10);
        make_lane(&lane, &source, (uint32_t)random_between(&source, 0, MODEL_RECORDS));
        lane.now++;
        if (random_below(&source, 4) > 0) {
            close_lane(&lane.device, lane.now);
        } else { /* read while it ran: the count is that of a sync entry */
            true_sync(&lane);
        }
        if (capacity < 2 && lane.device.header.state == MOKSCOPE_LANE_OPEN) capacity = 2;
        decode(&decoder, &lane.device, capacity);
        int ok = agrees(&decoder, &lane, capacity);
        free(lane.device.records);
        if (!ok)
            fail_msg("decoded lane differs from the truth: seed %llu, capacity %u", (unsigned long long)seed, capacity);
    }
    lane_decode_release(&decoder);
}

/* Garbage must be counted or placed inside the lane, never crash. */
static void random_bytes(void **state) {
    (void)state;
    struct lane_decoder decoder = {0};
    struct error error = {0};
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct random_source source = random_seeded(seed);
        struct mokscope_record ring[64];
        struct mokscope_lane_header header = {.state = (uint32_t)random_below(&source, 4),
                                              .count = (uint32_t)random_next(&source),
                                              .clock_begin = random_below(&source, 1u << 20),
                                              .clock_end = random_next(&source) >> 30};
        if (random_below(&source, 2)) header.count %= 80;
        for (int i = 0; i < 64; i++)
            ring[i] = (struct mokscope_record){
                (uint32_t)random_next(&source), (uint32_t)random_next(&source) >> random_below(&source, 31),
                (uint16_t)random_below(&source, 6), 0, (uint32_t)random_below(&source, 4)};
        for (int i = 0; i + 1 < 64; i += (int)random_between(&source, 1, 30)) {
            ring[i].length_cycles = MOKSCOPE_LENGTH_SYNC;
            ring[i + 1].length_cycles = MOKSCOPE_LENGTH_SYNC | 1;
        }
        assert_int_equal(lane_decode(&decoder, &header, ring, 64, event_kinds, EVENTS, &error), 0);
        uint32_t kept = header.count < 64 ? header.count : 64, rows = decoder.unknown_count + decoder.misplaced_count;
        for (int kind = 0; kind < LANE_KIND_COUNT; kind++) rows += decoder.row_count[kind];
        assert_true(rows <= kept);
        for (int32_t i = 1; i < decoder.pair_count; i++)
            assert_true(decoder.pairs[i].ticks > decoder.pairs[i - 1].ticks);
    }
    lane_decode_release(&decoder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_lanes),      cmocka_unit_test(limits_of_fields),
        cmocka_unit_test(clock_wraps),      cmocka_unit_test(lengths_saturate),
        cmocka_unit_test(sync_entries),     cmocka_unit_test(sync_entries_in_wrapped_rings),
        cmocka_unit_test(wrapped_rings),    cmocka_unit_test(largest_count),
        cmocka_unit_test(strange_records),  cmocka_unit_test(capacity_no_power_of_two),
        cmocka_unit_test(unfinished_lanes), cmocka_unit_test(order_of_rows),
        cmocka_unit_test(random_lanes),     cmocka_unit_test(random_bytes),
    };
    return cmocka_run_group_tests(tests, set_kinds, NULL);
}
