/* A CUDA driver without a GPU, as libcuda.so.1 for the recorder's tests: what of it the recorder calls, and two functions with
 * which the recorded program (fake_program.c) makes and ends primary contexts. A device's contexts all have one address. */
#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
