/* Which CUPTI kernel is which instrumented launch. Pure functions over caller-owned arrays. */
#ifndef LAUNCH_MATCH_H
#define LAUNCH_MATCH_H

#include "../host/clock_fit.h"

#include <stddef.h>
#include <stdint.h>

enum { LAUNCH_MATCH_SLACK_NS = 100000 }; /* globaltimer and CUPTI agree to tens of us uncalibrated (H200, 2026-12-01) */

struct match_launch {
    int64_t launch_id;
    int32_t device_id;
    uint64_t grid_id;
    int64_t begin_ns, end_ns; /* first lane's begin, last lane's end; globaltimer */
    int64_t kernel;           /* out: position in kernels, -1: none */
};

struct match_kernel {
    int64_t kernel_id;
    int32_t device_id;
    int64_t grid_id;
    int64_t begin_ns, end_ns; /* CUPTI */
    int64_t launch;           /* out: position in launches, -1: none */
};

/* Fills kernel and launch. First the kernel of the same grid id, if its times contain the launch's within the slack; then,
 * for the rest, the nearest free kernel that contains it (of two as near, the later). Sorts kernels by begin_ns. Returns the
 * number of matches.
 * O((launches + kernels) log kernels) plus the kernels that overlap a launch. */
size_t launch_match(struct match_launch *launches, size_t launch_count, struct match_kernel *kernels, size_t kernel_count);

/* A matched pair as a reading of the device clock: the kernel's interval contains its lanes', which bounds the offset from
 * both sides. host_after < host_before: the pair contradicts itself and says nothing. */
struct clock_reading launch_match_reading(const struct match_launch *launch, const struct match_kernel *kernel);

#endif
