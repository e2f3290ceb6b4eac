/* A CUDA driver without a GPU, as libcuda.so.1 for the recorder's tests: what of it the recorder calls, and two functions with
 * which the recorded program (fake_program.c) makes and ends primary contexts. A device's contexts all have one address. */
#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEVICES = 2 };

CUresult fake_context_make(int device);
CUresult fake_context_end(int device);

static struct CUctx_st {
    int device, active;
    unsigned long long number;
} contexts[DEVICES];
static unsigned long long last_number;
static int initialised;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local CUcontext current;

static int is_active(CUcontext context) {
    pthread_mutex_lock(&lock);
    int active = context >= contexts && context < contexts + DEVICES && context->active;
    pthread_mutex_unlock(&lock);
    return active;
}

/* As the driver does: loads the library named there and calls its entry point. */
CUresult cuInit(unsigned int flags) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    (void)flags;
    if (initialised) return CUDA_SUCCESS;
    initialised = 1;
    if (path == NULL) return CUDA_SUCCESS;
    void *library = dlopen(path, RTLD_NOW);
    int (*inject)(void) = NULL;
    if (library != NULL) *(void **)&inject = dlsym(library, "InitializeInjection");
    if (inject == NULL || inject() != 1) fprintf(stderr, "fake driver: injection of '%s' failed\n", path);
    return CUDA_SUCCESS;
}

CUresult fake_context_make(int device) {
    pthread_mutex_lock(&lock);
    contexts[device] = (struct CUctx_st){device, 1, ++last_number};
    pthread_mutex_unlock(&lock);
    return cuCtxSetCurrent(&contexts[device]);
}

CUresult fake_context_end(int device) {
    pthread_mutex_lock(&lock);
    contexts[device].active = 0;
    pthread_mutex_unlock(&lock);
    current = NULL;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    *count = DEVICES;
    return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    snprintf(name, (size_t)length, "Fake %d", device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 4 : attribute == CU_DEVICE_ATTRIBUTE_CLOCK_RATE ? 2000000 : 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    (void)device;
    *bytes = 1 << 30;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    if (context != NULL && !is_active(context)) return CUDA_ERROR_INVALID_CONTEXT;
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *number) {
    if (!is_active(context)) return CUDA_ERROR_INVALID_CONTEXT;
    *number = context->number;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    *flags = 0;
    *active = is_active(&contexts[device]);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

/* --- the recorder's kernel that reads the clock, as a thread ---------------------------------------------------------------
 * FAKE_DRIVER=full in the environment: no SM is ever free, kernels stay in the queue. */

enum { GLOBALTIMER_AHEAD_NS = 5000000 };

struct mailbox {
    _Atomic uint32_t request;
    _Atomic uint64_t time;
    _Atomic uint32_t answer;
};

struct CUstream_st {
    struct mailbox *mailbox;
    uint32_t rounds;
    _Atomic int running;
    pthread_t thread;
};

static void *read_clock(void *argument) {
    struct CUstream_st *stream = argument;
    for (uint32_t i = 1; i <= stream->rounds; i++) {
        struct timespec now;
        while (stream->mailbox->request < i) {}
        clock_gettime(CLOCK_REALTIME, &now);
        stream->mailbox->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + GLOBALTIMER_AHEAD_NS;
        stream->mailbox->answer = i;
    }
    stream->running = 0;
    return NULL;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    *module = (CUmodule)(uintptr_t)image;
    return strncmp(image, ".version", 8) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

CUresult cuModuleUnload(CUmodule module) {
    (void)module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = (CUfunction)module;
    return strstr((const char *)module, name) != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags) {
    (void)flags;
    *memory = calloc(1, bytes);
    return *memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFreeHost(void *memory) {
    free(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *pointer, void *memory, unsigned int flags) {
    (void)flags;
    *pointer = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    *stream = calloc(1, sizeof **stream);
    return *stream != NULL && flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamDestroy(CUstream stream) {
    if (stream->mailbox != NULL) pthread_join(stream->thread, NULL);
    free(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) { return stream->running ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                        unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **arguments,
                        void **extra) {
    const char *mode = getenv("FAKE_DRIVER");
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z, (void)shared_bytes, (void)extra;
    stream->running = 1;
    if (mode != NULL && strcmp(mode, "full") == 0) return CUDA_SUCCESS;
    stream->mailbox = (struct mailbox *)(uintptr_t) * (CUdeviceptr *)arguments[0];
    stream->rounds = *(uint32_t *)arguments[1];
    return pthread_create(&stream->thread, NULL, read_clock, stream) == 0 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    static _Thread_local CUstreamCaptureMode current_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUstreamCaptureMode old = current_mode;
    current_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
