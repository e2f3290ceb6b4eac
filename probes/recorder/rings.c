/* See rings.h. The protocol lane <-> recorder is in probes/mokscope_probe.h.
 *
 * A header that says CLOSED is read again together with its records: the first copy may have caught the line half
 * written. Closed slots belong to the host until it writes FREE, so whole headers can be written back. Neighbouring closed
 * lanes are copied in one piece where that is cheaper than a copy each. */
#include "rings.h"

#include <stdlib.h>
#include <string.h>

enum {
    STAGING_BYTES = 16 << 20,
    COPY_COST_BYTES = 160 << 10 /* a small copy costs as much as this many bytes of a large one: 20 us at 8 GB/s */
};

int ring_install(struct ring *ring, const struct mokscope_module *module, const struct mokscope_ring *request,
                 int32_t device_id, void *context, struct error *error) {
    memset(ring, 0, sizeof *ring);
    ring->module = module;
    ring->device_id = device_id;
    ring->context = context;
    size_t lanes_fit = STAGING_BYTES / sizeof(struct mokscope_record) / request->record_capacity;
    ring->staging_records = (lanes_fit > 0 ? lanes_fit : 1) * request->record_capacity;
    ring->headers = malloc(request->lane_count * sizeof *ring->headers);
    ring->staging = malloc(ring->staging_records * sizeof *ring->staging);
    ring->watches = calloc(request->lane_count, sizeof *ring->watches);
    if (ring->headers == NULL || ring->staging == NULL || ring->watches == NULL) {
        ring_release(ring);
        return error_set(error, ERROR_FAILURE, "out of memory for rings of module '%s'", module->name);
    }
    int code = module->install(request, &ring->installed);
    if (code != 0) {
        ring_release(ring);
        error_set(error, ERROR_FAILURE, "cannot install rings of module '%s' on device %d: cuda error %d", module->name,
                  device_id, code);
        return error_hint(error, "lower --lanes or --records: %zu MiB of device memory were asked for",
                          request->lane_count * (request->record_capacity * sizeof(struct mokscope_record)) >> 20);
    }
    ring->readable = 1;
    return 0;
}

void ring_release(struct ring *ring) {
    free(ring->headers);
    free(ring->staging);
    free(ring->watches);
    ring->headers = NULL;
    ring->watches = NULL;
    ring->staging = NULL;
    ring->readable = 0;
}

void lane_block_free(struct lane_block *block) { free(block); }

static int device_read(struct ring *ring, void *host, const void *device, size_t bytes, const char *what,
                       struct error *error) {
    int code = ring->module->read(host, device, bytes);
    if (code == 0) return 0;
    ring->readable = 0;
    return error_set(error, ERROR_FAILURE, "cannot read %s of module '%s' on device %d: cuda error %d", what,
                     ring->module->name, ring->device_id, code);
}

static uint32_t kept(const struct ring *ring, const struct mokscope_lane_header *header) {
    return header->count < ring->installed.record_capacity ? header->count : ring->installed.record_capacity;
}

static struct lane_block *new_block(const struct ring *ring, const struct mokscope_lane_header *headers, uint32_t count) {
    size_t record_count = 0;
    for (uint32_t i = 0; i < count; i++) record_count += kept(ring, &headers[i]);
    size_t bytes = sizeof(struct lane_block) + count * (sizeof *headers + sizeof(size_t)) +
                   record_count * sizeof(struct mokscope_record);
    struct lane_block *block = malloc(bytes);
    if (block == NULL) return NULL;
    memset(block, 0, sizeof *block);
    block->module = ring->module;
    block->device_id = ring->device_id;
    block->record_capacity = ring->installed.record_capacity;
    block->lane_count = count;
    block->bytes = bytes;
    block->headers = (struct mokscope_lane_header *)(void *)(block + 1);
    block->records = (struct mokscope_record *)(void *)(block->headers + count);
    block->first_record = (size_t *)(void *)(block->records + record_count);
    memcpy(block->headers, headers, count * sizeof *headers);
    size_t position = 0;
    for (uint32_t i = 0; i < count; i++) {
        block->first_record[i] = position;
        position += kept(ring, &headers[i]);
    }
    return block;
}

