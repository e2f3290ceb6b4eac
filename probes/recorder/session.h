/* The recording of this process, if it is recorded: modules that registered, their rings on each context, the collector, and the
 * thread that drains rings while the application runs. One a process; functions may be called from any thread, at any time.
 *
 * States  waiting -> recording [first context that is ready, or first description] -> ended [exit of the process]
 *         Nothing happens before MOKSCOPE_OUTPUT is seen, after `ended`, or in a forked child that has no context of its own.
 * A second process of the same command (a child that uses CUDA) finds the file there and writes NAME.PID.db beside it. */
#ifndef SESSION_H
#define SESSION_H

#include "collector.h"

/* A module's constructor ran. Its rings are installed when a context is ready. */
void session_attach(const struct mokscope_module *module);

/* The driver has been initialised: subscribes to CUPTI. */
void session_driver_ready(void);

/* A context is current in this thread: begins the recording and installs rings that are missing on it. Cheap when there is
 * nothing to do. */
void session_context_ready(void);

/* The collector, beginning the recording if need be; NULL: not recorded or ended. */
struct collector *session_collector(void);

#endif
