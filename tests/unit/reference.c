/* kernels/bf16.h and the reference layer: cases worked out by hand, a model without any reordering, and gradients against finite
 * differences of the forward pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/bf16.h"
#include "../../kernels/reference.h"
#include "random_source.h"

/* --- BF16 ------------------------------------------------------------------------------------------------------------ */

static void every_bf16_survives(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 1 << 16; bits++) {
        float value = bf16_to_float((uint16_t)bits);
        if (value != value) {
            assert_int_equal(bf16_from_float(value), 0x7fff);
            assert_int_equal(bf16_from_double((double)value), 0x7fff);
        } else {
            assert_int_equal(bf16_from_float(value), bits);
            assert_int_equal(bf16_from_double((double)value), bits);
        }
    }
}

/* The middle between two neighbours, exact in double, goes to the even one; anything off the middle to the nearer one. */
static void rounding_is_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x7f7f; bits++) {
        double low = (double)bf16_to_float((uint16_t)bits), high = (double)bf16_to_float((uint16_t)(bits + 1));
        double middle = (low + high) / 2, off = (high - low) * 0x1p-30;
        uint32_t even = bits % 2 == 0 ? bits : bits + 1;
        assert_int_equal(bf16_from_double(middle), even);
        assert_int_equal(bf16_from_double(-middle), even | 0x8000);
        assert_int_equal(bf16_from_double(middle - off), bits);
        assert_int_equal(bf16_from_double(middle + off), bits + 1); /* through the nearest float this would be even */
        assert_int_equal(bf16_from_double(-middle - off), (bits + 1) | 0x8000);
        assert_int_equal(bf16_from_float((float)middle), even);
    }
}

/* The largest number is 255 * 2^120; half a step above it is 511 * 2^119, which is a tie with 2^128. */
static void large_numbers_become_infinite(void **state) {
    (void)state;
    assert_int_equal(bf16_from_double(0x1.fep127), 0x7f7f);
    assert_int_equal(bf16_from_double(nextafter(0x1.ffp127, 0.0)), 0x7f7f);
    assert_int_equal(bf16_from_double(0x1.ffp127), 0x7f80);
    assert_int_equal(bf16_from_double(1e300), 0x7f80);
    assert_int_equal(bf16_from_double(-1e300), 0xff80);
    assert_int_equal(bf16_from_float(INFINITY), 0x7f80);
    assert_int_equal(bf16_from_double(1e-300), 0);
    assert_int_equal(bf16_from_double(-1e-300), 0x8000);
    assert_int_equal(bf16_from_double(nextafter(0x1p-134, 1.0)), 1); /* the smallest number is 2^-133 */
    assert_int_equal(bf16_from_double(0x1p-134), 0);
}

/* --- a layer on the host --------------------------------------------------------------------------------------------- */

enum { RANKS_MAX = 3 };

/* Arrays of one layer, by rank. */
struct layer {
    struct mok_reference reference;
    struct mok_reference_gradients gradients;
    uint16_t *x[RANKS_MAX], *dy[RANKS_MAX], *weights[6][RANKS_MAX]; /* gate, up, down, shared gate, up, down */
    int32_t *expert_ids[RANKS_MAX];
    float *router[RANKS_MAX];
    double *dx[RANKS_MAX], *d_router[RANKS_MAX], *d_weights[6][RANKS_MAX];
};

static size_t matrix_size(const struct layer *l, int kind) {
    const struct mok_reference *r = &l->reference;
    return (size_t)(kind < 3 ? r->experts_per_rank : r->shared_experts) * (size_t)r->hidden * (size_t)r->intermediate;
}

static size_t route_count(const struct layer *l) { return (size_t)l->reference.tokens * (size_t)l->reference.top_k; }

static size_t output_count(const struct layer *l) { return (size_t)l->reference.tokens * (size_t)l->reference.hidden; }

