/* See driver.h. */
#include "driver.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "recorder_log.h"

#define DRIVER_TEXT_(name) #name
#define DRIVER_TEXT(name) DRIVER_TEXT_(name) /* cuda.h renames some functions to their current versions by macros */

static struct {
    _Atomic int loaded, refused; /* written last, under load_lock */
    CUresult (*context_get)(CUcontext *);
    CUresult (*context_set)(CUcontext);
    CUresult (*device_get)(CUdevice *);
    CUresult (*device_name)(char *, int, CUdevice);
    CUresult (*device_attribute)(int *, CUdevice_attribute, CUdevice);
    CUresult (*device_memory)(size_t *, CUdevice);
    CUresult (*version)(int *);
    CUresult (*context_number)(CUcontext, unsigned long long *);
    CUresult (*device_count)(int *);
    CUresult (*primary_state)(CUdevice, unsigned int *, int *);
    CUresult (*primary_retain)(CUcontext *, CUdevice);
} driver;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

static int find_functions(void) {
    if (driver.loaded || driver.refused) return driver.loaded;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) return 0;
    struct {
        void **function;
        const char *name;
    } const wanted[] = {
        {(void **)&driver.context_get, DRIVER_TEXT(cuCtxGetCurrent)},
        {(void **)&driver.context_set, DRIVER_TEXT(cuCtxSetCurrent)},
        {(void **)&driver.device_get, DRIVER_TEXT(cuCtxGetDevice)},
        {(void **)&driver.device_name, DRIVER_TEXT(cuDeviceGetName)},
        {(void **)&driver.device_attribute, DRIVER_TEXT(cuDeviceGetAttribute)},
        {(void **)&driver.device_memory, DRIVER_TEXT(cuDeviceTotalMem)},
        {(void **)&driver.version, DRIVER_TEXT(cuDriverGetVersion)},
        {(void **)&driver.device_count, DRIVER_TEXT(cuDeviceGetCount)},
        {(void **)&driver.primary_state, DRIVER_TEXT(cuDevicePrimaryCtxGetState)},
        {(void **)&driver.primary_retain, DRIVER_TEXT(cuDevicePrimaryCtxRetain)},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        *wanted[i].function = dlsym(library, wanted[i].name);
        if (*wanted[i].function != NULL) continue;
        driver.refused = 1;
        recorder_warn("nothing is recorded: this CUDA driver has no %s", wanted[i].name);
        return 0;
    }
    *(void **)&driver.context_number = dlsym(library, DRIVER_TEXT(cuCtxGetId)); /* CUDA 12 */
    driver.loaded = 1;
    return 1;
}

int driver_load(void) {
    if (driver.loaded || driver.refused) return driver.loaded;
    pthread_mutex_lock(&load_lock);
    int loaded = find_functions();
    pthread_mutex_unlock(&load_lock);
    return loaded;
}

void *driver_context_current(void) {
    CUcontext context = NULL;
    if (!driver_load() || driver.context_get(&context) != CUDA_SUCCESS) return NULL;
    return context;
}

int driver_context_set(void *context) {
    if (!driver_load()) return CUDA_ERROR_NOT_INITIALIZED;
    return (int)driver.context_set(context);
}

uint64_t driver_context_number(void *context) {
    unsigned long long number = 0;
    if (!driver_load() || driver.context_number == NULL) return 0;
    return driver.context_number(context, &number) == CUDA_SUCCESS ? number : 0;
}

int driver_device_count(void) {
    int count = 0;
    return driver_load() && driver.device_count(&count) == CUDA_SUCCESS ? count : 0;
}

void *driver_primary_context(int32_t device_id) {
    unsigned int flags = 0;
    int active = 0;
    CUcontext context = NULL;
    if (!driver_load() || driver.primary_state((CUdevice)device_id, &flags, &active) != CUDA_SUCCESS || !active) return NULL;
    return driver.primary_retain(&context, (CUdevice)device_id) == CUDA_SUCCESS ? context : NULL;
}

int driver_device_current(int32_t *device_id) {
    CUdevice device = 0;
    if (!driver_load()) return CUDA_ERROR_NOT_INITIALIZED;
    CUresult status = driver.device_get(&device);
    *device_id = (int32_t)device;
    return (int)status;
}

static int32_t attribute(CUdevice device, CUdevice_attribute which) {
    int value = 0;
    return driver.device_attribute(&value, which, device) == CUDA_SUCCESS ? (int32_t)value : 0;
}

int driver_device_describe(struct trace_device *row, char *name) {
    CUdevice device = 0;
    size_t memory = 0;
    if (!driver_load()) return CUDA_ERROR_NOT_INITIALIZED;
    CUresult status = driver.device_get(&device);
    if (status == CUDA_SUCCESS) status = driver.device_name(name, 256, device);
    if (status != CUDA_SUCCESS) return (int)status;
    if (driver.device_memory(&memory, device) != CUDA_SUCCESS) memory = 0;
    *row = (struct trace_device){(int32_t)device, name, attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                                 attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE), 0, (int64_t)memory};
    return 0;
}

int driver_version(void) {
    int version = 0;
    return driver_load() && driver.version(&version) == CUDA_SUCCESS ? version : 0;
}
