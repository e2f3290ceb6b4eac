/* See session.h.
 *
 * Locks: session.lock holds modules, rings and state; it is held over module functions (install, read), which run CUDA calls,
 * whose CUPTI callbacks come back here on the same thread: `own_call` stops them. The collector has its own lock. */
#include "session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock_reader.h"
#include "cupti_activity.h"
#include "driver.h"
#include "recorder_log.h"
#include "recorder_options.h"

enum {
    MODULES_MAXIMUM = 64,
    RINGS_MAXIMUM = 256,
    DEVICES_MAXIMUM = 64,
    DRAIN_INTERVAL_MS = 2,
    FLUSH_INTERVAL_MS = 400,
    HANG_LIMIT_MS = 3000, /* longer than the layer's own limit of a wait: those leave records of their own */
    HANGS_AT_ONCE = 64,
    LOCK_LIMIT_S = 5,
    CLOCK_INTERVAL_MS = 100 /* between readings of a device's clock: less says nothing about its drift */
};

enum session_state { SESSION_WAITING, SESSION_RECORDING, SESSION_ENDED };

static struct {
    pthread_mutex_t lock;
    pthread_once_t options_once;
    struct recorder_options options;
    _Atomic enum session_state state;
    _Atomic pid_t process_id; /* that records; 0: none yet */
    const struct mokscope_module *modules[MODULES_MAXIMUM];
    size_t module_count;
    _Atomic uint32_t version; /* counts modules that came and contexts that went: what threads have seen may be out of date */
    struct ring rings[RINGS_MAXIMUM];
    uint64_t context_numbers[RINGS_MAXIMUM]; /* of the rings' contexts */
    size_t ring_count;
    int64_t clock_read_ms[DEVICES_MAXIMUM];  /* when each device's clock was read last; 0: never */
    struct collector *collector;
    pthread_t drain_thread, watch_thread;
    int has_drain_thread, has_watch_thread;
    _Atomic int stopping;
    int subscribed;
} session = {.lock = PTHREAD_MUTEX_INITIALIZER, .options_once = PTHREAD_ONCE_INIT};

/* This thread is inside one of the recorder's own CUDA calls. */
static _Thread_local int own_call;

/* What this thread has already seen to. */
static _Thread_local void *seen_context;
static _Thread_local uint32_t seen_version;

static void read_options(void) { recorder_options_read(&session.options); }

static const struct recorder_options *options(void) {
    pthread_once(&session.options_once, read_options);
    return &session.options;
}

static int is_own_call(void) { return own_call; }

/* A child forked from the recorded process: CUDA does not work there, and a thread that is not there may hold the lock. */
static int is_forked_child(void) {
    pid_t process_id = session.process_id;
    return process_id != 0 && process_id != getpid();
}

static int64_t monotonic_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* --- begin ----------------------------------------------------------------------------------------------------------- */

/* "name.db" -> "name.PID.db". */
static void path_of_process(const char *path, char *out, size_t size) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash != NULL ? slash : path, '.');
    size_t stem = dot != NULL ? (size_t)(dot - path) : strlen(path);
    snprintf(out, size, "%.*s.%d%s", (int)stem, path, (int)getpid(), dot != NULL ? dot : "");
}

static void read_command(char *out, size_t size) {
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t length = file != NULL ? fread(out, 1, size - 1, file) : 0;
    if (file != NULL) fclose(file);
    while (length > 0 && out[length - 1] == '\0') length--;
    for (size_t i = 0; i < length; i++)
        if (out[i] == '\0') out[i] = ' ';
    out[length] = '\0';
}

/* Another process of the same command may have the name, or take it this moment. */
static int open_collector(void) {
    char command[4096], path[4096];
    struct error error = {0};
    read_command(command, sizeof command);
    snprintf(path, sizeof path, "%s", options()->output);
    int status = access(path, F_OK) == 0 ? ERROR_USAGE : collector_open(&session.collector, path, command, &error);
    if (status != 0 && access(path, F_OK) == 0) {
        error = (struct error){0};
        path_of_process(options()->output, path, sizeof path);
        status = collector_open(&session.collector, path, command, &error);
    }
    if (status == 0)
        recorder_debug("recording into %s", path);
    else
        recorder_warn("cannot record: %s%s%s", error.message, error.hint[0] != '\0' ? "; " : "", error.hint);
    return status == 0;
}

