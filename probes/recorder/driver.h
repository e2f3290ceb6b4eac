/* The CUDA driver of the recorded process, found by dlsym in what the process has loaded; never linked, never loaded by us.
 * Contexts are opaque pointers (CUcontext). Functions return 0 or a CUresult. */
#ifndef DRIVER_H
#define DRIVER_H

#include "../host/trace_write.h"

#include <stdint.h>

/* Finds the functions. 0: the process has no driver (yet); the call may be repeated. */
int driver_load(void);

/* Context current in this thread, NULL: none. */
void *driver_context_current(void);
int driver_context_set(void *context);

/* Unlike its address, no later context of the process has this number; 0: the context is gone, or the driver knows no numbers. */
uint64_t driver_context_number(void *context);

int driver_device_count(void);

/* The device's primary context, retained, if the program has made it; NULL: it has not, or cannot be asked. Each call that gives
 * one retains it once more. */
void *driver_primary_context(int32_t device_id);

/* Ordinal of the device that is current in this thread. */
int driver_device_current(int32_t *device_id);

/* Row of the device that is current in this thread. name [256] backs row->name. */
int driver_device_describe(struct trace_device *row, char *name);

/* CUDA version of the driver, as 1000 major + 10 minor; 0: unknown. */
int driver_version(void);

#endif
