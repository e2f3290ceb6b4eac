/* See figure.h. */
#include "figure.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Samples of one figure and scope. */
struct figure_series {
    const struct definition *definition;
    const char *scope;
    struct figure_sample *samples; /* [iteration_count] */
    bool *present;                 /* [iteration_count] */
};

void figures_init(struct figures *figures, struct arena *arena, int32_t iteration_count) {
    *figures = (struct figures){.arena = arena, .iteration_count = iteration_count};
}

/* --- series ---------------------------------------------------------------------------------------------------------- */

static uint64_t hash(const struct definition *definition, const char *scope) {
    uint64_t value = 14695981039346656037u ^ (uint64_t)(uintptr_t)definition; /* FNV-1a */
    for (; *scope != '\0'; scope++) value = (value ^ (unsigned char)*scope) * 1099511628211u;
    return value ^ value >> 29;
}

/* The table is open-addressed: a row with definition NULL is free. */
static struct figure_series *find_slot(struct figure_series *rows, int32_t capacity, const struct definition *definition,
                                       const char *scope) {
    uint64_t mask = (uint64_t)capacity - 1;
    for (uint64_t i = hash(definition, scope) & mask;; i = (i + 1) & mask)
        if (rows[i].definition == NULL || (rows[i].definition == definition && strcmp(rows[i].scope, scope) == 0))
            return &rows[i];
}

static bool grow(struct figures *figures) {
    int32_t capacity = figures->series_capacity == 0 ? 256 : figures->series_capacity * 2;
    struct figure_series *rows = arena_allocate(figures->arena, (size_t)capacity, sizeof *rows);
    if (rows == NULL) return false;
    for (int32_t i = 0; i < figures->series_capacity; i++) {
        const struct figure_series *old = &figures->series[i];
        if (old->definition != NULL) *find_slot(rows, capacity, old->definition, old->scope) = *old;
    }
    figures->series = rows;
    figures->series_capacity = capacity;
    return true;
}

static struct figure_series *series_of(struct figures *figures, const char *id, const char *scope) {
    const struct definition *definition = definition_find(id);
    assert(definition != NULL);
    if (figures->series_count * 2 >= figures->series_capacity && !grow(figures)) return NULL;
    struct figure_series *series = find_slot(figures->series, figures->series_capacity, definition, scope);
    if (series->definition != NULL) return series;
    struct figure_series fresh = {definition, arena_copy(figures->arena, scope), NULL, NULL};
    fresh.samples = arena_allocate(figures->arena, (size_t)figures->iteration_count, sizeof *fresh.samples);
    fresh.present = arena_allocate(figures->arena, (size_t)figures->iteration_count, sizeof *fresh.present);
    if (fresh.scope == NULL || fresh.samples == NULL || fresh.present == NULL) return NULL;
    *series = fresh;
    figures->series_count++;
    return series;
}

void figures_add(struct figures *figures, const char *id, const char *scope, int32_t iteration, struct figure_sample sample) {
    struct figure_series *series = series_of(figures, id, scope);
    if (series == NULL) {
        figures->failed = true;
        return;
    }
    struct figure_sample *sum = &series->samples[iteration];
    sum->numerator += sample.numerator;
    sum->denominator += sample.denominator;
    sum->low_numerator += sample.low_numerator;
    sum->high_numerator += sample.high_numerator;
    sum->window_ns += sample.window_ns;
    if (sample.clock_error_ns > sum->clock_error_ns) sum->clock_error_ns = sample.clock_error_ns;
    series->present[iteration] = true;
}

void figures_add_plain(struct figures *figures, const char *id, const char *scope, int32_t iteration, double numerator,
                       double denominator, int64_t window_ns) {
    figures_add(figures, id, scope, iteration,
                (struct figure_sample){numerator, denominator, numerator, numerator, window_ns, 0});
}

bool figures_sample(const struct figures *figures, const char *id, const char *scope, int32_t iteration, double *numerator) {
    if (figures->series_capacity == 0) return false;
    const struct figure_series *series =
        find_slot(figures->series, figures->series_capacity, definition_find(id), scope);
    if (series->definition == NULL || !series->present[iteration]) return false;
    *numerator = series->samples[iteration].numerator;
    return true;
}

