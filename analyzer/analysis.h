/* A whole trace analysed: runs the passes and keeps what they say. Outputs (text, JSON, HTML, the file's own tables) print
 * this struct and compute nothing. Owns everything in it; analysis_release accepts a zeroed struct. The trace must outlive it. */
#ifndef ANALYSIS_H
#define ANALYSIS_H

#include "figure.h"
#include "iterations.h"
#include "partition.h"
#include "wait_cause.h"

enum { ANALYSIS_NOTES_MAXIMUM = 32 };

/* A kind of lanes that figures are asked for together. */
enum lane_class { LANES_COMPUTE, LANES_COMMUNICATION, LANES_SUPPORT, LANES_ALL, LANES_CLASS_COUNT };

const char *lane_class_name(enum lane_class lanes); /* compute lanes, communication lanes, ... */

struct analysis {
    struct arena arena;
    const struct trace *trace;
    struct iterations iterations;
    struct figures figures;
    struct partition partition;
    struct wait_table waits;           /* a row a rank */
    struct wait_table waits_all_ranks; /* the same, rank -1 */
    bool *carries;              /* [edge_count] edge_carry_find */
    int64_t lane_ns[LANES_CLASS_COUNT]; /* lane time of the used iterations */
    int64_t clock_error_ns;     /* bound for two lanes of one GPU, at least CLOCK_STEP_RESIDUAL_NS */
    bool time_from_cupti;       /* time.kernel rests on kernel records of all launches */
    int64_t zero_length_count;  /* records without length, left out of every sweep */
    int32_t shown_iteration;    /* the used one of median length: what a picture shows */
    const char *notes[ANALYSIS_NOTES_MAXIMUM]; /* what a reader must know beside the figures */
    int32_t note_count;
};

/* Analyses a trace whose records were read. Errors: those of iterations_find, out of memory, a broken invariant. */
int analysis_run(const struct trace *trace, const struct iteration_choice *choice, struct analysis *analysis,
                 struct error *error);
void analysis_release(struct analysis *analysis);

/* The five figures that are printed first; missing ones are NULL. */
enum { HEADLINE_COUNT = 5 };
void analysis_headline(const struct analysis *analysis, const struct figure *figures[HEADLINE_COUNT]);

/* What the figures say in up to three sentences, most important first; NULL past the last. In the analysis' arena. */
enum { VERDICT_COUNT = 3 };
int analysis_verdict(struct analysis *analysis, const char *sentences[VERDICT_COUNT]);

#endif
