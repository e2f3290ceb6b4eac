/* See cupti_activity.h. */
#include "cupti_activity.h"

#include <cupti.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "recorder_log.h"

enum { BUFFER_BYTES = 4 << 20, BUFFER_ALIGNMENT = 8, OPEN_RANGES = 4096, OWN_CALLS = 1 << 16 };

static struct {
    void *library;
    int subscribed; /* else CUPTI is another tool's, and so are its buffers */
    struct cupti_events events;
    struct collector *_Atomic collector; /* NULL: activity is not wanted */
    _Atomic int completing;              /* threads in buffer_completed */
    CUptiResult (*get_version)(uint32_t *);
    CUptiResult (*subscribe)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
    CUptiResult (*enable_callback)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId);
    CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc);
    CUptiResult (*register_timestamp)(CUpti_TimestampCallbackFunc);
    CUptiResult (*enable)(CUpti_ActivityKind);
    CUptiResult (*next_record)(uint8_t *, size_t, CUpti_Activity **);
    CUptiResult (*dropped)(CUcontext, uint32_t, size_t *);
    CUptiResult (*flush)(uint32_t);
    CUptiResult (*result_string)(CUptiResult, const char **);
} cupti;

/* Correlation ids of the recorder's own copies, by id mod OWN_CALLS: written on the calling thread, taken out when the record
 * comes. An id that was displaced shows as a copy of the application, which does no harm. */
static _Atomic uint32_t own_calls[OWN_CALLS];

static int take_own_call(uint32_t correlation_id) {
    uint32_t expected = correlation_id;
    return correlation_id != 0 && atomic_compare_exchange_strong(&own_calls[correlation_id % OWN_CALLS], &expected, 0);
}

/* NVTX ranges whose end has not come; under the lock. */
static struct {
    pthread_mutex_t lock;
    size_t count;
    struct open_range {
        uint32_t id, thread;
        uint64_t begin;
        char domain[64], name[192];
    } ranges[OPEN_RANGES];
} open_ranges = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *text_of(CUptiResult result) {
    const char *text = NULL;
    if (cupti.result_string == NULL || cupti.result_string(result, &text) != CUPTI_SUCCESS || text == NULL) return "unknown error";
    return text;
}

/* --- loading --------------------------------------------------------------------------------------------------------- */

/* What the process has loaded first: PyTorch brings its own, and two copies do not share the subscription. */
static void *open_library(void) {
    static const char *const names[] = {"libcupti.so.13", "libcupti.so"};
    static const char *const folders[] = {"/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64",
                                          "/usr/local/cuda/targets/x86_64-linux/lib",
                                          "/usr/local/cuda-13.0/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu"};
    char path[512];
    const char *home = getenv("CUDA_HOME");
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < 2; i++) library = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) library = dlopen(names[0], RTLD_LAZY | RTLD_LOCAL);
    for (size_t i = 0; library == NULL && home != NULL && i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", home, i == 0 ? "extras/CUPTI/lib64" : "lib64", names[0]);
        library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    }
    for (size_t i = 0; library == NULL && i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i], names[0]);
        library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    }
    return library;
}

