/* CUPTI without a GPU, as libcupti.so.13 for the recorder's tests: what of it the recorder calls, and the fake_cupti_* functions
 * with which the recorded program (fake_program.c) says what CUPTI would see. FAKE_CUPTI in the environment: 'busy' has another
 * subscriber, 'old' is of CUDA 12, 'poor' refuses one kind and drops 7 records, 'slow' hands over nothing before it is asked. */
#include "fake_cupti.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLBACKS = 4096, KINDS = 256, SMALL_BUFFER = 2048 };

static CUpti_CallbackFunc callback;
static unsigned char enabled_driver[CALLBACKS], enabled_resource[CALLBACKS], enabled_kind[KINDS];
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static CUpti_TimestampCallbackFunc timestamp;
static uint32_t last_correlation;
static size_t dropped;

/* The buffer being filled. Handed over early on purpose. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *buffer;
static size_t used;

static int is(const char *what) {
    const char *mode = getenv("FAKE_CUPTI");
    return mode != NULL && strcmp(mode, what) == 0;
}

CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = is("old") ? 120600 : CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function, void *user) {
    (void)user;
    if (is("busy")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    *subscriber = (CUpti_SubscriberHandle)&callback;
    callback = function;
    if (is("poor")) dropped = 7;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    if (subscriber != (CUpti_SubscriberHandle)&callback || id >= CALLBACKS) return CUPTI_ERROR_INVALID_PARAMETER;
    (domain == CUPTI_CB_DOMAIN_RESOURCE ? enabled_resource : enabled_driver)[id] = (unsigned char)enable;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc on_request, CUpti_BuffersCallbackCompleteFunc on_complete) {
    request = on_request;
    complete = on_complete;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
    timestamp = function;
    return CUPTI_SUCCESS;
}

/* The kind that serialises kernels must never be asked for. */
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    if (kind == CUPTI_ACTIVITY_KIND_KERNEL) abort();
    if (is("poor") && kind == CUPTI_ACTIVITY_KIND_MEMSET) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    enabled_kind[kind] = 1;
    return CUPTI_SUCCESS;
}

static size_t record_size(CUpti_ActivityKind kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_MARKER: return sizeof(CUpti_ActivityMarker2);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return sizeof(CUpti_ActivityOverhead3);
    default: return 0;
    }
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *begin, size_t valid, CUpti_Activity **record) {
    uint8_t *next = *record == NULL ? begin : (uint8_t *)*record + record_size((*record)->kind);
    if (next >= begin + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)next;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *count) {
    (void)context, (void)stream;
    *count = dropped;
    dropped = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    uint8_t *full = buffer;
    size_t valid = used;
    buffer = NULL;
    used = 0;
    pthread_mutex_unlock(&lock);
    if (full != NULL) complete(NULL, 0, full, SMALL_BUFFER, valid);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    static _Thread_local char name[32];
    snprintf(name, sizeof name, "CUPTI error %d", result);
    *text = name;
    return CUPTI_SUCCESS;
}

/* --- what happens ------------------------------------------------------------------------------------------------------ */

uint64_t fake_cupti_now(void) { return timestamp != NULL ? timestamp() : 0; }

uint32_t fake_cupti_call(CUcontext context, CUpti_CallbackId id) {
    uint32_t correlation = __atomic_add_fetch(&last_correlation, 1, __ATOMIC_RELAXED);
    CUpti_CallbackData data = {.callbackSite = CUPTI_API_ENTER, .context = context, .correlationId = correlation};
    if (callback != NULL && enabled_driver[id]) callback(NULL, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
    data.callbackSite = CUPTI_API_EXIT;
    if (callback != NULL && enabled_driver[id]) callback(NULL, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
    return correlation;
}

void fake_cupti_context_ends(CUcontext context) {
    CUpti_ResourceData data = {.context = context};
    CUpti_CallbackId id = CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING;
    if (callback != NULL && enabled_resource[id]) callback(NULL, CUPTI_CB_DOMAIN_RESOURCE, id, &data);
}

void fake_cupti_record(const void *record) {
    size_t size = record_size(((const CUpti_Activity *)record)->kind), buffer_size = 0, most = 0;
    if (!enabled_kind[((const CUpti_Activity *)record)->kind]) return;
    pthread_mutex_lock(&lock);
    int full = buffer != NULL && used + size > SMALL_BUFFER && !is("slow");
    pthread_mutex_unlock(&lock);
    if (full) cuptiActivityFlushAll(0);
    pthread_mutex_lock(&lock);
    if (buffer == NULL) request(&buffer, &buffer_size, &most);
    memcpy(buffer + used, record, size); /* the recorder's buffers are much larger than SMALL_BUFFER */
    used += size;
    pthread_mutex_unlock(&lock);
}
