/* Rings of one instrumented module on one device: installing them, copying finished lanes out. Knows the device only
 * through struct mokscope_module's functions, so it runs on host memory in tests.
 * The caller owns a struct ring and serialises calls on it; a lane_block belongs to whoever it is handed to. */
#ifndef RINGS_H
#define RINGS_H

#include "../host/error.h"
#include "../mokscope_probe.h"

#include <stddef.h>
#include <stdint.h>

/* What a slot's lane was seen to wait in, for ring_hangs. */
struct ring_watch {
    uint64_t since;  /* wait_since of its header, globaltimer ns; 0: in no long wait */
    uint32_t count;  /* of its header */
    int told;
    int64_t seen_ns; /* host time when it was first seen like this */
};

struct ring {
    const struct mokscope_module *module;
    int32_t device_id;
    void *context;                        /* CUcontext the module's functions need current; NULL in tests */
    struct mokscope_ring installed;       /* device pointers */
    struct mokscope_lane_header *headers; /* [lane_count] last copy */
    struct ring_watch *watches;           /* [lane_count] */
    struct mokscope_record *staging;      /* [staging_records] */
    size_t staging_records;
    uint32_t lost_lanes; /* lanes that found no slot */
    uint32_t used;       /* slots that have ever held a lane */
    uint32_t taken;      /* closed lanes copied out so far, modulo 2^32 */
    uint32_t open_lanes; /* seen at the last look */
    int readable;        /* 0: the context is gone or reading failed */
};

/* Lanes copied out of a ring, one allocation. */
struct lane_block {
    struct lane_block *next;
    const struct mokscope_module *module;
    int32_t device_id;
    uint32_t record_capacity; /* ring size of each lane; only a wrapped lane has that many records here */
    uint32_t lane_count;
    size_t bytes;
    struct mokscope_lane_header *headers; /* [lane_count] */
    size_t *first_record;                 /* [lane_count] position in records */
    struct mokscope_record *records;
};

/* Allocates and installs; the device of the ring is the one current for the module's functions. */
int ring_install(struct ring *ring, const struct mokscope_module *module, const struct mokscope_ring *request,
                 int32_t device_id, void *context, struct error *error);

/* Copies closed lanes out and frees their slots; with final also the lanes still open, whose slots stay theirs.
 * blocks receives a list (NULL: nothing was ready). Errors: the module's read or write failed; ring is not readable
 * from then on and what had been copied is in blocks. */
int ring_drain(struct ring *ring, int final, struct lane_block **blocks, struct error *error);

/* Headers of lanes that, at each ring_drain since limit_ns ago, were open in the same long wait and had got no further; each
 * wait once. now_ns: host time of this call, a clock of the caller's choice. Looks at the headers that ring_drain read last.
 * Returns how many of hangs [capacity] were filled; those that did not fit come with the next call. */
size_t ring_hangs(struct ring *ring, int64_t now_ns, int64_t limit_ns, struct mokscope_lane_header *hangs, size_t capacity);

void lane_block_free(struct lane_block *block);

/* Frees host memory; device memory is left to the context. */
void ring_release(struct ring *ring);

#endif
