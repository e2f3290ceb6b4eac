/* overlap_sweep against a count of every nanosecond, on random lanes, with compute eroded and dilated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../analyzer/overlap.h"

enum { LANES = 7, SEGMENTS = 20, TIME = 64 };

static uint64_t random_state;

static uint32_t random_below(uint32_t limit) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)(random_state * 0x2545f4914f6cdd1du >> 33) % limit;
}

struct sample {
    struct lane_segment segments[LANES][SEGMENTS];
    struct overlap_lane lanes[LANES];
    int32_t count;
    int64_t end;
};

static void make_sample(uint64_t seed, struct sample *s) {
    random_state = seed * 2 + 1;
    for (int i = 0; i < 8; i++) random_below(2);
    s->count = (int32_t)random_below(LANES + 1);
    s->end = 1 + random_below(TIME);
    for (int32_t l = 0; l < s->count; l++) {
        size_t used = 0;
        for (int64_t at = 0; at < s->end && used < SEGMENTS; at += 1 + random_below(10))
            s->segments[l][used++] = (struct lane_segment){.begin_ns = at, .edge = -1, .state = (uint8_t)random_below(STATE_COUNT)};
        s->lanes[l] = (struct overlap_lane){s->segments[l], used, (enum trace_role_class)random_below(3)};
    }
}

static int state_at(const struct sample *s, int32_t lane, int64_t at) {
    int state = -1;
    for (size_t i = 0; i < s->lanes[lane].count && s->segments[lane][i].begin_ns <= at; i++) state = s->segments[lane][i].state;
    return state;
}

/* Compute at a moment, eroded (shift > 0: all moments within the shift must compute, the window's edges are edges of runs) or
 * dilated (one within the shift computes). */
static bool computes(const struct sample *s, int32_t lane, int64_t at, int64_t shift) {
    int64_t reach = shift < 0 ? -shift : shift;
    for (int64_t t = at - reach; t <= at + reach; t++) {
        bool here = t >= 0 && t < s->end && state_at(s, lane, t) == STATE_COMPUTE;
        if (shift >= 0 && !here) return false;
        if (shift < 0 && here) return true;
    }
    return shift >= 0;
}

static struct overlap_sums model(const struct sample *s, int64_t shift) {
    struct overlap_sums sums = {0};
    int32_t compute_capacity = 0, communicate_capacity = 0;
    for (int32_t l = 0; l < s->count; l++) {
        compute_capacity += s->lanes[l].role_class == TRACE_ROLE_COMPUTE;
        communicate_capacity += s->lanes[l].role_class == TRACE_ROLE_COMMUNICATE;
    }
    for (int64_t at = 0; at < s->end; at++) {
        int32_t any_c = 0, any_x = 0, c = 0, x = 0;
        for (int32_t l = 0; l < s->count; l++) {
            bool compute = computes(s, l, at, shift), communicate = state_at(s, l, at) == STATE_COMMUNICATE;
            any_c += compute;
            any_x += communicate;
            c += compute && s->lanes[l].role_class == TRACE_ROLE_COMPUTE;
            x += communicate && s->lanes[l].role_class == TRACE_ROLE_COMMUNICATE;
        }
        sums.compute_ns += any_c > 0;
        sums.communicate_ns += any_x > 0;
        sums.both_ns += any_c > 0 && any_x > 0;
        sums.communicate_lane_ns += x;
        if (compute_capacity > 0) sums.matched_lane_ns += fmin((double)c * communicate_capacity / compute_capacity, x);
    }
    return sums;
}

static void agrees_with_model(void **state) {
    (void)state;
    uint64_t first = getenv("MOKSCOPE_SEED") != NULL ? strtoull(getenv("MOKSCOPE_SEED"), NULL, 10) : (uint64_t)time(NULL) << 20;
    for (uint64_t seed = first; seed < first + 12000; seed++) {
        static const int64_t shifts[] = {0, 2, -2, 5, -5};
        struct sample s;
        make_sample(seed, &s);
        for (size_t i = 0; i < sizeof shifts / sizeof shifts[0]; i++) {
            struct arena arena = {0};
            struct overlap_sums sums, expected = model(&s, shifts[i]);
            struct error error = {0};
            assert_int_equal(overlap_sweep(s.lanes, s.count, 0, s.end, shifts[i], &arena, &sums, &error), 0);
            arena_release(&arena);
            if (sums.compute_ns == expected.compute_ns && sums.communicate_ns == expected.communicate_ns && sums.both_ns == expected.both_ns &&
                fabs(sums.communicate_lane_ns - expected.communicate_lane_ns) < 1e-9 && fabs(sums.matched_lane_ns - expected.matched_lane_ns) < 1e-9)
                continue;
            fail_msg("MOKSCOPE_SEED=%llu shift %lld: compute %lld, expected %lld; both %lld, expected %lld; matched %g, expected %g",
                     (unsigned long long)seed, (long long)shifts[i], (long long)sums.compute_ns, (long long)expected.compute_ns,
                     (long long)sums.both_ns, (long long)expected.both_ns, sums.matched_lane_ns, expected.matched_lane_ns);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(agrees_with_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
