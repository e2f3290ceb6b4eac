/* mokscope_probe.h: timestamp probes for CUDA kernels; the only header a kernel includes.
 *
 * How to use
 *   1. #include "mokscope_probe.h" in the .cu file whose kernel you instrument.
 *   2. Describe your roles and events once, as arrays of struct mokscope_role_row / mokscope_event_row, and name them in
 *      MOKSCOPE_MODULE("my kernel", roles, events, edges) at file scope (probes/mok_events.h is an example).
 *   3. At the start of a role, all 32 lanes of its warp:  struct mokscope_lane lane = mokscope_lane_open(rank, ROLE, cluster);
 *   4. Around work:  uint32_t begin = mokscope_clock();  ...work...  mokscope_span(&lane, LEVEL, begin, EVENT, small, argument);
 *      by the whole converged warp, or mokscope_span_thread(...) where one thread alone runs the role.
 *   5. A wait: try first; only if that failed take begin and call mokscope_span with the wait's event when it succeeded.
 *   6. After a release store: mokscope_instant(&lane, LEVEL, EVENT, value, index).
 *      A warp that used the thread forms in its thread 0 calls mokscope_lane_adopt before it uses the warp forms.
 *   7. At the end of the role, the warp (or its one thread):  mokscope_lane_close(&lane)  /  mokscope_lane_close_thread(&lane).
 *   8. Run under `mokscope record -- ./app`. Without the recorder the ring pointer is null and nothing is written.
 *   9. -DMOKSCOPE_OFF removes every probe at compile time: same machine code as without this header.
 *
 * PROTOCOL lane (device) <-> recorder (host, probes/recorder/rings.c)
 *   States   FREE -> CLAIMED -> OPEN [mokscope_lane_open: slot = next++ mod lane_count, claimed if the header says FREE; else
 *            the lane is counted in lost_lanes and records nothing] -> CLOSED [mokscope_lane_close] -> FREE [recorder, after
 *            copying]
 *   Writers  FREE is written by the host only, CLAIMED by compare-and-swap (with fewer slots than warps two may come to one at
 *            once), OPEN and CLOSED by the one warp that owns the lane. Records and header are
 *            plain stores; CLOSED is a release store at system scope after a fence, so a host copy that sees CLOSED sees all.
 *   Count    uncapped; the address is masked. lost = max(0, count - capacity). A wrapped ring starts at count mod capacity.
 *   Clock    32 low bits of the SM clock a record; (clock64, globaltimer) pairs taken on a globaltimer edge at open and
 *            close, and as two-record sync entries in long lanes (at least every 2^31 cycles).
 *
 * A span is one 16-byte record, written at its end by a predicated store. Costs: docs/notes. */
#ifndef MOKSCOPE_PROBE_H
#define MOKSCOPE_PROBE_H

#include <stddef.h>
#include <stdint.h>

#define MOKSCOPE_PROBE_VERSION 1

/* --- format, the same on device and host ----------------------------------------------------------------------------- */

/* One span, wait, instant or sync entry.
 * begin_clock    low 32 bits of the SM clock at begin
 * length_cycles  bits 30:0 duration, saturating; bit 31 MOKSCOPE_LENGTH_SYNC marks a sync entry
 * event          bits 11:0 event id of the module's table, 15:12 phase (free for the kernel)
 * small          saturating 16-bit payload, meaning in the event's row
 * argument       32-bit payload, meaning in the event's row
 * A sync entry is two records: {clock low, FLAG | 0, event 0, 0, clock high}, {globaltimer low, FLAG | 1, event 0, 0,
 * globaltimer high}. */
struct mokscope_record {
    uint32_t begin_clock;
    uint32_t length_cycles;
    uint16_t event;
    uint16_t small;
    uint32_t argument;
};

#define MOKSCOPE_LENGTH_SYNC 0x80000000u
#define MOKSCOPE_LENGTH_MAXIMUM 0x7fffffffu
#define MOKSCOPE_EVENT_MASK 0x0fffu
#define MOKSCOPE_PHASE_SHIFT 12

enum mokscope_lane_state {
    MOKSCOPE_LANE_FREE = 0,
    MOKSCOPE_LANE_OPEN = 1,
    MOKSCOPE_LANE_CLOSED = 2,
    MOKSCOPE_LANE_CLAIMED = 3 /* its header is being filled in: nobody else's, and not to be read */
};

