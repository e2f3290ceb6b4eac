/* See trace_write.h: rows that are written one at a time, all but lanes. */
#include "trace_write_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- modules --------------------------------------------------------------------------------------------------------- */

static const char *role_class_name(uint32_t role_class) {
    switch (role_class) {
    case MOKSCOPE_CLASS_COMPUTE: return "compute";
    case MOKSCOPE_CLASS_COMMUNICATE: return "communicate";
    default: return "support";
    }
}

static const char *event_class_name(const struct mokscope_event_row *event) {
    if (event->kind == MOKSCOPE_KIND_WAIT) return "wait";
    switch (event->event_class) {
    case MOKSCOPE_CLASS_COMPUTE: return "compute";
    case MOKSCOPE_CLASS_COMMUNICATE: return "communicate";
    case MOKSCOPE_CLASS_CONTAINER: return "container";
    case MOKSCOPE_CLASS_WAIT: return "wait";
    default: return "overhead";
    }
}

static const char *event_kind_name(uint32_t kind) {
    switch (kind) {
    case MOKSCOPE_KIND_WAIT: return "wait";
    case MOKSCOPE_KIND_SIGNAL: return "signal";
    default: return "span";
    }
}

static int write_role(struct trace_writer *writer, const struct mokscope_role_row *role, int32_t role_id,
                      struct error *error) {
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_ROLE, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "iisss", role_id, writer->module_count, role->name, role_class_name(role->role_class),
                      role->description);
    return trace_writer_step(writer, statement, 1, error);
}

static int write_edge(struct trace_writer *writer, const struct mokscope_edge_row *edge, int32_t edge_id,
                      struct error *error) {
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_EDGE, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "iisiississ", edge_id, writer->module_count, edge->name,
                      writer->role_count + edge->producer_role, writer->role_count + edge->consumer_role,
                      edge->granularity, edge->scope, edge->slot_reuse, edge->target, edge->description);
    return trace_writer_step(writer, statement, 1, error);
}

static int write_event(struct trace_writer *writer, const struct mokscope_event_row *event, int32_t event_id,
                       struct error *error) {
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_EVENT, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "iisssunsss", event_id, writer->module_count, event->name, event_kind_name(event->kind),
                      event_class_name(event), event->level, (int64_t)0, event->argument, event->small,
                      event->description);
    if (event->edge >= 0) sqlite3_bind_int64(statement, 7, writer->edge_count + event->edge);
    return trace_writer_step(writer, statement, 1, error);
}

static int write_module_tables(struct trace_writer *writer, const struct mokscope_module *module, struct error *error) {
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_MODULE, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "is", writer->module_count, module->name);
    int status = trace_writer_step(writer, statement, 1, error);
    for (uint32_t i = 0; !status && i < module->role_count; i++)
        status = write_role(writer, &module->roles[i], writer->role_count + (int32_t)i, error);
    for (uint32_t i = 0; !status && i < module->edge_count; i++)
        status = write_edge(writer, &module->edges[i], writer->edge_count + (int32_t)i, error);
    for (uint32_t i = 0; !status && i < module->event_count; i++)
        if (module->events[i].name != NULL)
            status = write_event(writer, &module->events[i], writer->event_count + (int32_t)i, error);
    return status;
}

static int is_scope(const char *scope) {
    return scope != NULL && (strcmp(scope, "cta") == 0 || strcmp(scope, "gpu") == 0 || strcmp(scope, "sys") == 0);
}

