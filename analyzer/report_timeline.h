/* The timeline of a report: for every rank and role the share of its lanes in each state over time, and below it every lane,
 * as inline SVG in a level of detail that keeps the page small. */
#ifndef REPORT_TIMELINE_H
#define REPORT_TIMELINE_H

#include <stdio.h>

#include "analysis.h"

/* Writes the section of the shown iteration. Errors: out of memory. */
int report_timeline_write(FILE *stream, struct analysis *analysis, struct error *error);

#endif