static int load(void) {
    if (cupti.library != NULL) return 1;
    void *library = open_library();
    if (library == NULL) {
        recorder_warn("libcupti.so.13 was not found: no kernels, copies or NVTX ranges are recorded, only probes "
                      "(put its folder into LD_LIBRARY_PATH or CUDA_HOME)");
        return 0;
    }
    struct {
        void **function;
        const char *name;
    } const wanted[] = {
        {(void **)&cupti.get_version, "cuptiGetVersion"},
        {(void **)&cupti.subscribe, "cuptiSubscribe"},
        {(void **)&cupti.enable_callback, "cuptiEnableCallback"},
        {(void **)&cupti.register_callbacks, "cuptiActivityRegisterCallbacks"},
        {(void **)&cupti.register_timestamp, "cuptiActivityRegisterTimestampCallback"},
        {(void **)&cupti.enable, "cuptiActivityEnable"},
        {(void **)&cupti.next_record, "cuptiActivityGetNextRecord"},
        {(void **)&cupti.dropped, "cuptiActivityGetNumDroppedRecords"},
        {(void **)&cupti.flush, "cuptiActivityFlushAll"},
        {(void **)&cupti.result_string, "cuptiGetResultString"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        *wanted[i].function = dlsym(library, wanted[i].name);
        if (*wanted[i].function == NULL) {
            recorder_warn("this libcupti has no %s: only probes are recorded", wanted[i].name);
            return 0;
        }
    }
    uint32_t version = 0;
    if (cupti.get_version(&version) != CUPTI_SUCCESS || version / 10000 != CUPTI_API_VERSION / 10000) {
        recorder_warn("this libcupti is version %u, the recorder reads version %u: only probes are recorded", version,
                      (unsigned)CUPTI_API_VERSION);
        return 0;
    }
    cupti.library = library;
    recorder_debug("CUPTI %u", version);
    return 1;
}

uint32_t cupti_version(void) {
    uint32_t version = 0;
    if (cupti.library == NULL || cupti.get_version(&version) != CUPTI_SUCCESS) return 0;
    return version;
}

int cupti_inject_nvtx(void *get_export_table) {
    if (!load()) return 0;
    int (*inject)(void *) = NULL;
    *(void **)&inject = dlsym(cupti.library, "InitializeInjectionNvtx2");
    return inject != NULL ? inject(get_export_table) : 0;
}

/* --- contexts -------------------------------------------------------------------------------------------------------- */

static void CUPTIAPI on_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    (void)user;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
        const CUpti_ResourceData *resource = data;
        if (id == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING) cupti.events.context_ending(resource->context);
        return;
    }
    const CUpti_CallbackData *call = data;
    if (call->callbackSite != CUPTI_API_ENTER) return;
    if (cupti.events.own_call())
        atomic_store(&own_calls[call->correlationId % OWN_CALLS], call->correlationId);
    else if (call->context != NULL)
        cupti.events.context_ready();
}

/* Calls on whose entry rings are looked after: those that come before any kernel of a new context, and launches. And those that
 * the recorder itself makes. */
static void enable_driver_callbacks(CUpti_SubscriberHandle subscriber) {
    static const CUpti_CallbackId calls[] = {
        CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2,       CUPTI_DRIVER_TRACE_CBID_cuStreamCreate,
        CUPTI_DRIVER_TRACE_CBID_cuStreamCreateWithPriority,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,       CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2, CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2,
        CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync,       CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async,
        CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz, CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync_ptsz,  CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async,    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize, CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize_ptsz,
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        CUptiResult result = cupti.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, calls[i]);
        if (result != CUPTI_SUCCESS) recorder_debug("cuptiEnableCallback %u: %s", calls[i], text_of(result));
    }
}

int cupti_subscribe(const struct cupti_events *events) {
    CUpti_SubscriberHandle subscriber;
    cupti.events = *events;
    if (!load()) return 0;
    CUptiResult result = cupti.subscribe(&subscriber, on_callback, NULL);
    if (result != CUPTI_SUCCESS) {
        recorder_warn("cuptiSubscribe failed: %s; another tool (Nsight, Kineto) may hold the subscription: only probes are recorded",
                      text_of(result));
        return 0;
    }
    cupti.subscribed = 1;
    result = cupti.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
    if (result != CUPTI_SUCCESS) recorder_warn("cuptiEnableCallback for contexts failed: %s", text_of(result));
    enable_driver_callbacks(subscriber);
    return 1;
}

/* --- records --------------------------------------------------------------------------------------------------------- */

/* A plain C++ name of the form _Z<length><name>... as the name; others as they are. out [256]. */
static const char *readable_name(const char *name, char *out) {
    if (name == NULL) return "?";
    if (strncmp(name, "_Z", 2) != 0) return name;
    char *end;
    unsigned long length = strtoul(name + 2, &end, 10);
    if (end == name + 2 || length == 0 || length > strlen(end) || length > 255) return name;
    snprintf(out, 256, "%.*s", (int)length, end);
    return out;
}

/* A forced flush hands over kernels that still run: they have no end yet. */
static void take_kernel(struct collector *collector, const CUpti_ActivityKernel10 *k) {
    char name[256];
    if (k->start == 0 || k->end < k->start) {
        collector_loss(collector, "cupti", "kernel", 1, "kernels without times: they had not ended when the recording did");
        return;
    }
    struct trace_kernel row = {
        .device_id = (int32_t)k->deviceId,
        .context_id = k->contextId,
        .stream_id = k->streamId,
        .correlation_id = k->correlationId,
        .grid_id = k->gridId,
        .graph_id = k->graphId,
        .name = readable_name(k->name, name),
        .begin_ns = (int64_t)k->start,
        .end_ns = (int64_t)k->end,
        .grid = {k->gridX, k->gridY, k->gridZ},
        .block = {k->blockX, k->blockY, k->blockZ},
        .registers = k->registersPerThread,
        .static_shared_bytes = k->staticSharedMemory,
        .dynamic_shared_bytes = k->dynamicSharedMemory,
    };
    collector_kernel(collector, &row);
}

