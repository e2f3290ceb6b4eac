/* kernels/routing.c: distributions against their probabilities, folding, routes files good and bad, and row tables against a model
 * that deals routes out as one would by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../kernels/routing.h"
#include "random_source.h"

static struct routing_request request_of(enum routing_kind kind, int32_t ranks, int32_t tokens, int32_t top_k, int32_t experts_per_rank,
                                         int32_t model_experts) {
    return (struct routing_request){ranks, tokens, top_k, experts_per_rank, model_experts, kind, 1.2, 0.0, 7};
}

static struct routes draw(struct routing_request request) {
    struct routes routes;
    struct error error = {0};
    if (routes_draw(&routes, &request, &error) != ERROR_NONE) fail_msg("%s", error.message);
    return routes;
}

static size_t route_count(const struct routes *r) { return (size_t)r->ranks * (size_t)r->tokens * (size_t)r->top_k; }

/* --- drawing --------------------------------------------------------------------------------------------------------- */

/* Expert e of a token's top_k has probability inclusion[e]; the counts of independent tokens lie within 6 standard deviations of
 * the mean. */
static void check_inclusion(struct routing_request request, const double *inclusion) {
    struct routes routes = draw(request);
    double tokens = (double)request.ranks * request.tokens;
    int32_t *counts = calloc((size_t)routes.experts, sizeof *counts);
    for (size_t i = 0; i < route_count(&routes); i++) {
        assert_in_range(routes.expert_ids[i], 0, routes.experts - 1);
        counts[routes.expert_ids[i]]++;
    }
    for (int32_t e = 0; e < routes.experts; e++) {
        double mean = tokens * inclusion[e], deviation = sqrt(mean * (1.0 - inclusion[e]));
        if (fabs(counts[e] - mean) > 6.0 * deviation + 1e-9)
            fail_msg("%s, expert %d: %d routes, expected %.0f +- %.0f", routing_kind_name(request.kind), e, counts[e], mean, deviation);
    }
    free(counts);
    routes_free(&routes);
}

/* Probability that expert e is among the first two drawn without replacement with these weights. */
static void two_of(const double *weight, int32_t experts, double *inclusion) {
    double total = 0.0;
    for (int32_t e = 0; e < experts; e++) total += weight[e];
    for (int32_t e = 0; e < experts; e++) {
        inclusion[e] = weight[e] / total;
        for (int32_t first = 0; first < experts; first++)
            if (first != e) inclusion[e] += weight[first] / total * weight[e] / (total - weight[first]);
    }
}

static void uniform_draws_every_expert_alike(void **state) {
    (void)state;
    double inclusion[24];
    for (int32_t e = 0; e < 24; e++) inclusion[e] = 5.0 / 24.0;
    check_inclusion(request_of(ROUTING_UNIFORM, 2, 4000, 5, 12, 24), inclusion);
}

static void zipf_follows_its_exponent(void **state) {
    (void)state;
    static const double exponents[] = {0.0, 0.7, 1.2, 3.0};
    for (size_t i = 0; i < sizeof exponents / sizeof exponents[0]; i++) {
        struct routing_request request = request_of(ROUTING_ZIPF, 2, 5000, 2, 5, 10);
        double weight[10], inclusion[10];
        request.zipf_exponent = exponents[i];
        for (int32_t e = 0; e < 10; e++) weight[e] = pow(e + 1, -exponents[i]);
        two_of(weight, 10, inclusion);
        check_inclusion(request, inclusion);
    }
}

static void hot_expert_weighs_as_much_as_all_others(void **state) {
    (void)state;
    double weight[8] = {7, 1, 1, 1, 1, 1, 1, 1}, inclusion[8];
    two_of(weight, 8, inclusion);
    check_inclusion(request_of(ROUTING_HOT, 1, 8000, 2, 8, 8), inclusion);
    for (int32_t e = 0; e < 8; e++) inclusion[e] = weight[e] / 14.0;
    check_inclusion(request_of(ROUTING_HOT, 2, 5000, 1, 4, 8), inclusion);
}

static void empty_leaves_half_the_experts_without_routes(void **state) {
    (void)state;
    double inclusion[12] = {0};
    for (int32_t e = 0; e < 6; e++) inclusion[e] = 4.0 / 6.0;
    check_inclusion(request_of(ROUTING_EMPTY, 3, 2000, 4, 4, 64), inclusion);
}

