/* A result file that appears whole or not at all: written under a temporary name beside its place, then renamed. Used by
 * report and export. The struct owns the stream and the names; output_file_discard accepts a zeroed struct. */
#ifndef OUTPUT_FILE_H
#define OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "../probes/host/error.h"

struct output_file {
    FILE *stream;
    char *path, *temporary;
    bool standard; /* the stream is stdout */
};

/* Opens path for writing; "-" is stdout.
 * mine   says whether an existing file at path is one that this verb wrote, which may be replaced; NULL: none is
 * force  replaces any regular file
 * Errors  usage: the file exists and is not ours, it is a folder; failure: folder missing or not writable. */
int output_file_open(struct output_file *file, const char *path, bool (*mine)(const char *path), bool force,
                     struct error *error);

/* Flushes, and puts the file in its place. Releases the struct in any case. */
int output_file_commit(struct output_file *file, struct error *error);

/* Removes what was written; nothing at path has changed. */
void output_file_discard(struct output_file *file);

#endif
