/* See export_chrome.h. Trace Event Format: X complete event, i instant, M metadata; ts and dur in microseconds. */
#include "export_chrome.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

/* Perfetto gives process 0, thread 0 and a thread that has its process' number a meaning of their own (google/perfetto issues
 * 394 and 560): processes are numbered far above threads, and both from 1 on. */
enum { PID_RANK = 1000000, PID_HOST = 3000000, PID_GPU = 3000001 };

/* A lane's thread: lanes of one SM, role and place beside others alike are one thread over all launches. */
struct thread {
    int32_t rank, sm, role, ordinal;
    int32_t lane; /* position; several threads entries may be the same thread */
    int32_t tid;
};

/* Text of an event, made once. */
struct label {
    char *name;     /* JSON string with quotes */
    char *argument; /* JSON key of args, or NULL */
    char *small;
    const char *category;
};

struct export {
    FILE *stream;
    const struct trace *trace;
    const struct export_choice *choice;
    struct export_summary *summary;
    struct label *labels;   /* [event_count] */
    struct thread *threads; /* [lane_count] */
    int64_t base_ns, from_ns, to_ns;
    bool first;
};

static bool chosen(const struct export *e, const struct trace_lane *lane) {
    if (e->choice->rank >= 0 && lane->rank != e->choice->rank) return false;
    return e->choice->launch_id < 0 || e->trace->launches[lane->launch].launch_id == e->choice->launch_id;
}

static bool in_window(const struct export *e, int64_t begin_ns, int64_t end_ns) {
    return begin_ns < e->to_ns && (end_ns > e->from_ns || (begin_ns == end_ns && begin_ns >= e->from_ns));
}

/* --- labels ---------------------------------------------------------------------------------------------------------- */

static char *json_text(struct arena *arena, const char *text) {
    char *buffer = NULL, *copy = NULL;
    size_t size;
    FILE *memory = open_memstream(&buffer, &size);
    if (memory == NULL) return NULL;
    text_write_json(memory, text);
    if (fclose(memory) == 0) copy = arena_copy(arena, buffer);
    free(buffer);
    return copy;
}

static int make_labels(struct export *e, struct arena *arena) {
    static const char *const categories[] = {"compute", "communicate", "overhead", "task", "wait"};
    e->labels = arena_allocate(arena, (size_t)e->trace->event_count + 1, sizeof *e->labels);
    if (e->labels == NULL) return -1;
    for (int32_t i = 0; i < e->trace->event_count; i++) {
        const struct trace_event *event = &e->trace->events[i];
        struct label *label = &e->labels[i];
        label->name = json_text(arena, event->name);
        if (event->argument[0] != '\0') label->argument = json_text(arena, event->argument);
        if (event->small[0] != '\0') label->small = json_text(arena, event->small);
        label->category = event->kind == TRACE_SIGNAL ? "signal" : categories[event->event_class];
        if (label->name == NULL) return -1;
    }
    return 0;
}

/* --- threads --------------------------------------------------------------------------------------------------------- */

static int by_launch_place(const void *a, const void *b) {
    const struct thread *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->sm != y->sm) return x->sm < y->sm ? -1 : 1;
    if (x->role != y->role) return x->role < y->role ? -1 : 1;
    if (x->ordinal != y->ordinal) return x->ordinal < y->ordinal ? -1 : 1;
    return x->lane < y->lane ? -1 : x->lane > y->lane;
}

static int by_lane(const void *a, const void *b) {
    const struct thread *x = a, *y = b;
    return x->lane < y->lane ? -1 : x->lane > y->lane;
}

/* Ordinals count lanes of the same launch, rank, SM and role: lanes are ordered by launch, rank, role, cta, warp, so those of
 * one SM need not stand together; sorting by launch first brings them so. */
static int by_launch(const void *a, const void *b, void *context) {
    const struct trace *trace = context;
    const struct thread *x = a, *y = b;
    int32_t p = trace->lanes[x->lane].launch, q = trace->lanes[y->lane].launch;
    if (p != q) return p < q ? -1 : 1;
    return by_launch_place(a, b);
}