static void one_rank_gets_everything(void **state) {
    (void)state;
    double inclusion[12] = {0};
    for (int32_t e = 0; e < 4; e++) inclusion[e] = 3.0 / 4.0;
    check_inclusion(request_of(ROUTING_ONE_RANK, 3, 2000, 3, 4, 64), inclusion);
}

/* Where fewer experts are left than routes a token, they repeat. */
static void narrow_kinds_repeat_experts(void **state) {
    (void)state;
    struct routes routes = draw(request_of(ROUTING_ONE_RANK, 2, 50, 8, 2, 16));
    for (size_t i = 0; i < route_count(&routes); i++) assert_in_range(routes.expert_ids[i], 0, 1);
    routes_free(&routes);
    routes = draw(request_of(ROUTING_EMPTY, 1, 50, 4, 1, 4));
    for (size_t i = 0; i < route_count(&routes); i++) assert_int_equal(routes.expert_ids[i], 0);
    routes_free(&routes);
}

static void check_no_repetition(const struct routes *routes) {
    for (size_t first = 0; first < route_count(routes); first += (size_t)routes->top_k)
        for (int32_t j = 0; j < routes->top_k; j++)
            for (int32_t i = 0; i < j; i++)
                assert_int_not_equal(routes->expert_ids[first + (size_t)i], routes->expert_ids[first + (size_t)j]);
}

/* The model's experts fold onto those present by id mod present: draws of one seed, folded and not. */
static void folding_takes_the_remainder(void **state) {
    (void)state;
    static const enum routing_kind kinds[] = {ROUTING_UNIFORM, ROUTING_ZIPF, ROUTING_HOT};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct routes whole = draw(request_of(kinds[k], 4, 200, 6, 12, 48)), folded = draw(request_of(kinds[k], 4, 200, 6, 2, 48));
        int repeated = 0;
        assert_int_equal(folded.experts, 8);
        check_no_repetition(&whole);
        for (size_t i = 0; i < route_count(&whole); i++) {
            assert_int_equal(folded.expert_ids[i], whole.expert_ids[i] % 8);
            repeated += i % 6 != 0 && folded.expert_ids[i] == folded.expert_ids[i - 1];
        }
        assert_true(repeated > 0); /* a token may visit an expert twice after folding */
        routes_free(&whole);
        routes_free(&folded);
    }
    struct routes all = draw(request_of(ROUTING_ZIPF, 1, 100, 16, 16, 16)); /* every expert, whatever its weight */
    check_no_repetition(&all);
    routes_free(&all);
}

static void weights_are_positive_and_sum_to_one(void **state) {
    (void)state;
    for (int32_t top_k = 1; top_k <= SCHEDULE_TOP_K_MAX; top_k += 5) {
        struct routes routes = draw(request_of(ROUTING_UNIFORM, 2, 100, top_k, 16, 32));
        double spread = 0.0;
        for (size_t first = 0; first < route_count(&routes); first += (size_t)top_k) {
            double sum = 0.0;
            for (int32_t j = 0; j < top_k; j++) {
                float weight = routes.weights[first + (size_t)j];
                assert_true(weight > 0.0f && weight <= 1.0f);
                sum += (double)weight;
                spread = fmax(spread, fabs((double)weight - 1.0 / top_k));
            }
            assert_true(fabs(sum - 1.0) < 1e-6);
        }
        assert_true(top_k == 1 || spread > 0.05);
        routes_free(&routes);
    }
}

static void dropping_takes_its_share(void **state) {
    (void)state;
    static const double shares[] = {0.0, 0.01, 0.25, 1.0};
    for (size_t s = 0; s < sizeof shares / sizeof shares[0]; s++) {
        struct routing_request request = request_of(ROUTING_UNIFORM, 2, 4000, 4, 8, 16);
        request.dropped = shares[s];
        struct routes routes = draw(request);
        double dropped = 0.0, count = (double)route_count(&routes);
        for (size_t i = 0; i < route_count(&routes); i++) dropped += routes.expert_ids[i] == -1;
        assert_true(fabs(dropped - shares[s] * count) <= 6.0 * sqrt(count * shares[s] * (1.0 - shares[s])));
        routes_free(&routes);
    }
}

