/* See routing.h. */
#include "routing.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule_error.h"

/* --- drawing --------------------------------------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* In (0, 1). */
static double random_unit(uint64_t *state) { return ((double)(random_next(state) >> 11) + 0.5) * 0x1p-53; }

const char *routing_kind_name(enum routing_kind kind) {
    static const char *const names[ROUTING_KIND_COUNT] = {"uniform", "zipf", "hot", "empty", "one-rank"};
    return kind >= 0 && kind < ROUTING_KIND_COUNT ? names[kind] : "?";
}

enum routing_kind routing_kind_find(const char *name) {
    int kind = 0;
    while (kind < ROUTING_KIND_COUNT && strcmp(name, routing_kind_name((enum routing_kind)kind)) != 0) kind++;
    return (enum routing_kind)kind;
}

static int routes_allocate(struct routes *routes, struct error *error) {
    size_t count = (size_t)routes->ranks * (size_t)routes->tokens * (size_t)routes->top_k;
    routes->expert_ids = malloc((count + 1) * sizeof *routes->expert_ids);
    routes->weights = malloc((count + 1) * sizeof *routes->weights);
    if (routes->expert_ids != NULL && routes->weights != NULL) return ERROR_NONE;
    routes_free(routes);
    return error_set(error, ERROR_FAILURE, "out of memory for %zu routes", count);
}

void routes_free(struct routes *routes) {
    free(routes->expert_ids);
    free(routes->weights);
    routes->expert_ids = NULL;
    routes->weights = NULL;
}

static double expert_weight(const struct routing_request *r, int32_t expert) {
    if (r->kind == ROUTING_ZIPF) return pow((double)expert + 1.0, -r->zipf_exponent);
    if (r->kind == ROUTING_HOT && expert == 0) return (double)(r->model_experts - 1);
    return 1.0;
}

/* The top_k largest of log(u) / w, i.e. of u^(1/w), by insertion into a short sorted list. */
static void draw_weighted(const struct routing_request *r, const double *weight, uint64_t *state, int32_t *ids) {
    double keys[SCHEDULE_TOP_K_MAX];
    int32_t count = 0, present = r->ranks * r->experts_per_rank;
    for (int32_t expert = 0; expert < r->model_experts; expert++) {
        double key = log(random_unit(state)) / weight[expert];
        if (count == r->top_k && key <= keys[count - 1]) continue;
        int32_t place = count < r->top_k ? count++ : count - 1;
        for (; place > 0 && keys[place - 1] < key; place--) {
            keys[place] = keys[place - 1];
            ids[place] = ids[place - 1];
        }
        keys[place] = key;
        ids[place] = expert;
    }
    for (int32_t j = 0; j < r->top_k; j++) ids[j] %= present;
}

/* Uniform over the first `experts`, without repetition where there are enough. */
static void draw_some(const struct routing_request *r, int32_t experts, uint64_t *state, int32_t *ids) {
    for (int32_t j = 0; j < r->top_k; j++) {
        int repeated = 1;
        while (repeated) {
            ids[j] = (int32_t)(random_unit(state) * experts);
            repeated = 0;
            for (int32_t i = 0; i < j && experts >= r->top_k; i++) repeated |= ids[i] == ids[j];
        }
    }
}

/* Softmax of standard normals (Box-Muller): positive, sum 1, unequal. */
static void draw_router_weights(int32_t top_k, uint64_t *state, float *weights) {
    double values[SCHEDULE_TOP_K_MAX], sum = 0.0;
    for (int32_t j = 0; j < top_k; j++) {
        double radius = sqrt(-2.0 * log(random_unit(state)));
        values[j] = exp(radius * cos(6.283185307179586 * random_unit(state)));
        sum += values[j];
    }
    for (int32_t j = 0; j < top_k; j++) weights[j] = (float)(values[j] / sum);
}

