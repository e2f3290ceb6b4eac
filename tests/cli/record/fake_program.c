/* A program with an instrumented "kernel" that runs on the host, over fake_driver.c and fake_cupti.c: what the recorder sees of a
 * CUDA program, without a GPU. usage: fake_program whole|small|kill|hang|fork|reset|described */
#include <cuda.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../probes/mokscope_describe.h"
#include "../../../probes/mokscope_probe.h"
#include "fake_cupti.h"

enum { DEVICES = 2, GLOBALTIMER_AHEAD_NS = 5000000, TICKS_A_NS = 2, LANES = 8, RECORDS = 40 };

CUresult fake_context_make(int device);
CUresult fake_context_end(int device);

static struct mokscope_ring rings[DEVICES];
static uint32_t lane_losses; /* over all rings */
static int reads_are_slow;

static struct {
    __typeof__(fake_cupti_now) *now;
    __typeof__(fake_cupti_call) *call;
    __typeof__(fake_cupti_context_ends) *context_ends;
    __typeof__(fake_cupti_record) *record;
} cupti; /* null: not recorded */

static uint64_t realtime_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t globaltimer(void) { return realtime_ns() + GLOBALTIMER_AHEAD_NS; }

static void sleep_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static int device_of_thread(void) {
    CUdevice device = -1;
    return cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

static CUcontext context_of_thread(void) {
    CUcontext context = NULL;
    cuCtxGetCurrent(&context);
    return context;
}

/* --- the module: rings in host memory, unmapped when their context ends -------------------------------------------------- */

static void *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

static size_t lanes_bytes(const struct mokscope_ring *ring) { return ring->lane_count * sizeof *ring->lanes; }
static size_t records_bytes(const struct mokscope_ring *ring) {
    return (size_t)ring->lane_count * ring->record_capacity * sizeof *ring->records;
}

static int install(const struct mokscope_ring *request, struct mokscope_ring *installed) {
    int device = device_of_thread();
    if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
    struct mokscope_ring ring = *request;
    ring.lanes = map(lanes_bytes(&ring));
    ring.records = map(records_bytes(&ring));
    ring.next = map(2 * sizeof *ring.next);
    rings[device] = *installed = ring;
    return 0;
}

/* A copy as CUPTI would see it: the copy and the synchronisation behind it. */
static int copy(void *target, const void *source, size_t bytes) {
    int device = device_of_thread();
    if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (reads_are_slow) sleep_ms(1);
    memcpy(target, source, bytes);
    if (cupti.call == NULL) return 0;
    CUpti_ActivityMemcpy6 copied = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                                    .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
                                    .bytes = bytes,
                                    .start = cupti.now(),
                                    .deviceId = (uint32_t)device,
                                    .correlationId = cupti.call(context_of_thread(), CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2)};
    copied.end = cupti.now();
    cupti.record(&copied);
    CUpti_ActivitySynchronization2 waited = {
        .kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
        .type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE,
        .start = copied.end,
        .end = cupti.now(),
        .correlationId = cupti.call(context_of_thread(), CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize)};
    cupti.record(&waited);
    return 0;
}

static int read_device(void *host, const void *device, size_t bytes) { return copy(host, device, bytes); }
static int write_device(void *device, const void *host, size_t bytes) { return copy(device, host, bytes); }

static const struct mokscope_role_row roles[] = {{"mma", MOKSCOPE_CLASS_COMPUTE, ""}, {"store", MOKSCOPE_CLASS_COMMUNICATE, ""}};
static const struct mokscope_edge_row edges[] = {{"X", 0, 1, "tile", "gpu", 0, "1", ""}};
static const struct mokscope_event_row events[] = {
    {NULL, 0, 0, 0, -1, "", "", ""},
    {"work", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_COMPUTE, 1, -1, "", "", ""},
    {"wait X", MOKSCOPE_KIND_WAIT, MOKSCOPE_CLASS_WAIT, 1, 0, "index", "awaited", ""},
    {"signal X", MOKSCOPE_KIND_SIGNAL, MOKSCOPE_CLASS_OVERHEAD, 1, 0, "index", "value", ""},
};
static const struct mokscope_module module = {sizeof module, MOKSCOPE_PROBE_VERSION, "fake",  roles,        2,           events, 4,
                                              edges,         1,                      install, read_device, write_device};

__attribute__((constructor)) static void register_module(void) {
    void *attach = dlsym(RTLD_DEFAULT, "mokscope_recorder_attach");
    if (attach != NULL) ((mokscope_recorder_attach_function *)attach)(&module);
}

/* --- kernels ----------------------------------------------------------------------------------------------------------- */