static void a_seed_fixes_everything(void **state) {
    (void)state;
    for (int kind = 0; kind < ROUTING_KIND_COUNT; kind++) {
        struct routing_request request = request_of((enum routing_kind)kind, 2, 60, 4, 8, 32);
        request.dropped = 0.2;
        struct routes first = draw(request), second = draw(request);
        request.seed++;
        struct routes other = draw(request);
        assert_memory_equal(first.expert_ids, second.expert_ids, route_count(&first) * sizeof(int32_t));
        assert_memory_equal(first.weights, second.weights, route_count(&first) * sizeof(float));
        assert_true(memcmp(first.expert_ids, other.expert_ids, route_count(&first) * sizeof(int32_t)) != 0);
        routes_free(&first);
        routes_free(&second);
        routes_free(&other);
    }
}

static void kinds_have_names(void **state) {
    (void)state;
    for (int kind = 0; kind < ROUTING_KIND_COUNT; kind++)
        assert_int_equal(routing_kind_find(routing_kind_name((enum routing_kind)kind)), kind);
    assert_int_equal(routing_kind_find("ROUND"), ROUTING_KIND_COUNT);
    assert_int_equal(routing_kind_find(""), ROUTING_KIND_COUNT);
}

static void check_refused(struct routing_request request, const char *part) {
    struct routes routes;
    struct error error = {0};
    assert_int_equal(routes_draw(&routes, &request, &error), ERROR_USAGE);
    if (strstr(error.message, part) == NULL) fail_msg("'%s' is not in '%s'", part, error.message);
    assert_null(routes.expert_ids);
    assert_true(routes_draw(&routes, &request, NULL) < 0);
}

static void bad_requests_are_named(void **state) {
    (void)state;
    struct routing_request good = request_of(ROUTING_ZIPF, 2, 10, 4, 8, 16), bad = good;
    bad.dropped = 1.5;
    check_refused(bad, "dropped share 1.5");
    bad.dropped = NAN;
    check_refused(bad, "dropped share nan");
    bad = good;
    bad.zipf_exponent = -1.0;
    check_refused(bad, "zipf exponent -1");
    bad = good;
    bad.model_experts = 3;
    check_refused(bad, "3 experts are fewer than top-k 4");
    bad = good;
    bad.top_k = 17;
    check_refused(bad, "top-k 17");
    bad = good;
    bad.kind = ROUTING_KIND_COUNT;
    check_refused(bad, "unknown routing");
}

/* --- files ----------------------------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/routing_test_XXXXXX";
static char path[64];

static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/routes", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_bytes(const char *text, size_t length) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void files_keep_every_bit(void **state) {
    (void)state;
    struct routing_request request = request_of(ROUTING_ZIPF, 3, 40, 5, 6, 24);
    struct routes read, written;
    struct error error = {0};
    unlink(path);
    request.dropped = 0.3;
    written = draw(request);
    written.weights[0] = 0x1.fffffep-127f; /* subnormal */
    written.weights[1] = -0.0f;
    written.weights[2] = 0x1.fffffep127f;
    assert_int_equal(routes_write(&written, path, &error), ERROR_NONE);
    assert_int_equal(routes_read(&read, path, &error), ERROR_NONE);
    assert_int_equal(read.ranks, 3);
    assert_int_equal(read.tokens, 40);
    assert_int_equal(read.top_k, 5);
    assert_int_equal(read.experts, 18);
    assert_memory_equal(read.expert_ids, written.expert_ids, route_count(&read) * sizeof(int32_t));
    assert_memory_equal(read.weights, written.weights, route_count(&read) * sizeof(float));
    assert_int_equal(routes_write(&written, path, &error), ERROR_USAGE); /* it is there */
    assert_non_null(strstr(error.message, path));
    routes_free(&read);
    routes_free(&written);
}

static void a_file_written_by_hand_is_read(void **state) {
    (void)state;
    static const char text[] = "mokscope routes 1 ranks 1 tokens 2 top_k 2 experts 4\r\n 3:0.5\t0:1e-1 \r\n-1:0 2:.25";
    struct routes routes;
    struct error error = {0};
    write_bytes(text, sizeof text - 1);
    assert_int_equal(routes_read(&routes, path, &error), ERROR_NONE);
    static const int32_t ids[] = {3, 0, -1, 2};
    static const float weights[] = {0.5f, 0.1f, 0.0f, 0.25f};
    assert_memory_equal(routes.expert_ids, ids, sizeof ids);
    assert_memory_equal(routes.weights, weights, sizeof weights);
    routes_free(&routes);
}

