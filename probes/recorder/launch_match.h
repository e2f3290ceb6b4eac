/* Which CUPTI kernel is which instrumented launch. Pure functions over caller-owned arrays. */
#ifndef LAUNCH_MATCH_H
#define LAUNCH_MATCH_H

#include "../host/clock_fit.h"

#include <stddef.h>
#include <stdint.h>

enum {
    /* How far globaltimer and CUPTI may be apart uncalibrated: 5 and 196 us were seen on two H200 machines (2026-12-01). A grid id
     * says which kernel it is, so its times only guard against an id that is used twice. */
    LAUNCH_MATCH_GRID_SLACK_NS = 1000000000,
    LAUNCH_MATCH_SLACK_NS = 100000 /* after the offset of the launches that were matched by grid id has been taken off */
};

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

/* Fills kernel and launch. First the nearest kernel of the same grid id, if its times contain the launch's within the grid slack;
 * then, for the rest, the nearest free kernel that contains the launch within the slack once the launch is moved by the median
 * distance of its device's matched pairs (of two as near, the later). Sorts kernels by begin_ns. Returns the
 * number of matches.
 * O((launches + kernels) log kernels) plus the kernels that overlap a launch. */
size_t launch_match(struct match_launch *launches, size_t launch_count, struct match_kernel *kernels, size_t kernel_count);

/* A matched pair as a reading of the device clock: the kernel's interval contains its lanes', which bounds the offset from
 * both sides. host_after < host_before: the pair contradicts itself and says nothing. */
struct clock_reading launch_match_reading(const struct match_launch *launch, const struct match_kernel *kernel);

#endif