/* Lane header, 128 bytes, device memory. One lane is one warp's role in one launch. */
struct mokscope_lane_header {
    uint32_t state;              /* enum mokscope_lane_state */
    uint32_t count;              /* records written, uncapped; final at CLOSED, at least the last sync's before */
    uint64_t grid_id;            /* %gridid: one value a launch */
    uint64_t clock_begin;        /* clock64 ... */
    uint64_t globaltimer_begin;  /* ... and globaltimer at the same edge, ns */
    uint64_t clock_end;
    uint64_t globaltimer_end;
    uint64_t wait_since;         /* globaltimer ns when the wait below began; 0 = not in a long wait */
    uint32_t cta;                /* linear index in the grid */
    uint32_t cluster;            /* linear cluster index in the grid, 0 without clusters */
    uint32_t rank;
    uint32_t role;               /* role id of the module's table */
    uint32_t warp;               /* warp in the CTA */
    uint32_t sm_begin, sm_end;   /* %smid at open and close */
    uint32_t wait_event, wait_index, wait_awaited, wait_observed; /* slow path of a wait, for the hang recorder */
    uint32_t reserved[7];
};

/* Ring descriptor of a module on one device: __device__ memory, written by the recorder. All zero: not recording. */
struct mokscope_ring {
    struct mokscope_lane_header *lanes; /* [lane_count] */
    struct mokscope_record *records;    /* [lane_count, record_capacity] */
    uint32_t *next;                     /* lanes asked for so far; [1] lanes lost because no slot was free */
    uint32_t lane_count;
    uint32_t record_capacity;           /* power of two */
    uint32_t level;                     /* records of a level above this are not written */
    uint32_t role_mask;                 /* bit r: role r records */
};

enum mokscope_level { MOKSCOPE_LEVEL_TASK = 1, MOKSCOPE_LEVEL_PHASE = 2, MOKSCOPE_LEVEL_KBLOCK = 3 };

enum mokscope_class {
    MOKSCOPE_CLASS_COMPUTE,
    MOKSCOPE_CLASS_COMMUNICATE,
    MOKSCOPE_CLASS_OVERHEAD,
    MOKSCOPE_CLASS_CONTAINER, /* a task: gives no state of its own */
    MOKSCOPE_CLASS_WAIT,      /* waits and nothing else */
    MOKSCOPE_CLASS_SUPPORT    /* roles that are neither compute nor communication lanes */
};

enum mokscope_kind { MOKSCOPE_KIND_SPAN, MOKSCOPE_KIND_WAIT, MOKSCOPE_KIND_SIGNAL };

/* Host-side description of a module; strings live as long as the module. Ids are array positions. */
struct mokscope_role_row {
    const char *name;
    uint32_t role_class; /* enum mokscope_class: COMPUTE, COMMUNICATE or SUPPORT */
    const char *description;
};

struct mokscope_event_row {
    const char *name;     /* NULL: id not used */
    uint32_t kind;        /* enum mokscope_kind */
    uint32_t event_class; /* enum mokscope_class */
    uint32_t level;
    int32_t edge;         /* edge id for waits and signals, else -1 */
    const char *argument; /* meaning of the payload fields */
    const char *small;
    const char *description;
};

struct mokscope_edge_row {
    const char *name;
    int32_t producer_role, consumer_role;
    const char *granularity; /* what the index counts */
    const char *scope;       /* "cta", "gpu", "sys" */
    int32_t slot_reuse;      /* 1: write after read of a ring slot; 0: data */
    const char *target;
    const char *description;
};

/* What a module gives the recorder. Functions run on the device that is current; 0 = success, else a CUDA error code. */
struct mokscope_module {
    uint32_t size; /* of this struct */
    uint32_t version;
    const char *name;
    const struct mokscope_role_row *roles;
    uint32_t role_count;
    const struct mokscope_event_row *events;
    uint32_t event_count;
    const struct mokscope_edge_row *edges;
    uint32_t edge_count;
    int (*install)(const struct mokscope_ring *request, struct mokscope_ring *installed); /* allocate, write descriptor */
    int (*read)(void *host, const void *device, size_t bytes);  /* safe while kernels run: own non-blocking stream */
    int (*write)(void *device, const void *host, size_t bytes); /* same */
};

/* Exported by the recorder library (probes/recorder); found by dlsym, absent when not recording. */
typedef void mokscope_recorder_attach_function(const struct mokscope_module *module);

