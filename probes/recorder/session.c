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

#include "cupti_activity.h"
#include "driver.h"
#include "recorder_log.h"
#include "recorder_options.h"

enum { MODULES_MAXIMUM = 64, RINGS_MAXIMUM = 256, DRAIN_INTERVAL_MS = 2, FLUSH_INTERVAL_MS = 400 };

enum session_state { SESSION_WAITING, SESSION_RECORDING, SESSION_ENDED };

static struct {
    pthread_mutex_t lock;
    pthread_once_t options_once;
    struct recorder_options options;
    enum session_state state;
    pid_t process_id; /* that records */
    const struct mokscope_module *modules[MODULES_MAXIMUM];
    _Atomic size_t module_count;
    struct ring rings[RINGS_MAXIMUM];
    size_t ring_count;
    struct collector *collector;
    pthread_t thread;
    int has_thread;
    _Atomic int stopping;
    int subscribed;
} session = {.lock = PTHREAD_MUTEX_INITIALIZER, .options_once = PTHREAD_ONCE_INIT};

/* This thread is inside one of the recorder's own CUDA calls. */
static _Thread_local int own_call;

/* What this thread has already seen to. */
static _Thread_local void *seen_context;
static _Thread_local size_t seen_modules;

static void read_options(void) { recorder_options_read(&session.options); }

static const struct recorder_options *options(void) {
    pthread_once(&session.options_once, read_options);
    return &session.options;
}

static int is_own_call(void) { return own_call; }

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

static int open_collector(void) {
    char command[4096], path[4096];
    struct error error = {0};
    read_command(command, sizeof command);
    snprintf(path, sizeof path, "%s", options()->output);
    if (access(path, F_OK) == 0) path_of_process(options()->output, path, sizeof path);
    if (collector_open(&session.collector, path, command, &error) == 0) {
        recorder_debug("recording into %s", path);
        return 1;
    }
    recorder_warn("cannot record: %s%s%s", error.message, error.hint[0] != '\0' ? "; " : "", error.hint);
    return 0;
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

static void *drain_while_running(void *unused);
static void session_end(void);

/* Under the lock. Registered here, after the application's CUDA runtime and driver registered theirs, session_end runs before
 * they are torn down. */
static void begin(void) {
    if (session.state != SESSION_WAITING) return;
    session.state = SESSION_ENDED;
    if (!open_collector()) return;
    session.state = SESSION_RECORDING;
    session.process_id = getpid();
    for (size_t i = 0; i < session.module_count; i++) collector_module(session.collector, session.modules[i]);
    if (options()->activity) cupti_activity_begin(session.collector);
    describe_versions();
    session.has_thread = pthread_create(&session.thread, NULL, drain_while_running, NULL) == 0;
    if (!session.has_thread) recorder_warn("cannot start the draining thread: rings are read at exit only");
    atexit(session_end);
}

struct collector *session_collector(void) {
    if (options()->output == NULL) return NULL;
    pthread_mutex_lock(&session.lock);
    begin();
    struct collector *collector = session.state == SESSION_RECORDING && session.process_id == getpid() ? session.collector : NULL;
    pthread_mutex_unlock(&session.lock);
    return collector;
}

void session_attach(const struct mokscope_module *module) {
    if (options()->output == NULL || !options()->probes) return;
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
    pthread_mutex_unlock(&session.lock);
    recorder_debug("module '%s' attached", module->name);
}

/* --- rings ----------------------------------------------------------------------------------------------------------- */

static void install_ring(const struct mokscope_module *module, void *context, int32_t device_id) {
    struct error error = {0};
    if (session.ring_count == RINGS_MAXIMUM) {
        collector_loss(session.collector, module->name, "rings", 1, "more contexts and modules than the recorder follows");
        return;
    }
    struct mokscope_ring request = {NULL, NULL, NULL, options()->lanes, options()->records, options()->level,
                                    recorder_options_role_mask(options(), module)};
    struct ring *ring = &session.rings[session.ring_count];
    if (ring_install(ring, module, &request, device_id, context, &error) != 0) {
        recorder_warn("%s%s%s", error.message, error.hint[0] != '\0' ? "; " : "", error.hint);
        collector_loss(session.collector, module->name, "rings", 1, error.message);
        ring->module = module; /* remembered as unreadable, so that it is not tried at every launch */
        ring->context = context;
    }
    session.ring_count++;
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
    if (context == NULL || (context == seen_context && seen_modules == session.module_count)) return;
    own_call = 1;
    pthread_mutex_lock(&session.lock);
    begin();
    if (session.state == SESSION_RECORDING && session.process_id == getpid()) {
        int32_t device_id = 0;
        describe_device();
        driver_device_current(&device_id);
        for (size_t i = 0; i < session.module_count; i++)
            if (!has_ring(session.modules[i], context)) install_ring(session.modules[i], context, device_id);
    }
    seen_context = context;
    seen_modules = session.module_count;
    pthread_mutex_unlock(&session.lock);
    own_call = 0;
}

/* Under the lock. Blocks of one ring to the collector. */
static void drain_ring(struct ring *ring, int final) {
    struct lane_block *blocks = NULL;
    struct error error = {0};
    if (!ring->readable || driver_context_set(ring->context) != 0) return;
    if (ring_drain(ring, final, &blocks, &error) != 0) {
        recorder_warn("%s", error.message);
        collector_loss(session.collector, ring->module->name, "ring reads", 1, error.message);
    }
    collector_lanes(session.collector, blocks);
}

static void finish_ring(struct ring *ring) {
    if (!ring->readable) return;
    drain_ring(ring, 1);
    if (ring->lost_lanes > 0)
        collector_loss(session.collector, ring->module->name, "lanes", ring->lost_lanes, "no lane was free: raise --lanes");
    ring->readable = 0;
}

static void context_ending(void *context) {
    if (own_call || session.state != SESSION_RECORDING) return;
    own_call = 1;
    pthread_mutex_lock(&session.lock);
    void *current = driver_context_current();
    for (size_t i = 0; session.state == SESSION_RECORDING && i < session.ring_count; i++)
        if (session.rings[i].context == context) finish_ring(&session.rings[i]);
    driver_context_set(current);
    pthread_mutex_unlock(&session.lock);
    own_call = 0;
}

static void *drain_while_running(void *unused) {
    const struct timespec pause = {0, DRAIN_INTERVAL_MS * 1000000L};
    int elapsed_ms = 0;
    (void)unused;
    own_call = 1;
    while (!session.stopping) {
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&session.lock);
        for (size_t i = 0; !session.stopping && i < session.ring_count; i++) drain_ring(&session.rings[i], 0);
        pthread_mutex_unlock(&session.lock);
        elapsed_ms += DRAIN_INTERVAL_MS;
        if (elapsed_ms < FLUSH_INTERVAL_MS) continue;
        elapsed_ms = 0;
        cupti_activity_flush(0);
        collector_flush(session.collector);
    }
    return NULL;
}

/* --- end ------------------------------------------------------------------------------------------------------------- */

static void session_end(void) {
    struct error error = {0};
    if (session.state != SESSION_RECORDING || session.process_id != getpid()) return;
    own_call = 1;
    session.stopping = 1;
    if (session.has_thread) pthread_join(session.thread, NULL);
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

void session_driver_ready(void) {
    static const struct cupti_events events = {session_context_ready, context_ending, is_own_call};
    if (options()->output == NULL) return;
    pthread_mutex_lock(&session.lock);
    int subscribe = !session.subscribed;
    session.subscribed = 1;
    pthread_mutex_unlock(&session.lock);
    if (subscribe) cupti_subscribe(&events);
}