static int make_threads(struct export *e, struct arena *arena) {
    size_t count = (size_t)e->trace->lane_count;
    e->threads = arena_allocate(arena, count + 1, sizeof *e->threads);
    if (e->threads == NULL) return -1;
    for (size_t i = 0; i < count; i++) {
        const struct trace_lane *lane = &e->trace->lanes[i];
        e->threads[i] = (struct thread){lane->rank, lane->sm, lane->role, 0, (int32_t)i, 0};
    }
    qsort_r(e->threads, count, sizeof *e->threads, by_launch, (void *)e->trace);
    for (size_t i = 1; i < count; i++) {
        struct thread *t = &e->threads[i];
        if (e->trace->lanes[t->lane].launch == e->trace->lanes[t[-1].lane].launch && t->rank == t[-1].rank && t->sm == t[-1].sm &&
            t->role == t[-1].role)
            t->ordinal = t[-1].ordinal + 1;
    }
    qsort(e->threads, count, sizeof *e->threads, by_launch_place);
    for (size_t i = 0; i < count; i++) {
        struct thread *t = &e->threads[i];
        bool same = i > 0 && t->rank == t[-1].rank && t->sm == t[-1].sm && t->role == t[-1].role && t->ordinal == t[-1].ordinal;
        bool same_rank = i > 0 && t->rank == t[-1].rank;
        t->tid = same ? t[-1].tid : same_rank ? t[-1].tid + 1 : 1;
    }
    return 0;
}

/* --- events ---------------------------------------------------------------------------------------------------------- */

static void begin_event(struct export *e) {
    fputs(e->first ? "\n" : ",\n", e->stream);
    e->first = false;
}

