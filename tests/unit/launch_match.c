/* Matching launches to kernels: by grid id, by time, and random sets against a slow model of the header's words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../probes/recorder/launch_match.h"
#include "random_source.h"

enum { SLACK = LAUNCH_MATCH_SLACK_NS, MOST = 40 };

static struct match_launch launch(int64_t id, int32_t device, uint64_t grid, int64_t begin, int64_t end) {
    return (struct match_launch){id, device, grid, begin, end, 99};
}

static struct match_kernel kernel(int64_t id, int32_t device, int64_t grid, int64_t begin, int64_t end) {
    return (struct match_kernel){id, device, grid, begin, end, 99};
}

/* Id of the kernel that a launch was given, -1: none; the link must lead back. */
static int64_t matched(const struct match_launch *launches, size_t i, const struct match_kernel *kernels) {
    if (launches[i].kernel < 0) return -1;
    assert_int_equal(kernels[launches[i].kernel].launch, i);
    return kernels[launches[i].kernel].kernel_id;
}

static void nothing(void **state) {
    (void)state;
    struct match_launch one_launch = launch(1, 0, 1, 0, 10);
    struct match_kernel one_kernel = kernel(1, 0, 1, 0, 10);
    assert_int_equal(launch_match(NULL, 0, NULL, 0), 0);
    assert_int_equal(launch_match(&one_launch, 1, NULL, 0), 0);
    assert_int_equal(one_launch.kernel, -1);
    assert_int_equal(launch_match(NULL, 0, &one_kernel, 1), 0);
    assert_int_equal(one_kernel.launch, -1);
}

/* The same grid id wins over a kernel whose times fit better; kernels come in any order. */
static void grid_id_wins(void **state) {
    (void)state;
    struct match_launch launches[] = {launch(1, 0, 7, 1000, 2000), launch(2, 0, 8, 1000, 2000)};
    struct match_kernel kernels[] = {kernel(31, 0, 5, 999, 2001), kernel(32, 0, 8, 999, 2001),
                                     kernel(33, 0, 7, -50000, 60000)};
    assert_int_equal(launch_match(launches, 2, kernels, 3), 2);
    assert_int_equal(matched(launches, 0, kernels), 33);
    assert_int_equal(matched(launches, 1, kernels), 32);
    assert_int_equal(kernels[0].kernel_id, 33); /* sorted by begin */
    assert_int_equal(kernels[1].launch, -1);
}

/* Four ranks at once on one GPU, kernels of nearly the same times, listed against their order. */
static void concurrent_ranks(void **state) {
    (void)state;
    struct match_launch launches[12];
    struct match_kernel kernels[12];
    for (int pass = 0, n = 0; pass < 3; pass++)
        for (int rank = 0; rank < 4; rank++, n++) {
            int64_t begin = pass * 10000000 + rank * 10, grid = 100 + n;
            launches[n] = launch(n + 1, 0, (uint64_t)grid, begin + 40, begin + 5000000);
            kernels[11 - n] = kernel(1000 + n, 0, grid, begin, begin + 5000100 - rank);
        }
    assert_int_equal(launch_match(launches, 12, kernels, 12), 12);
    for (size_t n = 0; n < 12; n++) assert_int_equal(matched(launches, n, kernels), 1000 + n);
}

/* A grid id that two devices have, or one device twice, decides only where the times fit. */
static void grid_id_again(void **state) {
    (void)state;
    struct match_launch launches[] = {launch(1, 0, 7, 50000000, 51000000), launch(2, 1, 7, 1000, 2000),
                                      launch(3, 0, 7, 1000, 2000)};
    struct match_kernel kernels[] = {kernel(1, 1, 7, 900, 2100), kernel(2, 0, 7, 900, 2100),
                                     kernel(3, 0, 7, 49999000, 51000100)};
    assert_int_equal(launch_match(launches, 3, kernels, 3), 3);
    assert_int_equal(matched(launches, 0, kernels), 3);
    assert_int_equal(matched(launches, 1, kernels), 1);
    assert_int_equal(matched(launches, 2, kernels), 2);
}

/* Without grid ids the nearest kernel that contains the launch; what it lacks of it may be the slack, and no more. */
static void by_time(void **state) {
    (void)state;
    struct match_launch one = launch(1, 0, 7, 1000000, 2000000);
    struct match_kernel kernels[] = {kernel(1, 0, 0, 990000, 2010000), kernel(2, 0, 0, 1010000, 1999000),
                                     kernel(3, 0, 0, 0, 9000000)};
    assert_int_equal(launch_match(&one, 1, kernels, 3), 1);
    assert_int_equal(matched(&one, 0, kernels), 2);
    for (int late = 0; late <= 1; late++) {
        struct match_kernel begin = kernel(1, 0, 0, 1000000 + SLACK + late, 2000000),
                            end = kernel(1, 0, 0, 1000000, 2000000 - SLACK - late);
        assert_int_equal(launch_match(&one, 1, &begin, 1), !late);
        assert_int_equal(launch_match(&one, 1, &end, 1), !late);
        begin.grid_id = end.grid_id = 7; /* the grid id says which kernel it is, however far the clocks are apart */
        assert_int_equal(launch_match(&one, 1, &begin, 1), 1);
        assert_int_equal(launch_match(&one, 1, &end, 1), 1);
        begin.begin_ns = one.begin_ns + LAUNCH_MATCH_GRID_SLACK_NS + late;
        begin.end_ns = begin.begin_ns + 1000000;
        assert_int_equal(launch_match(&one, 1, &begin, 1), !late);
    }
    struct match_kernel elsewhere = kernel(1, 1, 7, 1000000, 2000000);
    assert_int_equal(launch_match(&one, 1, &elsewhere, 1), 0);
}