static void describe_versions(void) {
    char text[32];
    int version = driver_version();
    snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
    if (version != 0) collector_attribute(session.collector, "version", "cuda_driver", text, "");
    snprintf(text, sizeof text, "%u", cupti_version());
    collector_attribute(session.collector, "version", "cupti", cupti_version() != 0 ? text : "none", "");
    static const char *const levels[] = {"none", "task", "phase", "kblock"};
    collector_attribute(session.collector, "note", "probe_level", options()->probes ? levels[options()->level] : "none", "");
}

static void check_roles(void) {
    size_t length = 0;
    const char *name = recorder_options_unknown_role(options(), session.modules, session.module_count, &length);
    if (name != NULL && session.module_count > 0)
        recorder_warn("no module of this program has a role '%.*s'; a module of which no role is named records all of them",
                      (int)length, name);
}

static void *drain_while_running(void *unused);
static void session_end(void);

/* Under the lock. Registered here, after the application's CUDA runtime and driver registered theirs, session_end runs before
 * they are torn down. */
static void begin(void) {
    if (session.state != SESSION_WAITING) return;
    session.state = SESSION_ENDED;
    session.process_id = getpid();
    if (!open_collector()) return;
    session.state = SESSION_RECORDING;
    for (size_t i = 0; i < session.module_count; i++) collector_module(session.collector, session.modules[i]);
    check_roles();
    if (options()->activity) cupti_activity_begin(session.collector);
    describe_versions();
    session.has_drain_thread = pthread_create(&session.drain_thread, NULL, drain_while_running, NULL) == 0;
    if (!session.has_drain_thread) recorder_warn("cannot start the draining thread: rings are read at exit only");
    if (atexit(session_end) != 0) recorder_warn("cannot register the end of the recording: the trace will be cut");
}

struct collector *session_collector(void) {
    if (options()->output == NULL || is_forked_child()) return NULL;
    pthread_mutex_lock(&session.lock);
    begin();
    struct collector *collector = session.state == SESSION_RECORDING ? session.collector : NULL;
    pthread_mutex_unlock(&session.lock);
    return collector;
}

void session_attach(const struct mokscope_module *module) {
    if (options()->output == NULL || !options()->probes || is_forked_child()) return;
    if (module->size != sizeof *module || module->version != MOKSCOPE_PROBE_VERSION) {
        recorder_warn("module '%s' was built with probe format %u, the recorder reads %u: it is not recorded", module->name,
                      module->version, (unsigned)MOKSCOPE_PROBE_VERSION);
        return;
    }
    pthread_mutex_lock(&session.lock);
    if (session.module_count < MODULES_MAXIMUM)
        session.modules[session.module_count++] = module;
    else
        recorder_warn("more than %d modules: '%s' is not recorded", MODULES_MAXIMUM, module->name);
    session.version++;
    pthread_mutex_unlock(&session.lock);
    recorder_debug("module '%s' attached", module->name);
}

/* --- clocks ---------------------------------------------------------------------------------------------------------- */

/* Under the lock, the device's context current. Kernels of CUPTI say more about the clock than this could. */
static void read_clock(int32_t device_id) {
    struct clock_reading readings[CLOCK_READER_ROUNDS];
    if (cupti_activity_is_on() || device_id < 0 || device_id >= DEVICES_MAXIMUM) return;
    int64_t *last_ms = &session.clock_read_ms[device_id], now_ms = monotonic_ms();
    if (*last_ms != 0 && now_ms - *last_ms < CLOCK_INTERVAL_MS) return;
    *last_ms = now_ms;
    int count = clock_reader_read(readings);
    recorder_debug("device %d: %d readings of its clock", device_id, count);
    for (int i = 0; i < count; i++) collector_reading(session.collector, device_id, &readings[i]);
}

/* --- rings ----------------------------------------------------------------------------------------------------------- */

