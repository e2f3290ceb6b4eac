/* See output_file.h. */
#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_existing(const char *path, bool (*mine)(const char *path), bool force, struct error *error) {
    struct stat information;
    if (stat(path, &information) != 0) return 0;
    if (S_ISDIR(information.st_mode)) {
        error_set(error, ERROR_USAGE, "cannot write '%s': it is a folder", path);
        return error_hint(error, "name a file in it with -o");
    }
    if (!S_ISREG(information.st_mode)) return error_set(error, ERROR_USAGE, "cannot write '%s': not a regular file", path);
    if (force || (mine != NULL && mine(path))) return 0;
    error_set(error, ERROR_USAGE, "will not overwrite '%s': it exists%s", path,
              mine != NULL ? " and was not written by this command" : "");
    return error_hint(error, "use --force to replace it, or choose another name with -o");
}

int output_file_open(struct output_file *file, const char *path, bool (*mine)(const char *path), bool force,
                     struct error *error) {
    *file = (struct output_file){0};
    if (strcmp(path, "-") == 0) {
        file->standard = true;
        file->stream = stdout;
        return 0;
    }
    int status = check_existing(path, mine, force, error);
    if (status) return status;
    file->path = strdup(path);
    file->temporary = malloc(strlen(path) + sizeof ".XXXXXX");
    if (file->path == NULL || file->temporary == NULL) {
        output_file_discard(file);
        return error_set(error, ERROR_FAILURE, "out of memory");
    }
    strcat(strcpy(file->temporary, path), ".XXXXXX");
    int descriptor = mkstemp(file->temporary);
    if (descriptor >= 0) file->stream = fdopen(descriptor, "w");
    if (file->stream == NULL) {
        int cause = errno;
        if (descriptor >= 0) close(descriptor);
        if (descriptor < 0) file->temporary[0] = '\0';
        error_set(error, ERROR_FAILURE, "cannot write '%s': %s", path, strerror(cause));
        error_hint(error, "choose a place you may write with -o");
        output_file_discard(file);
        return error->code;
    }
    /* As a file that open() makes: mkstemp gives 0600. */
    mode_t mask = umask(0);
    umask(mask);
    fchmod(descriptor, 0666 & ~mask);
    return 0;
}

int output_file_commit(struct output_file *file, struct error *error) {
    int status = 0, cause = 0;
    if (file->standard) {
        if (fflush(stdout) != 0 || ferror(stdout)) {
            status = error_set(error, ERROR_FAILURE, "writing to stdout failed: %s", strerror(errno));
            error_hint(error, "is the disk full, or the reader of the pipe gone?");
        }
    } else {
        bool failed = ferror(file->stream) != 0;
        if (fclose(file->stream) != 0) failed = true, cause = errno;
        file->stream = NULL;
        if (!failed && rename(file->temporary, file->path) == 0) {
            file->temporary[0] = '\0';
        } else {
            if (cause == 0) cause = errno;
            status = error_set(error, ERROR_FAILURE, "cannot write '%s': %s", file->path, cause != 0 ? strerror(cause) : "write error");
            error_hint(error, "free space, or choose another place with -o");
        }
    }
    output_file_discard(file);
    return status;
}

void output_file_discard(struct output_file *file) {
    if (file->stream != NULL && !file->standard) fclose(file->stream);
    if (file->temporary != NULL && file->temporary[0] != '\0') unlink(file->temporary);
    free(file->temporary);
    free(file->path);
    *file = (struct output_file){0};
}
