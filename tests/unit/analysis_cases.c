/* Runs the .case files of tests/analysis: lanes and their records, and the figures that must come out, as fractions of what is written
 * above them. A line is one statement; '#' begins a comment. Times are nanoseconds.
 *
 *   role NAME CLASS                         event NAME CLASS [stall CYCLES]
 *   edge NAME PRODUCER CONSUMER SCOPE data|reuse
 *   experts EACH RANKS                      task RANK ID PHASE EXPERT ROW COLUMN ROWS PADDING FLOPS
 *   kernel GRID BEGIN END                   (CUPTI record of the launch; before it)
 *   launch GRID
 *   lane ROLE RANK CTA WARP SM BEGIN END [open] [lost N] [moved]
 *     span NAME BEGIN END [SMALL]           wait EDGE BEGIN END          signal EDGE AT
 *   choose rank R | choose launch N
 *   expect FIGURE [SCOPE] [value|low|high|p5|p95] A[/B]      (nan: no number;  none: no such figure)
 *   states GROUP [KEY...] COMPUTE COMMUNICATE WAIT OVERHEAD IDLE UNKNOWN [stalled N]    GROUP: total, role NAME, rank R, sm S
 *   owner ROLE EDGE OWNER TOTAL COUNT MAX   (summed over ranks)      carries EDGE yes|no
 *   iterations USED COUNT                   note TEXT                error TEXT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>

#include "../../analyzer/analysis.h"
#include "../../analyzer/trace_read.h"
#include "trace_build.h"

enum { WORDS = 24, CHECKS = 256 };

struct line {
    char text[512];
    char *words[WORDS];
    int count, number;
};

struct run {
    const char *name;
    struct trace_build build;
    struct line checks[CHECKS];
    int check_count, failures;
    struct iteration_choice choice;
    struct trace_kernel kernel;
    bool has_kernel;
    struct analysis analysis;
    struct error error;
};

static void fail_line(struct run *run, const struct line *line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", run->name, line->number);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    run->failures++;
}

static const char *word(const struct line *line, int i) {
    if (i >= line->count) build_fail("line %d '%s': a word is missing", line->number, line->words[0]);
    return line->words[i];
}

static int64_t number(const struct line *line, int i) {
    char *end;
    long long value = strtoll(word(line, i), &end, 10);
    if (*end != '\0') build_fail("line %d: '%s' is no number", line->number, line->words[i]);
    return value;
}

/* "a", "a/b" or nan. */
static double fraction(const struct line *line, int i) {
    const char *text = word(line, i);
    char *end;
    if (strcmp(text, "nan") == 0) return NAN;
    double value = strtod(text, &end);
    if (*end == '/') value /= strtod(end + 1, &end);
    if (*end != '\0') build_fail("line %d: '%s' is no fraction", line->number, text);
    return value;
}

/* --- building -------------------------------------------------------------------------------------------------------- */

static void add_lane(struct run *run, const struct line *line) {
    struct trace_build *b = &run->build;
    build_lane_end(b);
    build_lane(b, word(line, 1), (uint32_t)number(line, 2), (uint32_t)number(line, 3), (uint32_t)number(line, 4),
               (uint32_t)number(line, 5), number(line, 6), number(line, 7));
    for (int i = 8; i < line->count; i++) {
        if (strcmp(line->words[i], "open") == 0) b->header.state = MOKSCOPE_LANE_OPEN;
        if (strcmp(line->words[i], "moved") == 0) b->header.sm_end++;
        if (strcmp(line->words[i], "lost") == 0) b->lost = (uint32_t)number(line, ++i);
    }
}

static void add_launch(struct run *run, const struct line *line) {
    struct trace_build *b = &run->build;
    struct error error = {0};
    int64_t kernel_id;
    build_lane_end(b);
    build_launch(b, (uint64_t)number(line, 1));
    if (!run->has_kernel) return;
    build_check(trace_write_kernel(b->writer, &run->kernel, &kernel_id, &error), &error);
    build_check(trace_write_launch_kernel(b->writer, b->launch, kernel_id, &error), &error);
    run->has_kernel = false;
}