static void install_ring(const struct mokscope_module *module, void *context, int32_t device_id) {
    struct error error = {0};
    if (session.ring_count == RINGS_MAXIMUM) {
        collector_loss(session.collector, "probes", "ring", 1, "more contexts and modules than the recorder follows");
        return;
    }
    struct mokscope_ring request = {NULL, NULL, NULL, options()->lanes, options()->records, options()->level,
                                    recorder_options_role_mask(options(), module)};
    struct ring *ring = &session.rings[session.ring_count];
    if (ring_install(ring, module, &request, device_id, context, &error) != 0) {
        recorder_warn("%s%s%s", error.message, error.hint[0] != '\0' ? "; " : "", error.hint);
        collector_loss(session.collector, "probes", "ring", 1, error.message);
        ring->module = module; /* remembered as unreadable, so that it is not tried at every launch */
        ring->context = context;
    }
    session.context_numbers[session.ring_count++] = driver_context_number(context);
    collector_module(session.collector, module);
    recorder_debug("rings of module '%s' on device %d: %s", module->name, device_id, ring->readable ? "installed" : "failed");
}

static int has_ring(const struct mokscope_module *module, const void *context) {
    for (size_t i = 0; i < session.ring_count; i++)
        if (session.rings[i].module == module && session.rings[i].context == context) return 1;
    return 0;
}

static void describe_device(void) {
    char name[256];
    int32_t device_id = 0;
    struct trace_device row;
    if (driver_device_current(&device_id) != 0 || collector_has_device(session.collector, device_id)) return;
    if (driver_device_describe(&row, name) == 0) collector_device(session.collector, &row);
}

void session_context_ready(void) {
    if (own_call || options()->output == NULL) return;
    void *context = driver_context_current();
    uint32_t version = session.version;
    if (context == NULL || (context == seen_context && seen_version == version) || is_forked_child()) return;
    own_call = 1;
    pthread_mutex_lock(&session.lock);
    begin();
    if (session.state == SESSION_RECORDING) {
        int32_t device_id = 0;
        describe_device();
        driver_device_current(&device_id);
        for (size_t i = 0; i < session.module_count; i++)
            if (!has_ring(session.modules[i], context)) install_ring(session.modules[i], context, device_id);
        if (session.module_count > 0) read_clock(device_id);
    }
    seen_context = context;
    seen_version = version;
    pthread_mutex_unlock(&session.lock);
    own_call = 0;
}

/* A context that went without a word: its memory may be somebody else's now. */
static void check_context(struct ring *ring) {
    uint64_t number = driver_context_number(ring->context);
    int same = number == 0 || number == session.context_numbers[ring - session.rings];
    if (same && driver_context_set(ring->context) == 0) return;
    char detail[512];
    snprintf(detail, sizeof detail, "module '%s': the context was gone before its last lanes had been read", ring->module->name);
    collector_loss(session.collector, "probes", "ring", 1, detail);
    ring->readable = 0;
    ring->context = NULL;
    session.version++;
}

/* Under the lock. Blocks of one ring to the collector. */
static void drain_ring(struct ring *ring, int final) {
    struct lane_block *blocks = NULL;
    struct error error = {0};
    if (ring->readable) check_context(ring);
    if (!ring->readable) return;
    if (ring_drain(ring, final, &blocks, &error) != 0) {
        recorder_warn("%s", error.message);
        collector_loss(session.collector, "probes", "ring", 1, error.message);
    }
    collector_lanes(session.collector, blocks);
}

/* The context is about to go, or the program to end. */
static void finish_ring(struct ring *ring) {
    char detail[512];
    drain_ring(ring, 1);
    if (ring->readable) read_clock(ring->device_id);
    snprintf(detail, sizeof detail, "module '%s': no lane was free: raise --lanes", ring->module->name);
    collector_loss(session.collector, "probes", "lane", ring->lost_lanes, detail);
    ring_release(ring);
    ring->lost_lanes = 0;
    ring->context = NULL; /* a later context may have the same address */
}

/* Under the lock. */
static void finish_context(void *context) {
    void *current = driver_context_current();
    for (size_t i = 0; i < session.ring_count; i++)
        if (session.rings[i].context == context) finish_ring(&session.rings[i]);
    driver_context_set(current);
    session.version++;
}

/* The driver may hold locks here that the draining thread waits for: better to lose a context's last lanes than to stop the
 * program for ever. */
