/* See lane_decode.h. Records stand in order of their ends, so 64-bit ends are rebuilt backwards from the end pair; sync
 * entries carry full clocks and restart the walk exactly. */
#include "lane_decode.h"

#include <stdlib.h>
#include <string.h>

enum { OUT_OF_ORDER_TICKS = 1 << 24 }; /* an end may stand this much later than its successor's (threads sharing a lane) */

void lane_decode_release(struct lane_decoder *decoder) {
    for (int kind = 0; kind < LANE_KIND_COUNT; kind++) free(decoder->rows[kind]);
    free(decoder->pairs);
    free(decoder->scratch);
    memset(decoder, 0, sizeof *decoder);
}

static int reserve(struct lane_decoder *decoder, uint32_t capacity, struct error *error) {
    if (capacity <= decoder->capacity) return 0;
    lane_decode_release(decoder);
    size_t count = capacity;
    for (int kind = 0; kind < LANE_KIND_COUNT; kind++) decoder->rows[kind] = malloc(count * sizeof(struct lane_row));
    decoder->scratch = malloc(count * sizeof(struct lane_row));
    decoder->pairs = malloc((count / 2 + 3) * sizeof(struct clock_pair));
    if (!decoder->rows[0] || !decoder->rows[1] || !decoder->rows[2] || !decoder->scratch || !decoder->pairs) {
        lane_decode_release(decoder);
        return error_set(error, ERROR_FAILURE, "out of memory for a lane of %u records", capacity);
    }
    decoder->capacity = capacity;
    return 0;
}

static int is_sync(const struct mokscope_record *record, uint32_t half) {
    return record->length_cycles == (MOKSCOPE_LENGTH_SYNC | half);
}

static int row_after(const struct lane_row *a, const struct lane_row *b) {
    if (a->begin_ticks != b->begin_ticks) return a->begin_ticks > b->begin_ticks;
    return a->length_ticks < b->length_ticks;
}

/* Stable bottom-up merge sort; runs already in order cost one comparison. */
static void sort_rows(struct lane_row *rows, struct lane_row *scratch, uint32_t count) {
    enum { RUN = 16 };
    for (uint32_t begin = 0; begin < count; begin += RUN) {
        uint32_t end = count - begin < RUN ? count : begin + RUN;
        for (uint32_t i = begin + 1; i < end; i++) {
            struct lane_row row = rows[i];
            uint32_t j = i;
            for (; j > begin && row_after(&rows[j - 1], &row); j--) rows[j] = rows[j - 1];
            rows[j] = row;
        }
    }
    for (uint64_t width = RUN; width < count; width *= 2) {
        for (uint64_t begin = 0; begin + width < count; begin += 2 * width) {
            uint64_t middle = begin + width, end = middle + width < count ? middle + width : count;
            if (!row_after(&rows[middle - 1], &rows[middle])) continue;
            memcpy(scratch, rows + begin, (size_t)width * sizeof *rows);
            uint64_t left = 0, right = middle, out = begin;
            while (left < width && right < end)
                rows[out++] = row_after(&scratch[left], &rows[right]) ? rows[right++] : scratch[left++];
            memcpy(rows + out, scratch + left, (size_t)(width - left) * sizeof *rows);
        }
    }
}

/* Oldest record kept, and how many there are. */
struct ring_view {
    const struct mokscope_record *records;
    uint32_t first, count, mask;
};

static const struct mokscope_record *ring_record(const struct ring_view *ring, uint32_t index) {
    return &ring->records[(ring->first + index) & ring->mask];
}

/* A clock not later than any record's end that is still unknown: the end pair, the last sync entry, or, for a lane that has
 * neither, the ends added up from the begin pair. */
static int64_t last_clock(const struct ring_view *ring, const struct mokscope_lane_header *header) {
    if (header->state == MOKSCOPE_LANE_CLOSED) return (int64_t)header->clock_end;
    uint64_t clock = header->clock_begin;
    for (uint32_t i = 0; i < ring->count; i++) {
        const struct mokscope_record *record = ring_record(ring, i);
        if (record->length_cycles & MOKSCOPE_LENGTH_SYNC) {
            if (is_sync(record, 0)) clock = (uint64_t)record->argument << 32 | record->begin_clock;
            continue;
        }
        uint32_t end = record->begin_clock + (record->length_cycles & MOKSCOPE_LENGTH_MAXIMUM);
        uint32_t forward = end - (uint32_t)clock;
        if (forward < 0x80000000u) clock += forward;
    }
    return (int64_t)clock;
}

