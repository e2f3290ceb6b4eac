/* See record_run.h. */
#include "record_run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void record_options_init(struct record_options *options) {
    memset(options, 0, sizeof *options);
    options->output = "trace.db";
}

/* Beside the binary, or where `make install` puts it. */
static int find_library(char *path, size_t size, struct error *error) {
    static const char *const places[] = {"", "../lib/mokscope/"};
    char binary[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", binary, sizeof binary - 1);
    if (length < 0) return error_set(error, ERROR_FAILURE, "cannot find this program's own path: %s", strerror(errno));
    binary[length] = '\0';
    *(strrchr(binary, '/') + 1) = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if ((size_t)snprintf(path, size, "%s%slibmokscope_recorder.so", binary, places[i]) < size && access(path, R_OK) == 0)
            return ERROR_NONE;
    }
    error_set(error, ERROR_FAILURE, "libmokscope_recorder.so is not beside the binary in '%s'", binary);
    return error_hint(error, "it is built by make where the CUDA toolkit is found");
}

static int check_options(const struct record_options *options, struct error *error) {
    const char *level = options->level;
    if (level != NULL && strcmp(level, "task") != 0 && strcmp(level, "phase") != 0 && strcmp(level, "kblock") != 0) {
        error_set(error, ERROR_USAGE, "unknown level '%s'", level);
        return error_hint(error, "levels: task, phase, kblock");
    }
    return trace_write_check_path(options->output, options->force, error);
}

static int set_variable(const char *name, const char *value, struct error *error) {
    int status = value != NULL ? setenv(name, value, 1) : unsetenv(name);
    return status == 0 ? ERROR_NONE : error_set(error, ERROR_FAILURE, "setting %s failed: %s", name, strerror(errno));
}

/* In the child only. */
static int set_environment(const struct record_options *options, const char *output, const char *library, struct error *error) {
    char preload[2 * PATH_MAX], lanes[32], records[32];
    const char *before = getenv("LD_PRELOAD");
    snprintf(preload, sizeof preload, "%s%s%s", library, before != NULL && before[0] != '\0' ? ":" : "", before != NULL ? before : "");
    snprintf(lanes, sizeof lanes, "%lld", (long long)options->lanes);
    snprintf(records, sizeof records, "%lld", (long long)options->records);
    int code = set_variable("LD_PRELOAD", preload, error);
    if (code == ERROR_NONE) code = set_variable("CUDA_INJECTION64_PATH", library, error);
    if (code == ERROR_NONE) code = set_variable("NVTX_INJECTION64_PATH", library, error);
    if (code == ERROR_NONE) code = set_variable("MOKSCOPE_OUTPUT", output, error);
    if (code == ERROR_NONE) code = set_variable("MOKSCOPE_LEVEL", options->level, error);
    if (code == ERROR_NONE) code = set_variable("MOKSCOPE_ROLES", options->roles, error);
    if (code == ERROR_NONE) code = set_variable("MOKSCOPE_LANES", options->lanes > 0 ? lanes : NULL, error);
    if (code == ERROR_NONE) code = set_variable("MOKSCOPE_RECORDS", options->records > 0 ? records : NULL, error);
    if (code == ERROR_NONE) code = set_variable("MOKSCOPE_PROBES", options->no_probes ? "off" : NULL, error);
    if (code == ERROR_NONE) code = set_variable("MOKSCOPE_ACTIVITY", options->no_activity ? "off" : NULL, error);
    return code;
}

static volatile sig_atomic_t child_process;

static void pass_on(int signal_number) {
    if (child_process > 0) kill((pid_t)child_process, signal_number);
}

/* The child reports a failed exec through a pipe that closes on success. */
static void run_child(const struct record_options *options, const char *output, const char *library, char *const argv[], int report) {
    struct error error = {0};
    if (set_environment(options, output, library, &error) == ERROR_NONE) {
        execvp(argv[0], argv);
        error_set(&error, ERROR_FAILURE, "cannot run '%s': %s", argv[0], strerror(errno));
        error_hint(&error, "is it in PATH, and executable?");
    }
    ssize_t written = write(report, &error, sizeof error);
    _exit(written < 0 ? 126 : 127);
}

static int wait_for(pid_t process) {
    struct sigaction action = {.sa_handler = pass_on}, old_interrupt, old_terminate;
    int status = 0;
    child_process = process;
    sigaction(SIGINT, &action, &old_interrupt);
    sigaction(SIGTERM, &action, &old_terminate);
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {}
    child_process = 0;
    sigaction(SIGINT, &old_interrupt, NULL);
    sigaction(SIGTERM, &old_terminate, NULL);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int spawn(const struct record_options *options, const char *output, const char *library, char *const argv[], int *status,
                 struct error *error) {
    int report[2];
    if (pipe(report) != 0) return error_set(error, ERROR_FAILURE, "cannot make a pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t process = fork();
    if (process == 0) {
        close(report[0]);
        if (fcntl(report[1], F_SETFD, FD_CLOEXEC) != 0) _exit(126);
        run_child(options, output, library, argv, report[1]);
    }
    close(report[1]);
    if (process < 0) {
        close(report[0]);
        return error_set(error, ERROR_FAILURE, "cannot start a process: %s", strerror(errno));
    }
    struct error failed;
    ssize_t length = read(report[0], &failed, sizeof failed);
    close(report[0]);
    *status = wait_for(process);
    if (length != (ssize_t)sizeof failed) return ERROR_NONE;
    *status = -1;
    if (error != NULL) *error = failed;
    return failed.code;
}

int record_run(const struct record_options *options, char *const argv[], int *status, struct trace_summary *summary,
               struct error *error) {
    char library[PATH_MAX], output[PATH_MAX];
    *status = -1;
    memset(summary, 0, sizeof *summary);
    if (check_options(options, error) != ERROR_NONE || find_library(library, sizeof library, error) != ERROR_NONE) return error->code;
    /* Absolute, as the program may change its folder. An old trace is moved away only now, when the run is certain to start, and
     * comes back if the program leaves no new one. */
    if (options->output[0] == '/')
        snprintf(output, sizeof output, "%s", options->output);
    else if (getcwd(output, sizeof output / 2) == NULL || strlen(output) + strlen(options->output) + 2 > sizeof output)
        return error_set(error, ERROR_FAILURE, "the path of '%s' is too long", options->output);
    else
        snprintf(output + strlen(output), sizeof output - strlen(output), "/%s", options->output);
    char old[PATH_MAX + 8];
    snprintf(old, sizeof old, "%s.old", output);
    bool replaced = options->force && access(output, F_OK) == 0;
    if (replaced && rename(output, old) != 0)
        return error_set(error, ERROR_FAILURE, "cannot move '%s' aside: %s", output, strerror(errno));
    int code = spawn(options, output, library, argv, status, error);
    bool recorded = access(output, F_OK) == 0;
    if (replaced && recorded) remove(old);
    if (replaced && !recorded) rename(old, output);
    if (code == ERROR_NONE && recorded) code = trace_write_finalise(output, *status, summary, error);
    return code;
}
