/* Clock lines: known lines, degenerate and contradictory input, and random input against exact rational arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "../../probes/host/clock_fit.h"
#include "random_source.h"

enum { MOST = 64, ROUNDS = 4000 };

static int64_t magnitude(int64_t value) { return value < 0 ? -value : value; }

/* --- lines through pairs --------------------------------------------------------------------------------------------- */

static void pairs_none(void **state) {
    (void)state;
    struct clock_line line;
    clock_fit_pairs(NULL, 0, 0.5, &line);
    assert_int_equal(line.pairs, 0);
    assert_int_equal(line.residual_ns, 0);
    assert_int_equal(clock_line_apply(&line, 0), 0);
    assert_int_equal(clock_line_apply(&line, 1000), 500);
    assert_int_equal(clock_line_apply(&line, -1000), -500);
}

static void pairs_one(void **state) {
    (void)state;
    const struct clock_pair pair = {5000000000, 1700000000000000000};
    struct clock_line line;
    clock_fit_pairs(&pair, 1, 0.625, &line);
    assert_int_equal(line.pairs, 1);
    assert_int_equal(line.residual_ns, 0);
    assert_int_equal(clock_line_apply(&line, pair.ticks), pair.time_ns);
    assert_int_equal(clock_line_apply(&line, pair.ticks + 1600), pair.time_ns + 1000);
}

/* A line at the sizes that occur: globaltimer counts ns since 1970, clock64 runs since the GPU was reset. */
static void pairs_exact(void **state) {
    (void)state;
    struct clock_pair pairs[9];
    struct clock_line line;
    for (int i = 0; i < 9; i++)
        pairs[i] = (struct clock_pair){((int64_t)1 << 53) + 1 + i * 1800000, 1793000000000000001 + i * 1000000};
    clock_fit_pairs(pairs, 9, 1.0, &line);
    assert_int_equal(line.pairs, 9);
    assert_int_equal(line.residual_ns, 0);
    assert_true(fabs(line.ns_per_tick - 1.0 / 1.8) < 1e-12);
    for (int i = 0; i < 9; i++) assert_int_equal(clock_line_apply(&line, pairs[i].ticks), pairs[i].time_ns);
    assert_int_equal(clock_line_apply(&line, pairs[0].ticks + 900000), pairs[0].time_ns + 500000);
}

/* Pairs are taken on a globaltimer edge, give or take a step of 32 ns: over 20 ms the slope must hold to a few 1e-6. */
static void pairs_noise(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct random_source source = random_seeded(seed);
        struct clock_pair pairs[21];
        struct clock_line line;
        for (int i = 0; i < 21; i++)
            pairs[i] = (struct clock_pair){1000 + i * 1980000, 7000 + i * 1000000 + random_between(&source, -32, 32)};
        clock_fit_pairs(pairs, 21, 1.0, &line);
        assert_true(fabs(line.ns_per_tick * 1.98 - 1.0) < 4e-6);
        assert_in_range(line.residual_ns, 1, CLOCK_STEP_RESIDUAL_NS);
        for (int i = 0; i < 21; i++)
            assert_in_range(magnitude(clock_line_apply(&line, pairs[i].ticks) - (7000 + i * 1000000)), 0, 32);
    }
}

/* The SM clock drops from 1980 to 1755 MHz half way: no line fits, and the residual says so. */
static void pairs_frequency_step(void **state) {
    (void)state;
    struct clock_pair pairs[11];
    struct clock_line line;
    int64_t ticks = 0;
    for (int i = 0; i < 11; i++) {
        pairs[i] = (struct clock_pair){ticks, i * 1000000};
        ticks += i < 5 ? 1980000 : 1755000;
    }
    clock_fit_pairs(pairs, 11, 1.0, &line);
    assert_true(line.residual_ns > CLOCK_STEP_RESIDUAL_NS);
    assert_true(line.ns_per_tick > 1 / 1.98 && line.ns_per_tick < 1 / 1.755);
}

/* Pairs that give no usable slope leave the nominal one, and the residual tells of the contradiction. */
static void pairs_contradict(void **state) {
    (void)state;
    const struct clock_pair same_ticks[2] = {{100, 1000}, {100, 1400}}, backwards[2] = {{0, 1000}, {1000, 0}};
    const struct clock_pair same_time[2] = {{0, 50}, {1000, 50}};
    struct clock_line line;
    clock_fit_pairs(same_ticks, 2, 0.5, &line);
    assert_true(line.ns_per_tick == 0.5);
    assert_int_equal(clock_line_apply(&line, 100), 1200);
    assert_int_equal(line.residual_ns, 200);
    clock_fit_pairs(backwards, 2, 0.5, &line);
    assert_true(line.ns_per_tick == 0.5);
    assert_int_equal(line.residual_ns, 750);
    assert_int_equal(line.pairs, 2);
    clock_fit_pairs(same_time, 2, 0.5, &line);
    assert_true(line.ns_per_tick == 0.5);
    assert_int_equal(line.residual_ns, 250);
}

