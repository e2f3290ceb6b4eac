/* See collector.h.
 *
 * PROTOCOL collector
 *   queue   blocks handed over by any thread [collector_lanes], written by the one writing thread, in order
 *   locks   queue_lock: the queue and its byte count; write_lock: the writer and the arrays below. Never both at once.
 *           The writing thread takes write_lock once a lane, so that others wait for one lane at most.
 *   end     closing -> the thread empties the queue and ends -> collector_close goes on alone */
#include "collector.h"

#include "launch_match.h"
#include "recorder_log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUEUE_BYTES = 1 << 30, MODULE_REFUSED = -1 };

/* The gcd of a few differences may be a multiple of the step; of 16 it is one in 2^15 cases. */
enum { STEP_READINGS_MINIMUM = 16 };

struct device_state {
    int32_t device_id;
    int described;
    struct trace_device row;
    char name[256];
    uint64_t step_origin, step_ns; /* gcd of differences of globaltimer readings taken on its edges */
    int64_t step_readings;
};

struct device_reading {
    int32_t device_id;
    struct clock_reading reading;
};

struct known_module {
    const struct mokscope_module *module;
    int32_t module_id;
};

/* A wait that is in `hang` already. */
struct told_hang {
    const struct mokscope_module *module;
    uint32_t rank, cta, warp;
    uint64_t since;
};

struct collector {
    pthread_mutex_t queue_lock, write_lock;
    pthread_cond_t queue_changed;
    pthread_t thread;
    int has_thread, closing;
    struct lane_block *first, **tail;
    size_t queued_bytes;

    struct trace_writer *writer;
    int failed, failure_told;
    struct known_module *modules;
    size_t module_count;
    struct device_state *devices;
    size_t device_count;
    struct match_launch *launches; /* [launch_count] position = launch_id - 1 */
    size_t launch_count, launch_capacity;
    int64_t refused_lanes; /* of refused modules */
    struct match_kernel *kernels;
    size_t kernel_count, kernel_capacity;
    struct device_reading *readings;
    size_t reading_count, reading_capacity;
    struct told_hang *hangs;
    size_t hang_count, hang_capacity;
    int64_t lane_count;
};

/* --- small ----------------------------------------------------------------------------------------------------------- */

/* Room for one more element; 0, or -1 and the array unchanged. */
static int grow(void **array, size_t count, size_t *capacity, size_t element) {
    if (count < *capacity) return 0;
    size_t wanted = *capacity > 0 ? 2 * *capacity : 64;
    void *grown = realloc(*array, wanted * element);
    if (grown == NULL) return -1;
    *array = grown;
    *capacity = wanted;
    return 0;
}

static void check(struct collector *collector, int status, const struct error *error) {
    if (status == 0 || collector->failed) return;
    collector->failed = 1;
    recorder_warn("recording stopped: %s%s%s", error->message, error->hint[0] ? "; " : "", error->hint);
}

static struct device_state *device_state(struct collector *collector, int32_t device_id) {
    for (size_t i = 0; i < collector->device_count; i++)
        if (collector->devices[i].device_id == device_id) return &collector->devices[i];
    struct device_state *grown = realloc(collector->devices, (collector->device_count + 1) * sizeof *grown);
    if (grown == NULL) return NULL;
    collector->devices = grown;
    struct device_state *device = &grown[collector->device_count++];
    memset(device, 0, sizeof *device);
    device->device_id = device_id;
    device->row.device_id = device_id;
    return device;
}