static void keep_row(struct lane_decoder *decoder, const struct mokscope_record *record, int64_t begin, uint32_t kind) {
    decoder->rows[kind][decoder->row_count[kind]++] =
        (struct lane_row){begin,
                          (int64_t)(record->length_cycles & MOKSCOPE_LENGTH_MAXIMUM),
                          record->argument,
                          (uint16_t)(record->event & MOKSCOPE_EVENT_MASK),
                          record->small,
                          (uint16_t)(record->event >> MOKSCOPE_PHASE_SHIFT)};
}

static void reverse_rows(struct lane_row *rows, uint32_t count) {
    for (uint32_t i = 0; i < count / 2; i++) {
        struct lane_row row = rows[i];
        rows[i] = rows[count - 1 - i];
        rows[count - 1 - i] = row;
    }
}

static void add_pair(struct lane_decoder *decoder, uint64_t ticks, uint64_t time_ns) {
    decoder->pairs[decoder->pair_count++] = (struct clock_pair){(int64_t)ticks, (int64_t)time_ns};
}

/* Pairs were collected last to first; keeps those that ascend. */
static void order_pairs(struct lane_decoder *decoder) {
    int32_t kept = 0;
    for (int32_t i = 0, j = decoder->pair_count - 1; i < j; i++, j--) {
        struct clock_pair pair = decoder->pairs[i];
        decoder->pairs[i] = decoder->pairs[j];
        decoder->pairs[j] = pair;
    }
    for (int32_t i = 0; i < decoder->pair_count; i++)
        if (kept == 0 || decoder->pairs[i].ticks > decoder->pairs[kept - 1].ticks) decoder->pairs[kept++] = decoder->pairs[i];
    decoder->pair_count = kept;
}

int lane_decode(struct lane_decoder *decoder, const struct mokscope_lane_header *header,
                const struct mokscope_record *records, uint32_t capacity, const uint8_t *event_kinds, uint32_t event_count,
                struct error *error) {
    if (capacity == 0 || (capacity & (capacity - 1)) != 0)
        return error_set(error, ERROR_FAILURE, "lane has %u records, not a power of two", capacity);
    int status = reserve(decoder, capacity, error);
    if (status) return status;
    memset(decoder->row_count, 0, sizeof decoder->row_count);
    decoder->pair_count = 0;
    decoder->unknown_count = decoder->misplaced_count = 0;
    decoder->lost_count = header->count > capacity ? header->count - capacity : 0;

    int closed = header->state == MOKSCOPE_LANE_CLOSED;
    struct ring_view ring = {records, decoder->lost_count ? header->count & (capacity - 1) : 0,
                             header->count - decoder->lost_count, capacity - 1};
    int64_t reference = last_clock(&ring, header);
    if (closed) add_pair(decoder, header->clock_end, header->globaltimer_end);
    decoder->end_ticks = reference;

    for (uint32_t i = ring.count; i-- > 0;) {
        const struct mokscope_record *record = ring_record(&ring, i);
        if (record->length_cycles & MOKSCOPE_LENGTH_SYNC) {
            const struct mokscope_record *first = i > 0 ? ring_record(&ring, i - 1) : NULL;
            if (!is_sync(record, 1) || first == NULL || !is_sync(first, 0)) continue;
            uint64_t clock = (uint64_t)first->argument << 32 | first->begin_clock;
            add_pair(decoder, clock, (uint64_t)record->argument << 32 | record->begin_clock);
            reference = (int64_t)clock;
            i--;
            continue;
        }
        uint32_t length = record->length_cycles & MOKSCOPE_LENGTH_MAXIMUM;
        uint32_t end = record->begin_clock + length;
        uint32_t ahead = end - (uint32_t)reference;
        int out_of_order = ahead != 0 && ahead < OUT_OF_ORDER_TICKS;
        int64_t end_ticks = out_of_order ? reference + ahead : reference - (int64_t)((uint32_t)reference - end);
        int64_t begin_ticks = end_ticks - (int64_t)length;
        if (begin_ticks < (int64_t)header->clock_begin - OUT_OF_ORDER_TICKS) {
            decoder->misplaced_count++;
            continue;
        }
        if (!out_of_order && length < MOKSCOPE_LENGTH_MAXIMUM) reference = end_ticks;
        uint32_t event = record->event & MOKSCOPE_EVENT_MASK;
        uint32_t kind = event < event_count ? event_kinds[event] : 255u;
        if (kind < LANE_KIND_COUNT) {
            keep_row(decoder, record, begin_ticks, kind);
        } else {
            decoder->unknown_count++;
        }
    }
    add_pair(decoder, header->clock_begin, header->globaltimer_begin);
    order_pairs(decoder);
    for (int kind = 0; kind < LANE_KIND_COUNT; kind++) {
        reverse_rows(decoder->rows[kind], decoder->row_count[kind]);
        sort_rows(decoder->rows[kind], decoder->scratch, decoder->row_count[kind]);
    }
    return 0;
}
