/* CUPTI of the recorded process: kernels, copies, memsets, NVTX ranges, synchronisation and CUPTI's own overhead into the
 * collector, and callbacks when contexts come and go. Opened by dlopen; without it, or when another tool has the subscription,
 * it says so once and only probes are recorded.
 *
 * PROTOCOL activity buffers
 *   empty -> CUPTI [buffer_requested, its thread] -> full [buffer_completed, any thread] -> parsed into the collector -> freed.
 *   Dropped records are asked for at each completion and stored as loss. Times are CLOCK_REALTIME, taken by our callback. */
#ifndef CUPTI_ACTIVITY_H
#define CUPTI_ACTIVITY_H

#include "collector.h"

/* What the session wants to know. All run on the thread that made the CUDA call, inside CUPTI. */
struct cupti_events {
    void (*context_ready)(void);             /* a context is current and may be used */
    void (*context_ending)(void *context);   /* CUcontext about to be destroyed */
    int (*own_call)(void);                   /* 1: this thread copies for the recorder; such copies are not recorded */
};

/* Opens CUPTI and subscribes to contexts. 0: not available, said why. */
int cupti_subscribe(const struct cupti_events *events);

/* Starts activity recording into the collector. */
void cupti_activity_begin(struct collector *collector);

/* 1: kernels are being recorded. */
int cupti_activity_is_on(void);

/* Hands over what CUPTI has; forced != 0: also buffers that are not full. */
void cupti_activity_flush(int forced);

/* What CUPTI hands over from now on is dropped: the collector is about to close. */
void cupti_activity_end(void);

/* Forwards NVTX's injection to CUPTI. Returns what CUPTI's entry returns, 0 without it. */
int cupti_inject_nvtx(void *get_export_table);

/* CUPTI's version, 0: not loaded. */
uint32_t cupti_version(void);

#endif