static const char *copy_name(uint8_t kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "device to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return "peer to peer";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH: return "host to host";
    default: return "other";
    }
}

static void take_copy(struct collector *collector, const CUpti_ActivityMemcpy6 *c) {
    if (take_own_call(c->correlationId)) return;
    struct trace_copy row = {(int32_t)c->deviceId, c->streamId,        c->correlationId,   copy_name(c->copyKind),
                             (int64_t)c->bytes,    (int64_t)c->start, (int64_t)c->end};
    collector_copy(collector, &row);
}

static void take_memset(struct collector *collector, const CUpti_ActivityMemset4 *m) {
    if (take_own_call(m->correlationId)) return;
    struct trace_copy row = {(int32_t)m->deviceId, m->streamId,        m->correlationId,   "memset",
                             (int64_t)m->bytes,    (int64_t)m->start, (int64_t)m->end};
    collector_copy(collector, &row);
}

static void open_range(struct collector *collector, const CUpti_ActivityMarker2 *m) {
    if (open_ranges.count == OPEN_RANGES) {
        collector_loss(collector, "nvtx", "range", 1, "more ranges open at once than the recorder follows");
        return;
    }
    struct open_range *range = &open_ranges.ranges[open_ranges.count++];
    range->id = m->id;
    range->thread = m->objectId.pt.threadId;
    range->begin = m->timestamp;
    snprintf(range->domain, sizeof range->domain, "%s", m->domain != NULL ? m->domain : "");
    snprintf(range->name, sizeof range->name, "%s", m->name != NULL ? m->name : "");
}

/* The end of a range that began before the recording, or was not followed, has no begin here. */
static void close_range(struct collector *collector, const CUpti_ActivityMarker2 *m) {
    for (size_t i = open_ranges.count; i-- > 0;) {
        struct open_range *range = &open_ranges.ranges[i];
        if (range->id != m->id) continue;
        struct trace_marker row = {(int64_t)range->thread, range->domain, range->name, (int64_t)range->begin, (int64_t)m->timestamp};
        collector_marker(collector, &row);
        *range = open_ranges.ranges[--open_ranges.count];
        return;
    }
}

/* Begin and end of a range are two records with one id, in one buffer or not. An instant is a range of no length. */
static void take_marker(struct collector *collector, const CUpti_ActivityMarker2 *m) {
    pthread_mutex_lock(&open_ranges.lock);
    if (m->flags & CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS) {
        struct trace_marker row = {(int64_t)m->objectId.pt.threadId, m->domain != NULL ? m->domain : "",
                                   m->name != NULL ? m->name : "", (int64_t)m->timestamp, (int64_t)m->timestamp};
        collector_marker(collector, &row);
    } else if (m->flags & CUPTI_ACTIVITY_FLAG_MARKER_START) {
        open_range(collector, m);
    } else if (m->flags & CUPTI_ACTIVITY_FLAG_MARKER_END) {
        close_range(collector, m);
    }
    pthread_mutex_unlock(&open_ranges.lock);
}

static void take_host(struct collector *collector, const char *kind, const char *name, uint64_t begin, uint64_t end) {
    struct trace_host_activity row = {kind, name, (int64_t)begin, (int64_t)end};
    collector_host_activity(collector, &row);
}

static const char *synchronise_name(CUpti_ActivitySynchronizationType type) {
    switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE: return "event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT: return "stream wait event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE: return "stream";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE: return "context";
    default: return "other";
    }
}

static void take_synchronisation(struct collector *collector, const CUpti_ActivitySynchronization2 *s) {
    if (take_own_call(s->correlationId)) return;
    take_host(collector, "synchronise", synchronise_name(s->type), s->start, s->end);
}

static const char *overhead_name(CUpti_ActivityOverheadKind kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER: return "driver compiler";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH: return "CUPTI buffer flush";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION: return "CUPTI instrumentation";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE: return "CUPTI resources";
    case CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING: return "module loading";
    case CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING: return "lazy function loading";
    case CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL: return "command buffer full";
    case CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST: return "CUPTI buffer request";
    default: return "CUPTI";
    }
}