/* Records of slots [begin, begin + count), all at once or lane by lane, into the block. */
static int read_records(struct ring *ring, struct lane_block *block, uint32_t begin, struct error *error) {
    size_t capacity = ring->installed.record_capacity, count = block->lane_count, sum = 0;
    const struct mokscope_record *device = ring->installed.records + begin * capacity;
    for (size_t i = 0; i < count; i++) sum += kept(ring, &block->headers[i]);
    size_t whole = (count - 1) * capacity + kept(ring, &block->headers[count - 1]);
    int together = whole * sizeof *device <= sum * sizeof *device + count * COPY_COST_BYTES;
    if (together) {
        if (whole == 0) return 0;
        int status = device_read(ring, ring->staging, device, whole * sizeof *device, "records", error);
        for (size_t i = 0; !status && i < count; i++)
            memcpy(block->records + block->first_record[i], ring->staging + i * capacity,
                   kept(ring, &block->headers[i]) * sizeof *device);
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t records = kept(ring, &block->headers[i]);
        if (records == 0) continue;
        int status = device_read(ring, block->records + block->first_record[i], device + i * capacity,
                                 records * sizeof *device, "records", error);
        if (status) return status;
    }
    return 0;
}

/* Copies slots [begin, begin + count), all in `state`, and frees them if they are closed. */
static int take_lanes(struct ring *ring, uint32_t begin, uint32_t count, uint32_t state, struct lane_block ***tail,
                      struct error *error) {
    struct mokscope_lane_header *headers = ring->headers + begin, *device = ring->installed.lanes + begin;
    int status = device_read(ring, headers, device, count * sizeof *headers, "lane headers", error);
    if (status) return status;
    struct lane_block *block = new_block(ring, headers, count);
    if (block == NULL) return error_set(error, ERROR_FAILURE, "out of memory for %u lanes", count);
    status = read_records(ring, block, begin, error);
    if (status) {
        lane_block_free(block);
        return status;
    }
    **tail = block;
    *tail = &block->next;
    if (state != MOKSCOPE_LANE_CLOSED) return 0;
    for (uint32_t i = 0; i < count; i++) headers[i].state = MOKSCOPE_LANE_FREE;
    int code = ring->module->write(device, headers, count * sizeof *headers);
    if (code == 0) return 0;
    ring->readable = 0;
    return error_set(error, ERROR_FAILURE, "cannot free lanes of module '%s' on device %d: cuda error %d",
                     ring->module->name, ring->device_id, code);
}

int ring_drain(struct ring *ring, int final, struct lane_block **blocks, struct error *error) {
    struct lane_block **tail = blocks;
    uint32_t asked[2];
    *blocks = NULL;
    if (!ring->readable) return 0;
    int status = device_read(ring, asked, ring->installed.next, sizeof asked, "ring counters", error);
    if (status) return status;
    ring->lost_lanes = asked[1];
    if (asked[0] - asked[1] == ring->taken) return 0; /* every lane that got a slot has been copied */

    uint32_t lane_count = ring->installed.lane_count;
    if (ring->used < lane_count && ring->used < asked[0]) ring->used = asked[0] < lane_count ? asked[0] : lane_count;
    uint32_t used = ring->used; /* asked[0] turns over after 2^32 lanes */
    uint32_t most = (uint32_t)(ring->staging_records / ring->installed.record_capacity);
    status = device_read(ring, ring->headers, ring->installed.lanes, used * sizeof *ring->headers, "lane headers", error);
    ring->open_lanes = 0;
    for (uint32_t begin = 0, end; !status && begin < used; begin = end) {
        uint32_t state = ring->headers[begin].state;
        end = begin + 1;
        if (state == MOKSCOPE_LANE_OPEN) ring->open_lanes++;
        if (state != MOKSCOPE_LANE_CLOSED && !(final && state == MOKSCOPE_LANE_OPEN)) continue;
        while (end < used && end - begin < most && ring->headers[end].state == state) {
            if (state == MOKSCOPE_LANE_OPEN) ring->open_lanes++;
            end++;
        }
        status = take_lanes(ring, begin, end - begin, state, &tail, error);
        if (!status && state == MOKSCOPE_LANE_CLOSED) ring->taken += end - begin;
    }
    return status;
}

size_t ring_hangs(struct ring *ring, int64_t now_ns, int64_t limit_ns, struct mokscope_lane_header *hangs, size_t capacity) {
    size_t found = 0;
    if (!ring->readable) return 0;
    for (uint32_t slot = 0; slot < ring->used; slot++) {
        const struct mokscope_lane_header *header = &ring->headers[slot];
        struct ring_watch *watch = &ring->watches[slot];
        uint64_t since = header->state == MOKSCOPE_LANE_OPEN ? header->wait_since : 0;
        if (since == 0 || since != watch->since || header->count != watch->count) {
            *watch = (struct ring_watch){since, header->count, 0, now_ns};
        } else if (!watch->told && now_ns - watch->seen_ns >= limit_ns && found < capacity) {
            hangs[found++] = *header;
            watch->told = 1;
        }
    }
    return found;
}
