/* An analysis as text for a terminal: the verdict, the five figures that matter, then tables. */
#ifndef ANALYSIS_TEXT_H
#define ANALYSIS_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include "analysis.h"

/* colour: escape sequences for headings are wanted. */
void analysis_text_write(FILE *file, struct analysis *analysis, bool colour);

/* The verdict and the five figures only. */
void analysis_text_brief(FILE *file, struct analysis *analysis, bool colour);

/* Definitions of all figures, or of one id. */
void analysis_text_definitions(FILE *file, const char *id);

#endif
