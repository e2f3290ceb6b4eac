/* Time and memory of reading and analysing a trace of a given size. Makes a synthetic one unless it is given one.
 * usage: analyze [records [path]]     writes about so many records to path, then reads and analyses it
 *        analyze - path               reads and analyses path
 *        analyze make records path [iterations]   only writes; records 0: the small one of tests/data
 * Prints one line a step. Not a test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "synthetic_trace.h"

#include "../../analyzer/analysis.h"
#include "../../analyzer/trace_read.h"

enum { RECORDS_A_TASK = 16, COMPUTE_CTAS = 124 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double peak_mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static int make(const char *path, double records, int32_t iterations) {
    struct synthetic_options options = {132, 4, 2, 5, 100, 1};
    static const struct synthetic_options small = {8, 2, 1, 4, 4, 1};
    double tasks = records / RECORDS_A_TASK / COMPUTE_CTAS;
    if (tasks > 2500) options.iterations = (int32_t)(tasks / 500);
    if (iterations > 0) options.iterations = iterations;
    options.tasks = (int32_t)(tasks / options.iterations);
    if (options.tasks < 3) options.tasks = 3, options.iterations = 1;
    if (records == 0) options = small;
    double begin = seconds();
    int64_t count = synthetic_trace_write(path, &options);
    if (count < 0) return 1;
    printf("wrote    %.2f s  %lld records, %d iterations, %s\n", seconds() - begin, (long long)count, options.iterations, path);
    return 0;
}

int main(int argc, char **argv) {
    bool only_make = argc > 3 && strcmp(argv[1], "make") == 0;
    const char *path = only_make ? argv[3] : argc > 2 ? argv[2] : "/tmp/mokscope-analyze.db";
    bool given = argc > 2 && strcmp(argv[1], "-") == 0;
    struct trace_file file = {0};
    struct trace trace = {0};
    struct analysis analysis = {0};
    struct error error = {0};
    const struct iteration_choice choice = {-1, -1};
    double records = only_make ? atof(argv[2]) : argc > 1 ? atof(argv[1]) : 1e6;
    if (!given && make(path, records, only_make && argc > 4 ? atoi(argv[4]) : 0)) return 1;
    if (only_make) return 0;
    double begin = seconds();
    int status = trace_file_open(&file, path, &error);
    if (!status) status = trace_read(&file, &trace, &error);
    double read = seconds();
    if (!status) status = analysis_run(&trace, &choice, &analysis, &error);
    double done = seconds();
    if (status) {
        fprintf(stderr, "analyze: %s\n", error.message);
        return 1;
    }
    printf("read     %.2f s  %zu spans, %zu waits, %zu signals\n", read - begin, trace.record_count[TRACE_SPAN], trace.record_count[TRACE_WAIT],
           trace.record_count[TRACE_SIGNAL]);
    printf("analysed %.2f s  %d figures\n", done - read, analysis.figures.count);
    printf("peak     %.0f MiB\n", peak_mib());
    analysis_release(&analysis);
    trace_release(&trace);
    trace_file_close(&file);
    return 0;
}