#define HEADER "mokscope routes 1 ranks 1 tokens 2 top_k 2 experts 4\n"

static void malformed_files_are_refused_by_line_and_value(void **state) {
    (void)state;
    static const struct malformed {
        const char *text;
        size_t length; /* 0: strlen */
        int line;
        const char *part;
    } cases[] = {
        {"", 0, 1, "empty"},
        {"id,weight\n", 0, 1, "not the first line"},
        {"mokscope routes 2 ranks 1\n", 0, 1, "version '2'"},
        {"mokscope routes x\n", 0, 1, "version 'x'"},
        {"mokscope routes 1\n", 0, 1, "'ranks' expected"},
        {"mokscope routes 1 ranks 9 tokens 2 top_k 2 experts 4\n", 0, 1, "ranks '9' is not a number from 1 to 8"},
        {"mokscope routes 1 ranks 0 tokens 2 top_k 2 experts 4\n", 0, 1, "ranks '0'"},
        {"mokscope routes 1 ranks 1 tokens 1048577 top_k 2 experts 4\n", 0, 1, "tokens '1048577'"},
        {"mokscope routes 1 ranks 1 tokens 99999999999999999999 top_k 2 experts 4\n", 0, 1, "tokens '99999999999999999999'"},
        {"mokscope routes 1 ranks 1 tokens 2 top_k 17 experts 4\n", 0, 1, "top_k '17'"},
        {"mokscope routes 1 ranks 1 tokens 2 top_k two experts 4\n", 0, 1, "top_k 'two'"},
        {"mokscope routes 1 ranks 1 tokens 2 top_k 2 experts 513\n", 0, 1, "experts '513'"},
        {"mokscope routes 1 ranks 1 tokens 2 top_k 2 experts 4x\n", 0, 1, "experts '4x'"},
        {"mokscope routes 1 ranks 1 tokens 2 top_k 2 experts 4 more\n", 0, 1, "'more' after the last value"},
        {"mokscope routes 1 tokens 2 ranks 1 top_k 2 experts 4\n", 0, 1, "'ranks' expected, found 'tokens'"},
        {HEADER "0:1 1:1\n", 0, 3, "ends before its last token"},
        {HEADER "0:1 1:1\n0:1 1:1\n0:1 1:1\n", 0, 4, "a line after the last of 2 tokens"},
        {HEADER "0:1 1:1\n0:1 1:1\n\n", 0, 4, "a line after the last of 2 tokens"},
        {HEADER "\n0:1 1:1\n", 0, 2, "0 fields, top_k is 2"},
        {HEADER "0:1 1:1\n0:1\n", 0, 3, "1 fields, top_k is 2"},
        {HEADER "0:1 1:1 2:1\n0:1 1:1\n", 0, 2, "'2:1' is one field more than top_k 2"},
        {HEADER "0:1 4:1\n0:1 1:1\n", 0, 2, "expert id in '4:1' is not in -1..3"},
        {HEADER "0:1 1:1\n-2:1 1:1\n", 0, 3, "expert id in '-2:1'"},
        {HEADER "0:1 99999999999999999999:1\n", 0, 2, "expert id in '99999999999999999999:1'"},
        {HEADER "0:1 a:1\n", 0, 2, "field 'a:1' is not id:weight"},
        {HEADER "0:1 1\n", 0, 2, "field '1' is not id:weight"},
        {HEADER "0 :1 1:1\n", 0, 2, "field '0' is not id:weight"},
        {HEADER "0: 1 1:1\n", 0, 2, "weight in '0:' is not"},
        {HEADER "0:1 1:nan\n", 0, 2, "weight in '1:nan' is not a finite number"},
        {HEADER "0:inf 1:1\n", 0, 2, "weight in '0:inf'"},
        {HEADER "0:1e39 1:1\n", 0, 2, "weight in '0:1e39'"},
        {HEADER "0:0.5x 1:1\n", 0, 2, "weight in '0:0.5x'"},
        {HEADER "0:1,1:1\n", 0, 2, "weight in '0:1,1:1'"},
        {HEADER "0:1 1:1\0\n0:1 1:1\n", sizeof HEADER "0:1 1:1\0\n0:1 1:1\n" - 1, 2, "NUL byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct routes routes;
        struct error error = {0};
        char where[96];
        write_bytes(cases[i].text, cases[i].length > 0 ? cases[i].length : strlen(cases[i].text));
        snprintf(where, sizeof where, "'%s' line %d: ", path, cases[i].line);
        if (routes_read(&routes, path, &error) != ERROR_USAGE) fail_msg("accepted: %s", cases[i].text);
        if (strncmp(error.message, where, strlen(where)) != 0 || strstr(error.message, cases[i].part) == NULL)
            fail_msg("'%s%s' expected, but: %s", where, cases[i].part, error.message);
        assert_true(error.hint[0] != '\0');
        assert_null(routes.expert_ids);
    }
}

static void missing_and_unwritable_files_are_named(void **state) {
    (void)state;
    struct routes routes = draw(request_of(ROUTING_UNIFORM, 1, 4, 1, 4, 4)), none;
    struct error error = {0};
    assert_int_equal(routes_read(&none, "/nonexistent/routes", &error), ERROR_USAGE);
    assert_non_null(strstr(error.message, "'/nonexistent/routes'"));
    error = (struct error){0};
    assert_int_equal(routes_write(&routes, "/nonexistent/routes", &error), ERROR_USAGE);
    assert_non_null(strstr(error.message, "'/nonexistent/routes'"));
    error = (struct error){0};
    assert_int_equal(routes_read(&none, folder, &error), ERROR_FAILURE); /* a folder opens, but does not read */
    assert_non_null(strstr(error.message, folder));
    routes_free(&routes);
}

/* --- row table ------------------------------------------------------------------------------------------------------- */

/* Rows as dealt by hand: per expert a pile of routes for each peer in route order; deal one from each pile in turn until all are
 * empty, then pad. Writes rows up to `most` and returns their number. */
static int32_t deal_rows(const struct schedule *s, const struct routes *routes, int32_t rank, int32_t *peers, int32_t *route_numbers) {
    const struct layer_shape *shape = &s->shape;
    int32_t count = 0, slots = shape->shared_experts + shape->top_k;
    for (int32_t e = -shape->shared_experts; e < shape->experts_per_rank; e++) {
        int32_t at[SCHEDULE_RANKS_MAX] = {0}, dealt = 1;
        for (int32_t token = 0; e < 0 && token < shape->tokens; token++, count++) {
            peers[count] = rank;
            route_numbers[count] = token * slots + shape->shared_experts + e;
        }
        while (e >= 0 && dealt > 0) {
            dealt = 0;
            for (int32_t peer = 0; peer < shape->rank_count; peer++) {
                const int32_t *ids = routes->expert_ids + peer * shape->tokens * shape->top_k;
                while (at[peer] < shape->tokens * shape->top_k && ids[at[peer]] != rank * shape->experts_per_rank + e) at[peer]++;
                if (at[peer] == shape->tokens * shape->top_k) continue;
                peers[count] = peer;
                route_numbers[count++] = at[peer] / shape->top_k * slots + shape->shared_experts + at[peer] % shape->top_k;
                at[peer]++;
                dealt++;
            }
        }
        for (; count % s->tile.rows != 0; count++) peers[count] = -1;
    }
    return count;
}

static struct schedule table_schedule(struct random_source *source) {
    struct schedule s;
    memset(&s, 0, sizeof s);
    s.shape = (struct layer_shape){(int32_t)random_between(source, 1, 8), (int32_t)random_between(source, 1, 6),
                                   (int32_t)random_between(source, 1, 40), 64, 32, (int32_t)random_between(source, 1, 6),
                                   (int32_t)random_between(source, 0, 4)};
    s.tile = (struct schedule_tile){8, 8, 8, 4};
    s.knobs = (struct schedule_knobs){1, 16, 32, 1, COMBINE_DIRECT, 0, 0};
    s.knobs.capacity_rows = (int32_t)schedule_capacity_rows_safe(&s.shape, &s.tile);
    return s;
}

static void check_table(const struct schedule *s, const struct routes *routes, int32_t rank) {
    size_t capacity = (size_t)s->knobs.capacity_rows;
    int32_t *memory = malloc(4 * capacity * sizeof *memory), *peers = memory, *numbers = memory + capacity;
    int32_t *expected_peers = memory + 2 * capacity, *expected_numbers = memory + 3 * capacity;
    struct schedule_rows rows;
    struct error error = {0};
    memset(memory, 0x55, 4 * capacity * sizeof *memory);
    if (routing_table_build(s, routes, rank, &rows, peers, numbers, &error) != ERROR_NONE) fail_msg("%s", error.message);
    int32_t total = deal_rows(s, routes, rank, expected_peers, expected_numbers);
    assert_int_equal(schedule_total_rows(s, &rows), total);
    for (int32_t row = 0; row < total; row++) {
        assert_int_equal(peers[row], expected_peers[row]);
        if (peers[row] >= 0) assert_int_equal(numbers[row], expected_numbers[row]);
    }
    for (size_t row = (size_t)total; row < capacity; row++) assert_int_equal(peers[row], 0x55555555);
    free(memory);
}

static void tables_are_dealt_round_robin(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct random_source source = random_seeded(seed);
        struct schedule s = table_schedule(&source);
        struct routing_request request = request_of((enum routing_kind)random_below(&source, ROUTING_KIND_COUNT), s.shape.rank_count,
                                                    s.shape.tokens, s.shape.top_k, s.shape.experts_per_rank,
                                                    s.shape.top_k + (int32_t)random_below(&source, 60));
        request.dropped = (double)random_below(&source, 5) / 4.0;
        request.seed = seed;
        struct routes routes = draw(request);
        for (int32_t rank = 0; rank < s.shape.rank_count; rank++) check_table(&s, &routes, rank);
        routes_free(&routes);
    }
}