/* Slope and mean as fractions of 128-bit integers. */
static void check_pairs(const struct clock_pair *pairs, int32_t count, const struct clock_line *line, uint64_t seed) {
    __int128 x_sum = 0, y_sum = 0, xx = 0, xy = 0;
    for (int32_t i = 0; i < count; i++) {
        __int128 x = pairs[i].ticks - pairs[0].ticks, y = pairs[i].time_ns - pairs[0].time_ns;
        x_sum += x, y_sum += y, xx += x * x, xy += x * y;
    }
    __int128 above = count * xy - x_sum * y_sum, below = count * xx - x_sum * x_sum;
    long double slope = below > 0 && above > 0 ? (long double)above / (long double)below : 0.75L;
    long double intercept = ((long double)y_sum - slope * (long double)x_sum) / count, residual = 0;
    int ok = line->pairs == count && fabsl((long double)line->ns_per_tick - slope) <= 1e-9L * slope;
    for (int32_t i = 0; i < count; i++) {
        long double at = intercept + slope * (long double)(pairs[i].ticks - pairs[0].ticks);
        long double far = fabsl(at - (long double)(pairs[i].time_ns - pairs[0].time_ns));
        int64_t got = clock_line_apply(line, pairs[i].ticks) - pairs[0].time_ns;
        ok = ok && fabsl(at - (long double)got) <= 2.0L;
        if (far > residual) residual = far;
    }
    ok = ok && fabsl(residual - (long double)line->residual_ns) <= 2.0L;
    if (!ok)
        fail_msg("clock_fit_pairs differs from the exact fit: seed %llu, %d pairs", (unsigned long long)seed, count);
}

static void pairs_model(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        struct random_source source = random_seeded(seed);
        struct clock_pair pairs[MOST];
        struct clock_line line;
        int32_t count = (int32_t)random_between(&source, 1, MOST);
        int64_t ticks = random_between(&source, 0, (int64_t)1 << 50),
                time_ns = random_between(&source, 0, (int64_t)1 << 60);
        int64_t noise = random_between(&source, 0, random_below(&source, 4) == 0 ? 100000000 : 64);
        int64_t rate = random_between(&source, 300, 3000); /* ns for 1000 ticks */
        for (int32_t i = 0; i < count; i++) {
            int64_t apart = random_between(&source, 0, 2000000);
            ticks += apart;
            time_ns += apart * rate / 1000;
            pairs[i] = (struct clock_pair){ticks, time_ns + random_between(&source, -noise, noise)};
        }
        clock_fit_pairs(pairs, count, 0.75, &line);
        check_pairs(pairs, count, &line, seed);
    }
}

/* --- device clock from bracketed readings ---------------------------------------------------------------------------- */

static struct clock_reading reading(int64_t device_ns, int64_t middle_ns, int64_t half_width_ns) {
    return (struct clock_reading){device_ns, middle_ns - half_width_ns, middle_ns + half_width_ns};
}

static void readings_none(void **state) {
    (void)state;
    const struct clock_reading contradictory[2] = {{100, 50, 40}, {200, 90, 10}};
    struct clock_offset offset;
    for (int32_t count = 0; count <= 2; count++) {
        clock_fit_readings(contradictory, count, &offset);
        assert_int_equal(offset.readings, 0);
        assert_true(offset.drift == 0);
        assert_int_equal(clock_offset_apply(&offset, 12345), 12345);
    }
}

static void readings_one(void **state) {
    (void)state;
    const struct clock_reading one = reading(1000000, 5000000, 700);
    struct clock_offset offset;
    clock_fit_readings(&one, 1, &offset);
    assert_int_equal(offset.readings, 1);
    assert_int_equal(offset.width_ns, 1400);
    assert_int_equal(offset.residual_ns, 0);
    assert_true(offset.drift == 0);
    assert_int_equal(clock_offset_apply(&offset, 1000000), 5000000);
    assert_int_equal(clock_offset_apply(&offset, 2000000), 6000000);
}

/* 25 ppm over a second, brackets of 2 us: recovered to a nanosecond at sizes that occur. */
static void readings_drift(void **state) {
    (void)state;
    struct clock_reading readings[11];
    struct clock_offset offset;
    const int64_t device = 1793000000000000000, host = 1793000000000777777;
    for (int i = 0; i < 11; i++) readings[i] = reading(device + i * 100000000, host + i * 100000000 + i * 2500, 1000);
    clock_fit_readings(readings, 11, &offset);
    assert_int_equal(offset.readings, 11);
    assert_true(fabs(offset.drift - 25e-6) < 1e-11);
    assert_in_range(offset.residual_ns, 0, 1);
    for (int i = 0; i < 11; i++)
        assert_in_range(magnitude(clock_offset_apply(&offset, device + i * 100000000) - host - i * 100002500), 0, 1);
}