/* A table somebody wrote by hand: what would break foreign keys or checks of the schema is said here by name. */
static int check_module(const struct mokscope_module *module, struct error *error) {
    if (module->event_count > MOKSCOPE_EVENT_MASK + 1)
        return error_set(error, ERROR_USAGE, "module '%s' has %u events, the record format holds %u", module->name,
                         module->event_count, MOKSCOPE_EVENT_MASK + 1);
    for (uint32_t i = 0; i < module->edge_count; i++) {
        const struct mokscope_edge_row *edge = &module->edges[i];
        int32_t producer = edge->producer_role, consumer = edge->consumer_role;
        if (producer < 0 || consumer < 0 || (uint32_t)producer >= module->role_count ||
            (uint32_t)consumer >= module->role_count)
            return error_set(error, ERROR_USAGE, "edge '%s' of module '%s' is between roles %d and %d, it has %u roles",
                             edge->name, module->name, producer, consumer, module->role_count);
        if (!is_scope(edge->scope))
            return error_set(error, ERROR_USAGE, "edge '%s' of module '%s' has scope '%s', not cta, gpu or sys", edge->name,
                             module->name, edge->scope != NULL ? edge->scope : "");
    }
    for (uint32_t i = 0; i < module->event_count; i++) {
        const struct mokscope_event_row *event = &module->events[i];
        if (event->name == NULL) continue;
        if (event->kind >= LANE_KIND_COUNT)
            return error_set(error, ERROR_USAGE, "event '%s' of module '%s' has unknown kind %u", event->name, module->name,
                             event->kind);
        if (event->edge >= 0 && (uint32_t)event->edge >= module->edge_count)
            return error_set(error, ERROR_USAGE, "event '%s' of module '%s' names edge %d, it has %u edges", event->name,
                             module->name, event->edge, module->edge_count);
    }
    return 0;
}

int trace_write_module(struct trace_writer *writer, const struct mokscope_module *module, int32_t *module_id,
                       struct error *error) {
    int valid = check_module(module, error);
    if (valid) return valid;
    uint8_t *kinds = malloc(module->event_count + 1u);
    struct writer_module *grown = realloc(writer->modules, ((size_t)writer->module_count + 1) * sizeof *grown);
    if (grown != NULL) writer->modules = grown;
    if (kinds == NULL || grown == NULL) {
        free(kinds);
        return error_set(error, ERROR_FAILURE, "out of memory for module '%s'", module->name);
    }
    for (uint32_t i = 0; i < module->event_count; i++)
        kinds[i] = module->events[i].name != NULL ? (uint8_t)module->events[i].kind : 255;
    int status = write_module_tables(writer, module, error);
    if (status) {
        free(kinds);
        return status;
    }
    grown[writer->module_count] =
        (struct writer_module){module, writer->role_count, writer->event_count, writer->edge_count, kinds};
    *module_id = writer->module_count++;
    writer->role_count += (int32_t)module->role_count;
    writer->event_count += (int32_t)module->event_count;
    writer->edge_count += (int32_t)module->edge_count;
    return 0;
}

/* First edge id of the module of this name; NULL: of the first module with edges; -1: there is none, or no such edge. */
static int32_t edge_id_of(const struct trace_writer *writer, const char *name, int32_t edge) {
    for (int32_t i = 0; i < writer->module_count; i++) {
        const struct mokscope_module *module = writer->modules[i].module;
        if (name != NULL ? strcmp(name, module->name) != 0 : module->edge_count == 0) continue;
        return edge >= 0 && (uint32_t)edge < module->edge_count ? writer->modules[i].edge_base + edge : -1;
    }
    return -1;
}

/* --- description of the run ------------------------------------------------------------------------------------------ */

int trace_write_attribute(struct trace_writer *writer, const char *kind, const char *name, const char *value,
                          const char *unit, struct error *error) {
    static const char *const kinds[] = {"shape", "knob", "routing", "version", "clock", "note"};
    const char *known = "note";
    for (size_t i = 0; kind != NULL && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind, kinds[i]) == 0) known = kinds[i];
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_ATTRIBUTE, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "ssss", known, name, value, unit);
    return trace_writer_step(writer, statement, 1, error);
}

int trace_write_device(struct trace_writer *writer, const struct trace_device *device, struct error *error) {
    struct writer_device *known = trace_writer_device(writer, device->device_id);
    if (known == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    known->sm_clock_khz = device->sm_clock_khz;
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_DEVICE, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "isinnn", device->device_id, device->name, device->sm_count,
                      (int64_t)device->sm_clock_khz, (int64_t)device->globaltimer_step_ns, device->memory_bytes);
    return trace_writer_step(writer, statement, 1, error);
}

