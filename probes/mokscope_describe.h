/* mokscope_describe.h: what an application tells the recorder about its run: knobs, ranks, tasks, counter targets, hangs.
 *
 * The recorder library exports the mokscope_recorder_* functions; the application calls the mokscope_describe_* ones, which
 * find them by dlsym once a translation unit and do nothing when not recording. All of them copy what they are given, may be
 * called from any host thread at any time before exit, and never fail the caller: what could not be stored is a row of
 * `loss`. Link with -ldl where dlsym is not in libc. C11 and C++17. */
#ifndef MOKSCOPE_DESCRIBE_H
#define MOKSCOPE_DESCRIBE_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* A task of the schedule (table task). */
struct mokscope_task_row {
    int32_t rank;
    int32_t task_id;      /* argument of the task's spans */
    const char *phase;    /* dispatch, gate+up, down, combine */
    int32_t minibatch;
    int32_t expert;       /* model's expert id; -1: several or none */
    int32_t tile_row;
    int32_t tile_column;
    int32_t row_count;    /* rows that carry a route */
    int32_t padding_rows; /* rows that do not */
    int64_t flops;        /* useful floating-point operations */
    int64_t bytes;        /* useful bytes moved between ranks */
};

/* Target of one counter of one edge (table edge_target). */
struct mokscope_target_row {
    const char *module; /* name given to MOKSCOPE_MODULE; NULL: the first module with edges */
    int32_t rank;       /* owner of the counter */
    int32_t edge;       /* edge id in the module's table */
    uint32_t counter_index;
    uint32_t target;
};

/* A wait that timed out (table hang). */
struct mokscope_hang_row {
    const char *module; /* as above */
    int32_t rank;
    uint32_t cta;
    uint32_t warp;
    int32_t edge;
    uint32_t counter_index;
    uint32_t expected;
    uint32_t observed;
    int32_t task_id;              /* -1: none */
    uint64_t since_globaltimer_ns; /* 0: unknown */
};

/* kind: "shape", "knob", "routing", "version", "clock" or "note" (table attribute); a later value replaces an earlier one. */
typedef void mokscope_recorder_attribute_function(const char *kind, const char *name, const char *value, const char *unit);
/* Rank `rank` of the layer runs on CUDA device `device` of this process. Call before the first launch, with the device's
 * context current: the recorder takes the chance to install its rings. */
typedef void mokscope_recorder_rank_function(int32_t rank, int32_t device);
typedef void mokscope_recorder_tasks_function(const struct mokscope_task_row *rows, size_t count);
typedef void mokscope_recorder_targets_function(const struct mokscope_target_row *rows, size_t count);
typedef void mokscope_recorder_hangs_function(const struct mokscope_hang_row *rows, size_t count);

/* dlsym on all loaded objects; NULL is glibc's RTLD_DEFAULT, which <dlfcn.h> hides without _GNU_SOURCE. */
static inline void *mokscope_describe_find(const char *name) { return dlsym(NULL, name); }

/* 1 if a recorder is loaded: skip preparing rows when it is not. */
static inline int mokscope_describe_recording(void) {
    static int known, recording;
    if (!known) {
        recording = mokscope_describe_find("mokscope_recorder_attribute") != NULL;
        known = 1;
    }
    return recording;
}

static inline void mokscope_describe_attribute(const char *kind, const char *name, const char *value, const char *unit) {
    static mokscope_recorder_attribute_function *function;
    if (!mokscope_describe_recording()) return;
    if (function == NULL) *(void **)&function = mokscope_describe_find("mokscope_recorder_attribute");
    if (function != NULL) function(kind, name, value, unit);
}

static inline void mokscope_describe_rank(int32_t rank, int32_t device) {
    static mokscope_recorder_rank_function *function;
    if (!mokscope_describe_recording()) return;
    if (function == NULL) *(void **)&function = mokscope_describe_find("mokscope_recorder_rank");
    if (function != NULL) function(rank, device);
}

static inline void mokscope_describe_tasks(const struct mokscope_task_row *rows, size_t count) {
    static mokscope_recorder_tasks_function *function;
    if (!mokscope_describe_recording()) return;
    if (function == NULL) *(void **)&function = mokscope_describe_find("mokscope_recorder_tasks");
    if (function != NULL) function(rows, count);
}

static inline void mokscope_describe_targets(const struct mokscope_target_row *rows, size_t count) {
    static mokscope_recorder_targets_function *function;
    if (!mokscope_describe_recording()) return;
    if (function == NULL) *(void **)&function = mokscope_describe_find("mokscope_recorder_targets");
    if (function != NULL) function(rows, count);
}

static inline void mokscope_describe_hangs(const struct mokscope_hang_row *rows, size_t count) {
    static mokscope_recorder_hangs_function *function;
    if (!mokscope_describe_recording()) return;
    if (function == NULL) *(void **)&function = mokscope_describe_find("mokscope_recorder_hangs");
    if (function != NULL) function(rows, count);
}

#endif
