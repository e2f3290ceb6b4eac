/* See record_run.h. */
#include "record_run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* --- signals --------------------------------------------------------------------------------------------------------- */

static const int passed_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED_SIGNALS = sizeof passed_signals / sizeof passed_signals[0] };

struct signals {
    sigset_t mask; /* before they were held back */
    struct sigaction actions[PASSED_SIGNALS];
};

static volatile sig_atomic_t child_process;

/* What the keyboard sends goes to the terminal's whole foreground group, the program included. */
static void pass_on(int number, siginfo_t *information, void *context) {
    (void)context;
    int from_keyboard = (number == SIGINT || number == SIGQUIT) && information->si_code == SI_KERNEL;
    if (child_process > 0 && !from_keyboard) kill((pid_t)child_process, number);
}

/* Holds signals back until child_process is known, so that none is lost between. What is ignored (nohup) stays ignored, for the
 * program too. */
static void signals_hold(struct signals *signals) {
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t held;
    sigemptyset(&held);
    for (int i = 0; i < PASSED_SIGNALS; i++) sigaddset(&held, passed_signals[i]);
    sigprocmask(SIG_BLOCK, &held, &signals->mask);
    for (int i = 0; i < PASSED_SIGNALS; i++) {
        sigaction(passed_signals[i], NULL, &signals->actions[i]);
        if (signals->actions[i].sa_handler != SIG_IGN) sigaction(passed_signals[i], &action, NULL);
    }
}

static void signals_release(const struct signals *signals) { sigprocmask(SIG_SETMASK, &signals->mask, NULL); }

static void signals_restore(const struct signals *signals) {
    for (int i = 0; i < PASSED_SIGNALS; i++) sigaction(passed_signals[i], &signals->actions[i], NULL);
}

/* --- the program ----------------------------------------------------------------------------------------------------- */

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
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {}
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* What the child reported: 0, or the error's code. */
static int read_report(int report, struct error *error) {
    struct error failed;
    ssize_t length;
    do length = read(report, &failed, sizeof failed);
    while (length < 0 && errno == EINTR);
    if (length != (ssize_t)sizeof failed) return ERROR_NONE;
    if (error != NULL) *error = failed;
    return failed.code;
}

static int spawn(const struct record_options *options, const char *output, const char *library, char *const argv[], int *status,
                 struct error *error) {
    struct signals signals;
    int report[2];
    if (pipe(report) != 0) return error_set(error, ERROR_FAILURE, "cannot make a pipe: %s", strerror(errno));
    fflush(NULL);
    signals_hold(&signals);
    pid_t process = fork();
    if (process == 0) {
        close(report[0]);
        signals_restore(&signals);
        signals_release(&signals);
        if (fcntl(report[1], F_SETFD, FD_CLOEXEC) != 0) _exit(126);
        run_child(options, output, library, argv, report[1]);
    }
    if (process > 0) child_process = process;
    signals_release(&signals);
    close(report[1]);
    int code = process < 0 ? error_set(error, ERROR_FAILURE, "cannot start a process: %s", strerror(errno)) : read_report(report[0], error);
    close(report[0]);
    if (process > 0) {
        int ended = wait_for(process);
        if (code == ERROR_NONE) *status = ended;
    }
    child_process = 0;
    signals_restore(&signals);
    return code;
}

/* --- the trace ------------------------------------------------------------------------------------------------------- */

/* Absolute, as the program may change its folder. */
static int absolute_path(const char *path, char *out, size_t size, struct error *error) {
    char folder[PATH_MAX];
    if (path[0] != '/' && getcwd(folder, sizeof folder) == NULL)
        return error_set(error, ERROR_FAILURE, "cannot find the current folder: %s", strerror(errno));
    int length = path[0] == '/' ? snprintf(out, size, "%s", path) : snprintf(out, size, "%s/%s", folder, path);
    return (size_t)length < size ? ERROR_NONE : error_set(error, ERROR_USAGE, "the path of '%s' is too long", path);
}

/* A program that described its run and then found no GPU leaves nothing worth a file. */
static int finish(const char *output, int status, struct trace_summary *summary, struct error *error) {
    if (access(output, F_OK) != 0) return ERROR_NONE;
    int code = trace_write_finalise(output, status, summary, error);
    if (code != ERROR_NONE || summary->device_count > 0) return code;
    memset(summary, 0, sizeof *summary);
    return remove(output) == 0 ? ERROR_NONE : error_set(error, ERROR_FAILURE, "cannot remove '%s': %s", output, strerror(errno));
}

int record_run(const struct record_options *options, char *const argv[], int *status, struct trace_summary *summary,
               struct error *error) {
    char library[PATH_MAX], output[PATH_MAX], old[PATH_MAX + 32];
    *status = -1;
    memset(summary, 0, sizeof *summary);
    int code = check_options(options, error);
    if (code == ERROR_NONE) code = find_library(library, sizeof library, error);
    if (code == ERROR_NONE) code = absolute_path(options->output, output, sizeof output, error);
    if (code != ERROR_NONE) return code;
    snprintf(old, sizeof old, "%s.old.%d", output, (int)getpid());
    bool replaces = options->force && access(output, F_OK) == 0;
    if (replaces && rename(output, old) != 0)
        return error_set(error, ERROR_FAILURE, "cannot move '%s' aside: %s", output, strerror(errno));
    code = spawn(options, output, library, argv, status, error);
    if (code == ERROR_NONE) code = finish(output, *status, summary, error);
    if (replaces && access(output, F_OK) == 0)
        remove(old);
    else if (replaces && rename(old, output) != 0 && code == ERROR_NONE)
        code = error_set(error, ERROR_FAILURE, "cannot move the old trace back from '%s': %s", old, strerror(errno));
    return code;
}

/* Is name "STEM.digits.EXTENSION" for output's "STEM.EXTENSION"? */
static bool is_other(const char *name, const char *output) {
    const char *dot = strrchr(output, '.');
    size_t stem = dot != NULL ? (size_t)(dot - output) : strlen(output);
    if (strncmp(name, output, stem) != 0 || name[stem] != '.') return false;
    size_t digits = strspn(name + stem + 1, "0123456789");
    return digits > 0 && strcmp(name + stem + 1 + digits, dot != NULL ? dot : "") == 0;
}

int record_run_others(const char *output, time_t since, char *name, size_t size) {
    const char *slash = strrchr(output, '/'), *file = slash != NULL ? slash + 1 : output;
    int folder_length = (int)(file - output), count = 0;
    char folder[PATH_MAX], path[2 * PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", folder_length, output);
    DIR *directory = opendir(folder[0] != '\0' ? folder : ".");
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        struct stat information;
        snprintf(path, sizeof path, "%s%s", folder, entry->d_name);
        if (!is_other(entry->d_name, file) || stat(path, &information) != 0 || information.st_mtime < since) continue;
        if (trace_write_finalise(path, -1, NULL, NULL) != ERROR_NONE) continue;
        snprintf(name, size, "%s", path);
        count++;
    }
    if (directory != NULL) closedir(directory);
    return count;
}