int trace_write_rank(struct trace_writer *writer, int32_t rank, int32_t device_id, int64_t process_id,
                     struct error *error) {
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_RANK, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "iil", rank, device_id, process_id);
    int status = trace_writer_step(writer, statement, 1, error);
    if (!status && rank >= 0 && trace_writer_see_rank(writer, (uint32_t)rank, device_id))
        return error_set(error, ERROR_FAILURE, "out of memory");
    return status;
}

int trace_write_device_clock(struct trace_writer *writer, int32_t device_id, const struct clock_offset *offset,
                             struct error *error) {
    struct writer_device *device = trace_writer_device(writer, device_id);
    if (device == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_DEVICE_CLOCK, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "illdlli", device_id, offset->base_ns, offset->offset_ns, offset->drift,
                      offset->residual_ns, offset->width_ns, offset->readings);
    int status = trace_writer_step(writer, statement, 1, error);
    if (status) return status;
    static const enum trace_statement refits[] = {STATEMENT_REFIT, STATEMENT_REFIT_HANGS};
    for (int i = 0; !status && i < 2; i++) {
        statement = trace_writer_statement(writer, refits[i], error);
        if (statement == NULL) return writer->failure.code;
        trace_writer_bind(statement, "illdlld", device_id, device->clock.base_ns, device->clock.offset_ns,
                          device->clock.drift, offset->base_ns, offset->offset_ns, offset->drift);
        status = trace_writer_step(writer, statement, 1, error);
    }
    if (!status) device->clock = *offset;
    return status;
}

int trace_write_tasks(struct trace_writer *writer, const struct mokscope_task_row *rows, size_t count,
                      struct error *error) {
    int status = 0;
    for (size_t i = 0; !status && i < count; i++) {
        const struct mokscope_task_row *row = &rows[i];
        sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_TASK, error);
        if (statement == NULL) return writer->failure.code;
        trace_writer_bind(statement, "iisiiiiiill", row->rank, row->task_id, row->phase, row->minibatch, row->expert,
                          row->tile_row, row->tile_column, row->row_count, row->padding_rows, row->flops, row->bytes);
        status = trace_writer_step(writer, statement, 1, error);
    }
    return status;
}

int trace_write_targets(struct trace_writer *writer, const struct mokscope_target_row *rows, size_t count,
                        struct error *error) {
    int status = 0;
    int64_t refused = 0;
    for (size_t i = 0; !status && i < count; i++) {
        int32_t edge_id = edge_id_of(writer, rows[i].module, rows[i].edge);
        if (edge_id < 0) {
            refused++;
            continue;
        }
        sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_TARGET, error);
        if (statement == NULL) return writer->failure.code;
        trace_writer_bind(statement, "iiuu", rows[i].rank, edge_id, rows[i].counter_index, rows[i].target);
        status = trace_writer_step(writer, statement, 1, error);
    }
    return status ? status
                  : trace_write_loss(writer, "recorder", "target", refused, "targets of edges that no module has", error);
}

int trace_write_hangs(struct trace_writer *writer, const struct mokscope_hang_row *rows, size_t count,
                      struct error *error) {
    int status = 0;
    int64_t refused = 0;
    for (size_t i = 0; !status && i < count; i++) {
        const struct mokscope_hang_row *row = &rows[i];
        int32_t edge_id = edge_id_of(writer, row->module, row->edge);
        if (edge_id < 0) {
            refused++;
            continue;
        }
        int64_t since = (int64_t)row->since_globaltimer_ns;
        int32_t device_id = row->rank >= 0 ? trace_writer_rank_device(writer, (uint32_t)row->rank) : RANK_UNSEEN;
        for (int32_t d = 0; since != 0 && d < writer->device_count; d++)
            if (writer->devices[d].device_id == device_id) since = clock_offset_apply(&writer->devices[d].clock, since);
        sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_HANG, error);
        if (statement == NULL) return writer->failure.code;
        trace_writer_bind(statement, "iuuiuuuil", row->rank, row->cta, row->warp, edge_id, row->counter_index,
                          row->expected, row->observed, row->task_id, since);
        status = trace_writer_step(writer, statement, 1, error);
    }
    return status ? status
                  : trace_write_loss(writer, "recorder", "hang", refused, "hangs on edges that no module has", error);
}

/* --- activity -------------------------------------------------------------------------------------------------------- */