#if defined(__cplusplus) && !defined(MOKSCOPE_OFF)
static_assert(sizeof(struct mokscope_record) == 16, "record is one 16-byte store");
static_assert(sizeof(struct mokscope_lane_header) == 128, "lane header is four sectors");
#elif !defined(__cplusplus)
_Static_assert(sizeof(struct mokscope_record) == 16, "record is one 16-byte store");
_Static_assert(sizeof(struct mokscope_lane_header) == 128, "lane header is four sectors");
#endif

/* --- device ---------------------------------------------------------------------------------------------------------- */

#if defined(__CUDACC__) && defined(MOKSCOPE_OFF)

struct mokscope_lane {};
#define mokscope_clock() 0u
#define mokscope_lane_null() mokscope_lane()
#define mokscope_lane_open(rank, role, cluster) mokscope_lane()
#define mokscope_lane_adopt(lane) ((void)0)
#define mokscope_span(lane, level, begin, event, small, argument) ((void)0)
#define mokscope_span_thread(lane, level, begin, event, small, argument) ((void)0)
#define mokscope_instant(lane, level, event, small, argument) ((void)0)
#define mokscope_instant_thread(lane, level, event, small, argument) ((void)0)
#define mokscope_sync_if_due(lane) ((void)0)
#define mokscope_sync_if_due_thread(lane) ((void)0)
#define mokscope_long_wait(lane, event, index, awaited, observed, since) ((void)0)
#define mokscope_clock_hand_over(place, clock) ((void)0)
#define mokscope_clock_taken_over(place) 0u
#define mokscope_lane_close(lane) ((void)0)
#define mokscope_lane_close_thread(lane) ((void)0)
#define MOKSCOPE_MODULE(name, roles, events, edges)

#elif defined(__CUDACC__)

/* Internal linkage: every instrumented .cu file has its own descriptor and registers itself. */
static __device__ struct mokscope_ring mokscope_ring_device;

/* A warp's view of its lane, in registers. records == NULL: not recording. */
struct mokscope_lane {
    struct mokscope_record *records;
    uint32_t count;
    uint32_t mask;
    uint32_t slot;
    uint32_t level;
    uint32_t last_sync;
};

static __device__ __forceinline__ uint32_t mokscope_clock(void) {
    uint32_t clock;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(clock)::"memory");
    return clock;
}

static __device__ __forceinline__ uint64_t mokscope_clock64(void) {
    uint64_t clock;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock)::"memory");
    return clock;
}

static __device__ __forceinline__ uint64_t mokscope_globaltimer(void) {
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
    return time;
}

/* Reads both clocks just after globaltimer stepped (it steps every 32 ns on Hopper); gives up after 4096 polls. */
static __device__ __forceinline__ void mokscope_clock_pair(uint64_t *clock, uint64_t *globaltimer) {
    uint64_t first = mokscope_globaltimer(), now = first;
    for (int poll = 0; poll < 4096 && now == first; poll++) now = mokscope_globaltimer();
    *clock = mokscope_clock64();
    *globaltimer = now;
}

/* A lane that records nothing. */
static __device__ __forceinline__ struct mokscope_lane mokscope_lane_null(void) {
    struct mokscope_lane lane = {NULL, 0, 0, 0, 0, 0};
    return lane;
}

/* After thread-form calls by thread 0 of the warp: the whole converged warp takes over its lane. */
static __device__ __forceinline__ void mokscope_lane_adopt(struct mokscope_lane *lane) {
    lane->count = __shfl_sync(0xffffffffu, lane->count, 0);
    lane->last_sync = __shfl_sync(0xffffffffu, lane->last_sync, 0);
}