/* All zero, routes to expert 0 with weight 0. */
static struct layer *layer_make(int32_t ranks, int32_t experts_per_rank, int32_t tokens, int32_t hidden, int32_t intermediate,
                                int32_t top_k, int32_t shared_experts) {
    struct layer *l = calloc(1, sizeof *l);
    l->reference = (struct mok_reference){ranks, experts_per_rank, tokens, hidden, intermediate, top_k, shared_experts, 0.0f,
                                          (const uint16_t *const *)l->x, (const int32_t *const *)l->expert_ids,
                                          (const float *const *)l->router, (const uint16_t *const *)l->weights[0],
                                          (const uint16_t *const *)l->weights[1], (const uint16_t *const *)l->weights[2],
                                          (const uint16_t *const *)l->weights[3], (const uint16_t *const *)l->weights[4],
                                          (const uint16_t *const *)l->weights[5]};
    l->gradients = (struct mok_reference_gradients){l->dx, l->d_router, l->d_weights[0], l->d_weights[1], l->d_weights[2],
                                                    l->d_weights[3], l->d_weights[4], l->d_weights[5]};
    for (int32_t rank = 0; rank < ranks; rank++) {
        l->x[rank] = calloc(output_count(l), sizeof(uint16_t));
        l->dy[rank] = calloc(output_count(l), sizeof(uint16_t));
        l->dx[rank] = calloc(output_count(l), sizeof(double));
        l->expert_ids[rank] = calloc(route_count(l), sizeof(int32_t));
        l->router[rank] = calloc(route_count(l), sizeof(float));
        l->d_router[rank] = calloc(route_count(l), sizeof(double));
        for (int kind = 0; kind < 6; kind++) {
            l->weights[kind][rank] = calloc(matrix_size(l, kind) + 1, sizeof(uint16_t));
            l->d_weights[kind][rank] = calloc(matrix_size(l, kind) + 1, sizeof(double));
        }
    }
    return l;
}

static void layer_free(struct layer *l) {
    for (int32_t rank = 0; rank < l->reference.ranks; rank++) {
        free(l->x[rank]);
        free(l->dy[rank]);
        free(l->dx[rank]);
        free(l->expert_ids[rank]);
        free(l->router[rank]);
        free(l->d_router[rank]);
        for (int kind = 0; kind < 6; kind++) free(l->weights[kind][rank]), free(l->d_weights[kind][rank]);
    }
    free(l);
}

static void set(uint16_t *target, size_t count, const double *values) {
    for (size_t i = 0; i < count; i++) {
        target[i] = bf16_from_double(values[i]);
        assert_true((double)bf16_to_float(target[i]) == values[i]); /* the case is meant exactly */
    }
}

static void forward(const struct layer *l, int32_t rank, const int32_t *sample, int32_t count, uint16_t *output) {
    struct error error = {0};
    if (mok_reference_forward(&l->reference, rank, sample, count, output, &error) != ERROR_NONE) fail_msg("%s", error.message);
}

static void backward(struct layer *l, int32_t rounded) {
    struct error error = {0};
    if (mok_reference_backward(&l->reference, (const uint16_t *const *)l->dy, rounded, &l->gradients, &error) != ERROR_NONE)
        fail_msg("%s", error.message);
}

/* --- forward by hand --------------------------------------------------------------------------------------------------- */

/* Two experts, H = 2, I = 1, on two ranks or on one; rank 0 has one token x = (1, 1) with routes of weight 0.5 and 0.25.
 * Expert 0: gate (0.5, 0.5) -> g = 1; up (3, -1) -> u = 2; down (1, -3).  Expert 1: g = -2, u = 1; down (2, 1). */
static struct layer *hand_layer(int32_t ranks, int32_t shared_experts) {
    struct layer *l = layer_make(ranks, 2 / ranks, 1, 2, 1, 2, shared_experts);
    int32_t last = ranks - 1;
    size_t second = ranks == 1 ? 2 : 0;
    for (int32_t rank = 0; rank < ranks; rank++) set(l->x[rank], 2, (const double[]){1, 1});
    set(l->weights[0][0], 2, (const double[]){0.5, 0.5});
    set(l->weights[1][0], 2, (const double[]){3, -1});
    set(l->weights[2][0], 2, (const double[]){1, -3});
    set(l->weights[0][last] + second, 2, (const double[]){-1, -1});
    set(l->weights[1][last] + second, 2, (const double[]){0, 1});
    set(l->weights[2][last] + second, 2, (const double[]){2, 1});
    for (int kind = 0; kind < 3 && shared_experts > 0; kind++) memcpy(l->weights[kind + 3][0], l->weights[kind][last] + second, 4);
    l->expert_ids[0][1] = 1;
    l->router[0][0] = 0.5f;
    l->router[0][1] = 0.25f;
    return l;
}