static void add_experts(struct run *run, const struct line *line) {
    struct error error = {0};
    build_check(trace_write_attribute(run->build.writer, "shape", "experts_per_rank", word(line, 1), "", &error), &error);
    build_check(trace_write_attribute(run->build.writer, "shape", "ranks", word(line, 2), "", &error), &error);
}

static void add_statement(struct run *run, const struct line *line) {
    struct trace_build *b = &run->build;
    const char *verb = line->words[0];
    if (strcmp(verb, "role") == 0) {
        build_role(b, word(line, 1), word(line, 2));
    } else if (strcmp(verb, "event") == 0) {
        char small[64] = "";
        if (line->count > 4) snprintf(small, sizeof small, "stall in the span, %s-cycle units", word(line, 4));
        build_event(b, word(line, 1), word(line, 2), small);
    } else if (strcmp(verb, "edge") == 0) {
        build_edge(b, word(line, 1), word(line, 2), word(line, 3), word(line, 4), strcmp(word(line, 5), "reuse") == 0);
    } else if (strcmp(verb, "experts") == 0) {
        add_experts(run, line);
    } else if (strcmp(verb, "task") == 0) {
        build_task(b, (int32_t)number(line, 1), (int32_t)number(line, 2), word(line, 3), (int32_t)number(line, 4), (int32_t)number(line, 5),
                   (int32_t)number(line, 6), (int32_t)number(line, 7), (int32_t)number(line, 8), number(line, 9));
    } else if (strcmp(verb, "kernel") == 0) {
        run->kernel = (struct trace_kernel){.grid_id = number(line, 1), .name = "kernel", .begin_ns = BUILD_BASE_TICKS + number(line, 2),
                                            .end_ns = BUILD_BASE_TICKS + number(line, 3)};
        run->has_kernel = true;
    } else if (strcmp(verb, "launch") == 0) {
        add_launch(run, line);
    } else if (strcmp(verb, "lane") == 0) {
        add_lane(run, line);
    } else if (strcmp(verb, "span") == 0) {
        build_span(b, word(line, 1), number(line, 2), number(line, 3), line->count > 4 ? (uint16_t)number(line, 4) : 0, 0);
    } else if (strcmp(verb, "wait") == 0) {
        build_wait(b, word(line, 1), number(line, 2), number(line, 3), 0);
    } else if (strcmp(verb, "signal") == 0) {
        build_signal(b, word(line, 1), number(line, 2), 0);
    } else if (strcmp(verb, "choose") == 0) {
        if (strcmp(word(line, 1), "rank") == 0)
            run->choice.rank = (int32_t)number(line, 2);
        else
            run->choice.launch_id = number(line, 2);
    } else {
        if (run->check_count == CHECKS) build_fail("%s: too many checks", run->name);
        run->checks[run->check_count++] = *line;
    }
}

/* --- checking -------------------------------------------------------------------------------------------------------- */

