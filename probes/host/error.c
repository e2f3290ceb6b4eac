/* See error.h. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *error, int code, const char *format, ...) {
    if (error == NULL || error->code != ERROR_NONE) return code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    error->code = code;
    error->hint[0] = '\0';
    return code;
}

int error_hint(struct error *error, const char *format, ...) {
    if (error == NULL) return ERROR_FAILURE;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->hint, sizeof error->hint, format, arguments);
    va_end(arguments);
    return error->code;
}

int error_context(struct error *error, const char *format, ...) {
    if (error == NULL) return ERROR_FAILURE;
    char context[sizeof error->message], origin[sizeof error->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
    memcpy(origin, error->message, sizeof origin);
    int length = snprintf(error->message, sizeof error->message, "%s: ", context);
    if (length >= 0 && (size_t)length < sizeof error->message)
        snprintf(error->message + length, sizeof error->message - (size_t)length, "%s", origin);
    return error->code;
}

int error_exit_status(int code) {
    switch (code) {
    case ERROR_NONE: return 0;
    case ERROR_USAGE: return 2;
    case ERROR_GATE: return 3;
    default: return 1;
    }
}