static void check_hand(const struct layer *l, double first, double second) {
    uint16_t output[2];
    forward(l, 0, NULL, 1, output);
    if ((double)bf16_to_float(output[0]) != first || (double)bf16_to_float(output[1]) != second)
        fail_msg("(%.12g, %.12g), expected (%.12g, %.12g)", (double)bf16_to_float(output[0]), (double)bf16_to_float(output[1]), first,
                 second);
}

/* Expert 0: silu(1) 2 = 1.4621171573; BF16 steps there are 2^-7: 187.15 steps -> 187 = 1.4609375. y = (1.4609375, -4.3828125), the
 *           latter 140.25 steps of 2^-5 -> 140 = -4.375.
 * Expert 1: silu(-2) = -0.2384058440, 244.13 steps of 2^-10 -> 244 = -0.23828125; y = (-0.4765625, -0.23828125), both exact.
 * Sum:      0.5 * 1.4609375 - 0.25 * 0.4765625 = 0.611328125, 156.5 steps of 2^-8: a tie -> 156 = 0.609375
 *           -0.5 * 4.375 - 0.25 * 0.23828125 = -2.2470703125, 143.81 steps of 2^-6 -> 144 = -2.25 */
static void two_routes_by_hand(void **state) {
    (void)state;
    for (int32_t ranks = 1; ranks <= 2; ranks++) {
        struct layer *l = hand_layer(ranks, 0);
        check_hand(l, 0.609375, -2.25);
        layer_free(l);
    }
}

/* 0.5 * 1.4609375 = 187 * 2^-8 and -2.1875 = -140 * 2^-6 are exact. */
static void dropped_routes_add_nothing(void **state) {
    (void)state;
    static const int32_t dropped[] = {-1, -2, 2, INT32_MAX, INT32_MIN};
    struct layer *l = hand_layer(2, 0);
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++) {
        l->expert_ids[0][1] = dropped[i];
        check_hand(l, 0.73046875, -2.1875);
    }
    l->router[0][1] = NAN; /* nor does the weight of a dropped route */
    check_hand(l, 0.73046875, -2.1875);
    l->expert_ids[0][0] = -1;
    check_hand(l, 0.0, 0.0);
    layer_free(l);
}

/* A shared expert like expert 1, with weight 1: -0.4765625 + 0.611328125 = 0.134765625 = 138 * 2^-10;
 * -0.23828125 - 2.2470703125 = -2.4853515625, 159.06 steps of 2^-6 -> 159 = -2.484375 */
static void shared_experts_come_first_with_weight_one(void **state) {
    (void)state;
    struct layer *l = hand_layer(2, 1);
    check_hand(l, 0.134765625, -2.484375);
    layer_free(l);
}

/* Limit 0.5. Expert 0: g and u become 0.5: silu(0.5) 0.5 = 0.1556148328, 159.35 steps of 2^-10 -> 159 = 0.1552734375;
 * y1 = -0.4658203125, 238.5 steps of 2^-9, a tie -> 238 = -0.46484375. Expert 1: g = -2 stays, u = 0.5: -0.1192029220 -> 244 steps of
 * 2^-11 = -0.119140625; y = (-0.23828125, -0.119140625). Sums: 0.01806640625 = 148 * 2^-13; -0.26220703125, 134.25 steps of 2^-9 -> 134 */
static void limits_by_hand(void **state) {
    (void)state;
    struct layer *l = hand_layer(1, 0);
    l->reference.swiglu_clamp = 0.5f;
    check_hand(l, 0.01806640625, -0.26171875);
    layer_free(l);
}

/* --- forward against a model ------------------------------------------------------------------------------------------- */

/* A multiple of 1 / 16 up to 1. */
static double random_sixteenth(struct random_source *source) { return (double)random_between(source, -16, 16) / 16.0; }