/* Claims a lane; every lane of a converged warp calls and gets the same answer. */
static __device__ __noinline__ struct mokscope_lane mokscope_lane_open(uint32_t rank, uint32_t role, uint32_t cluster) {
    struct mokscope_lane lane = mokscope_lane_null();
    const struct mokscope_ring *ring = &mokscope_ring_device;
    if (ring->lanes == NULL || !(ring->role_mask >> role & 1u)) return lane;
    uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    uint32_t lane_index = thread & 31u, claimed = 0, slot = 0;
    if (lane_index == 0) {
        slot = atomicAdd(ring->next, 1u) % ring->lane_count;
        struct mokscope_lane_header *header = ring->lanes + slot;
        if (atomicCAS(&header->state, (uint32_t)MOKSCOPE_LANE_FREE, (uint32_t)MOKSCOPE_LANE_CLAIMED) == MOKSCOPE_LANE_FREE) {
            claimed = 1;
            uint64_t grid_id, clock, globaltimer;
            uint32_t sm;
            asm volatile("mov.u64 %0, %%gridid;" : "=l"(grid_id));
            asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
            mokscope_clock_pair(&clock, &globaltimer);
            header->count = 0;
            header->grid_id = grid_id;
            header->clock_begin = clock;
            header->globaltimer_begin = globaltimer;
            header->clock_end = 0;
            header->globaltimer_end = 0;
            header->wait_since = 0;
            header->cta = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
            header->cluster = cluster;
            header->rank = rank;
            header->role = role;
            header->warp = thread / 32u;
            header->sm_begin = sm;
            header->sm_end = sm;
            __threadfence_system();
            *(volatile uint32_t *)&header->state = MOKSCOPE_LANE_OPEN;
        } else {
            atomicAdd(ring->next + 1, 1u);
        }
    }
    claimed = __shfl_sync(0xffffffffu, claimed, 0);
    slot = __shfl_sync(0xffffffffu, slot, 0);
    if (claimed) {
        lane.records = ring->records + (size_t)slot * ring->record_capacity;
        lane.mask = ring->record_capacity - 1u;
        lane.slot = slot;
        lane.level = ring->level;
        lane.last_sync = mokscope_clock();
    }
    return lane;
}

static __device__ __forceinline__ uint32_t mokscope_saturate16(uint32_t value) { return value < 65535u ? value : 65535u; }

/* One record by the last lane of the warp, by a predicated store: a branch costs more, and the first lane is where kernels put
 * their barrier arrivals, whose release would wait for the store. */
static __device__ __forceinline__ void mokscope_write(struct mokscope_lane *lane, uint32_t on, uint32_t begin, uint32_t length,
                                                      uint32_t event_small, uint32_t argument) {
    asm volatile("{\n"
                 ".reg .pred enabled;\n"
                 ".reg .u32 lane;\n"
                 "mov.u32 lane, %%laneid;\n"
                 "setp.eq.u32 enabled, lane, 31;\n"
                 "setp.ne.and.u32 enabled, %5, 0, enabled;\n"
                 "@enabled st.global.v4.u32 [%0], {%1, %2, %3, %4};\n"
                 "}" ::"l"(lane->records + (lane->count & lane->mask)),
                 "r"(begin), "r"(length), "r"(event_small), "r"(argument), "r"(on)
                 : "memory");
    lane->count += on;
}

/* The same by the one thread that runs the role. */
static __device__ __forceinline__ void mokscope_write_thread(struct mokscope_lane *lane, uint32_t on, uint32_t begin,
                                                             uint32_t length, uint32_t event_small, uint32_t argument) {
    asm volatile("{\n"
                 ".reg .pred enabled;\n"
                 "setp.ne.u32 enabled, %5, 0;\n"
                 "@enabled st.global.v4.u32 [%0], {%1, %2, %3, %4};\n"
                 "}" ::"l"(lane->records + (lane->count & lane->mask)),
                 "r"(begin), "r"(length), "r"(event_small), "r"(argument), "r"(on)
                 : "memory");
    lane->count += on;
}

static __device__ __forceinline__ uint32_t mokscope_length(uint32_t begin) {
    uint32_t length = mokscope_clock() - begin;
    return length < MOKSCOPE_LENGTH_MAXIMUM ? length : MOKSCOPE_LENGTH_MAXIMUM;
}

/* Ends a span that began at clock `begin`; whole converged warp. A null lane has level 0 and writes nothing. */
static __device__ __forceinline__ void mokscope_span(struct mokscope_lane *lane, uint32_t level, uint32_t begin, uint32_t event,
                                                     uint32_t small, uint32_t argument) {
    mokscope_write(lane, lane->level >= level, begin, mokscope_length(begin), event | mokscope_saturate16(small) << 16, argument);
}

static __device__ __forceinline__ void mokscope_span_thread(struct mokscope_lane *lane, uint32_t level, uint32_t begin,
                                                            uint32_t event, uint32_t small, uint32_t argument) {
    mokscope_write_thread(lane, lane->level >= level, begin, mokscope_length(begin), event | mokscope_saturate16(small) << 16,
                          argument);
}

/* An instant, e.g. a publish: call it right after the release store was issued. */
static __device__ __forceinline__ void mokscope_instant(struct mokscope_lane *lane, uint32_t level, uint32_t event,
                                                        uint32_t small, uint32_t argument) {
    mokscope_write(lane, lane->level >= level, mokscope_clock(), 0, event | mokscope_saturate16(small) << 16, argument);
}