/* Clocks 300 us apart: one launch is matched by its grid id, and says where to look for the other's kernel. */
static void offset_of_the_matched(void **state) {
    (void)state;
    struct match_launch launches[] = {launch(1, 0, 7, 1000000, 2000000), launch(2, 0, 8, 3000000, 4000000)};
    struct match_kernel kernels[] = {kernel(1, 0, 7, 1300000, 2301000), kernel(2, 0, 0, 3300000, 4301000),
                                     kernel(3, 0, 0, 2999000, 4001000)};
    assert_int_equal(launch_match(launches, 2, kernels, 3), 2);
    assert_int_equal(matched(launches, 0, kernels), 1);
    assert_int_equal(matched(launches, 1, kernels), 2);
}

/* CUPTI dropped kernels: each kernel goes to one launch, those with its grid id first. */
static void more_launches_than_kernels(void **state) {
    (void)state;
    struct match_launch launches[6];
    struct match_kernel kernels[] = {kernel(1, 0, 13, 0, 10000), kernel(2, 0, -1, 0, 10000)};
    for (int i = 0; i < 6; i++) launches[i] = launch(i + 1, 0, 10 + (uint64_t)i, 100 * i, 9000 + 100 * i);
    assert_int_equal(launch_match(launches, 6, kernels, 2), 2);
    assert_int_equal(matched(launches, 3, kernels), 1);
    assert_int_equal(matched(launches, 0, kernels), 2); /* the first of those left */
    for (size_t i = 1; i < 6; i++)
        if (i != 3) assert_int_equal(matched(launches, i, kernels), -1);
}

/* --- against a model ------------------------------------------------------------------------------------------------- */

struct model {
    struct match_launch launches[MOST];
    struct match_kernel kernels[MOST];
    size_t launch_count, kernel_count;
};

static int64_t absolute(int64_t value) { return value < 0 ? -value : value; }

static int64_t apart(const struct match_launch *l, const struct match_kernel *k, int64_t offset) {
    return absolute(l->begin_ns + offset - k->begin_ns) + absolute(l->end_ns + offset - k->end_ns);
}

/* The offset that half of the device's pairs are below: for each, how many are smaller. */
static int64_t model_offset(const struct model *m, int32_t device_id) {
    int64_t offsets[MOST], answer = 0;
    size_t count = 0;
    for (size_t i = 0; i < m->launch_count; i++) {
        const struct match_launch *l = &m->launches[i];
        if (l->kernel < 0 || l->device_id != device_id) continue;
        const struct match_kernel *k = &m->kernels[l->kernel];
        offsets[count++] = (k->begin_ns - l->begin_ns) / 2 + (k->end_ns - l->end_ns) / 2;
    }
    for (size_t i = 0; i < count; i++) {
        size_t below = 0, equal = 0;
        for (size_t j = 0; j < count; j++) below += offsets[j] < offsets[i], equal += offsets[j] == offsets[i];
        if (below <= count / 2 && count / 2 < below + equal) answer = offsets[i];
    }
    return answer;
}

/* Kernels in order of begin by selection, then every launch looks at every kernel, twice. */
static size_t model_match(struct model *m) {
    size_t matches = 0;
    for (size_t i = 0; i < m->kernel_count; i++)
        for (size_t j = i + 1; j < m->kernel_count; j++) {
            struct match_kernel *a = &m->kernels[i], *b = &m->kernels[j], swap = *a;
            if (b->begin_ns < a->begin_ns || (b->begin_ns == a->begin_ns && b->kernel_id < a->kernel_id))
                *a = *b, *b = swap;
        }
    for (size_t i = 0; i < m->kernel_count; i++) m->kernels[i].launch = -1;
    for (size_t i = 0; i < m->launch_count; i++) m->launches[i].kernel = -1;
    int64_t offsets[2] = {0, 0};
    for (size_t turn = 0; turn < 2 * m->launch_count; turn++) {
        struct match_launch *l = &m->launches[turn % m->launch_count];
        int by_grid = turn < m->launch_count;
        int64_t slack = by_grid ? LAUNCH_MATCH_GRID_SLACK_NS : SLACK;
        /* Of the pairs that the device has when its first launch without one comes. */
        if (turn == m->launch_count)
            for (int32_t device = 0; device < 2; device++) offsets[device] = model_offset(m, device);
        int64_t offset = by_grid ? 0 : offsets[l->device_id];
        if (l->kernel >= 0) continue;
        for (size_t i = 0; i < m->kernel_count; i++) {
            const struct match_kernel *k = &m->kernels[i];
            if (k->launch >= 0 || k->device_id != l->device_id || (by_grid && (uint64_t)k->grid_id != l->grid_id))
                continue;
            if (l->begin_ns + offset - k->begin_ns < -slack || k->end_ns - l->end_ns - offset < -slack) continue;
            if (l->kernel < 0 || apart(l, k, offset) <= apart(l, &m->kernels[l->kernel], offset))
                l->kernel = (int64_t)i; /* a tie: the later */
        }
        if (l->kernel < 0) continue;
        m->kernels[l->kernel].launch = (int64_t)(l - m->launches);
        matches++;
    }
    return matches;
}