static struct layer *random_layer(uint64_t seed, int32_t hidden, int32_t intermediate) {
    struct random_source source = random_seeded(seed);
    struct layer *l = layer_make((int32_t)random_between(&source, 1, RANKS_MAX), (int32_t)random_between(&source, 1, 3),
                                 (int32_t)random_between(&source, 1, 4), hidden, intermediate, (int32_t)random_between(&source, 1, 3),
                                 (int32_t)random_between(&source, 0, 2));
    int32_t experts = l->reference.ranks * l->reference.experts_per_rank;
    for (int32_t rank = 0; rank < l->reference.ranks; rank++) {
        for (size_t i = 0; i < output_count(l); i++) {
            l->x[rank][i] = bf16_from_double(random_sixteenth(&source));
            l->dy[rank][i] = bf16_from_double(random_sixteenth(&source));
        }
        for (int kind = 0; kind < 6; kind++)
            for (size_t i = 0; i < matrix_size(l, kind); i++) l->weights[kind][rank][i] = bf16_from_double(random_sixteenth(&source));
        for (size_t i = 0; i < route_count(l); i++) {
            l->expert_ids[rank][i] = (int32_t)random_between(&source, -1, experts - 1);
            l->router[rank][i] = (float)random_between(&source, -8, 64) / 64.0f;
        }
    }
    return l;
}

/* One output element, as it is defined; rounded like the kernel or not at all. */
static double model_element(const struct layer *l, int32_t rank, int32_t token, int32_t column, int rounded) {
    const struct mok_reference *r = &l->reference;
    double sum = 0.0, limit = r->swiglu_clamp > 0.0f ? (double)r->swiglu_clamp : 1e30;
    for (int32_t slot = -r->shared_experts; slot < r->top_k; slot++) {
        int32_t shared = slot < 0, expert = shared ? slot + r->shared_experts : l->expert_ids[rank][token * r->top_k + slot];
        if (!shared && expert < 0) continue;
        int32_t owner = shared ? rank : expert / r->experts_per_rank, local = shared ? expert : expert % r->experts_per_rank;
        double y = 0.0, weight = shared ? 1.0 : (double)l->router[rank][token * r->top_k + slot];
        for (int32_t i = 0; i < r->intermediate; i++) {
            double g = 0.0, u = 0.0;
            for (int32_t c = 0; c < r->hidden; c++) {
                double x = (double)bf16_to_float(l->x[rank][token * r->hidden + c]);
                int32_t at = (local * r->intermediate + i) * r->hidden + c;
                g += x * (double)bf16_to_float(l->weights[3 * shared][owner][at]);
                u += x * (double)bf16_to_float(l->weights[3 * shared + 1][owner][at]);
            }
            g = g > limit ? limit : g;
            u = u > limit ? limit : u < -limit ? -limit : u;
            double h = g / (1.0 + exp(-g)) * u;
            double w = (double)bf16_to_float(l->weights[3 * shared + 2][owner][(local * r->hidden + column) * r->intermediate + i]);
            y += w * (rounded ? bf16_round(h) : h);
        }
        if (rounded)
            sum = (double)fmaf((float)weight, (float)bf16_round(y), (float)sum);
        else
            sum += weight * y;
    }
    return rounded ? bf16_round(sum) : sum;
}

static void any_layer_is_as_defined(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct layer *l = random_layer(seed, 5 + (int32_t)seed % 20, 1 + (int32_t)seed % 13);
        if (seed % 3 == 0) l->reference.swiglu_clamp = 0.75f;
        uint16_t *output = malloc(output_count(l) * sizeof *output);
        double *exact = malloc(output_count(l) * sizeof *exact);
        for (int32_t rank = 0; rank < l->reference.ranks; rank++) {
            forward(l, rank, NULL, l->reference.tokens, output);
            assert_int_equal(mok_reference_forward_exact(&l->reference, rank, NULL, l->reference.tokens, exact, NULL), ERROR_NONE);
            for (size_t i = 0; i < output_count(l); i++) {
                int32_t token = (int32_t)i / l->reference.hidden, column = (int32_t)i % l->reference.hidden;
                assert_true((double)bf16_to_float(output[i]) == model_element(l, rank, token, column, 1));
                assert_true(fabs(exact[i] - model_element(l, rank, token, column, 0)) < 1e-12);
            }
        }
        free(output);
        free(exact);
        layer_free(l);
    }
}