/* --- statistics ------------------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double quantile(double *values, int32_t count, double q) {
    if (count == 0) return NAN;
    qsort(values, (size_t)count, sizeof *values, by_value);
    double place = q * (count - 1);
    int32_t below = (int32_t)place;
    if (below >= count - 1) return values[count - 1];
    return values[below] + (place - below) * (values[below + 1] - values[below]);
}

static double value_of(enum figure_kind kind, double numerator, double denominator) {
    if (kind == FIGURE_MEDIAN) return numerator;
    double ratio = denominator != 0 ? numerator / denominator : NAN;
    return kind == FIGURE_COMPLEMENT ? 1 - ratio : ratio;
}

enum sample_field { SAMPLE_VALUE, SAMPLE_LOW, SAMPLE_HIGH };

static double sample_value(const struct figure_series *series, int32_t i, enum sample_field field) {
    const struct figure_sample *s = &series->samples[i];
    double numerator = field == SAMPLE_LOW ? s->low_numerator : field == SAMPLE_HIGH ? s->high_numerator : s->numerator;
    return value_of(series->definition->kind, numerator, s->denominator);
}

/* The iterations' own values that are numbers. */
static int32_t collect(const struct figures *figures, const struct figure_series *series, enum sample_field field, double *values) {
    int32_t count = 0;
    for (int32_t i = 0; i < figures->iteration_count; i++) {
        if (!series->present[i]) continue;
        double value = sample_value(series, i, field);
        if (!isnan(value)) values[count++] = value;
    }
    return count;
}

static void finish_one(const struct figures *figures, const struct figure_series *series, double *values, struct figure *figure) {
    struct figure_sample sum = {0};
    enum figure_kind kind = series->definition->kind;
    *figure = (struct figure){.definition = series->definition, .scope = series->scope};
    for (int32_t i = 0; i < figures->iteration_count; i++) {
        if (!series->present[i]) continue;
        sum.numerator += series->samples[i].numerator;
        sum.denominator += series->samples[i].denominator;
        sum.low_numerator += series->samples[i].low_numerator;
        sum.high_numerator += series->samples[i].high_numerator;
        figure->window_ns += series->samples[i].window_ns;
        if (series->samples[i].clock_error_ns > figure->clock_error_ns)
            figure->clock_error_ns = series->samples[i].clock_error_ns;
        figure->iterations++;
    }
    int32_t count = collect(figures, series, SAMPLE_VALUE, values);
    figure->p5 = quantile(values, count, 0.05);
    figure->p95 = quantile(values, count, 0.95);
    if (kind == FIGURE_MEDIAN) {
        figure->value = figure->numerator = quantile(values, count, 0.5);
        figure->denominator = 1;
        figure->low = quantile(values, collect(figures, series, SAMPLE_LOW, values), 0.5);
        figure->high = quantile(values, collect(figures, series, SAMPLE_HIGH, values), 0.5);
    } else {
        figure->value = value_of(kind, sum.numerator, sum.denominator);
        figure->numerator = sum.numerator;
        figure->denominator = sum.denominator;
        figure->low = value_of(kind, sum.low_numerator, sum.denominator);
        figure->high = value_of(kind, sum.high_numerator, sum.denominator);
    }
}

/* Numbers inside scopes compare as numbers, so that rank 10 stands after rank 9. */
static int compare_scopes(const char *a, const char *b) {
    while (*a != '\0' && *b != '\0') {
        if (*a >= '0' && *a <= '9' && *b >= '0' && *b <= '9') {
            char *a_end, *b_end;
            unsigned long x = strtoul(a, &a_end, 10), y = strtoul(b, &b_end, 10);
            if (x != y) return x < y ? -1 : 1;
            a = a_end, b = b_end;
        } else if (*a != *b) {
            return *a < *b ? -1 : 1;
        } else {
            a++, b++;
        }
    }
    return *a != '\0' ? 1 : *b != '\0' ? -1 : 0;
}

static int by_definition(const void *a, const void *b) {
    const struct figure *x = a, *y = b;
    if (x->definition != y->definition) return x->definition < y->definition ? -1 : 1;
    return compare_scopes(x->scope, y->scope);
}

int figures_finish(struct figures *figures, struct error *error) {
    double *values = arena_allocate(figures->arena, (size_t)figures->iteration_count + 1, sizeof *values);
    figures->rows = arena_allocate(figures->arena, (size_t)figures->series_count + 1, sizeof *figures->rows);
    if (figures->failed || values == NULL || figures->rows == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    for (int32_t i = 0; i < figures->series_capacity; i++)
        if (figures->series[i].definition != NULL)
            finish_one(figures, &figures->series[i], values, &figures->rows[figures->count++]);
    qsort(figures->rows, (size_t)figures->count, sizeof *figures->rows, by_definition);
    return 0;
}

const struct figure *figures_find(const struct figures *figures, const char *id, const char *scope) {
    for (int32_t i = 0; i < figures->count; i++)
        if (strcmp(figures->rows[i].definition->id, id) == 0 && strcmp(figures->rows[i].scope, scope) == 0)
            return &figures->rows[i];
    return NULL;
}
