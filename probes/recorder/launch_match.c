/* See launch_match.h. */
#include "launch_match.h"

#include <stdlib.h>

static int by_begin(const void *a, const void *b) {
    const struct match_kernel *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->kernel_id < y->kernel_id ? -1 : x->kernel_id > y->kernel_id;
}

/* launch times are moved by offset_ns to the kernel's clock. */
static int contains(const struct match_kernel *kernel, const struct match_launch *launch, int64_t offset_ns, int64_t slack_ns) {
    return kernel->device_id == launch->device_id && kernel->begin_ns <= launch->begin_ns + offset_ns + slack_ns &&
           kernel->end_ns >= launch->end_ns + offset_ns - slack_ns;
}

static uint64_t distance(int64_t a, int64_t b) { return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a; }

/* First kernel that begins after time. */
static size_t first_after(const struct match_kernel *kernels, size_t count, int64_t time_ns) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (kernels[middle].begin_ns > time_ns) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void match_one(struct match_launch *launch, size_t launch_index, struct match_kernel *kernels, size_t kernel_count,
                      int64_t longest_ns, int same_grid, int64_t offset_ns) {
    int64_t slack_ns = same_grid ? LAUNCH_MATCH_GRID_SLACK_NS : LAUNCH_MATCH_SLACK_NS;
    int64_t begin_ns = launch->begin_ns + offset_ns, end_ns = launch->end_ns + offset_ns;
    size_t last = first_after(kernels, kernel_count, begin_ns + slack_ns), best = kernel_count;
    uint64_t best_distance = UINT64_MAX;
    for (size_t i = last; i-- > 0;) {
        const struct match_kernel *kernel = &kernels[i];
        if (kernel->begin_ns < end_ns - slack_ns - longest_ns) break;
        if (same_grid && kernel->grid_id != (int64_t)launch->grid_id) continue;
        if (kernel->launch >= 0 || !contains(kernel, launch, offset_ns, slack_ns)) continue;
        uint64_t far = distance(kernel->begin_ns, begin_ns) + distance(kernel->end_ns, end_ns);
        if (far >= best_distance) continue;
        best_distance = far;
        best = i;
    }
    if (best == kernel_count) return;
    launch->kernel = (int64_t)best;
    kernels[best].launch = (int64_t)launch_index;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Median of what a device's matched launches lie before their kernels' middles; 0 without any, or without memory. */
static int64_t matched_offset(const struct match_launch *launches, size_t launch_count, const struct match_kernel *kernels,
                              int32_t device_id) {
    int64_t *offsets = malloc((launch_count + 1) * sizeof *offsets), median = 0;
    size_t count = 0;
    if (offsets == NULL) return 0;
    for (size_t i = 0; i < launch_count; i++) {
        if (launches[i].kernel < 0 || launches[i].device_id != device_id) continue;
        const struct match_kernel *kernel = &kernels[launches[i].kernel];
        offsets[count++] = (kernel->begin_ns - launches[i].begin_ns) / 2 + (kernel->end_ns - launches[i].end_ns) / 2;
    }
    if (count > 0) {
        qsort(offsets, count, sizeof *offsets, by_value);
        median = offsets[count / 2];
    }
    free(offsets);
    return median;
}

/* Launches without a kernel, by time. A device's offset is that of the pairs found by grid id, not of those found here. */
static void match_rest(struct match_launch *launches, size_t launch_count, struct match_kernel *kernels, size_t kernel_count,
                       int64_t longest_ns) {
    enum { DEVICES_MAXIMUM = 64 };
    int64_t offsets[DEVICES_MAXIMUM];
    for (int32_t device = 0; device < DEVICES_MAXIMUM; device++) offsets[device] = matched_offset(launches, launch_count, kernels, device);
    for (size_t i = 0; i < launch_count; i++) {
        if (launches[i].kernel >= 0 || launches[i].device_id < 0 || launches[i].device_id >= DEVICES_MAXIMUM) continue;
        match_one(&launches[i], i, kernels, kernel_count, longest_ns, 0, offsets[launches[i].device_id]);
    }
}

size_t launch_match(struct match_launch *launches, size_t launch_count, struct match_kernel *kernels, size_t kernel_count) {
    int64_t longest_ns = 0;
    size_t matches = 0;
    if (kernel_count > 0) qsort(kernels, kernel_count, sizeof *kernels, by_begin);
    for (size_t i = 0; i < kernel_count; i++) {
        kernels[i].launch = -1;
        if (kernels[i].end_ns - kernels[i].begin_ns > longest_ns) longest_ns = kernels[i].end_ns - kernels[i].begin_ns;
    }
    for (size_t i = 0; i < launch_count; i++) launches[i].kernel = -1;
    for (size_t i = 0; i < launch_count; i++) match_one(&launches[i], i, kernels, kernel_count, longest_ns, 1, 0);
    match_rest(launches, launch_count, kernels, kernel_count, longest_ns);
    for (size_t i = 0; i < launch_count; i++) matches += launches[i].kernel >= 0;
    return matches;
}

struct clock_reading launch_match_reading(const struct match_launch *launch, const struct match_kernel *kernel) {
    int64_t middle = launch->begin_ns + (launch->end_ns - launch->begin_ns) / 2;
    return (struct clock_reading){middle, middle + kernel->begin_ns - launch->begin_ns,
                                  middle + kernel->end_ns - launch->end_ns};
}