/* Any selection, in any order and with repetitions, gives the rows of the whole. */
static void a_sample_is_part_of_the_whole(void **state) {
    (void)state;
    for (uint64_t seed = 100; seed < 120; seed++) {
        struct layer *l = random_layer(seed, 24, 16);
        struct random_source source = random_seeded(seed);
        int32_t tokens = l->reference.tokens, sample[6];
        size_t hidden = (size_t)l->reference.hidden;
        uint16_t *whole = malloc(output_count(l) * sizeof *whole), *part = malloc(6 * hidden * sizeof *part);
        forward(l, 0, NULL, tokens, whole);
        for (int i = 0; i < 6; i++) sample[i] = (int32_t)random_between(&source, 0, tokens - 1);
        forward(l, 0, sample, 6, part);
        for (size_t i = 0; i < 6; i++) assert_memory_equal(part + i * hidden, whole + (size_t)sample[i] * hidden, hidden * sizeof *part);
        free(whole);
        free(part);
        layer_free(l);
    }
}

static void bad_arguments_are_named(void **state) {
    (void)state;
    struct layer *l = hand_layer(2, 1);
    struct error error = {0};
    uint16_t output[2];
    int32_t token = 1;
    assert_int_equal(mok_reference_forward(&l->reference, 0, &token, 1, output, &error), ERROR_USAGE);
    assert_string_equal(error.message, "sampled token 1 of 1");
    error = (struct error){0};
    assert_int_equal(mok_reference_forward(&l->reference, 2, NULL, 1, output, &error), ERROR_USAGE);
    assert_string_equal(error.message, "rank 2 of 2");
    assert_int_equal(mok_reference_forward(&l->reference, 0, NULL, 0, NULL, NULL), ERROR_NONE);
    error = (struct error){0};
    l->reference.shared_up = NULL;
    assert_int_equal(mok_reference_forward(&l->reference, 0, NULL, 1, output, &error), ERROR_USAGE);
    assert_non_null(strstr(error.message, "shared experts"));
    error = (struct error){0};
    l->reference.hidden = 0;
    assert_int_equal(mok_reference_backward(&l->reference, (const uint16_t *const *)l->dy, 1, &l->gradients, &error), ERROR_USAGE);
    assert_non_null(strstr(error.message, "hidden 0"));
    layer_free(l);
}

/* --- backward ---------------------------------------------------------------------------------------------------------- */

/* One expert, H = I = 1: x = 1, g = 1, u = 2, down 3, dY = 2, so dH' = 6. sigma(1) = 0.7310585786, h = 1.4621171573. */
static struct layer *hand_backward(int32_t top_k, float s) {
    struct layer *l = layer_make(1, 1, 1, 1, 1, top_k, 0);
    set(l->x[0], 1, (const double[]){1});
    set(l->dy[0], 1, (const double[]){2});
    set(l->weights[0][0], 1, (const double[]){1});
    set(l->weights[1][0], 1, (const double[]){2});
    set(l->weights[2][0], 1, (const double[]){3});
    l->router[0][0] = s;
    return l;
}

static void check_near(double value, double expected) {
    if (!(fabs(value - expected) <= 1e-9 * fmax(1.0, fabs(expected)))) fail_msg("%.12g, expected %.12g", value, expected);
}

static void check_gradients(struct layer *l, int32_t rounded, double dx, double ds, double gate, double up, double down) {
    backward(l, rounded);
    check_near(l->dx[0][0], dx);
    check_near(l->d_router[0][0], ds);
    check_near(l->d_weights[0][0][0], gate);
    check_near(l->d_weights[1][0][0], up);
    check_near(l->d_weights[2][0][0], down);
}

/* s = 0.5: ds = 6 h = 8.7727029436. dG = 3 * 2 * sigma (2 - sigma) = 5.5660230714, 178.11 steps of 2^-5 -> 178 = 5.5625.
 * dU = 3 sigma = 2.1931757359, 140.36 steps of 2^-6 -> 140 = 2.1875. s h = 0.7310585786 -> 187 steps of 2^-8 = 0.73046875.
 * dX = dG + 2 dU = 9.9375 = 159 * 2^-4. Weight gradients: dG x, dU x, dY s h. */