static int check_request(const struct routing_request *r, struct error *error) {
    if (r->kind < 0 || r->kind >= ROUTING_KIND_COUNT) return error_set(error, ERROR_USAGE, "unknown routing");
    if (!(r->dropped >= 0.0 && r->dropped <= 1.0)) {
        error_set(error, ERROR_USAGE, "dropped share %g is out of range", r->dropped);
        return error_hint(error, "allowed: 0 to 1");
    }
    if (r->kind == ROUTING_ZIPF && !(r->zipf_exponent >= 0.0 && r->zipf_exponent <= 16.0)) {
        error_set(error, ERROR_USAGE, "zipf exponent %g is out of range", r->zipf_exponent);
        return error_hint(error, "allowed: 0 to 16");
    }
    if (r->top_k < 1 || r->top_k > SCHEDULE_TOP_K_MAX || r->tokens < 1 || r->ranks < 1 || r->experts_per_rank < 1)
        return error_set(error, ERROR_USAGE, "%d ranks, %d experts a rank, %d tokens, top-k %d cannot be routed", r->ranks,
                         r->experts_per_rank, r->tokens, r->top_k);
    if (r->model_experts < r->top_k) {
        error_set(error, ERROR_USAGE, "the model's %d experts are fewer than top-k %d", r->model_experts, r->top_k);
        return error_hint(error, "routes of a token go to different experts before they are folded onto those present");
    }
    return ERROR_NONE;
}

int routes_draw(struct routes *routes, const struct routing_request *r, struct error *error) {
    memset(routes, 0, sizeof *routes);
    int code = check_request(r, error);
    if (code != ERROR_NONE) return code;
    double *weight = malloc((size_t)r->model_experts * sizeof *weight);
    if (weight == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    *routes = (struct routes){r->ranks, r->tokens, r->top_k, r->ranks * r->experts_per_rank, NULL, NULL};
    code = routes_allocate(routes, error);
    for (int32_t e = 0; e < r->model_experts; e++) weight[e] = expert_weight(r, e);
    uint64_t state = r->seed * 0xd1342543de82ef95u + 1;
    size_t tokens = (size_t)r->ranks * (size_t)r->tokens;
    for (size_t token = 0; code == ERROR_NONE && token < tokens; token++) {
        int32_t *ids = routes->expert_ids + token * (size_t)r->top_k;
        if (r->kind == ROUTING_EMPTY)
            draw_some(r, schedule_maximum(1, routes->experts / 2), &state, ids);
        else if (r->kind == ROUTING_ONE_RANK)
            draw_some(r, r->experts_per_rank, &state, ids);
        else
            draw_weighted(r, weight, &state, ids);
        draw_router_weights(r->top_k, &state, routes->weights + token * (size_t)r->top_k);
        for (int32_t j = 0; j < r->top_k; j++)
            if (r->dropped > 0.0 && random_unit(&state) < r->dropped) ids[j] = -1;
    }
    free(weight);
    return code;
}

/* --- files ----------------------------------------------------------------------------------------------------------- */

/* A line that cannot be read; what: printf format of the reason, which names the value. */
static int bad_line(struct error *error, const char *path, long line, const char *what, ...) __attribute__((format(printf, 4, 5)));

static int bad_line(struct error *error, const char *path, long line, const char *what, ...) {
    char reason[256];
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(reason, sizeof reason, what, arguments);
    va_end(arguments);
    error_set(error, ERROR_USAGE, "'%s' line %ld: %s", path, line, reason);
    return error_hint(error, "a routes file: 'mokscope routes 1 ranks R tokens T top_k K experts E', then R x T lines of K id:weight");
}

static const char blanks[] = " \t\r\n";

/* Characters to show of the field that begins at text. */
static int field_length(const char *text) {
    size_t length = strcspn(text, blanks);
    return length < 40 ? (int)length : 40;
}

/* One "name value" pair of the first line. Returns what follows it, or NULL. */
static const char *read_header_value(const char *at, const char *name, long most, int32_t *value, const char *path, struct error *error) {
    char *end;
    size_t length = strlen(name);
    at += strspn(at, blanks);
    if (strncmp(at, name, length) != 0 || at[length] != ' ') {
        bad_line(error, path, 1, "'%s' expected, found '%.*s'", name, field_length(at), at);
        return NULL;
    }
    at += length + 1;
    errno = 0;
    long number = strtol(at, &end, 10);
    if (end == at || strchr(blanks, *end) == NULL || errno != 0 || number < 1 || number > most) {
        bad_line(error, path, 1, "%s '%.*s' is not a number from 1 to %ld", name, field_length(at), at, most);
        return NULL;
    }
    *value = (int32_t)number;
    return end;
}

static int read_header(struct routes *routes, const char *line, const char *path, struct error *error) {
    static const char title[] = "mokscope routes ";
    const char *at = line;
    char *end;
    if (strncmp(line, title, strlen(title)) != 0) return bad_line(error, path, 1, "not the first line of a routes file");
    at += strlen(title);
    long version = strtol(at, &end, 10);
    if (end == at || version != 1) return bad_line(error, path, 1, "version '%.*s', this program reads version 1", field_length(at), at);
    at = read_header_value(end, "ranks", SCHEDULE_RANKS_MAX, &routes->ranks, path, error);
    if (at != NULL) at = read_header_value(at, "tokens", 1 << 20, &routes->tokens, path, error);
    if (at != NULL) at = read_header_value(at, "top_k", SCHEDULE_TOP_K_MAX, &routes->top_k, path, error);
    if (at != NULL)
        at = read_header_value(at, "experts", SCHEDULE_RANKS_MAX * SCHEDULE_EXPERTS_PER_RANK_MAX, &routes->experts, path, error);
    if (at == NULL) return ERROR_USAGE;
    at += strspn(at, blanks);
    return *at == '\0' ? ERROR_NONE : bad_line(error, path, 1, "'%.*s' after the last value", field_length(at), at);
}

/* One token's routes. */
static int read_token(const struct routes *routes, const char *at, size_t token, const char *path, struct error *error) {
    long line = (long)token + 2;
    for (int32_t j = 0; j < routes->top_k; j++) {
        size_t index = token * (size_t)routes->top_k + (size_t)j;
        at += strspn(at, blanks);
        int shown = field_length(at);
        char *end;
        if (shown == 0) return bad_line(error, path, line, "%d fields, top_k is %d", j, routes->top_k);
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || *end != ':') return bad_line(error, path, line, "field '%.*s' is not id:weight", shown, at);
        if (errno != 0 || id < -1 || id >= routes->experts)
            return bad_line(error, path, line, "expert id in '%.*s' is not in -1..%d", shown, at, routes->experts - 1);
        const char *text = end + 1;
        float weight = strtof(text, &end);
        if (end != at + strcspn(at, blanks) || end == text || !isfinite(weight))
            return bad_line(error, path, line, "weight in '%.*s' is not a finite number", shown, at);
        routes->expert_ids[index] = (int32_t)id;
        routes->weights[index] = weight;
        at = end;
    }
    at += strspn(at, blanks);
    return *at == '\0' ? ERROR_NONE : bad_line(error, path, line, "'%.*s' is one field more than top_k %d", field_length(at), at, routes->top_k);
}

