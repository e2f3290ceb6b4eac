/* What the recorded program tells the fake CUPTI; found by dlsym. */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <cupti.h>

/* CUPTI's clock, ns: what the registered callback says; 0 without one. */
uint64_t fake_cupti_now(void);

/* A driver function is called; returns its correlation id. */
uint32_t fake_cupti_call(CUcontext context, CUpti_CallbackId id);

void fake_cupti_context_ends(CUcontext context);

/* An activity record, of the kinds that the recorder asks for. Left out if its kind is not enabled. */
void fake_cupti_record(const void *record);

#endif