static void gradients_by_hand(void **state) {
    (void)state;
    const double sigma = 1.0 / (1.0 + exp(-1.0));
    struct layer *l = hand_backward(1, 0.5f);
    check_gradients(l, 1, 9.9375, 12 * sigma, 5.5625, 2.1875, 1.4609375);
    check_gradients(l, 0, 6 * sigma * (2 - sigma) + 6 * sigma, 12 * sigma, 6 * sigma * (2 - sigma), 3 * sigma, 2 * sigma);
    l->router[0][0] = 0.0f; /* ds does not come from a scaled gradient */
    check_gradients(l, 1, 0.0, 12 * sigma, 0.0, 0.0, 0.0);
    l->router[0][0] = -0.5f;
    check_gradients(l, 1, -9.9375, 12 * sigma, -5.5625, -2.1875, -1.4609375);
    l->expert_ids[0][0] = -1;
    check_gradients(l, 1, 0.0, 0.0, 0.0, 0.0, 0.0);
    layer_free(l);
}

/* Routes with s = 0.375 and 0.5. The first's dG = 134 * 2^-5 = 4.1875, dU = 211 * 2^-7 = 1.6484375, dX = 7.484375, 239.5 steps of 2^-5
 * -> 240 = 7.5; with the second's 9.9375 (above) 17.4375, 139.5 steps of 2^-3 -> 140 = 17.5. Not rounded in its slot it would be
 * 17.421875 -> 17.375. */
static void gradients_of_x_are_rounded_in_their_slots(void **state) {
    (void)state;
    struct layer *l = hand_backward(2, 0.375f);
    l->router[0][1] = 0.5f;
    backward(l, 1);
    check_near(l->dx[0][0], 17.5);
    check_near(l->d_weights[0][0][0], 4.1875 + 5.5625);
    layer_free(l);
}

/* Limit 0.5: g and u are limited, so their gradients are 0; h = sigma(0.5) 0.5 * 0.5 = 0.1556148328, s h -> 159 * 2^-11.
 * At the limit itself (1: g = 1, u = 2 limited) the gradient of g passes, with u = 1: dG = 3 sigma (2 - sigma) = 2.7830115357, 178.11
 * steps of 2^-6 -> 2.78125; h = sigma; dU = 0. */
static void limited_gradients_by_hand(void **state) {
    (void)state;
    const double sigma = 1.0 / (1.0 + exp(-1.0));
    struct layer *l = hand_backward(1, 0.5f);
    l->reference.swiglu_clamp = 0.5f;
    check_gradients(l, 1, 0.0, 6 * 0.25 / (1.0 + exp(-0.5)), 0.0, 0.0, 2 * 159 * 0x1p-11);
    l->reference.swiglu_clamp = 1.0f;
    check_gradients(l, 1, 2.78125, 6 * sigma, 2.78125, 0.0, 2 * 187 * 0x1p-9);
    layer_free(l);
}

/* g = 1 + 2^-9 rounds to 1; it must stay on its side of the limit. Limit 1: limited, as in the forward pass. Limit 1 + 2^-8 + 2^-9,
 * g = 1 + 2^-8 + 2^-10 would round above it, to 1 + 2^-7: not limited. */
static void rounding_does_not_cross_the_limit(void **state) {
    (void)state;
    struct layer *l = layer_make(1, 1, 1, 3, 1, 1, 0);
    l->router[0][0] = 1.0f;
    set(l->dy[0], 3, (const double[]){1, 1, 1});
    set(l->weights[2][0], 3, (const double[]){1, 1, 1});
    set(l->weights[1][0], 3, (const double[]){1, 0, 0});
    set(l->x[0], 3, (const double[]){1, 1, 1});
    set(l->weights[0][0], 3, (const double[]){1, 0x1p-9, 0});
    l->reference.swiglu_clamp = 1.0f;
    backward(l, 1);
    assert_true(l->d_weights[0][0][0] == 0.0);
    assert_true(l->d_weights[1][0][0] != 0.0); /* u = 1 is at the limit, not above */
    set(l->weights[0][0], 3, (const double[]){1, 0x1p-8, 0x1p-10});
    l->reference.swiglu_clamp = 1.0f + 0x1p-8f + 0x1p-9f;
    backward(l, 1);
    assert_true(l->d_weights[0][0][0] != 0.0);
    layer_free(l);
}

static double loss(const struct layer *l) {
    double sum = 0.0, *output = malloc(output_count(l) * sizeof *output);
    for (int32_t rank = 0; rank < l->reference.ranks; rank++) {
        assert_int_equal(mok_reference_forward_exact(&l->reference, rank, NULL, l->reference.tokens, output, NULL), ERROR_NONE);
        for (size_t i = 0; i < output_count(l); i++) sum += output[i] * (double)bf16_to_float(l->dy[rank][i]);
    }
    free(output);
    return sum;
}