/* Below three readings or 10 ms no drift is claimed: noise would pass for it. */
static void readings_without_drift(void **state) {
    (void)state;
    struct clock_reading readings[3] = {reading(0, 0, 100), reading(5000000, 5000500, 100),
                                        reading(9999999, 10000999, 100)};
    struct clock_offset offset;
    clock_fit_readings(readings, 3, &offset);
    assert_true(offset.drift == 0);
    assert_int_equal(offset.residual_ns, 500);
    readings[2] = reading(10000000, 10001000, 100);
    clock_fit_readings(readings, 3, &offset);
    assert_true(fabs(offset.drift - 1e-4) < 1e-9);
    readings[0] = readings[2];
    clock_fit_readings(readings + 1, 2, &offset);
    assert_true(offset.drift == 0);
}

/* Order of the readings says nothing. */
static void readings_any_order(void **state) {
    (void)state;
    struct clock_reading readings[5], reversed[5];
    struct clock_offset offset, other;
    for (int i = 0; i < 5; i++) readings[i] = reversed[4 - i] = reading(i * 20000000, 900 + i * 20000400, 500);
    clock_fit_readings(readings, 5, &offset);
    clock_fit_readings(reversed, 5, &other);
    assert_true(fabs(offset.drift - 2e-5) < 1e-9);
    assert_true(fabs(other.drift - 2e-5) < 1e-9);
    assert_int_equal(clock_offset_apply(&offset, 50000000), clock_offset_apply(&other, 50000000));
}

static void readings_wide_are_left_out(void **state) {
    (void)state;
    struct clock_reading readings[4] = {
        reading(0, 100, 500), reading(1000, 1100, 500), {2000, 102100, 104100}, {3000, 9, 8}};
    struct clock_offset offset;
    readings[2] = reading(2000, 102100, 2001);
    clock_fit_readings(readings, 4, &offset);
    assert_int_equal(offset.readings, 2);
    assert_int_equal(offset.width_ns, 1000);
    assert_int_equal(offset.residual_ns, 0);
    assert_int_equal(clock_offset_apply(&offset, 0), 100);
    readings[2] = reading(2000, 2100, 2000); /* just four times the narrowest */
    clock_fit_readings(readings, 4, &offset);
    assert_int_equal(offset.readings, 3);
    assert_int_equal(offset.width_ns, 4000);
}

/* Brackets of the same width that exclude each other: the middle between them, and a residual beyond half a width. */
static void readings_contradict(void **state) {
    (void)state;
    const struct clock_reading readings[2] = {reading(1000, 1000, 100), reading(2000, 3000, 100)};
    struct clock_offset offset;
    clock_fit_readings(readings, 2, &offset);
    assert_int_equal(offset.readings, 2);
    assert_int_equal(offset.offset_ns, 500);
    assert_int_equal(offset.residual_ns, 500);
    assert_true(offset.residual_ns > offset.width_ns / 2);
}

/* The narrower bracket draws the offset: weights are those of the header. */
static void readings_are_weighted(void **state) {
    (void)state;
    const struct clock_reading readings[2] = {{0, 0, 999},
                                              {0, 10000, 11999}}; /* weights 4 : 1, middles 499 and 10999 */
    struct clock_offset offset;
    clock_fit_readings(readings, 2, &offset);
    assert_int_equal(offset.offset_ns, (4 * 499 + 10999) / 5);
    assert_int_equal(offset.width_ns, 1999);
}

static void readings_of_width_zero(void **state) {
    (void)state;
    const struct clock_reading readings[3] = {{10, 110, 110}, {20, 120, 121}, {30, 400, 402}};
    struct clock_offset offset;
    clock_fit_readings(readings, 3, &offset);
    assert_int_equal(offset.readings, 2);
    assert_int_equal(offset.offset_ns, 100);
    assert_int_equal(offset.width_ns, 1);
}

