/* Lines between clocks: a lane's SM ticks to globaltimer, and a device's globaltimer to trace time.
 * Pure functions over caller-owned arrays; no allocation, no errors beyond what the results say. */
#ifndef CLOCK_FIT_H
#define CLOCK_FIT_H

#include <stdint.h>

enum { CLOCK_STEP_RESIDUAL_NS = 64 }; /* floor of any statement across SMs on an H200 (shared facts, 2026-12-01) */

/* Both clocks at one moment. */
struct clock_pair {
    int64_t ticks;
    int64_t time_ns;
};

/* ns = base_ns + (ticks - base_ticks) * ns_per_tick */
struct clock_line {
    int64_t base_ticks;
    int64_t base_ns;
    double ns_per_tick;
    int64_t residual_ns; /* largest distance of a pair from the line; above CLOCK_STEP_RESIDUAL_NS: frequency step */
    int32_t pairs;       /* pairs the line rests on */
};

/* Least-squares line through pairs [count] in order of time.
 * nominal_ns_per_tick  slope when the pairs give none (fewer than two different ones); must be > 0
 * With count 0 the line maps tick 0 to 0 ns, pairs = 0. O(count). */
void clock_fit_pairs(const struct clock_pair *pairs, int32_t count, double nominal_ns_per_tick, struct clock_line *line);

int64_t clock_line_apply(const struct clock_line *line, int64_t ticks);

/* A reading of the device clock between two readings of the host clock. */
struct clock_reading {
    int64_t device_ns;
    int64_t host_before_ns;
    int64_t host_after_ns;
};

/* trace_ns = globaltimer + offset_ns + drift * (globaltimer - base_ns); columns of table device_clock. */
struct clock_offset {
    int64_t base_ns;
    int64_t offset_ns;
    double drift;
    int64_t residual_ns;
    int64_t width_ns;
    int32_t readings;
};

/* Weighted least squares over the brackets' middles, weights 1/(width + 1 ns)^2; readings wider than four times the
 * narrowest and those with after < before are left out. Drift is 0 below three readings or 10 ms between the earliest and
 * the latest. The order of readings does not matter. */
void clock_fit_readings(const struct clock_reading *readings, int32_t count, struct clock_offset *offset);

int64_t clock_offset_apply(const struct clock_offset *offset, int64_t globaltimer_ns);

#endif