/* Three experts of rank 1 (ids 3, 4, 5) with 5, 0 and 9 rows pad to 8, 0 and 16 rows: 24, and the capacity is 16, so the last expert
 * is the one that does not fit. */
static void overflow_is_named(void **state) {
    (void)state;
    struct schedule s = {.shape = {2, 3, 7, 64, 32, 1, 0}, .tile = {8, 8, 8, 4}, .knobs = {1, 8, 16, 1, COMBINE_DIRECT, 16, 0}};
    int32_t ids[14] = {3, 3, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 5, 5}, peers[24], numbers[24];
    float weights[14] = {0};
    struct routes routes = {2, 7, 1, 6, ids, weights};
    struct schedule_rows rows;
    struct error error = {0};
    memset(peers, 0x55, sizeof peers);
    assert_int_equal(routing_table_build(&s, &routes, 1, &rows, peers, numbers, &error), ERROR_USAGE);
    assert_string_equal(error.message, "rank 1 overflows at expert 5: 24 rows with padding, capacity 16");
    assert_non_null(strstr(error.hint, "24"));
    for (int32_t row = 0; row < 24; row++) assert_int_equal(peers[row], 0x55555555);
    s.knobs.capacity_rows = 24;
    error = (struct error){0};
    assert_int_equal(routing_table_build(&s, &routes, 1, &rows, peers, numbers, &error), ERROR_NONE);
    s.shape.shared_experts = 2; /* 7 tokens pad to 8 rows each */
    s.knobs.capacity_rows = 8;
    assert_int_equal(routing_table_build(&s, &routes, 1, &rows, peers, numbers, &error), ERROR_USAGE);
    assert_string_equal(error.message, "rank 1 overflows at shared expert 1: 40 rows with padding, capacity 8");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_draws_every_expert_alike),
        cmocka_unit_test(zipf_follows_its_exponent),
        cmocka_unit_test(hot_expert_weighs_as_much_as_all_others),
        cmocka_unit_test(empty_leaves_half_the_experts_without_routes),
        cmocka_unit_test(one_rank_gets_everything),
        cmocka_unit_test(narrow_kinds_repeat_experts),
        cmocka_unit_test(folding_takes_the_remainder),
        cmocka_unit_test(weights_are_positive_and_sum_to_one),
        cmocka_unit_test(dropping_takes_its_share),
        cmocka_unit_test(a_seed_fixes_everything),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(bad_requests_are_named),
        cmocka_unit_test(files_keep_every_bit),
        cmocka_unit_test(a_file_written_by_hand_is_read),
        cmocka_unit_test(malformed_files_are_refused_by_line_and_value),
        cmocka_unit_test(missing_and_unwritable_files_are_named),
        cmocka_unit_test(tables_are_dealt_round_robin),
        cmocka_unit_test(overflow_is_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
