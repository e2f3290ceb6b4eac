/* The recorder's voice: stderr only, never the target's stdout. MOKSCOPE_LOG=debug says what happens step by step. */
#ifndef RECORDER_LOG_H
#define RECORDER_LOG_H

/* Something the user should know; also stored in the trace by the caller. */
void recorder_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Printed under MOKSCOPE_LOG=debug only. */
void recorder_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
