/* One error, described once where it happened. The caller owns the struct; functions that take one return 0 or a negative
 * error_code and fill it. error_context adds one line in front on the way up; nothing replaces the origin. */
#ifndef ERROR_H
#define ERROR_H

enum error_code {
    ERROR_NONE = 0,
    ERROR_USAGE = -1,   /* the command line or an input is wrong: exit status 2 */
    ERROR_FAILURE = -2, /* something did not work: exit status 1 */
    ERROR_GATE = -3     /* a stated threshold was passed: exit status 3 */
};

struct error {
    int code;           /* enum error_code; 0: no error */
    char message[512];  /* lower case, what failed first, object in single quotes, no full stop */
    char hint[512];     /* what to do, or empty */
};

/* Fills *error if it is empty (the first error wins) and returns code. error may be NULL. */
int error_set(struct error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Sets the hint and returns error's code. */
int error_hint(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "context: " before the message and returns error's code. */
int error_context(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Exit status for a code: 0, 1 failure, 2 usage, 3 gate. */
int error_exit_status(int code);

#endif