static __device__ __forceinline__ void mokscope_instant_thread(struct mokscope_lane *lane, uint32_t level, uint32_t event,
                                                               uint32_t small, uint32_t argument) {
    mokscope_write_thread(lane, lane->level >= level, mokscope_clock(), 0, event | mokscope_saturate16(small) << 16, argument);
}

/* The cold functions take and return values: a lane whose address escaped would live in memory instead of registers. */

/* Writes a sync entry (two records) and publishes the count, so that of a kernel that never ends only the tail is lost. Without a
 * fence, which would cost a microsecond each time: the host reads records in a copy of its own, long after the count. Returns the
 * clock. */
static __device__ __noinline__ uint32_t mokscope_sync_write(struct mokscope_lane lane) {
    uint64_t clock, globaltimer;
    mokscope_clock_pair(&clock, &globaltimer);
    mokscope_write_thread(&lane, 1, (uint32_t)clock, MOKSCOPE_LENGTH_SYNC, 0, (uint32_t)(clock >> 32));
    mokscope_write_thread(&lane, 1, (uint32_t)globaltimer, MOKSCOPE_LENGTH_SYNC | 1u, 0, (uint32_t)(globaltimer >> 32));
    *(volatile uint32_t *)&mokscope_ring_device.lanes[lane.slot].count = lane.count;
    return (uint32_t)clock;
}

enum { MOKSCOPE_SYNC_CYCLES = 400000 }; /* about 0.2 ms: an H200 under load changes its clock every few hundred us */

/* Call between tasks. */
static __device__ __forceinline__ void mokscope_sync_if_due_thread(struct mokscope_lane *lane) {
    if (lane->level && mokscope_clock() - lane->last_sync > MOKSCOPE_SYNC_CYCLES) {
        lane->last_sync = mokscope_sync_write(*lane);
        lane->count += 2;
    }
}

static __device__ __forceinline__ void mokscope_sync_if_due(struct mokscope_lane *lane) {
    if (lane->level && __shfl_sync(0xffffffffu, mokscope_clock() - lane->last_sync > MOKSCOPE_SYNC_CYCLES, 0)) {
        if ((threadIdx.x & 31u) == 0) mokscope_sync_write(*lane);
        lane->last_sync = mokscope_clock();
        lane->count += 2;
        __syncwarp();
    }
}

/* A begin time for a warp that records the span's end: stored and read where another hand-over orders it (an mbarrier). For work
 * that one warp issues and another sees completed. */
static __device__ __forceinline__ void mokscope_clock_hand_over(uint32_t *place, uint32_t clock) { *place = clock; }
static __device__ __forceinline__ uint32_t mokscope_clock_taken_over(const uint32_t *place) { return *place; }

/* Slow path of a wait that has polled for long: what a watchdog reads while the kernel spins. since: globaltimer when it began;
 * 0 when it is over after all. One thread. */
static __device__ __noinline__ void mokscope_long_wait(struct mokscope_lane lane, uint32_t event, uint32_t index,
                                                       uint32_t awaited, uint32_t observed, uint64_t since) {
    if (lane.level == 0) return;
    struct mokscope_lane_header *header = mokscope_ring_device.lanes + lane.slot;
    header->wait_event = event;
    header->wait_index = index;
    header->wait_awaited = awaited;
    header->wait_observed = observed;
    *(volatile uint64_t *)&header->wait_since = since;
}

static __device__ __noinline__ void mokscope_lane_publish(uint32_t slot, uint32_t count) {
    struct mokscope_lane_header *header = mokscope_ring_device.lanes + slot;
    uint64_t clock, globaltimer;
    uint32_t sm;
    mokscope_clock_pair(&clock, &globaltimer);
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    header->clock_end = clock;
    header->globaltimer_end = globaltimer;
    header->sm_end = sm;
    header->count = count;
    header->wait_since = 0;
    __threadfence_system();
    *(volatile uint32_t *)&header->state = MOKSCOPE_LANE_CLOSED;
}

/* Publishes the lane; the one thread that ran the role. */
static __device__ __forceinline__ void mokscope_lane_close_thread(struct mokscope_lane *lane) {
    if (lane->level != 0) mokscope_lane_publish(lane->slot, lane->count);
}

