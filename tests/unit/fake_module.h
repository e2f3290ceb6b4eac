/* A module whose rings are in host memory, and the device's side of the lane protocol on it (probes/mokscope_probe.h), for
 * tests of what reads rings. Reads and writes are checked to stay inside the rings; a hook runs before each, as the device
 * does while the host looks. */
#ifndef FAKE_MODULE_H
#define FAKE_MODULE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../probes/mokscope_probe.h"

enum { FAKE_ERROR = 719 }; /* cudaErrorLaunchFailure */

struct fake_device {
    struct mokscope_ring ring;
    int calls;         /* reads and writes so far */
    int failing_call;  /* fails, and all after it; 0: none */
    int install_code;  /* what install returns */
    int out_of_bounds; /* reads and writes that were */
    int wrong_writes;  /* headers written that the host did not own */
    size_t bytes_read;
    void (*before_call)(void);
};

static struct fake_device fake;

static inline int fake_inside(const void *pointer, size_t bytes, const void *begin, size_t size) {
    uintptr_t at = (uintptr_t)pointer, first = (uintptr_t)begin;
    return at >= first && at - first <= size && bytes <= size - (at - first);
}

static inline int fake_access(const void *device, size_t bytes, int writing) {
    const struct mokscope_ring *ring = &fake.ring;
    if (fake.before_call != NULL) fake.before_call();
    fake.calls++;
    int lanes = fake_inside(device, bytes, ring->lanes, ring->lane_count * sizeof *ring->lanes);
    int records =
        fake_inside(device, bytes, ring->records, sizeof *ring->records * ring->lane_count * ring->record_capacity);
    int next = fake_inside(device, bytes, ring->next, 2 * sizeof *ring->next);
    if (!(lanes || (!writing && (records || next)))) fake.out_of_bounds++;
    if (fake.failing_call > 0 && fake.calls >= fake.failing_call) return FAKE_ERROR;
    return lanes || records || next ? 0 : FAKE_ERROR;
}

static inline int fake_read(void *host, const void *device, size_t bytes) {
    int code = fake_access(device, bytes, 0);
    if (code == 0) memcpy(host, device, bytes);
    fake.bytes_read += bytes;
    return code;
}

/* The host may write whole headers of closed lanes, to free them. */
static inline int fake_write(void *device, const void *host, size_t bytes) {
    int code = fake_access(device, bytes, 1);
    const struct mokscope_lane_header *old = device, *new = host;
    if (code != 0) return code;
    for (size_t i = 0; i < bytes / sizeof *old; i++)
        if (old[i].state != MOKSCOPE_LANE_CLOSED || new[i].state != MOKSCOPE_LANE_FREE) fake.wrong_writes++;
    if (bytes % sizeof *old != 0) fake.wrong_writes++;
    memcpy(device, host, bytes);
    return 0;
}

static inline int fake_install(const struct mokscope_ring *request, struct mokscope_ring *installed) {
    if (fake.install_code != 0) return fake.install_code;
    fake.ring = *request;
    fake.ring.lanes = calloc(request->lane_count, sizeof *fake.ring.lanes);
    fake.ring.records = malloc(sizeof *fake.ring.records * request->lane_count * request->record_capacity);
    fake.ring.next = calloc(2, sizeof *fake.ring.next);
    if (fake.ring.lanes == NULL || fake.ring.records == NULL || fake.ring.next == NULL) abort();
    memset(fake.ring.records, 0xa5, sizeof *fake.ring.records * request->lane_count * request->record_capacity);
    *installed = fake.ring;
    return 0;
}

static inline void fake_release(void) {
    free(fake.ring.lanes);
    free(fake.ring.records);
    free(fake.ring.next);
    memset(&fake, 0, sizeof fake);
}

static const struct mokscope_role_row fake_roles[] = {{"mma", MOKSCOPE_CLASS_COMPUTE, ""},
                                                      {"store", MOKSCOPE_CLASS_COMMUNICATE, ""}};
static const struct mokscope_edge_row fake_edges[] = {{"X", 0, 1, "tile", "gpu", 0, "1", ""}};
static const struct mokscope_event_row fake_events[] = {
    {NULL, 0, 0, 0, -1, "", "", ""},
    {"work", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_COMPUTE, 1, -1, "", "", ""},
    {"wait X", MOKSCOPE_KIND_WAIT, MOKSCOPE_CLASS_WAIT, 1, 0, "index", "awaited", ""},
    {"signal X", MOKSCOPE_KIND_SIGNAL, MOKSCOPE_CLASS_OVERHEAD, 1, 0, "index", "value", ""},
};
static const struct mokscope_module fake_module = {sizeof fake_module,
                                                   MOKSCOPE_PROBE_VERSION,
                                                   "fake",
                                                   fake_roles,
                                                   2,
                                                   fake_events,
                                                   4,
                                                   fake_edges,
                                                   1,
                                                   fake_install,
                                                   fake_read,
                                                   fake_write};

/* --- the device -------------------------------------------------------------------------------------------------------- */

/* A warp's view of its lane, as in the probe header; slot -1: it found none and records nothing. */
struct fake_lane {
    int64_t slot;
    uint32_t count;
};

/* clock and globaltimer are the same here. id goes into the header's cta. */
static inline struct fake_lane fake_open(uint64_t grid_id, uint32_t id, uint32_t rank, uint32_t role, uint64_t clock) {
    struct mokscope_ring *ring = &fake.ring;
    uint32_t slot = (*ring->next)++ % ring->lane_count;
    struct mokscope_lane_header *header = &ring->lanes[slot];
    if (header->state != MOKSCOPE_LANE_FREE) {
        ring->next[1]++;
        return (struct fake_lane){-1, 0};
    }
    *header = (struct mokscope_lane_header){.state = MOKSCOPE_LANE_OPEN,
                                            .grid_id = grid_id,
                                            .clock_begin = clock,
                                            .globaltimer_begin = clock,
                                            .cta = id,
                                            .rank = rank,
                                            .role = role,
                                            .warp = 1};
    return (struct fake_lane){slot, 0};
}

static inline void fake_put(struct fake_lane *lane, struct mokscope_record record) {
    if (lane->slot < 0) return;
    struct mokscope_record *records = fake.ring.records + (size_t)lane->slot * fake.ring.record_capacity;
    records[lane->count++ & (fake.ring.record_capacity - 1)] = record;
}

static inline void fake_span(struct fake_lane *lane, uint16_t event, uint64_t begin, uint64_t end, uint32_t argument) {
    fake_put(lane, (struct mokscope_record){(uint32_t)begin, (uint32_t)(end - begin), event, 0, argument});
}

static inline void fake_sync(struct fake_lane *lane, uint64_t clock) {
    fake_put(lane, (struct mokscope_record){(uint32_t)clock, MOKSCOPE_LENGTH_SYNC, 0, 0, (uint32_t)(clock >> 32)});
    fake_put(lane, (struct mokscope_record){(uint32_t)clock, MOKSCOPE_LENGTH_SYNC | 1, 0, 0, (uint32_t)(clock >> 32)});
    if (lane->slot >= 0) fake.ring.lanes[lane->slot].count = lane->count;
}

static inline void fake_close(struct fake_lane *lane, uint64_t clock) {
    if (lane->slot < 0) return;
    struct mokscope_lane_header *header = &fake.ring.lanes[lane->slot];
    header->count = lane->count;
    header->clock_end = header->globaltimer_end = clock;
    header->state = MOKSCOPE_LANE_CLOSED;
}

#endif
