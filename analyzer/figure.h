/* Figures: numbers with everything that is needed to compare them, and their definitions. Passes add samples; figures_finish
 * turns them into figures; outputs print the structs, so text, JSON and HTML cannot disagree.
 *
 * A sample is numerator and denominator of one iteration. Samples of the same figure, scope and iteration add up (ranks into
 * `all`). Over iterations a ratio is the ratio of sums, a time the median; p5 and p95 are over the iterations' own values. */
#ifndef FIGURE_H
#define FIGURE_H

#include <stdbool.h>
#include <stdint.h>

#include "../probes/host/error.h"
#include "arena.h"

enum figure_kind {
    FIGURE_RATIO,      /* sum of numerators / sum of denominators */
    FIGURE_COMPLEMENT, /* 1 - that */
    FIGURE_MEDIAN      /* median of the numerators; the denominator is 1 */
};

/* Units: '' share or pure number, ns, FLOP/s. */
struct definition {
    const char *id, *unit;
    enum figure_kind kind;
    const char *title;   /* a few words */
    const char *formula;
    const char *text;    /* what it says, and edge cases */
    const char *source;
};

/* All definitions, in the order they are printed. */
const struct definition *definitions(int32_t *count);
const struct definition *definition_find(const char *id); /* NULL: none */

/* value is NaN if the denominator is 0. low, high: the value with the clock error against and for it; = value where it does
 * not apply. */
struct figure {
    const struct definition *definition;
    const char *scope; /* all, rank R, role NAME, ... */
    double value, numerator, denominator;
    double p5, p95, low, high;
    int64_t window_ns; /* sum of the iterations' windows; 0: it has none */
    int32_t iterations;
    int64_t clock_error_ns; /* 0: rests on no comparison of clocks */
};

struct figure_sample {
    double numerator, denominator;
    double low_numerator, high_numerator; /* numerator under the clock error; set equal where it does not apply */
    int64_t window_ns;
    int64_t clock_error_ns; /* 0: rests on no comparison of clocks */
};

struct figures {
    struct arena *arena; /* owns everything */
    struct figure_series *series;
    int32_t series_count, series_capacity, iteration_count;
    struct figure *rows; /* after figures_finish, ordered by definition, then scope */
    int32_t count;
    bool failed;            /* out of memory; reported by figures_finish */
};

void figures_init(struct figures *figures, struct arena *arena, int32_t iteration_count);

/* Adds a sample; id must be a definition's. scope is copied. iteration 0 .. iteration_count - 1. */
void figures_add(struct figures *figures, const char *id, const char *scope, int32_t iteration, struct figure_sample sample);

/* figures_add without clock error. */
void figures_add_plain(struct figures *figures, const char *id, const char *scope, int32_t iteration, double numerator,
                       double denominator, int64_t window_ns);

/* Numerator of a sample already added; false: there is none. */
bool figures_sample(const struct figures *figures, const char *id, const char *scope, int32_t iteration, double *numerator);

int figures_finish(struct figures *figures, struct error *error);

/* The figure, or NULL. */
const struct figure *figures_find(const struct figures *figures, const char *id, const char *scope);

/* Quantile q of values [count], sorted in place; linear between neighbours. NaN if count is 0. */
double quantile(double *values, int32_t count, double q);

#endif