/* Line `number` of the file; text in *line without NUL bytes. */
static int next_line(FILE *file, char **line, size_t *capacity, long number, const char *path, struct error *error) {
    errno = 0;
    ssize_t length = getline(line, capacity, file);
    if (length < 0 && ferror(file)) return error_set(error, ERROR_FAILURE, "reading '%s' failed: %s", path, strerror(errno));
    if (length < 0) return bad_line(error, path, number, number == 1 ? "the file is empty" : "the file ends before its last token");
    return strlen(*line) == (size_t)length ? ERROR_NONE : bad_line(error, path, number, "holds a NUL byte, so this is not a text file");
}

int routes_read(struct routes *routes, const char *path, struct error *error) {
    memset(routes, 0, sizeof *routes);
    FILE *file = fopen(path, "r");
    if (file == NULL) return error_set(error, ERROR_USAGE, "cannot read '%s': %s", path, strerror(errno));
    char *line = NULL;
    size_t capacity = 0, token = 0;
    int code = next_line(file, &line, &capacity, 1, path, error);
    if (code == ERROR_NONE) code = read_header(routes, line, path, error);
    if (code == ERROR_NONE) code = routes_allocate(routes, error);
    size_t tokens = (size_t)routes->ranks * (size_t)routes->tokens;
    for (; code == ERROR_NONE && token < tokens; token++) {
        code = next_line(file, &line, &capacity, (long)token + 2, path, error);
        if (code == ERROR_NONE) code = read_token(routes, line, token, path, error);
    }
    if (code == ERROR_NONE && getline(&line, &capacity, file) >= 0)
        code = bad_line(error, path, (long)token + 2, "a line after the last of %zu tokens", tokens);
    free(line);
    fclose(file);
    if (code != ERROR_NONE) routes_free(routes);
    return code;
}