/* Every device mentioned needs a row, even if nobody described it. */
static void need_device(struct collector *collector, int32_t device_id) {
    struct device_state *device = device_state(collector, device_id);
    if (device == NULL || device->described) return;
    struct error error = {0};
    device->described = 1;
    device->row.name = "unknown";
    snprintf(device->name, sizeof device->name, "%s", device->row.name);
    check(collector, trace_write_device(collector->writer, &device->row, &error), &error);
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void see_step(struct device_state *device, uint64_t globaltimer_ns) {
    if (globaltimer_ns == 0) return;
    if (device->step_origin == 0) device->step_origin = globaltimer_ns;
    uint64_t apart = globaltimer_ns > device->step_origin ? globaltimer_ns - device->step_origin
                                                          : device->step_origin - globaltimer_ns;
    device->step_ns = common_divisor(device->step_ns, apart);
    device->step_readings++;
}

/* --- lanes ----------------------------------------------------------------------------------------------------------- */

/* Id of a module, stored on first use; MODULE_REFUSED: its table contradicts itself, which was said, or nothing can be
 * written. */
static int32_t module_id_of(struct collector *collector, const struct mokscope_module *module) {
    for (size_t i = 0; i < collector->module_count; i++)
        if (collector->modules[i].module == module) return collector->modules[i].module_id;
    struct known_module *grown = realloc(collector->modules, (collector->module_count + 1) * sizeof *grown);
    if (grown == NULL) return MODULE_REFUSED;
    collector->modules = grown;
    struct error refusal = {0}, error = {0};
    int32_t module_id = MODULE_REFUSED;
    int status = trace_write_module(collector->writer, module, &module_id, &refusal);
    if (status == ERROR_USAGE) {
        recorder_warn("%s: its lanes are not recorded", refusal.message);
        status = trace_write_loss(collector->writer, "probes", "module", 1, refusal.message, &error);
    } else {
        error = refusal;
    }
    check(collector, status, &error);
    if (status) return MODULE_REFUSED;
    grown[collector->module_count++] = (struct known_module){module, module_id};
    return module_id;
}

static void see_launch(struct collector *collector, int64_t launch_id, int32_t device_id,
                       const struct mokscope_lane_header *header) {
    size_t position = (size_t)launch_id - 1;
    if (position >= collector->launch_count) {
        if (grow((void **)&collector->launches, position, &collector->launch_capacity, sizeof *collector->launches)) return;
        collector->launches[position] = (struct match_launch){launch_id, device_id, header->grid_id, INT64_MAX, INT64_MIN, -1};
        collector->launch_count = position + 1;
    }
    struct match_launch *launch = &collector->launches[position];
    int64_t begin = (int64_t)header->globaltimer_begin;
    int64_t end = header->state == MOKSCOPE_LANE_CLOSED ? (int64_t)header->globaltimer_end : begin;
    if (begin < launch->begin_ns) launch->begin_ns = begin;
    if (end > launch->end_ns) launch->end_ns = end;
}

/* 1: new, and remembered. */
static int see_hang(struct collector *collector, const struct mokscope_module *module, const struct mokscope_lane_header *header) {
    for (size_t i = 0; i < collector->hang_count; i++) {
        const struct told_hang *told = &collector->hangs[i];
        if (told->module == module && told->rank == header->rank && told->cta == header->cta && told->warp == header->warp &&
            told->since == header->wait_since)
            return 0;
    }
    if (!grow((void **)&collector->hangs, collector->hang_count, &collector->hang_capacity, sizeof *collector->hangs))
        collector->hangs[collector->hang_count++] =
            (struct told_hang){module, header->rank, header->cta, header->warp, header->wait_since};
    return 1;
}

/* Name of the edge that the lane waits on, NULL if it does not wait or nothing is written. */
static const char *write_hang(struct collector *collector, const struct mokscope_module *module,
                              const struct mokscope_lane_header *header) {
    if (header->state != MOKSCOPE_LANE_OPEN || header->wait_since == 0) return NULL;
    if (header->wait_event >= module->event_count || module->events[header->wait_event].edge < 0) return NULL;
    if (!see_hang(collector, module, header)) return NULL;
    struct mokscope_hang_row row = {module->name, (int32_t)header->rank, header->cta, header->warp,
                                    module->events[header->wait_event].edge, header->wait_index, header->wait_awaited,
                                    header->wait_observed, -1, header->wait_since};
    struct error error = {0};
    check(collector, trace_write_hangs(collector->writer, &row, 1, &error), &error);
    return module->edges[row.edge].name;
}

static void write_lane(struct collector *collector, const struct lane_block *block, uint32_t index) {
    const struct mokscope_lane_header *header = &block->headers[index];
    struct error error = {0};
    int64_t launch_id = 0;
    int32_t module_id = module_id_of(collector, block->module);
    if (module_id == MODULE_REFUSED) collector->refused_lanes++;
    if (collector->failed || module_id == MODULE_REFUSED) return;
    need_device(collector, block->device_id);
    int status = trace_write_launch(collector->writer, block->device_id, module_id, header->grid_id, &launch_id, &error);
    if (!status)
        status = trace_write_lane(collector->writer, launch_id, header, block->records + block->first_record[index],
                                  block->record_capacity, &error);
    check(collector, status, &error);
    if (status) return;
    collector->lane_count++;
    see_launch(collector, launch_id, block->device_id, header);
    struct device_state *device = device_state(collector, block->device_id);
    if (device != NULL) see_step(device, header->globaltimer_begin);
    if (device != NULL && header->state == MOKSCOPE_LANE_CLOSED) see_step(device, header->globaltimer_end);
    write_hang(collector, block->module, header);
}

static void *write_queue(void *argument) {
    struct collector *collector = argument;
    for (;;) {
        pthread_mutex_lock(&collector->queue_lock);
        while (collector->first == NULL && !collector->closing)
            pthread_cond_wait(&collector->queue_changed, &collector->queue_lock);
        struct lane_block *block = collector->first;
        if (block == NULL) {
            pthread_mutex_unlock(&collector->queue_lock);
            return NULL;
        }
        collector->first = block->next;
        if (collector->first == NULL) collector->tail = &collector->first;
        pthread_mutex_unlock(&collector->queue_lock);

        for (uint32_t i = 0; i < block->lane_count; i++) {
            pthread_mutex_lock(&collector->write_lock);
            if (!collector->failed) write_lane(collector, block, i);
            pthread_mutex_unlock(&collector->write_lock);
        }
        pthread_mutex_lock(&collector->queue_lock);
        collector->queued_bytes -= block->bytes;
        int empty = collector->first == NULL;
        pthread_cond_broadcast(&collector->queue_changed);
        pthread_mutex_unlock(&collector->queue_lock);
        lane_block_free(block);
        if (empty) collector_flush(collector);
    }
}

void collector_lanes(struct collector *collector, struct lane_block *blocks) {
    while (blocks != NULL) {
        struct lane_block *block = blocks;
        blocks = block->next;
        block->next = NULL;
        pthread_mutex_lock(&collector->queue_lock);
        while (collector->queued_bytes > QUEUE_BYTES) pthread_cond_wait(&collector->queue_changed, &collector->queue_lock);
        *collector->tail = block;
        collector->tail = &block->next;
        collector->queued_bytes += block->bytes;
        pthread_cond_broadcast(&collector->queue_changed);
        pthread_mutex_unlock(&collector->queue_lock);
    }
}

/* --- open and close -------------------------------------------------------------------------------------------------- */

int collector_open(struct collector **result, const char *path, const char *command, struct error *error) {
    struct collector *collector = calloc(1, sizeof *collector);
    *result = NULL;
    if (collector == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    pthread_mutex_init(&collector->queue_lock, NULL);
    pthread_mutex_init(&collector->write_lock, NULL);
    pthread_cond_init(&collector->queue_changed, NULL);
    collector->tail = &collector->first;
    struct trace_run run = {"recorder", NULL, NULL, command, NULL};
    int status = trace_write_open(&collector->writer, path, 0, &run, error);
    if (!status && pthread_create(&collector->thread, NULL, write_queue, collector) != 0) {
        trace_write_abandon(collector->writer);
        status = error_set(error, ERROR_FAILURE, "cannot start the writing thread");
    }
    if (status) {
        free(collector);
        return status;
    }
    collector->has_thread = 1;
    *result = collector;
    return 0;
}

/* Links launches to kernels; matched pairs become readings of their device's clock where there are no better ones. */
static int match_launches(struct collector *collector, struct error *error) {
    size_t matches =
        launch_match(collector->launches, collector->launch_count, collector->kernels, collector->kernel_count);
    recorder_debug("matched %zu of %zu launches to %zu kernels", matches, collector->launch_count, collector->kernel_count);
    for (size_t i = 0; i < collector->launch_count; i++) {
        const struct match_launch *launch = &collector->launches[i];
        if (launch->kernel < 0) continue;
        int status = trace_write_launch_kernel(collector->writer, launch->launch_id,
                                               collector->kernels[launch->kernel].kernel_id, error);
        if (status) return status;
    }
    int64_t unmatched = (int64_t)(collector->launch_count - matches);
    int status = trace_write_loss(collector->writer, "probes", "lane", collector->refused_lanes,
                                  "lanes of refused modules", error);
    if (status || collector->kernel_count == 0) return status;
    return trace_write_loss(collector->writer, "cupti", "match", unmatched, "instrumented launches without a CUPTI kernel",
                            error);
}

static int fit_clock(struct collector *collector, struct device_state *device, struct error *error) {
    size_t most = collector->reading_count + collector->launch_count;
    struct clock_reading *readings = malloc((most + 1) * sizeof *readings);
    if (readings == NULL) return error_set(error, ERROR_FAILURE, "out of memory for clock readings");
    int32_t count = 0, launches = 0;
    const char *source = "calibration kernel";
    for (size_t i = 0; i < collector->reading_count; i++)
        if (collector->readings[i].device_id == device->device_id) readings[count++] = collector->readings[i].reading;
    int calibrated = count > 0;
    if (!calibrated) source = "kernel intervals";
    for (size_t i = 0; i < collector->launch_count; i++) {
        const struct match_launch *launch = &collector->launches[i];
        if (launch->device_id != device->device_id) continue;
        launches++;
        if (launch->kernel >= 0 && !calibrated)
            readings[count++] = launch_match_reading(launch, &collector->kernels[launch->kernel]);
    }
    struct clock_offset offset;
    clock_fit_readings(readings, count, &offset);
    free(readings);
    recorder_debug("device %d: clock from %s, %d readings, offset %lld ns, drift %.3f ppm, residual %lld ns, width %lld ns",
                   device->device_id, source, offset.readings, (long long)offset.offset_ns, offset.drift * 1e6,
                   (long long)offset.residual_ns, (long long)offset.width_ns);
    if (offset.readings == 0)
        return launches == 0
                   ? 0
                   : trace_write_loss(collector->writer, "recorder", "clock", 1,
                                      "no reading of globaltimer against the host: trace time is globaltimer", error);
    int status = trace_write_device_clock(collector->writer, device->device_id, &offset, error);
    if (!status)
        status = trace_write_attribute(collector->writer, "clock", "globaltimer_calibration", source, "", error);
    return status;
}

static int finish(struct collector *collector, const char *state, struct error *error) {
    int status = match_launches(collector, error);
    for (size_t i = 0; !status && i < collector->device_count; i++) {
        struct device_state *device = &collector->devices[i];
        status = fit_clock(collector, device, error);
        if (!status && device->described && device->step_ns > 0 && device->step_readings >= STEP_READINGS_MINIMUM) {
            device->row.globaltimer_step_ns = (int32_t)device->step_ns;
            device->row.name = device->name;
            status = trace_write_device(collector->writer, &device->row, error);
        }
    }
    recorder_debug("writing the end: %lld lanes, state %s", (long long)collector->lane_count, state);
    int closed = trace_write_close(collector->writer, state, -1, error);
    collector->writer = NULL;
    return status ? status : closed;
}

int collector_close(struct collector *collector, const char *state, struct error *error) {
    if (collector == NULL) return 0;
    pthread_mutex_lock(&collector->queue_lock);
    collector->closing = 1;
    pthread_cond_broadcast(&collector->queue_changed);
    pthread_mutex_unlock(&collector->queue_lock);
    if (collector->has_thread) pthread_join(collector->thread, NULL);
    int status = 0;
    if (collector->failed) {
        /* The file keeps its last commit and state `recording`; trace_write_finalise marks it cut. */
        trace_write_abandon(collector->writer);
        collector->writer = NULL;
    } else {
        status = finish(collector, state, error);
    }
    free(collector->modules);
    free(collector->devices);
    free(collector->launches);
    free(collector->kernels);
    free(collector->readings);
    free(collector->hangs);
    free(collector);
    return status;
}

/* --- rows ------------------------------------------------------------------------------------------------------------ */

/* Runs one writing statement under the lock unless the writer has failed; `error` is in scope of the call. */
#define COLLECTOR_WRITE(collector, call)                      \
    do {                                                      \
        struct error error = {0};                             \
        pthread_mutex_lock(&(collector)->write_lock);         \
        if (!(collector)->failed) check(collector, call, &error); \
        pthread_mutex_unlock(&(collector)->write_lock);       \
    } while (0)

int collector_failed(struct collector *collector) {
    pthread_mutex_lock(&collector->write_lock);
    int first = collector->failed && !collector->failure_told;
    if (first) collector->failure_told = 1;
    pthread_mutex_unlock(&collector->write_lock);
    return first;
}

void collector_module(struct collector *collector, const struct mokscope_module *module) {
    pthread_mutex_lock(&collector->write_lock);
    if (!collector->failed) module_id_of(collector, module);
    pthread_mutex_unlock(&collector->write_lock);
}

void collector_flush(struct collector *collector) {
    COLLECTOR_WRITE(collector, trace_write_flush(collector->writer, &error));
}

void collector_stuck(struct collector *collector, const struct mokscope_module *module, const struct mokscope_lane_header *header) {
    const char *edge = NULL;
    pthread_mutex_lock(&collector->write_lock);
    if (!collector->failed && module_id_of(collector, module) != MODULE_REFUSED) edge = write_hang(collector, module, header);
    int first = edge != NULL && collector->hang_count == 1;
    pthread_mutex_unlock(&collector->write_lock);
    if (!first) return; /* where one waits, hundreds do: all are in the file */
    recorder_warn("module '%s' may hang: rank %u, CTA %u, warp %u waits on %s[%u] for %u, has seen %u; table hang has all of them",
                  module->name, header->rank, header->cta, header->warp, edge, header->wait_index, header->wait_awaited,
                  header->wait_observed);
}

void collector_attribute(struct collector *collector, const char *kind, const char *name, const char *value,
                         const char *unit) {
    COLLECTOR_WRITE(collector, trace_write_attribute(collector->writer, kind, name, value, unit, &error));
}

void collector_device(struct collector *collector, const struct trace_device *row) {
    struct error error = {0};
    pthread_mutex_lock(&collector->write_lock);
    struct device_state *device = device_state(collector, row->device_id);
    if (device != NULL && !collector->failed) {
        device->row = *row;
        snprintf(device->name, sizeof device->name, "%s", row->name);
        device->described = 1;
        check(collector, trace_write_device(collector->writer, row, &error), &error);
    }
    pthread_mutex_unlock(&collector->write_lock);
}

int collector_has_device(struct collector *collector, int32_t device_id) {
    int found = 0;
    pthread_mutex_lock(&collector->write_lock);
    for (size_t i = 0; i < collector->device_count; i++)
        if (collector->devices[i].device_id == device_id) found = collector->devices[i].described;
    pthread_mutex_unlock(&collector->write_lock);
    return found;
}

void collector_rank(struct collector *collector, int32_t rank, int32_t device_id) {
    pthread_mutex_lock(&collector->write_lock);
    if (!collector->failed) need_device(collector, device_id);
    pthread_mutex_unlock(&collector->write_lock);
    COLLECTOR_WRITE(collector, trace_write_rank(collector->writer, rank, device_id, (int64_t)getpid(), &error));
}

void collector_tasks(struct collector *collector, const struct mokscope_task_row *rows, size_t count) {
    COLLECTOR_WRITE(collector, trace_write_tasks(collector->writer, rows, count, &error));
}

void collector_targets(struct collector *collector, const struct mokscope_target_row *rows, size_t count) {
    COLLECTOR_WRITE(collector, trace_write_targets(collector->writer, rows, count, &error));
}

void collector_hangs(struct collector *collector, const struct mokscope_hang_row *rows, size_t count) {
    COLLECTOR_WRITE(collector, trace_write_hangs(collector->writer, rows, count, &error));
}

void collector_kernel(struct collector *collector, const struct trace_kernel *kernel) {
    struct error error = {0};
    int64_t kernel_id = 0;
    pthread_mutex_lock(&collector->write_lock);
    if (!collector->failed) {
        need_device(collector, kernel->device_id);
        check(collector, trace_write_kernel(collector->writer, kernel, &kernel_id, &error), &error);
    }
    if (!collector->failed && !grow((void **)&collector->kernels, collector->kernel_count, &collector->kernel_capacity,
                                    sizeof *collector->kernels))
        collector->kernels[collector->kernel_count++] = (struct match_kernel){
            kernel_id, kernel->device_id, kernel->grid_id, kernel->begin_ns, kernel->end_ns, -1};
    pthread_mutex_unlock(&collector->write_lock);
}

void collector_copy(struct collector *collector, const struct trace_copy *copy) {
    COLLECTOR_WRITE(collector, trace_write_copy(collector->writer, copy, &error));
}

void collector_marker(struct collector *collector, const struct trace_marker *marker) {
    COLLECTOR_WRITE(collector, trace_write_marker(collector->writer, marker, &error));
}

void collector_host_activity(struct collector *collector, const struct trace_host_activity *activity) {
    COLLECTOR_WRITE(collector, trace_write_host_activity(collector->writer, activity, &error));
}

void collector_loss(struct collector *collector, const char *source, const char *kind, int64_t count, const char *detail) {
    COLLECTOR_WRITE(collector, trace_write_loss(collector->writer, source, kind, count, detail, &error));
}

void collector_reading(struct collector *collector, int32_t device_id, const struct clock_reading *reading) {
    pthread_mutex_lock(&collector->write_lock);
    if (!grow((void **)&collector->readings, collector->reading_count, &collector->reading_capacity,
              sizeof *collector->readings))
        collector->readings[collector->reading_count++] = (struct device_reading){device_id, *reading};
    pthread_mutex_unlock(&collector->write_lock);
}
