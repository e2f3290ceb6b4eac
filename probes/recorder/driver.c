/* See driver.h. */
#include "driver.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

#define DRIVER_TEXT_(name) #name
#define DRIVER_TEXT(name) DRIVER_TEXT_(name) /* cuda.h renames some functions to their current versions by macros */

static struct {
    int loaded;
    CUresult (*context_get)(CUcontext *);
    CUresult (*context_set)(CUcontext);
    CUresult (*device_get)(CUdevice *);
    CUresult (*device_name)(char *, int, CUdevice);
    CUresult (*device_attribute)(int *, CUdevice_attribute, CUdevice);
    CUresult (*device_memory)(size_t *, CUdevice);
    CUresult (*version)(int *);
} driver;

int driver_load(void) {
    if (driver.loaded) return 1;
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
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        *wanted[i].function = dlsym(library, wanted[i].name);
        if (*wanted[i].function == NULL) return 0;
    }
    driver.loaded = 1;
    return 1;
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
