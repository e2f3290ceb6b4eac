/* See clock_reader.h. The driver's functions are found by dlsym, as in driver.c. */
#include "clock_reader.h"

#include <cuda.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "recorder_log.h"

#define DRIVER_TEXT_(name) #name
#define DRIVER_TEXT(name) DRIVER_TEXT_(name)

struct mailbox {
    _Atomic uint32_t request;
    _Atomic uint64_t time;   /* at byte 8 */
    _Atomic uint32_t answer; /* at byte 16 */
};
_Static_assert(offsetof(struct mailbox, time) == 8 && offsetof(struct mailbox, answer) == 16, "the PTX below knows the offsets");

static const char kernel_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry mokscope_read_clock(.param .u64 mailbox, .param .u32 rounds)\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .b32 %i, %n, %seen;\n"
    "  .reg .b64 %box, %start, %now;\n"
    "  ld.param.u64 %box, [mailbox];\n"
    "  ld.param.u32 %n, [rounds];\n"
    "  mov.u32 %i, 1;\n"
    "  mov.u64 %start, %globaltimer;\n"
    "POLL:\n"
    "  ld.volatile.global.u32 %seen, [%box];\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  setp.ge.u32 %p, %seen, %i;\n"
    "  @%p bra ANSWER;\n"
    "  sub.u64 %now, %now, %start;\n"
    "  setp.lt.u64 %p, %now, " DRIVER_TEXT(CLOCK_READER_LIMIT_NS) ";\n"
    "  @%p bra POLL;\n"
    "  ret;\n"
    "ANSWER:\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  st.volatile.global.u64 [%box+8], %now;\n"
    "  membar.sys;\n"
    "  st.volatile.global.u32 [%box+16], %i;\n"
    "  add.u32 %i, %i, 1;\n"
    "  setp.le.u32 %p, %i, %n;\n"
    "  @%p bra POLL;\n"
    "  ret;\n"
    "}\n";

static struct {
    int known, found;
    CUresult (*load)(CUmodule *, const void *);
    CUresult (*unload)(CUmodule);
    CUresult (*function)(CUfunction *, CUmodule, const char *);
    CUresult (*host_alloc)(void **, size_t, unsigned int);
    CUresult (*host_free)(void *);
    CUresult (*device_pointer)(CUdeviceptr *, void *, unsigned int);
    CUresult (*stream_create)(CUstream *, unsigned int);
    CUresult (*stream_destroy)(CUstream);
    CUresult (*stream_query)(CUstream);
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
    CUresult (*capture_mode)(CUstreamCaptureMode *);
} cuda;

/* The session calls one at a time. */
static int find_functions(void) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    struct {
        void **function;
        const char *name;
    } const wanted[] = {
        {(void **)&cuda.load, DRIVER_TEXT(cuModuleLoadData)},
        {(void **)&cuda.unload, DRIVER_TEXT(cuModuleUnload)},
        {(void **)&cuda.function, DRIVER_TEXT(cuModuleGetFunction)},
        {(void **)&cuda.host_alloc, DRIVER_TEXT(cuMemHostAlloc)},
        {(void **)&cuda.host_free, DRIVER_TEXT(cuMemFreeHost)},
        {(void **)&cuda.device_pointer, DRIVER_TEXT(cuMemHostGetDevicePointer)},
        {(void **)&cuda.stream_create, DRIVER_TEXT(cuStreamCreate)},
        {(void **)&cuda.stream_destroy, DRIVER_TEXT(cuStreamDestroy)},
        {(void **)&cuda.stream_query, DRIVER_TEXT(cuStreamQuery)},
        {(void **)&cuda.launch, DRIVER_TEXT(cuLaunchKernel)},
        {(void **)&cuda.capture_mode, DRIVER_TEXT(cuThreadExchangeStreamCaptureMode)},
    };
    if (cuda.known || library == NULL) return cuda.found;
    cuda.known = 1;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        *wanted[i].function = dlsym(library, wanted[i].name);
        if (*wanted[i].function != NULL) continue;
        recorder_debug("clock: this driver has no %s", wanted[i].name);
        return 0;
    }
    return cuda.found = 1;
}

static int failed(CUresult status, const char *call) {
    if (status != CUDA_SUCCESS) recorder_debug("clock: %s failed: CUDA error %d", call, (int)status);
    return status != CUDA_SUCCESS;
}

static int64_t realtime_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* One reading; 0: the kernel did not answer in time. */
static int ask(struct mailbox *mailbox, uint32_t round, struct clock_reading *reading) {
    reading->host_before_ns = realtime_ns();
    atomic_store(&mailbox->request, round);
    do {
        uint32_t answer = atomic_load(&mailbox->answer);
        reading->host_after_ns = realtime_ns();
        if (answer != round) continue;
        reading->device_ns = (int64_t)atomic_load(&mailbox->time);
        return 1;
    } while (reading->host_after_ns - reading->host_before_ns < CLOCK_READER_LIMIT_NS);
    return 0;
}

/* Waits until the kernel is gone, at most twice its limit. */
static int is_idle(CUstream stream) {
    const struct timespec pause = {0, 100000};
    CUresult status = cuda.stream_query(stream);
    for (int64_t begin = realtime_ns(); status == CUDA_ERROR_NOT_READY && realtime_ns() - begin < 2 * CLOCK_READER_LIMIT_NS;) {
        nanosleep(&pause, NULL);
        status = cuda.stream_query(stream);
    }
    return !failed(status, "cuStreamQuery");
}

static int run_kernel(CUfunction function, CUstream stream, struct mailbox *mailbox, struct clock_reading *readings) {
    CUdeviceptr pointer = 0;
    uint32_t rounds = CLOCK_READER_ROUNDS;
    void *arguments[] = {&pointer, &rounds};
    int count = 0;
    if (failed(cuda.device_pointer(&pointer, mailbox, 0), "cuMemHostGetDevicePointer")) return 0;
    if (failed(cuda.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel")) return 0;
    while (count < CLOCK_READER_ROUNDS && ask(mailbox, (uint32_t)count + 1, &readings[count])) count++;
    atomic_store(&mailbox->request, UINT32_MAX); /* a kernel that starts late answers everything and ends */
    if (count == 0) recorder_debug("clock: no SM was free to read globaltimer");
    return count;
}

int clock_reader_read(struct clock_reading *readings) {
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUstream stream = NULL;
    void *mailbox = NULL;
    int count = 0, idle = 1;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!find_functions() || failed(cuda.capture_mode(&mode), "cuThreadExchangeStreamCaptureMode")) return 0;
    if (failed(cuda.load(&module, kernel_ptx), "cuModuleLoadData")) goto cleanup;
    if (failed(cuda.function(&function, module, "mokscope_read_clock"), "cuModuleGetFunction")) goto cleanup;
    if (failed(cuda.host_alloc(&mailbox, sizeof(struct mailbox), CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc")) goto cleanup;
    if (failed(cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate")) goto cleanup;
    memset(mailbox, 0, sizeof(struct mailbox));
    count = run_kernel(function, stream, mailbox, readings);
    idle = is_idle(stream);

cleanup:
    if (idle && stream != NULL) cuda.stream_destroy(stream);
    if (idle && mailbox != NULL) cuda.host_free(mailbox);
    if (idle && module != NULL) cuda.unload(module);
    cuda.capture_mode(&mode);
    return count;
}
