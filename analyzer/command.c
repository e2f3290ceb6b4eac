/* See command.h. */
#include "command.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yajl/yajl_gen.h>

#include "../probes/version.h"

#ifndef MOKSCOPE_GIT_REVISION
#define MOKSCOPE_GIT_REVISION ""
#endif

const char *command_version(void) { return MOKSCOPE_VERSION; }

const char *command_git_revision(void) { return MOKSCOPE_GIT_REVISION; }

static void json_pair(yajl_gen gen, const char *key, const char *value) {
    yajl_gen_string(gen, (const unsigned char *)key, strlen(key));
    yajl_gen_string(gen, (const unsigned char *)value, strlen(value));
}

int command_fail(const char *verb, const struct error *error, bool json) {
    int status = error_exit_status(error->code);
    if (!json) {
        fprintf(stderr, "mokscope %s: %s\n", verb, error->message);
        if (error->hint[0] != '\0') fprintf(stderr, "hint: %s\n", error->hint);
        return status;
    }
    yajl_gen gen = yajl_gen_alloc(NULL);
    const unsigned char *text = NULL;
    size_t length = 0;
    if (gen == NULL) return status;
    yajl_gen_map_open(gen);
    yajl_gen_string(gen, (const unsigned char *)"error", 5);
    yajl_gen_map_open(gen);
    json_pair(gen, "verb", verb);
    json_pair(gen, "message", error->message);
    json_pair(gen, "hint", error->hint);
    yajl_gen_string(gen, (const unsigned char *)"exit", 4);
    yajl_gen_integer(gen, status);
    yajl_gen_map_close(gen);
    yajl_gen_map_close(gen);
    yajl_gen_get_buf(gen, &text, &length);
    fwrite(text, 1, length, stdout);
    fputc('\n', stdout);
    yajl_gen_free(gen);
    return status;
}

void command_warn(const char *verb, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "mokscope %s: warning: ", verb);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}