static struct mokscope_lane_header *open_lane(struct mokscope_ring *ring, uint64_t grid_id, uint32_t cta, uint32_t rank) {
    uint32_t slot = __atomic_fetch_add(ring->next, 1, __ATOMIC_RELAXED) % ring->lane_count;
    struct mokscope_lane_header *header = &ring->lanes[slot];
    if (__atomic_load_n(&header->state, __ATOMIC_ACQUIRE) != MOKSCOPE_LANE_FREE) {
        __atomic_fetch_add(ring->next + 1, 1, __ATOMIC_RELAXED);
        lane_losses++;
        return NULL;
    }
    uint64_t time = globaltimer();
    memset(header, 0, sizeof *header);
    header->grid_id = grid_id;
    header->cta = cta;
    header->rank = rank;
    header->role = cta % 2;
    header->clock_begin = time * TICKS_A_NS;
    header->globaltimer_begin = time;
    __atomic_store_n(&header->state, MOKSCOPE_LANE_OPEN, __ATOMIC_RELEASE);
    return header;
}

/* Of ten records eight are spans, one is a wait and one a signal. */
static void close_lane(struct mokscope_ring *ring, struct mokscope_lane_header *header, uint32_t records) {
    struct mokscope_record *lane = ring->records + (size_t)(header - ring->lanes) * ring->record_capacity;
    for (uint32_t i = 0; i < records; i++)
        lane[i & (ring->record_capacity - 1)] = (struct mokscope_record){
            (uint32_t)header->clock_begin + 10 * i, 10, (uint16_t)(i % 10 == 8 ? 2 : i % 10 == 9 ? 3 : 1), 1, i};
    while (globaltimer() < header->globaltimer_begin + 20 * records) {}
    header->count = records;
    header->globaltimer_end = globaltimer();
    header->clock_end = header->globaltimer_end * TICKS_A_NS;
    __atomic_store_n(&header->state, MOKSCOPE_LANE_CLOSED, __ATOMIC_RELEASE);
}

static void launch(uint64_t grid_id, uint32_t lanes, uint32_t records) {
    int device = device_of_thread();
    CUpti_ActivityKernel10 kernel = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                     .name = "_Z11fake_kernelv",
                                     .deviceId = (uint32_t)device,
                                     .streamId = 7,
                                     .gridId = (int64_t)grid_id,
                                     .gridX = (int32_t)lanes,
                                     .gridY = 1,
                                     .gridZ = 1,
                                     .blockX = 32,
                                     .blockY = 1,
                                     .blockZ = 1};
    if (cupti.call != NULL) kernel.correlationId = cupti.call(context_of_thread(), CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    kernel.start = realtime_ns();
    for (uint32_t i = 0; i < lanes && rings[device].lanes != NULL; i++) {
        struct mokscope_lane_header *header = open_lane(&rings[device], grid_id, i, (uint32_t)device);
        if (header != NULL) close_lane(&rings[device], header, records);
    }
    kernel.end = realtime_ns();
    if (cupti.record != NULL) cupti.record(&kernel);
}

static void start_context(int device) {
    cuInit(0);
    fake_context_make(device);
    void *library = dlopen("libcupti.so.13", RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) return;
    *(void **)&cupti.now = dlsym(library, "fake_cupti_now");
    *(void **)&cupti.context_ends = dlsym(library, "fake_cupti_context_ends");
    *(void **)&cupti.record = dlsym(library, "fake_cupti_record");
    *(void **)&cupti.call = dlsym(library, "fake_cupti_call");
}

static void end_context(int device) {
    struct mokscope_ring *ring = &rings[device];
    if (cupti.context_ends != NULL) cupti.context_ends(context_of_thread());
    fake_context_end(device);
    munmap(ring->lanes, lanes_bytes(ring));
    munmap(ring->records, records_bytes(ring));
    memset(ring, 0, sizeof *ring);
}

/* --- what programs do --------------------------------------------------------------------------------------------------- */

static void mark(CUpti_ActivityFlag flag, uint32_t id, const char *name) {
    CUpti_ActivityMarker2 marker = {.kind = CUPTI_ACTIVITY_KIND_MARKER, .flags = flag, .timestamp = realtime_ns(), .id = id, .name = name};
    marker.objectId.pt.threadId = 1;
    if (cupti.record != NULL) cupti.record(&marker);
}

static void copies_of_the_program(void) {
    CUpti_ActivityMemcpy6 copied = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY, .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, .bytes = 4096};
    CUpti_ActivityMemset4 set = {.kind = CUPTI_ACTIVITY_KIND_MEMSET, .bytes = 512};
    CUpti_ActivitySynchronization2 waited = {.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                                             .type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE};
    CUpti_ActivityOverhead3 overhead = {.kind = CUPTI_ACTIVITY_KIND_OVERHEAD,
                                        .overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH};
    if (cupti.call == NULL) return;
    copied.start = set.start = waited.start = overhead.start = realtime_ns();
    copied.end = set.end = waited.end = overhead.end = realtime_ns();
    copied.correlationId = cupti.call(context_of_thread(), CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2);
    set.correlationId = cupti.call(context_of_thread(), CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async);
    waited.correlationId = cupti.call(context_of_thread(), CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize);
    cupti.record(&copied);
    cupti.record(&set);
    cupti.record(&waited);
    cupti.record(&overhead);
}

