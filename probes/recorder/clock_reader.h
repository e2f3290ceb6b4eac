/* Reads a device's globaltimer between two readings of CLOCK_REALTIME, for recordings that have no kernel times of CUPTI to tie
 * the device's clock to the host's. Called by the session with a context current, when rings are installed and at the end.
 *
 * PROTOCOL mailbox (pinned host memory that the one thread of a kernel polls; PTX in clock_reader.c)
 *   host    before = clock; request = n; polls answer until n; after = clock
 *   device  polls request until >= n; time = globaltimer; fence.sys; answer = n; next n, until all are answered
 *   Bound   the host gives up after CLOCK_READER_LIMIT_NS (no SM was free), the kernel as long after its start. Memory that a kernel
 *           may still look at is never freed. */
#ifndef CLOCK_READER_H
#define CLOCK_READER_H

#include "../host/clock_fit.h"

#define CLOCK_READER_LIMIT_NS 50000000 /* a macro, as the kernel's text needs it too */
enum { CLOCK_READER_ROUNDS = 32 };

/* Readings of the device whose context is current, into readings [CLOCK_READER_ROUNDS]. Returns how many there are; with 0 the
 * debug log says which call failed. Launches one kernel of one thread on a stream of its own; waits for nothing else. */
int clock_reader_read(struct clock_reading *readings);

#endif