int trace_write_kernel(struct trace_writer *writer, const struct trace_kernel *kernel, int64_t *kernel_id,
                       struct error *error) {
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_KERNEL, error);
    if (statement == NULL) return writer->failure.code;
    int64_t end_ns = kernel->end_ns < kernel->begin_ns ? kernel->begin_ns : kernel->end_ns;
    trace_writer_bind(statement, "iuuulusllllllllll", kernel->device_id, kernel->context_id, kernel->stream_id,
                      kernel->correlation_id, kernel->grid_id, kernel->graph_id, kernel->name, kernel->begin_ns, end_ns,
                      (int64_t)kernel->grid[0], (int64_t)kernel->grid[1], (int64_t)kernel->grid[2],
                      (int64_t)kernel->block[0], (int64_t)kernel->block[1], (int64_t)kernel->block[2],
                      (int64_t)kernel->registers, (int64_t)kernel->static_shared_bytes);
    sqlite3_bind_int64(statement, 18, kernel->dynamic_shared_bytes);
    int status = trace_writer_step(writer, statement, 1, error);
    if (!status && kernel_id != NULL) *kernel_id = sqlite3_last_insert_rowid(writer->database);
    return status;
}

int trace_write_copy(struct trace_writer *writer, const struct trace_copy *copy, struct error *error) {
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_COPY, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "iuuslll", copy->device_id, copy->stream_id, copy->correlation_id, copy->kind,
                      copy->bytes, copy->begin_ns, copy->end_ns);
    return trace_writer_step(writer, statement, 1, error);
}

int trace_write_marker(struct trace_writer *writer, const struct trace_marker *marker, struct error *error) {
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_MARKER, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "lssll", marker->thread_id, marker->domain, marker->name, marker->begin_ns,
                      marker->end_ns);
    return trace_writer_step(writer, statement, 1, error);
}

int trace_write_host_activity(struct trace_writer *writer, const struct trace_host_activity *activity,
                              struct error *error) {
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_HOST_ACTIVITY, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "ssll", activity->kind, activity->name, activity->begin_ns, activity->end_ns);
    return trace_writer_step(writer, statement, 1, error);
}

int trace_write_loss(struct trace_writer *writer, const char *source, const char *kind, int64_t count, const char *detail,
                     struct error *error) {
    if (count == 0) return 0;
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_LOSS, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "ssls", source, kind, count, detail);
    return trace_writer_step(writer, statement, 1, error);
}

/* --- launches -------------------------------------------------------------------------------------------------------- */

int trace_write_launch(struct trace_writer *writer, int32_t device_id, int32_t module_id, uint64_t grid_id,
                       int64_t *launch_id, struct error *error) {
    for (int64_t i = writer->launch_count; i-- > 0;) {
        const struct writer_launch *launch = &writer->launches[i];
        if (launch->grid_id != grid_id || launch->device_id != device_id || launch->module_id != module_id) continue;
        *launch_id = i + 1;
        return 0;
    }
    if (writer->launch_count == writer->launch_capacity) {
        int64_t capacity = writer->launch_capacity > 0 ? 2 * writer->launch_capacity : 64;
        struct writer_launch *grown = realloc(writer->launches, (size_t)capacity * sizeof *grown);
        if (grown == NULL) return error_set(error, ERROR_FAILURE, "out of memory for launches");
        writer->launches = grown;
        writer->launch_capacity = capacity;
    }
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_LAUNCH, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "liil", writer->launch_count + 1, device_id, module_id, (int64_t)grid_id);
    int status = trace_writer_step(writer, statement, 1, error);
    if (status) return status;
    writer->launches[writer->launch_count] = (struct writer_launch){device_id, module_id, grid_id};
    *launch_id = ++writer->launch_count;
    return 0;
}

int trace_write_launch_kernel(struct trace_writer *writer, int64_t launch_id, int64_t kernel_id, struct error *error) {
    sqlite3_stmt *statement = trace_writer_statement(writer, STATEMENT_LAUNCH_KERNEL, error);
    if (statement == NULL) return writer->failure.code;
    trace_writer_bind(statement, "ll", launch_id, kernel_id);
    return trace_writer_step(writer, statement, 1, error);
}