/* 20 launches on device 0 in ranges, 5 on device 1; one kernel has not ended, one range is never closed. */
static void run_whole(void) {
    const struct mokscope_task_row task = {0, 3, "down", 0, -1, 0, 0, 128, 0, 1000, 0};
    start_context(0);
    mokscope_describe_attribute("knob", "lag", "2", "minibatches");
    mokscope_describe_rank(0, 0);
    mokscope_describe_tasks(&task, 1);
    for (uint32_t i = 0; i < 20; i++) {
        mark(CUPTI_ACTIVITY_FLAG_MARKER_START, 100 + i, "outer");
        mark(CUPTI_ACTIVITY_FLAG_MARKER_START, 200 + i, "inner");
        launch(1 + i, LANES, RECORDS);
        mark(CUPTI_ACTIVITY_FLAG_MARKER_END, 200 + i, NULL);
        mark(CUPTI_ACTIVITY_FLAG_MARKER_END, 100 + i, NULL);
        sleep_ms(2);
    }
    copies_of_the_program();
    mark(CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, 300, "instant");
    mark(CUPTI_ACTIVITY_FLAG_MARKER_START, 301, "never ends");
    start_context(1);
    for (uint32_t i = 0; i < 5; i++) launch(1 + i, LANES, RECORDS);
    CUpti_ActivityKernel10 unfinished = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, .name = "unfinished", .start = realtime_ns()};
    if (cupti.record != NULL) cupti.record(&unfinished);
}

/* Says what the rings could not take: run it with few lanes and records. */
static void run_small(void) {
    start_context(0);
    for (uint32_t i = 0; i < 30; i++) launch(1 + i, LANES, RECORDS);
    printf("%u lanes of %d found no slot\n", lane_losses, 30 * LANES);
}

static void run_kill(void) {
    start_context(0);
    for (uint64_t begin = realtime_ns(), i = 1; realtime_ns() < begin + 1500000000u; i++) {
        launch(i, LANES, RECORDS);
        sleep_ms(1);
    }
    kill(getpid(), SIGKILL);
}

/* One lane waits for what never comes, another gets further, until the program is killed. */
static void run_hang(void) {
    start_context(0);
    launch(1, LANES, RECORDS);
    struct mokscope_lane_header *stuck = open_lane(&rings[0], 2, 5, 0), *slow = open_lane(&rings[0], 2, 6, 0);
    for (int i = 0; i < 2; i++) {
        struct mokscope_lane_header *header = i == 0 ? stuck : slow;
        header->wait_event = 2;
        header->wait_index = 17;
        header->wait_awaited = 4;
        header->wait_observed = 3;
        header->wait_since = globaltimer();
    }
    for (int i = 0; i < 45; i++) {
        sleep_ms(100);
        slow->count++;
    }
    kill(getpid(), SIGKILL);
}

/* Children forked while the recorder's thread holds its lock: they go on, and record nothing. */
static void run_fork(void) {
    start_context(0);
    launch(1, LANES, RECORDS);
    reads_are_slow = 1;
    int done = 0;
    for (uint32_t i = 0; i < 20; i++) {
        launch(2 + i, 1, 1);
        sleep_ms(3);
        pid_t child = fork();
        if (child == 0) {
            alarm(5);
            mokscope_describe_attribute("knob", "child", "1", "");
            mokscope_describe_rank(99, 0);
            register_module();
            exit(0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        done += status == 0;
    }
    printf("%d of 20 children ended by themselves\n", done);
}

/* A context ends, another comes at its address. */
static void run_reset(void) {
    for (int i = 0; i < 3; i++) {
        start_context(0);
        for (uint32_t j = 0; j < 4; j++) launch(1 + 4 * (uint32_t)i + j, LANES, RECORDS);
        if (i < 2) end_context(0);
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } programs[] = {{"whole", run_whole}, {"small", run_small}, {"kill", run_kill}, {"hang", run_hang}, {"fork", run_fork}, {"reset", run_reset}};
    for (size_t i = 0; argc > 1 && i < sizeof programs / sizeof programs[0]; i++) {
        if (strcmp(argv[1], programs[i].name) != 0) continue;
        programs[i].run();
        return argc > 2 ? atoi(argv[2]) : 0;
    }
    if (argc > 1 && strcmp(argv[1], "described") == 0) mokscope_describe_attribute("knob", "lag", "2", "");
    return argc > 1 ? 0 : 2;
}