/* Publishes the lane; whole converged warp. */
static __device__ __forceinline__ void mokscope_lane_close(struct mokscope_lane *lane) {
    __syncwarp();
    if ((threadIdx.x & 31u) == 0) mokscope_lane_close_thread(lane);
}

/* --- host side of the module: registration ---------------------------------------------------------------------------- */

#include <cuda_runtime.h>
#include <dlfcn.h>

/* The stream of a device's rings. A context that is reset takes its stream along, so each installation makes its own. */
static cudaStream_t *mokscope_module_stream(void) {
    static cudaStream_t stream[64];
    int device = 0;
    return cudaGetDevice(&device) == cudaSuccess && device < 64 ? &stream[device] : NULL;
}

static int mokscope_module_copy(void *target, const void *source, size_t bytes, enum cudaMemcpyKind kind) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaStream_t *stream = mokscope_module_stream();
    cudaError_t status = stream != NULL ? cudaMemcpyAsync(target, source, bytes, kind, *stream) : cudaErrorInvalidDevice;
    if (status == cudaSuccess) status = cudaStreamSynchronize(*stream);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return (int)status;
}

static int mokscope_module_read(void *host, const void *device, size_t bytes) {
    return mokscope_module_copy(host, device, bytes, cudaMemcpyDeviceToHost);
}

static int mokscope_module_write(void *device, const void *host, size_t bytes) {
    return mokscope_module_copy(device, host, bytes, cudaMemcpyHostToDevice);
}

static int mokscope_module_install(const struct mokscope_ring *request, struct mokscope_ring *installed) {
    struct mokscope_ring ring = *request;
    void *descriptor = NULL;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; /* the program may be capturing: allocating would end that */
    size_t lane_bytes = sizeof(struct mokscope_lane_header) * ring.lane_count;
    size_t record_bytes = sizeof(struct mokscope_record) * ring.lane_count * ring.record_capacity;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaStream_t *stream = mokscope_module_stream();
    cudaError_t status = stream != NULL ? cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking) : cudaErrorInvalidDevice;
    if (status == cudaSuccess) status = cudaMalloc((void **)&ring.lanes, lane_bytes);
    if (status == cudaSuccess) status = cudaMalloc((void **)&ring.records, record_bytes);
    if (status == cudaSuccess) status = cudaMalloc((void **)&ring.next, 2 * sizeof(uint32_t));
    if (status == cudaSuccess) status = cudaMemsetAsync(ring.lanes, 0, lane_bytes, *stream);
    if (status == cudaSuccess) status = cudaMemsetAsync(ring.next, 0, 2 * sizeof(uint32_t), *stream);
    if (status == cudaSuccess) status = cudaStreamSynchronize(*stream);
    if (status == cudaSuccess) status = cudaGetSymbolAddress(&descriptor, mokscope_ring_device);
    if (status == cudaSuccess) status = (cudaError_t)mokscope_module_write(descriptor, &ring, sizeof ring);
    if (status == cudaSuccess) {
        *installed = ring;
    } else {
        cudaFree(ring.lanes);
        cudaFree(ring.records);
        cudaFree(ring.next);
        cudaGetLastError();
    }
    cudaThreadExchangeStreamCaptureMode(&mode);
    return (int)status;
}

/* Registers the file's probes at load; does nothing when no recorder is loaded. */
#define MOKSCOPE_MODULE(module_name, role_rows, event_rows, edge_rows)                                                   \
    __attribute__((constructor)) static void mokscope_module_register(void) {                                           \
        static const struct mokscope_module module = {sizeof(struct mokscope_module),                                   \
                                                      MOKSCOPE_PROBE_VERSION,                                           \
                                                      module_name,                                                      \
                                                      role_rows,                                                        \
                                                      (uint32_t)(sizeof(role_rows) / sizeof((role_rows)[0])),           \
                                                      event_rows,                                                       \
                                                      (uint32_t)(sizeof(event_rows) / sizeof((event_rows)[0])),         \
                                                      edge_rows,                                                        \
                                                      (uint32_t)(sizeof(edge_rows) / sizeof((edge_rows)[0])),           \
                                                      mokscope_module_install,                                          \
                                                      mokscope_module_read,                                             \
                                                      mokscope_module_write};                                           \
        void *attach = dlsym(RTLD_DEFAULT, "mokscope_recorder_attach");                                                 \
        if (attach != NULL) ((mokscope_recorder_attach_function *)attach)(&module);                                     \
    }

#endif /* __CUDACC__ */

#endif