static void take_record(struct collector *collector, const CUpti_Activity *record) {
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: take_kernel(collector, (const CUpti_ActivityKernel10 *)record); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: take_copy(collector, (const CUpti_ActivityMemcpy6 *)record); break;
    case CUPTI_ACTIVITY_KIND_MEMSET: take_memset(collector, (const CUpti_ActivityMemset4 *)record); break;
    case CUPTI_ACTIVITY_KIND_MARKER: take_marker(collector, (const CUpti_ActivityMarker2 *)record); break;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        take_synchronisation(collector, (const CUpti_ActivitySynchronization2 *)record);
        break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD: {
        const CUpti_ActivityOverhead3 *o = (const CUpti_ActivityOverhead3 *)record;
        take_host(collector, "overhead", overhead_name(o->overheadKind), o->start, o->end);
        break;
    }
    default: break;
    }
}

static void CUPTIAPI buffer_requested(uint8_t **buffer, size_t *size, size_t *record_count_maximum) {
    *record_count_maximum = 0;
    *buffer = aligned_alloc(BUFFER_ALIGNMENT, BUFFER_BYTES);
    *size = *buffer != NULL ? BUFFER_BYTES : 0;
}

static void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size) {
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;
    cupti.completing++;
    struct collector *collector = cupti.collector;
    if (valid_size > 0 && collector != NULL) {
        CUptiResult result;
        while ((result = cupti.next_record(buffer, valid_size, &record)) == CUPTI_SUCCESS) take_record(collector, record);
        if (result != CUPTI_ERROR_MAX_LIMIT_REACHED)
            collector_loss(collector, "cupti", "buffer", 1, "a buffer was not read to its end: cuptiActivityGetNextRecord failed");
    }
    if (collector != NULL && cupti.dropped(context, stream, &dropped) == CUPTI_SUCCESS && dropped > 0)
        collector_loss(collector, "cupti", "activity", (int64_t)dropped, "dropped by CUPTI: no buffer was free in time");
    cupti.completing--;
    free(buffer);
}

static uint64_t CUPTIAPI realtime_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Never CUPTI_ACTIVITY_KIND_KERNEL: it serialises kernels, and ranks that share a GPU would wait for each other for ever. */
void cupti_activity_begin(struct collector *collector) {
    static const struct {
        CUpti_ActivityKind kind;
        const char *name;
    } kinds[] = {{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "kernels"}, {CUPTI_ACTIVITY_KIND_MEMCPY, "copies"},
                 {CUPTI_ACTIVITY_KIND_MEMSET, "memsets"},            {CUPTI_ACTIVITY_KIND_MARKER, "NVTX ranges"},
                 {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "synchronisation"}, {CUPTI_ACTIVITY_KIND_OVERHEAD, "CUPTI's overhead"}};
    if (!cupti.subscribed) return;
    cupti.collector = collector;
    CUptiResult result = cupti.register_timestamp(realtime_ns);
    if (result != CUPTI_SUCCESS) recorder_warn("cuptiActivityRegisterTimestampCallback failed: %s", text_of(result));
    result = cupti.register_callbacks(buffer_requested, buffer_completed);
    if (result != CUPTI_SUCCESS) {
        recorder_warn("cuptiActivityRegisterCallbacks failed: %s; only probes are recorded", text_of(result));
        cupti.collector = NULL;
        return;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        result = cupti.enable(kinds[i].kind);
        if (result == CUPTI_SUCCESS) continue;
        recorder_warn("CUPTI does not record %s: %s", kinds[i].name, text_of(result));
        char detail[256];
        snprintf(detail, sizeof detail, "%s: %s", kinds[i].name, text_of(result));
        collector_loss(collector, "cupti", "refused", 1, detail);
    }
}

int cupti_activity_is_on(void) { return cupti.collector != NULL; }

void cupti_activity_end(void) {
    const struct timespec pause = {0, 1000000};
    struct collector *collector = cupti.collector;
    if (collector == NULL) return;
    cupti.collector = NULL;
    while (cupti.completing > 0) nanosleep(&pause, NULL); /* threads that still hold it */
    pthread_mutex_lock(&open_ranges.lock);
    collector_loss(collector, "nvtx", "range", (int64_t)open_ranges.count, "ranges that had not ended when the recording did");
    open_ranges.count = 0;
    pthread_mutex_unlock(&open_ranges.lock);
}

void cupti_activity_flush(int forced) {
    if (cupti.library == NULL || cupti.collector == NULL) return;
    CUptiResult result = cupti.flush(forced ? (uint32_t)CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0);
    if (result != CUPTI_SUCCESS) recorder_debug("cuptiActivityFlushAll: %s", text_of(result));
}