static bool near(double a, double b) { return (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-12 * fmax(1, fabs(b)); }

/* "expect FIGURE [SCOPE WORDS] field value": the scope is between brackets. */
static void check_figure(struct run *run, const struct line *line) {
    char scope[128] = "";
    int i = 2;
    for (; i < line->count; i++) {
        if (scope[0] != '\0') strcat(scope, " ");
        strncat(scope, line->words[i], sizeof scope - strlen(scope) - 2);
        if (scope[strlen(scope) - 1] == ']') break;
    }
    if (scope[0] != '[' || scope[strlen(scope) - 1] != ']') build_fail("line %d: the scope stands between brackets", line->number);
    scope[strlen(scope) - 1] = '\0';
    i++;
    static const char *const fields[] = {"value", "low", "high", "p5", "p95"};
    int field = 0;
    for (int f = 0; f < 5; f++)
        if (strcmp(word(line, i), fields[f]) == 0) field = f, i++;
    const struct figure *figure = figures_find(&run->analysis.figures, word(line, 1), scope + 1);
    if (strcmp(word(line, i), "none") == 0) {
        if (figure != NULL) fail_line(run, line, "figure %s [%s] is there: %.17g", line->words[1], scope + 1, figure->value);
        return;
    }
    if (figure == NULL) {
        fail_line(run, line, "there is no figure %s [%s]", line->words[1], scope + 1);
        return;
    }
    const double values[] = {figure->value, figure->low, figure->high, figure->p5, figure->p95};
    if (!near(values[field], fraction(line, i)))
        fail_line(run, line, "%s [%s] %s is %.17g, expected %s", line->words[1], scope + 1, fields[field], values[field], line->words[i]);
}

static const struct partition_row *find_partition(struct run *run, const struct line *line, int *next) {
    const struct partition *p = &run->analysis.partition;
    const char *group = word(line, 1);
    *next = strcmp(group, "total") == 0 ? 2 : 3;
    if (strcmp(group, "total") == 0) return &p->groups[PARTITION_TOTAL].rows[0];
    enum partition_by by = strcmp(group, "role") == 0 ? PARTITION_ROLE : strcmp(group, "rank") == 0 ? PARTITION_RANK : PARTITION_SM;
    for (int32_t i = 0; i < p->groups[by].count; i++) {
        const struct partition_row *row = &p->groups[by].rows[i];
        if (by == PARTITION_ROLE && strcmp(run->analysis.trace->roles[row->role].name, word(line, 2)) == 0) return row;
        if (by == PARTITION_RANK && row->rank == number(line, 2)) return row;
        if (by == PARTITION_SM && row->sm == number(line, 2)) return row;
    }
    return NULL;
}

static void check_states(struct run *run, const struct line *line) {
    int next;
    const struct partition_row *row = find_partition(run, line, &next);
    if (row == NULL) {
        fail_line(run, line, "there is no such row");
        return;
    }
    for (int state = 0; state < STATE_COUNT; state++)
        if (row->ns[state] != number(line, next + state))
            fail_line(run, line, "%s is %lld ns, expected %s", lane_state_name((enum lane_state)state), (long long)row->ns[state],
                      line->words[next + state]);
    if (next + STATE_COUNT < line->count && row->stalled_ns != number(line, next + STATE_COUNT + 1))
        fail_line(run, line, "stalled is %lld ns", (long long)row->stalled_ns);
}

static void check_owner(struct run *run, const struct line *line) {
    const struct trace *trace = run->analysis.trace;
    int64_t total = 0, count = 0, maximum = 0;
    for (int32_t i = 0; i < run->analysis.waits.count; i++) {
        const struct wait_row *row = &run->analysis.waits.rows[i];
        if (strcmp(trace->roles[row->role].name, word(line, 1)) != 0 || strcmp(trace->edges[row->edge].name, word(line, 2)) != 0 ||
            strcmp(trace->edges[row->owner].name, word(line, 3)) != 0)
            continue;
        total += row->total_ns;
        count += row->count;
        if (row->max_ns > maximum) maximum = row->max_ns;
    }
    if (total != number(line, 4) || count != number(line, 5) || maximum != number(line, 6))
        fail_line(run, line, "total %lld count %lld max %lld", (long long)total, (long long)count, (long long)maximum);
}

static void check_carries(struct run *run, const struct line *line) {
    for (int32_t e = 0; e < run->analysis.trace->edge_count; e++)
        if (strcmp(run->analysis.trace->edges[e].name, word(line, 1)) == 0 &&
            run->analysis.carries[e] != (strcmp(word(line, 2), "yes") == 0))
            fail_line(run, line, "it does%s", run->analysis.carries[e] ? "" : " not");
}

/* What stands after the first word, joined by spaces again. */
static void rest(const struct line *line, char *text, size_t size) {
    text[0] = '\0';
    for (int i = 1; i < line->count; i++)
        snprintf(text + strlen(text), size - strlen(text), "%s%s", i > 1 ? " " : "", line->words[i]);
}

static void check_note(struct run *run, const struct line *line) {
    char text[512];
    rest(line, text, sizeof text);
    for (int32_t i = 0; i < run->analysis.note_count; i++)
        if (strstr(run->analysis.notes[i], text) != NULL) return;
    fail_line(run, line, "no note says '%s'", text);
    for (int32_t i = 0; i < run->analysis.note_count; i++) fprintf(stderr, "    %s\n", run->analysis.notes[i]);
}

static void check_statement(struct run *run, const struct line *line, bool analysed) {
    const char *verb = line->words[0];
    char text[512];
    if (strcmp(verb, "error") == 0) {
        rest(line, text, sizeof text);
        if (analysed || strstr(run->error.message, text) == NULL) fail_line(run, line, "the error is '%s'", run->error.message);
    } else if (!analysed) {
        fail_line(run, line, "analysis failed: %s", run->error.message);
    } else if (strcmp(verb, "expect") == 0) {
        check_figure(run, line);
    } else if (strcmp(verb, "states") == 0) {
        check_states(run, line);
    } else if (strcmp(verb, "owner") == 0) {
        check_owner(run, line);
    } else if (strcmp(verb, "carries") == 0) {
        check_carries(run, line);
    } else if (strcmp(verb, "note") == 0) {
        check_note(run, line);
    } else if (strcmp(verb, "iterations") == 0) {
        if (run->analysis.iterations.used_count != number(line, 1) || run->analysis.iterations.count != number(line, 2))
            fail_line(run, line, "%d of %d", run->analysis.iterations.used_count, run->analysis.iterations.count);
    } else {
        fail_line(run, line, "unknown statement '%s'", verb);
    }
}

/* --- a case ---------------------------------------------------------------------------------------------------------- */

static bool read_line(FILE *file, struct line *line) {
    line->count = 0;
    while (line->count == 0) {
        if (fgets(line->text, sizeof line->text, file) == NULL) return false;
        line->number++;
        line->text[strcspn(line->text, "#\n")] = '\0';
        line->count = 0;
        for (char *w = strtok(line->text, " \t"); w != NULL && line->count < WORDS; w = strtok(NULL, " \t")) line->words[line->count++] = w;
    }
    return true;
}

/* Words point into the line's own text. */
static void keep_line(struct run *run, const struct line *line) {
    struct line copy = *line;
    int before = run->check_count;
    add_statement(run, &copy);
    if (run->check_count == before) return;
    struct line *kept = &run->checks[before];
    for (int i = 0; i < kept->count; i++) kept->words[i] = kept->text + (line->words[i] - line->text);
}

static void test_case(void **state) {
    const char *path = *state;
    struct run *run = calloc(1, sizeof *run);
    struct line line = {.number = 0};
    struct trace_file file = {0};
    struct trace trace = {0};
    FILE *input = fopen(path, "r");
    assert_non_null(run);
    assert_non_null(input);
    run->name = path;
    run->choice = (struct iteration_choice){-1, -1};
    build_open(&run->build);
    while (read_line(input, &line)) keep_line(run, &line);
    fclose(input);
    build_close(&run->build);
    int status = trace_file_open(&file, run->build.path, &run->error);
    if (!status) status = trace_read(&file, &trace, &run->error);
    if (!status) status = analysis_run(&trace, &run->choice, &run->analysis, &run->error);
    assert_true(run->check_count > 0);
    for (int i = 0; i < run->check_count; i++) check_statement(run, &run->checks[i], status == 0);
    analysis_release(&run->analysis);
    trace_release(&trace);
    trace_file_close(&file);
    build_remove(&run->build);
    int failures = run->failures;
    free(run);
    assert_int_equal(failures, 0);
}

int main(void) {
    static struct CMUnitTest tests[256];
    static char paths[256][512], names[256][128];
    char folder[400];
    size_t count = 0;
    const char *root = getenv("MOKSCOPE_ROOT");
    snprintf(folder, sizeof folder, "%s/tests/analysis", root != NULL ? root : ".");
    DIR *directory = opendir(folder);
    if (directory == NULL) {
        fprintf(stderr, "cannot read '%s'\n", folder);
        return 1;
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL && count < 256;) {
        char *suffix = strstr(entry->d_name, ".case");
        if (suffix == NULL || suffix[5] != '\0') continue;
        snprintf(paths[count], sizeof paths[count], "%s/%.100s", folder, entry->d_name);
        snprintf(names[count], sizeof names[count], "%.*s", (int)(suffix - entry->d_name), entry->d_name);
        tests[count] = (struct CMUnitTest){.name = names[count], .test_func = test_case, .initial_state = paths[count]};
        count++;
    }
    closedir(directory);
    if (count == 0) {
        fprintf(stderr, "no cases in '%s'\n", folder);
        return 1;
    }
    return _cmocka_run_group_tests("analysis_cases", tests, count, NULL, NULL);
}