/* The same kernels in the same order, and the same links both ways. */
static int same_matches(const struct model *a, const struct model *b) {
    int same = 1;
    for (size_t i = 0; i < a->launch_count; i++) same = same && a->launches[i].kernel == b->launches[i].kernel;
    for (size_t i = 0; i < a->kernel_count; i++)
        same =
            same && a->kernels[i].kernel_id == b->kernels[i].kernel_id && a->kernels[i].launch == b->kernels[i].launch;
    return same;
}

static void agrees_with_model(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct random_source source = random_seeded(seed);
        struct model model, got;
        memset(&model, 0, sizeof model);
        int64_t span = random_below(&source, 2) ? 3 * SLACK : 40 * SLACK,
                unit = random_below(&source, 2) ? 1 : SLACK / 2;
        uint64_t grids = 1 + random_below(&source, 12), devices = 1 + random_below(&source, 2);
        model.launch_count = random_below(&source, MOST + 1);
        model.kernel_count = random_below(&source, MOST + 1);
        for (size_t i = 0; i < model.kernel_count; i++) {
            int64_t begin = random_between(&source, 0, span / unit) * unit,
                    length = random_between(&source, 0, span / unit / 4) * unit;
            model.kernels[i] = kernel((int64_t)random_below(&source, 1000) * MOST + (int64_t)i,
                                      (int32_t)random_below(&source, devices), (int64_t)random_below(&source, grids),
                                      begin, begin + length);
        }
        for (size_t i = 0; i < model.launch_count; i++) {
            int64_t begin = random_between(&source, 0, span / unit) * unit,
                    length = random_between(&source, 0, span / unit / 4) * unit;
            model.launches[i] = launch((int64_t)i + 1, (int32_t)random_below(&source, devices),
                                       random_below(&source, grids), begin, begin + length);
        }
        got = model;
        size_t matches = launch_match(got.launches, got.launch_count, got.kernels, got.kernel_count);
        if (matches != model_match(&model) || !same_matches(&got, &model))
            fail_msg("launch_match differs from the model: seed %llu", (unsigned long long)seed);
    }
}

/* --- readings -------------------------------------------------------------------------------------------------------- */

/* The bracket of a matched pair holds the true offset, however much longer the kernel is on either side. */
static void reading_brackets_the_truth(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 10000; seed++) {
        struct random_source source = random_seeded(seed);
        int64_t base = 1793000000000000000, offset = random_between(&source, -50000, 50000),
                length = random_between(&source, 1, 9000000);
        int64_t before = random_between(&source, 0, 20000), after = random_between(&source, 0, 20000);
        struct match_launch l = launch(1, 0, 1, base, base + length);
        struct match_kernel k = kernel(1, 0, 1, base + offset - before, base + length + offset + after);
        struct clock_reading reading = launch_match_reading(&l, &k);
        assert_int_equal(reading.host_after_ns - reading.host_before_ns, before + after);
        assert_true(reading.device_ns >= l.begin_ns && reading.device_ns <= l.end_ns);
        assert_true(reading.host_before_ns <= reading.device_ns + offset &&
                    reading.device_ns + offset <= reading.host_after_ns);
    }
}

/* A kernel shorter than its lanes contradicts itself and must not move the fit. */
static void contradictory_reading(void **state) {
    (void)state;
    struct match_launch good = launch(1, 0, 1, 1000000, 2000000), bad = launch(2, 0, 2, 3000000, 4000000);
    struct match_kernel fits = kernel(1, 0, 1, 1030000 - 500, 2030000 + 500),
                        is_short = kernel(2, 0, 2, 3050000, 3990000);
    struct clock_reading readings[2] = {launch_match_reading(&bad, &is_short), launch_match_reading(&good, &fits)};
    struct clock_offset offset;
    assert_true(readings[0].host_after_ns < readings[0].host_before_ns);
    clock_fit_readings(readings, 2, &offset);
    assert_int_equal(offset.readings, 1);
    assert_int_equal(offset.offset_ns, 30000);
    assert_int_equal(offset.width_ns, 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing),
        cmocka_unit_test(grid_id_wins),
        cmocka_unit_test(concurrent_ranks),
        cmocka_unit_test(grid_id_again),
        cmocka_unit_test(by_time),
        cmocka_unit_test(offset_of_the_matched), cmocka_unit_test(more_launches_than_kernels),
        cmocka_unit_test(agrees_with_model),
        cmocka_unit_test(reading_brackets_the_truth),
        cmocka_unit_test(contradictory_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