static double loss_with(const struct layer *l, uint16_t *element, double value) {
    uint16_t kept = *element;
    set(element, 1, &value);
    double result = loss(l);
    *element = kept;
    return result;
}

/* Central differences of two widths, extrapolated (Richardson): the error is of the fourth order in 2^-5, about 1e-6. Inputs are
 * multiples of 1 / 16, so that they are BF16 numbers 2^-5 and 2^-6 away, too. */
static double difference(const struct layer *l, uint16_t *element) {
    double at = (double)bf16_to_float(*element), quotient[2];
    for (int i = 0; i < 2; i++) {
        double step = i == 0 ? 0x1p-5 : 0x1p-6;
        quotient[i] = (loss_with(l, element, at + step) - loss_with(l, element, at - step)) / (2 * step);
    }
    return (4 * quotient[1] - quotient[0]) / 3;
}

static void check_tensor(const struct layer *l, uint16_t *values, const double *gradient, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        double expected = difference(l, values + i);
        if (!(fabs(gradient[i] - expected) < 2e-5 * fmax(1.0, fabs(expected))))
            fail_msg("%s [%zu]: %.9g, the differences say %.9g", name, i, gradient[i], expected);
    }
}

static void gradients_are_those_of_the_forward_pass(void **state) {
    (void)state;
    static const char *const names[] = {"w_gate", "w_up", "w_down", "shared w_gate", "shared w_up", "shared w_down"};
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct layer *l = random_layer(seed, 5, 3);
        backward(l, 0);
        for (int32_t rank = 0; rank < l->reference.ranks; rank++) {
            check_tensor(l, l->x[rank], l->dx[rank], output_count(l), "x");
            for (int kind = 0; kind < 6; kind++)
                check_tensor(l, l->weights[kind][rank], l->d_weights[kind][rank], matrix_size(l, kind), names[kind]);
            for (size_t i = 0; i < route_count(l); i++) { /* the loss is linear in a router weight */
                float kept = l->router[rank][i];
                double before = loss(l);
                l->router[rank][i] = kept + 1.0f;
                double after = loss(l);
                l->router[rank][i] = kept;
                assert_true(fabs(after - before - l->d_router[rank][i]) < 1e-6);
            }
        }
        layer_free(l);
    }
}

/* Rounding moves each gradient by a few of its tensor's 2^-8. */
static void rounding_changes_gradients_little(void **state) {
    (void)state;
    for (uint64_t seed = 50; seed < 60; seed++) {
        struct layer *l = random_layer(seed, 16, 12);
        size_t count = matrix_size(l, 0), changed = 0;
        double *exact = malloc(count * sizeof *exact), largest = 0.0;
        backward(l, 0);
        for (size_t i = 0; i < count; i++) exact[i] = l->d_weights[0][0][i], largest = fmax(largest, fabs(exact[i]));
        backward(l, 1);
        for (size_t i = 0; i < count; i++) {
            changed += l->d_weights[0][0][i] != exact[i];
            assert_true(fabs(l->d_weights[0][0][i] - exact[i]) <= 0.02 * largest);
        }
        assert_true(largest == 0.0 || changed > 0);
        for (size_t i = 0; i < output_count(l); i++) assert_true(bf16_round(l->dx[0][i]) == l->dx[0][i]);
        free(exact);
        layer_free(l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bf16_survives),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(large_numbers_become_infinite),
        cmocka_unit_test(two_routes_by_hand),
        cmocka_unit_test(dropped_routes_add_nothing),
        cmocka_unit_test(shared_experts_come_first_with_weight_one),
        cmocka_unit_test(limits_by_hand),
        cmocka_unit_test(any_layer_is_as_defined),
        cmocka_unit_test(a_sample_is_part_of_the_whole),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(gradients_by_hand),
        cmocka_unit_test(gradients_of_x_are_rounded_in_their_slots),
        cmocka_unit_test(limited_gradients_by_hand),
        cmocka_unit_test(rounding_does_not_cross_the_limit),
        cmocka_unit_test(gradients_are_those_of_the_forward_pass),
        cmocka_unit_test(rounding_changes_gradients_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