static void put_us(FILE *stream, const char *key, int64_t ns) {
    fprintf(stream, "\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void name_process(struct export *e, int64_t pid, const char *name, int64_t order) {
    begin_event(e);
    fprintf(e->stream, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%" PRId64 ",\"args\":{\"name\":", pid);
    text_write_json(e->stream, name);
    fputs("}}", e->stream);
    begin_event(e);
    fprintf(e->stream, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%" PRId64 ",\"args\":{\"sort_index\":%" PRId64 "}}",
            pid, order);
}

static void name_thread(struct export *e, int64_t pid, int64_t tid, const char *name) {
    begin_event(e);
    fprintf(e->stream, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%" PRId64 ",\"tid\":%" PRId64 ",\"args\":{\"name\":", pid, tid);
    text_write_json(e->stream, name);
    fputs("}}", e->stream);
    begin_event(e);
    fprintf(e->stream,
            "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%" PRId64 ",\"tid\":%" PRId64 ",\"args\":{\"sort_index\":%" PRId64 "}}",
            pid, tid, tid);
    e->summary->thread_count++;
}

static void begin_complete(struct export *e, const char *name_json, const char *category, int64_t pid, int64_t tid, int64_t begin_ns,
                           int64_t end_ns) {
    begin_event(e);
    fprintf(e->stream, "{\"ph\":\"X\",\"name\":%s,\"cat\":\"%s\",\"pid\":%" PRId64 ",\"tid\":%" PRId64 ",", name_json, category, pid, tid);
    put_us(e->stream, "ts", begin_ns - e->base_ns);
    fputc(',', e->stream);
    put_us(e->stream, "dur", end_ns > begin_ns ? end_ns - begin_ns : 0);
    e->summary->event_count++;
}

static void put_record(struct export *e, const struct thread *thread, const struct trace_record *record, enum trace_kind kind) {
    static const struct label unknown = {"\"unknown event\"", NULL, NULL, "unknown"};
    const struct label *label = record->event != TRACE_EVENT_UNKNOWN ? &e->labels[record->event] : &unknown;
    if (!in_window(e, record->begin_ns, record->end_ns)) return;
    if (kind == TRACE_SIGNAL) {
        begin_event(e);
        fprintf(e->stream, "{\"ph\":\"i\",\"s\":\"t\",\"name\":%s,\"cat\":\"signal\",\"pid\":%d,\"tid\":%d,", label->name,
                PID_RANK + thread->rank, thread->tid);
        put_us(e->stream, "ts", record->begin_ns - e->base_ns);
        e->summary->event_count++;
    } else {
        begin_complete(e, label->name, label->category, PID_RANK + thread->rank, thread->tid, record->begin_ns, record->end_ns);
    }
    if (label->argument != NULL || label->small != NULL) {
        fputs(",\"args\":{", e->stream);
        if (label->argument != NULL) fprintf(e->stream, "%s:%" PRIu32, label->argument, record->argument);
        if (label->small != NULL)
            fprintf(e->stream, "%s%s:%d", label->argument != NULL ? "," : "", label->small, record->small);
        fputc('}', e->stream);
    }
    fputc('}', e->stream);
}

static void put_lanes(struct export *e) {
    const struct trace *trace = e->trace;
    for (int32_t i = 0; i < trace->lane_count; i++) {
        const struct trace_lane *lane = &trace->lanes[i];
        if (!chosen(e, lane)) continue;
        for (int kind = 0; kind < TRACE_KIND_COUNT; kind++)
            for (size_t r = 0; r < lane->count[kind]; r++)
                put_record(e, &e->threads[i], &trace->records[kind][lane->first[kind] + r], (enum trace_kind)kind);
    }
}

/* threads are ordered by rank, SM, role here. */
static void name_lanes(struct export *e) {
    char name[160];
    int32_t rank = -1, tid = -1;
    for (int32_t i = 0; i < e->trace->lane_count; i++) {
        const struct thread *t = &e->threads[i];
        if (!chosen(e, &e->trace->lanes[t->lane])) continue;
        if (t->rank != rank) {
            snprintf(name, sizeof name, "rank %d", t->rank);
            name_process(e, PID_RANK + t->rank, name, t->rank + 2);
            rank = t->rank;
            tid = -1;
        }
        if (t->tid == tid) continue;
        tid = t->tid;
        const char *role = e->trace->roles[t->role].name;
        if (t->ordinal == 0)
            snprintf(name, sizeof name, "SM %d %s", t->sm, role);
        else
            snprintf(name, sizeof name, "SM %d %s %d", t->sm, role, t->ordinal + 1);
        name_thread(e, PID_RANK + t->rank, t->tid, name);
    }
}

/* --- kernels, copies, markers ---------------------------------------------------------------------------------------- */

static void put_named(struct export *e, const char *name, const char *category, int64_t pid, int64_t tid, int64_t begin_ns, int64_t end_ns) {
    char *buffer = NULL;
    size_t size;
    FILE *memory = open_memstream(&buffer, &size);
    if (memory == NULL) return;
    text_write_json(memory, name);
    if (fclose(memory) == 0) begin_complete(e, buffer, category, pid, tid, begin_ns, end_ns);
    free(buffer);
}

/* Streams seen so far, named once; more than the table holds stay unnamed. */
struct streams {
    int64_t pid[64], stream[64];
    int count;
};

static void name_stream(struct export *e, struct streams *seen, int32_t device, int64_t stream) {
    char name[64];
    for (int i = 0; i < seen->count; i++)
        if (seen->pid[i] == device && seen->stream[i] == stream) return;
    if (seen->count == 64) return;
    seen->pid[seen->count] = device;
    seen->stream[seen->count++] = stream;
    snprintf(name, sizeof name, "stream %" PRId64, stream);
    name_thread(e, PID_GPU + device, stream + 1, name);
}

static void put_gpus(struct export *e) {
    const struct trace *trace = e->trace;
    struct streams seen = {.count = 0};
    char name[160];
    for (int32_t d = 0; d < trace->device_count && (trace->kernel_count > 0 || trace->copy_count > 0); d++) {
        snprintf(name, sizeof name, "GPU %" PRId64 " %.100s: kernels and copies by stream", trace->devices[d].device_id, trace->devices[d].name);
        name_process(e, PID_GPU + d, name, 1);
    }
    for (int32_t i = 0; i < trace->kernel_count; i++) {
        const struct recorded_kernel *k = &trace->kernels[i];
        if (!in_window(e, k->begin_ns, k->end_ns)) continue;
        name_stream(e, &seen, k->device, k->stream_id);
        put_named(e, k->name, "kernel", PID_GPU + k->device, k->stream_id + 1, k->begin_ns, k->end_ns);
        fprintf(e->stream, ",\"args\":{\"grid id\":%" PRId64 ",\"CTAs\":%" PRId64 ",\"threads a CTA\":%" PRId64 ",\"registers\":%" PRId64
                ",\"shared bytes\":%" PRId64 "}}", k->grid_id, k->cta_count, k->thread_count, k->registers, k->shared_bytes);
    }
    for (int32_t i = 0; i < trace->copy_count; i++) {
        const struct recorded_copy *c = &trace->copies[i];
        if (!in_window(e, c->begin_ns, c->end_ns)) continue;
        name_stream(e, &seen, c->device, c->stream_id);
        put_named(e, c->kind, "copy", PID_GPU + c->device, c->stream_id + 1, c->begin_ns, c->end_ns);
        fprintf(e->stream, ",\"args\":{\"bytes\":%" PRId64 "}}", c->bytes);
    }
}

static void put_markers(struct export *e) {
    const struct trace *trace = e->trace;
    if (trace->marker_count > 0) name_process(e, PID_HOST, "host: NVTX ranges by thread", 0);
    for (int32_t i = 0; i < trace->marker_count; i++) {
        const struct recorded_marker *m = &trace->markers[i];
        if (!in_window(e, m->begin_ns, m->end_ns)) continue;
        put_named(e, m->name, "nvtx", PID_HOST, m->thread_id, m->begin_ns, m->end_ns);
        fputs(",\"args\":{\"domain\":", e->stream);
        text_write_json(e->stream, m->domain);
        fputs("}}", e->stream);
    }
}

/* --- the document ---------------------------------------------------------------------------------------------------- */

static void find_base(struct export *e) {
    const struct trace *trace = e->trace;
    int64_t base = INT64_MAX;
    for (int32_t i = 0; i < trace->lane_count; i++) {
        const struct trace_lane *lane = &trace->lanes[i];
        if (lane->begin_ns < base) base = lane->begin_ns;
        for (int kind = 0; kind < TRACE_KIND_COUNT; kind++) /* a record may begin before its lane opened */
            if (lane->count[kind] > 0 && trace->records[kind][lane->first[kind]].begin_ns < base)
                base = trace->records[kind][lane->first[kind]].begin_ns;
    }
    for (int32_t i = 0; i < trace->kernel_count; i++)
        if (trace->kernels[i].begin_ns < base) base = trace->kernels[i].begin_ns;
    for (int32_t i = 0; i < trace->copy_count; i++)
        if (trace->copies[i].begin_ns < base) base = trace->copies[i].begin_ns;
    for (int32_t i = 0; i < trace->marker_count; i++)
        if (trace->markers[i].begin_ns < base) base = trace->markers[i].begin_ns;
    e->base_ns = base == INT64_MAX ? 0 : base;
    double limit = 4e12; /* us: 46 days; beyond, the window is the whole */
    e->from_ns = e->base_ns + (e->choice->from_us > 0 && e->choice->from_us < limit ? (int64_t)(e->choice->from_us * 1e3) : 0);
    e->to_ns = e->choice->to_us < limit ? e->base_ns + (int64_t)(e->choice->to_us * 1e3) : INT64_MAX;
}

static int check_choice(const struct export *e, struct error *error) {
    for (int32_t i = 0; i < e->trace->lane_count; i++)
        if (chosen(e, &e->trace->lanes[i])) return 0;
    if (e->choice->rank >= 0 && e->choice->launch_id >= 0)
        return error_set(error, ERROR_USAGE, "the trace has no lane of rank %d in launch %" PRId64, e->choice->rank, e->choice->launch_id);
    if (e->choice->rank >= 0) return error_set(error, ERROR_USAGE, "the trace has no rank %d", e->choice->rank);
    if (e->choice->launch_id >= 0)
        return error_set(error, ERROR_USAGE, "the trace has no instrumented launch %" PRId64, e->choice->launch_id);
    return 0; /* no lanes at all: kernels and markers may still be there */
}

int export_chrome_write(FILE *stream, const struct trace *trace, const struct export_choice *choice, struct export_summary *summary,
                        struct error *error) {
    struct arena arena = {0};
    struct export e = {.stream = stream, .trace = trace, .choice = choice, .summary = summary, .first = true};
    *summary = (struct export_summary){0};
    int status = check_choice(&e, error);
    if (!status && (make_labels(&e, &arena) || make_threads(&e, &arena))) status = error_set(error, ERROR_FAILURE, "out of memory");
    if (!status) {
        find_base(&e);
        fprintf(stream, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"mokscope %s\",\"base_ns\":\"%" PRId64 "\"},\"traceEvents\":[",
                trace->run.tool_version, e.base_ns);
        name_lanes(&e);
        qsort(e.threads, (size_t)trace->lane_count, sizeof *e.threads, by_lane);
        put_lanes(&e);
        put_gpus(&e);
        put_markers(&e);
        fputs("\n]}\n", stream);
    }
    arena_release(&arena);
    return status;
}
