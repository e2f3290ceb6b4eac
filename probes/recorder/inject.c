/* What the recorder library exports: the entry points that the CUDA driver and NVTX call when the library is named in
 * CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH, and the functions that modules (mokscope_probe.h) and applications
 * (mokscope_describe.h) find by dlsym because it is preloaded. Everything else of the library is hidden. */
#include "../mokscope_describe.h"
#include "../mokscope_probe.h"
#include "cupti_activity.h"
#include "session.h"

#define RECORDER_API __attribute__((visibility("default")))

RECORDER_API int InitializeInjection(void);
RECORDER_API int InitializeInjectionNvtx2(void *get_export_table);
RECORDER_API mokscope_recorder_attach_function mokscope_recorder_attach;
RECORDER_API mokscope_recorder_attribute_function mokscope_recorder_attribute;
RECORDER_API mokscope_recorder_rank_function mokscope_recorder_rank;
RECORDER_API mokscope_recorder_tasks_function mokscope_recorder_tasks;
RECORDER_API mokscope_recorder_targets_function mokscope_recorder_targets;
RECORDER_API mokscope_recorder_hangs_function mokscope_recorder_hangs;

/* Called by the driver at its initialisation; 1: loaded. */
int InitializeInjection(void) {
    session_driver_ready();
    return 1;
}

/* Called by the first NVTX call of the process. */
int InitializeInjectionNvtx2(void *get_export_table) { return cupti_inject_nvtx(get_export_table); }

void mokscope_recorder_attach(const struct mokscope_module *module) { session_attach(module); }

void mokscope_recorder_attribute(const char *kind, const char *name, const char *value, const char *unit) {
    struct collector *collector = session_collector();
    if (collector != NULL) collector_attribute(collector, kind, name, value, unit);
}

void mokscope_recorder_rank(int32_t rank, int32_t device) {
    session_context_ready();
    struct collector *collector = session_collector();
    if (collector != NULL) collector_rank(collector, rank, device);
}

void mokscope_recorder_tasks(const struct mokscope_task_row *rows, size_t count) {
    struct collector *collector = session_collector();
    if (collector != NULL) collector_tasks(collector, rows, count);
}

void mokscope_recorder_targets(const struct mokscope_target_row *rows, size_t count) {
    struct collector *collector = session_collector();
    if (collector != NULL) collector_targets(collector, rows, count);
}

void mokscope_recorder_hangs(const struct mokscope_hang_row *rows, size_t count) {
    struct collector *collector = session_collector();
    if (collector != NULL) collector_hangs(collector, rows, count);
}