static void context_ending(void *context) {
    struct timespec limit;
    if (own_call || session.state != SESSION_RECORDING || is_forked_child()) return;
    own_call = 1;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += LOCK_LIMIT_S;
    if (pthread_mutex_timedlock(&session.lock, &limit) == 0) {
        if (session.state == SESSION_RECORDING) finish_context(context);
        pthread_mutex_unlock(&session.lock);
    } else {
        recorder_warn("a context ended while its rings were being read: its last lanes are lost"); /* check_context counts it */
    }
    own_call = 0;
}

static void look_for_hangs(struct ring *ring, int64_t now_ms) {
    struct mokscope_lane_header hangs[HANGS_AT_ONCE];
    size_t count = ring_hangs(ring, now_ms, HANG_LIMIT_MS, hangs, HANGS_AT_ONCE);
    for (size_t i = 0; i < count; i++) collector_stuck(session.collector, ring->module, &hangs[i]);
}

static void drain_all(void) {
    pthread_mutex_lock(&session.lock);
    for (size_t i = 0; !session.stopping && i < session.ring_count; i++) {
        drain_ring(&session.rings[i], 0);
        look_for_hangs(&session.rings[i], monotonic_ms());
    }
    pthread_mutex_unlock(&session.lock);
}

static void *drain_while_running(void *unused) {
    const struct timespec pause = {0, DRAIN_INTERVAL_MS * 1000000L};
    int64_t flushed_ms = monotonic_ms();
    (void)unused;
    own_call = 1;
    while (!session.stopping) {
        nanosleep(&pause, NULL);
        drain_all();
        if (monotonic_ms() - flushed_ms < FLUSH_INTERVAL_MS) continue;
        collector_flush(session.collector);
        cupti_activity_flush(0); /* may take its time while kernels run */
        collector_flush(session.collector);
        flushed_ms = monotonic_ms();
    }
    return NULL;
}

/* --- end ------------------------------------------------------------------------------------------------------------- */

static void session_end(void) {
    struct error error = {0};
    if (session.state != SESSION_RECORDING || is_forked_child()) return;
    own_call = 1;
    session.stopping = 1;
    if (session.has_drain_thread) pthread_join(session.drain_thread, NULL);
    if (session.has_watch_thread) pthread_join(session.watch_thread, NULL);
    cupti_activity_flush(1);
    pthread_mutex_lock(&session.lock);
    session.state = SESSION_ENDED;
    for (size_t i = 0; i < session.ring_count; i++) finish_ring(&session.rings[i]);
    cupti_activity_end();
    struct collector *collector = session.collector;
    session.collector = NULL;
    pthread_mutex_unlock(&session.lock);
    if (collector_close(collector, "complete", &error) != 0)
        recorder_warn("%s%s%s", error.message, error.hint[0] != '\0' ? "; " : "", error.hint);
    recorder_debug("recording ended");
}

/* --- contexts -------------------------------------------------------------------------------------------------------- */

/* Without CUPTI nobody says when a context is there: looks whether devices have their primary one, which is what the CUDA runtime
 * uses. A program makes it long before its first kernel. */
static void *watch_contexts(void *unused) {
    const struct timespec pause = {0, 1000000L};
    void *contexts[DEVICES_MAXIMUM] = {NULL};
    (void)unused;
    while (!session.stopping) {
        nanosleep(&pause, NULL);
        int count = driver_device_count();
        for (int32_t device = 0; device < count && device < DEVICES_MAXIMUM; device++) {
            if (contexts[device] == NULL) contexts[device] = driver_primary_context(device);
            if (contexts[device] != NULL && driver_context_set(contexts[device]) == 0) session_context_ready();
        }
    }
    return NULL;
}

void session_driver_ready(void) {
    static const struct cupti_events events = {session_context_ready, context_ending, is_own_call};
    if (options()->output == NULL || is_forked_child()) return;
    pthread_mutex_lock(&session.lock);
    int subscribe = !session.subscribed;
    session.subscribed = 1;
    pthread_mutex_unlock(&session.lock);
    if (!subscribe || cupti_subscribe(&events)) return;
    session.has_watch_thread = pthread_create(&session.watch_thread, NULL, watch_contexts, NULL) == 0;
    if (!session.has_watch_thread) recorder_warn("cannot start the thread that looks for contexts: no probes are recorded");
}
