/* See recorder_log.h. A message is one write, so that lines of several threads do not mix. */
#include "recorder_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void say(const char *kind, const char *format, va_list arguments) {
    char line[1024];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int length = snprintf(line, sizeof line, "mokscope recorder[%d] %ld.%06ld: %s", (int)getpid(),
                          (long)(now.tv_sec % 1000), now.tv_nsec / 1000, kind);
    int more = vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    if (more > 0) length += more;
    if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)length) < 0) return;
}

void recorder_warn(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say("", format, arguments);
    va_end(arguments);
}

void recorder_debug(const char *format, ...) {
    static int known, debug;
    if (!known) {
        const char *level = getenv("MOKSCOPE_LOG");
        debug = level != NULL && strcmp(level, "debug") == 0;
        known = 1;
    }
    if (!debug) return;
    va_list arguments;
    va_start(arguments, format);
    say("debug: ", format, arguments);
    va_end(arguments);
}
