/* Stands in for probes/mokscope_probe.h in a build that never sees it: probes_off includes this file first and compares the
 * machine code with that of -DMOKSCOPE_OFF. Every call is an empty macro; nothing else is declared, so that a kernel that
 * leans on a constant or type of the probe header does not compile. The clock is an arbitrary constant: were one bit of a
 * begin time left in the code, it would differ from -DMOKSCOPE_OFF, where the clock is 0. */
#ifndef NO_PROBE_H
#define NO_PROBE_H

#define MOKSCOPE_HEADER_REPLACED
#define MOKSCOPE_PROBE_H /* a file that includes the header all the same gets nothing from it */

#include <stddef.h>
#include <stdint.h>

struct mokscope_lane {};

#define mokscope_clock() 0x5ca1ab1eu
#define mokscope_lane_null() mokscope_lane()
#define mokscope_lane_open(rank, role, cluster) mokscope_lane()
#define mokscope_lane_adopt(lane) ((void)0)
#define mokscope_lane_close(lane) ((void)0)
#define mokscope_lane_close_thread(lane) ((void)0)
#define mokscope_span(lane, level, begin, event, small, argument) ((void)0)
#define mokscope_span_thread(lane, level, begin, event, small, argument) ((void)0)
#define mokscope_instant(lane, level, event, small, argument) ((void)0)
#define mokscope_instant_thread(lane, level, event, small, argument) ((void)0)
#define mokscope_sync_if_due(lane) ((void)0)
#define mokscope_sync_if_due_thread(lane) ((void)0)
#define mokscope_long_wait(lane, event, index, awaited, observed, since) ((void)0)
#define mokscope_clock_hand_over(place, clock) ((void)0)
#define mokscope_clock_taken_over(place) 0x5ca1ab1eu
#define MOKSCOPE_MODULE(name, roles, events, edges)

#endif
