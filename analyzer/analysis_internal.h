/* What analysis.c, pass_figures.c and iteration_figures.c share. */
#ifndef ANALYSIS_INTERNAL_H
#define ANALYSIS_INTERNAL_H

#include "analysis.h"
#include "pass_sweep.h"

/* Figures, partition and waits of one pass, as sample `slot` of the used iterations. */
int pass_figures_add(struct analysis *analysis, const struct pass_sweep *sweep, int32_t slot, struct arena *scratch,
                     struct error *error);

/* Figures that need all passes of an iteration: times, skew, work. */
int iteration_figures_add(struct analysis *analysis, const struct iteration *iteration, int32_t slot, struct error *error);

/* Adds a note; format as printf. */
void analysis_note(struct analysis *analysis, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds a sample to scope "rank R" and to scope "all". */
void analysis_add_rank(struct analysis *analysis, const char *id, int32_t rank, int32_t slot, struct figure_sample sample);

#endif
