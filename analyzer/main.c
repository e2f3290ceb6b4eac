/* mokscope: the command line. One table of verbs; everything else is in cmd_<verb>.c. Exit statuses: command.h. */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <yajl/yajl_version.h>

#include "command.h"
#include "options.h"

static const struct command *command_table(size_t *count) {
    static const struct command table[] = {
        {"record", cmd_record, COMMAND_NEEDS_GPU, "run a program with the recorder injected, into a trace"},
        {"run", cmd_run, COMMAND_NEEDS_GPU, "run the built-in MoE layer, recorded"},
        {"execute", cmd_execute, COMMAND_NEEDS_NOTHING, "execute the layer's schedule on the CPU, into a trace"},
        {"analyze", cmd_analyze, COMMAND_NEEDS_TRACE, "say where the time of a trace went"},
        {"report", cmd_report, COMMAND_NEEDS_TRACE, "write a self-contained HTML report of a trace"},
        {"export", cmd_export, COMMAND_NEEDS_TRACE, "write a trace as Chrome trace JSON, for Perfetto"},
        {"info", cmd_info, COMMAND_NEEDS_TRACE, "say what a trace holds"},
    };
    *count = sizeof table / sizeof table[0];
    return table;
}

static void print_usage(FILE *file) {
    size_t count;
    const struct command *table = command_table(&count);
    fprintf(file, "usage: mokscope VERB [options] [FILE]\n\n"
                  "Records mixture-of-experts megakernels and says where their time went.\n\nverbs:\n");
    for (size_t i = 0; i < count; i++)
        fprintf(file, "  %-10s %s%s\n", table[i].name, table[i].help,
                table[i].function == NULL ? " (not in this build)" : "");
    fprintf(file, "  %-10s %s\n  %-10s %s\n\n'mokscope help VERB' explains a verb.\n", "help", "explain a verb", "version",
            "print the version; --json for details of the build");
}

static int print_version(int argc, char **argv) {
    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--json") != 0)) {
        fprintf(stderr, "mokscope version: unexpected argument '%s'\nhint: usage: mokscope version [--json]\n", argv[argc - 1]);
        return 2;
    }
    if (argc == 1) {
        printf("mokscope %s\n", command_version());
        return 0;
    }
    printf("{\"version\": \"%s\", \"git_revision\": \"%s\", \"compiler\": \"%s\", \"sqlite\": \"%s\", \"zlib\": \"%s\", "
           "\"yajl\": \"%d.%d.%d\", \"run\": %s}\n",
           command_version(), command_git_revision(), __VERSION__, sqlite3_libversion(), zlibVersion(), YAJL_MAJOR, YAJL_MINOR,
           YAJL_MICRO, cmd_run != NULL ? "true" : "false");
    return 0;
}

static const struct command *find_command(const char *name) {
    size_t count;
    const struct command *table = command_table(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0) return table + i;
    return NULL;
}

static int unknown_verb(const char *name) {
    const char *names[32];
    size_t count, used = 0;
    const struct command *table = command_table(&count);
    for (size_t i = 0; i < count; i++) names[used++] = table[i].name;
    names[used++] = "help";
    names[used++] = "version";
    const char *nearest = options_nearest(name, names, used);
    fprintf(stderr, "mokscope: unknown verb '%s'\n", name);
    if (nearest != NULL)
        fprintf(stderr, "hint: did you mean '%s'?\n", nearest);
    else
        fprintf(stderr, "hint: 'mokscope --help' lists the verbs\n");
    return 2;
}

static int run_command(const struct command *command, int argc, char **argv) {
    if (command->function != NULL) return command->function(argc, argv);
    fprintf(stderr, "mokscope %s: not built into this binary\n", command->name);
    if (command->needs == COMMAND_NEEDS_GPU)
        fprintf(stderr, "hint: it needs a build with the CUDA toolkit; everything that reads a trace works without\n");
    return 1;
}

static int help(int argc, char **argv) {
    char option[] = "--help", *arguments[] = {NULL, option, NULL};
    if (argc < 2) {
        print_usage(stdout);
        return 0;
    }
    const struct command *command = find_command(argv[1]);
    if (command == NULL) return unknown_verb(argv[1]);
    arguments[0] = argv[1];
    return run_command(command, 2, arguments);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    const char *verb = argv[1];
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) verb = "help";
    if (strcmp(verb, "--version") == 0) verb = "version";
    int status;
    const struct command *command = find_command(verb);
    if (command != NULL)
        status = run_command(command, argc - 1, argv + 1);
    else if (strcmp(verb, "help") == 0)
        status = help(argc - 1, argv + 1);
    else if (strcmp(verb, "version") == 0)
        status = print_version(argc - 1, argv + 1);
    else
        status = unknown_verb(verb);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "mokscope: writing the output failed\nhint: is the disk full, or the reader of the pipe gone?\n");
        if (status == 0) status = 1;
    }
    return status;
}