int routes_write(const struct routes *routes, const char *path, struct error *error) {
    FILE *file = fopen(path, "wx");
    if (file == NULL) return error_set(error, ERROR_USAGE, "cannot write '%s': %s", path, strerror(errno));
    fprintf(file, "mokscope routes 1 ranks %d tokens %d top_k %d experts %d\n", routes->ranks, routes->tokens, routes->top_k,
            routes->experts);
    size_t count = (size_t)routes->ranks * (size_t)routes->tokens * (size_t)routes->top_k;
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%d:%.9g%c", routes->expert_ids[i], (double)routes->weights[i],
                (i + 1) % (size_t)routes->top_k == 0 ? '\n' : ' ');
    int failed = ferror(file);
    if (fclose(file) != 0 || failed) {
        remove(path);
        return error_set(error, ERROR_FAILURE, "writing '%s' failed: is the disk full?", path);
    }
    return ERROR_NONE;
}

/* --- row table ------------------------------------------------------------------------------------------------------- */

/* Routes of each source rank to each of the rank's own experts. */
static void count_routes(const struct routes *routes, const struct layer_shape *shape, int32_t rank,
                         int32_t counts[][SCHEDULE_RANKS_MAX]) {
    int32_t first = rank * shape->experts_per_rank, per_rank = shape->tokens * shape->top_k;
    for (int32_t e = 0; e < shape->experts_per_rank; e++)
        for (int32_t peer = 0; peer < SCHEDULE_RANKS_MAX; peer++) counts[e][peer] = 0;
    for (int32_t i = 0; i < shape->rank_count * per_rank; i++) {
        int32_t own = routes->expert_ids[i] - first;
        if (own >= 0 && own < shape->experts_per_rank) counts[own][i / per_rank]++;
    }
}

static void place_routes(const struct schedule *s, const struct routes *routes, int32_t rank, const struct schedule_rows *rows,
                         int32_t counts[][SCHEDULE_RANKS_MAX], int32_t *row_peer, int32_t *row_route) {
    const struct layer_shape *shape = &s->shape;
    int32_t first = rank * shape->experts_per_rank, per_rank = shape->tokens * shape->top_k, slots = schedule_slots(shape);
    int32_t ordinals[SCHEDULE_EXPERTS_PER_RANK_MAX][SCHEDULE_RANKS_MAX];
    memset(ordinals, 0, sizeof ordinals);
    for (int32_t i = 0; i < shape->rank_count * per_rank; i++) {
        int32_t own = routes->expert_ids[i] - first, peer = i / per_rank, route = i % per_rank;
        if (own < 0 || own >= shape->experts_per_rank) continue;
        int32_t row = rows->expert_row_begin[shape->shared_experts + own] +
                      schedule_row_in_expert(counts[own], shape->rank_count, peer, ordinals[own][peer]++);
        row_peer[row] = peer;
        row_route[row] = route / shape->top_k * slots + shape->shared_experts + route % shape->top_k;
    }
    for (int32_t e = 0; e < shape->shared_experts; e++) {
        for (int32_t token = 0; token < shape->tokens; token++) {
            row_peer[rows->expert_row_begin[e] + token] = rank;
            row_route[rows->expert_row_begin[e] + token] = token * slots + e;
        }
    }
}

int routing_table_build(const struct schedule *s, const struct routes *routes, int32_t rank, struct schedule_rows *rows,
                        int32_t *row_peer, int32_t *row_route, struct error *error) {
    const struct layer_shape *shape = &s->shape;
    int32_t counts[SCHEDULE_EXPERTS_PER_RANK_MAX][SCHEDULE_RANKS_MAX], failed = 0;
    count_routes(routes, shape, rank, counts);
    for (int32_t e = 0; e < schedule_local_experts(shape); e++) {
        rows->expert_rows[e] = e < shape->shared_experts ? shape->tokens : 0;
        for (int32_t peer = 0; e >= shape->shared_experts && peer < shape->rank_count; peer++)
            rows->expert_rows[e] += counts[e - shape->shared_experts][peer];
    }
    if (schedule_rows_prefix(s, rows, &failed) == SCHEDULE_OVERFLOW)
        return schedule_error_overflow(s, rank, failed, schedule_total_rows(s, rows), error);
    for (int32_t row = 0; row < schedule_total_rows(s, rows); row++) row_peer[row] = -1, row_route[row] = 0;
    place_routes(s, routes, rank, rows, counts, row_peer, row_route);
    return ERROR_NONE;
}
