/* What trace_read.c (tables) and trace_records.c (records of lanes) share. */
#ifndef TRACE_READ_INTERNAL_H
#define TRACE_READ_INTERNAL_H

#include <math.h>
#include <stdint.h>

/* Row of clock_fit: ns = base_ns + round((ticks - base_ticks) * ns_per_tick), as the views have it. */
struct trace_clock {
    int64_t base_ticks, base_ns;
    double ns_per_tick;
};

static const double trace_clock_limit_ns = 4e18; /* keeps sums and differences of two times inside 64 bits */

static inline int64_t trace_clock_ns(const struct trace_clock *clock, int64_t ticks) {
    int64_t distance;
    if (__builtin_sub_overflow(ticks, clock->base_ticks, &distance)) distance = ticks < 0 ? INT64_MIN : INT64_MAX;
    double ns = round((double)distance * clock->ns_per_tick);
    if (ns > trace_clock_limit_ns) ns = trace_clock_limit_ns;
    if (ns < -trace_clock_limit_ns) ns = -trace_clock_limit_ns;
    int64_t result;
    if (__builtin_add_overflow(clock->base_ns, (int64_t)ns, &result)) result = clock->base_ns < 0 ? INT64_MIN / 2 : INT64_MAX / 2;
    return result < INT64_MIN / 2 ? INT64_MIN / 2 : result > INT64_MAX / 2 ? INT64_MAX / 2 : result;
}

#endif