/* The fit again in long double, from the definition in the header. */
static int model_readings(const struct clock_reading *readings, int32_t count, const struct clock_offset *offset) {
    int64_t narrowest = INT64_MAX, widest = 0, first = INT64_MAX, last = INT64_MIN;
    long double w = 0, x = 0, y = 0, xx = 0, xy = 0, residual = 0;
    int32_t kept[MOST], kept_count = 0;
    for (int32_t i = 0; i < count; i++) {
        int64_t width = readings[i].host_after_ns - readings[i].host_before_ns;
        if (width >= 0 && width < narrowest) narrowest = width;
    }
    for (int32_t i = 0; i < count; i++) {
        int64_t width = readings[i].host_after_ns - readings[i].host_before_ns;
        if (width < 0 || width > (narrowest > 0 ? 4 * narrowest : 1)) continue;
        kept[kept_count++] = i;
        if (width > widest) widest = width;
        if (readings[i].device_ns < first) first = readings[i].device_ns;
        if (readings[i].device_ns > last) last = readings[i].device_ns;
    }
    if (offset->readings != kept_count) return 0;
    if (kept_count == 0) return 1;
    for (int32_t k = 0; k < kept_count; k++) {
        const struct clock_reading *r = &readings[kept[k]];
        int64_t width = r->host_after_ns - r->host_before_ns;
        long double weight = 1.0L / ((long double)(width + 1) * (long double)(width + 1));
        long double at = (long double)(r->device_ns - readings[kept[0]].device_ns);
        long double value = (long double)(r->host_before_ns + width / 2 - r->device_ns);
        w += weight, x += weight * at, y += weight * value, xx += weight * at * at, xy += weight * at * value;
    }
    long double below = w * xx - x * x, drift = 0;
    if (kept_count >= 3 && last - first >= 10000000 && below > 0) drift = (w * xy - x * y) / below;
    int ok = offset->width_ns == widest && fabsl((long double)offset->drift - drift) <= 1e-9L;
    for (int32_t k = 0; k < kept_count; k++) {
        const struct clock_reading *r = &readings[kept[k]];
        long double at = (long double)(r->device_ns - readings[kept[0]].device_ns);
        long double value = (y - drift * x) / w + drift * at;
        long double middle =
            (long double)(r->host_before_ns + (r->host_after_ns - r->host_before_ns) / 2 - r->device_ns);
        if (fabsl(value - middle) > residual) residual = fabsl(value - middle);
        int64_t got = clock_offset_apply(offset, r->device_ns) - r->device_ns;
        ok = ok && fabsl(value - (long double)got) <= 2.0L;
    }
    return ok && fabsl(residual - (long double)offset->residual_ns) <= 2.0L;
}

static void readings_model(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        struct random_source source = random_seeded(seed);
        struct clock_reading readings[MOST];
        struct clock_offset offset;
        int32_t count = (int32_t)random_between(&source, 0, MOST);
        int64_t span = random_below(&source, 3) == 0 ? 12000000 : 3000000000,
                shift = random_between(&source, 0, 1000000000);
        int64_t ppm = random_between(&source, -100, 100), widest = random_between(&source, 0, 20000);
        for (int32_t i = 0; i < count; i++) {
            int64_t at = random_between(&source, 0, span), width = random_between(&source, 0, widest);
            int64_t before = at + shift + at * ppm / 1000000 - random_between(&source, 0, width);
            if (random_below(&source, 16) == 0) width = -width - 1;
            readings[i] = (struct clock_reading){at, before, before + width};
        }
        clock_fit_readings(readings, count, &offset);
        if (!model_readings(readings, count, &offset))
            fail_msg("clock_fit_readings differs from the model: seed %llu, %d readings", (unsigned long long)seed,
                     count);
    }
}

/* A reading's middle is at most half a bracket from the truth; so is a weighted mean of middles. */
static void readings_bound(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        struct random_source source = random_seeded(seed);
        struct clock_reading readings[MOST];
        struct clock_offset offset;
        int32_t count = (int32_t)random_between(&source, 1, MOST);
        for (int32_t i = 0; i < count; i++) {
            int64_t at = random_between(&source, 0, 9000000), width = random_between(&source, 1000, 3000);
            int64_t before = at + 777000 - random_between(&source, 0, width);
            readings[i] = (struct clock_reading){at, before, before + width};
        }
        clock_fit_readings(readings, count, &offset);
        int64_t wrong = clock_offset_apply(&offset, 4500000) - 5277000;
        if (magnitude(wrong) > offset.width_ns / 2 + 1)
            fail_msg("offset is wrong by %lld ns, width %lld ns: seed %llu", (long long)wrong,
                     (long long)offset.width_ns, (unsigned long long)seed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_none),
        cmocka_unit_test(pairs_one),
        cmocka_unit_test(pairs_exact),
        cmocka_unit_test(pairs_noise),
        cmocka_unit_test(pairs_frequency_step),
        cmocka_unit_test(pairs_contradict),
        cmocka_unit_test(pairs_model),
        cmocka_unit_test(readings_none),
        cmocka_unit_test(readings_one),
        cmocka_unit_test(readings_drift),
        cmocka_unit_test(readings_without_drift),
        cmocka_unit_test(readings_any_order),
        cmocka_unit_test(readings_wide_are_left_out),
        cmocka_unit_test(readings_contradict),
        cmocka_unit_test(readings_are_weighted),
        cmocka_unit_test(readings_of_width_zero),
        cmocka_unit_test(readings_model),
        cmocka_unit_test(readings_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
