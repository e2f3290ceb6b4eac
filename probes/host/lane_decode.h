/* Turns a lane's header and ring into rows: unwraps the ring, rebuilds 64-bit clocks, splits spans, waits and signals.
 * Called by the trace writer for every lane. Relies on the record format of probes/mokscope_probe.h only.
 * The decoder owns its arrays; a result is valid until the next lane_decode with the same decoder. */
#ifndef LANE_DECODE_H
#define LANE_DECODE_H

#include "../mokscope_probe.h"
#include "clock_fit.h"
#include "error.h"

#include <stdint.h>

enum { LANE_KIND_COUNT = 3 }; /* MOKSCOPE_KIND_SPAN, _WAIT, _SIGNAL */

struct lane_row {
    int64_t begin_ticks;
    int64_t length_ticks;
    uint32_t argument;
    uint16_t event; /* id in the module's table */
    uint16_t small;
    uint16_t phase;
};

struct lane_decoder {
    struct lane_row *rows[LANE_KIND_COUNT]; /* [row_count] ordered by begin, longer first */
    uint32_t row_count[LANE_KIND_COUNT];
    struct clock_pair *pairs; /* [pair_count] header's and sync entries', ascending, distinct ticks */
    int32_t pair_count;
    int64_t end_ticks;         /* clock_end, or the last record's end of an unfinished lane */
    uint32_t lost_count;       /* max(0, count - capacity) */
    uint32_t unknown_count;    /* records whose event id the module does not have; left out */
    uint32_t misplaced_count;  /* records whose clock cannot be placed inside the lane; left out */
    struct lane_row *scratch;
    uint32_t capacity; /* of the arrays */
};

/* A zeroed decoder is ready to use. */
void lane_decode_release(struct lane_decoder *decoder);

/* header       state CLOSED: clock_end is valid; anything else: unfinished, records up to the last sync entry
 * records      [capacity] the lane's ring; capacity is a power of two
 * event_kinds  [event_count] enum mokscope_kind, or 255: id not used
 * O(n log n), O(n) when records are nearly in order of begin. Errors: out of memory, capacity not a power of two. */
int lane_decode(struct lane_decoder *decoder, const struct mokscope_lane_header *header,
                const struct mokscope_record *records, uint32_t capacity, const uint8_t *event_kinds, uint32_t event_count,
                struct error *error);

#endif
