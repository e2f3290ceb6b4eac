/* See trace_file.h. */
#include "trace_file.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "../probes/host/schema.h"

enum {
    HEADER_BYTES = 100, /* SQLite file format, section 1.3 */
    HEADER_PAGE_SIZE = 16,
    HEADER_CHANGE_COUNTER = 24,
    HEADER_PAGE_COUNT = 28,
    HEADER_USER_VERSION = 60,
    HEADER_APPLICATION_ID = 68,
    HEADER_VERSION_VALID_FOR = 92,
    BUSY_MS = 5000,
    INFLATE_STEP_BYTES = 16 << 20
};

static const int64_t inflated_bytes_maximum = (int64_t)16 << 30; /* a bound on what a damaged file may ask for */

static uint32_t big_endian(const unsigned char *bytes, int count) {
    uint32_t value = 0;
    for (int i = 0; i < count; i++) value = value << 8 | bytes[i];
    return value;
}

static bool is_gzip(const unsigned char *bytes, size_t count) { return count >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

/* A recording that was killed while it wrote: header and size may be ahead of each other until SQLite has rolled it back. */
static bool has_journal(const char *path) {
    struct stat information;
    char *journal = sqlite3_mprintf("%s-journal", path);
    bool found = journal != NULL && stat(journal, &information) == 0 && information.st_size > 0;
    sqlite3_free(journal);
    return found;
}

/* What the header alone says. byte_count: of the whole database; INT64_MAX: not known. */
static int check_header(const char *path, const unsigned char *header, size_t got, int64_t byte_count, struct error *error) {
    if (got >= 16 && memcmp(header, "SQLite format 3", 16) == 0 && got < HEADER_BYTES) {
        error_set(error, ERROR_USAGE, "trace '%s' is truncated: %lld bytes, less than its header", path, (long long)byte_count);
        return error_hint(error, "copy or record it again");
    }
    if (got < HEADER_BYTES || memcmp(header, "SQLite format 3", 16) != 0) {
        error_set(error, ERROR_USAGE, "'%s' is not a trace", path);
        return error_hint(error, "a trace is the SQLite file that 'mokscope record', 'run' or 'execute' writes");
    }
    if (big_endian(header + HEADER_APPLICATION_ID, 4) != SCHEMA_APPLICATION_ID) {
        error_set(error, ERROR_USAGE, "'%s' is an SQLite database, but not a mokscope trace", path);
        return error_hint(error, "a trace is the SQLite file that 'mokscope record', 'run' or 'execute' writes");
    }
    uint32_t version = big_endian(header + HEADER_USER_VERSION, 4);
    if (version > TRACE_FILE_SCHEMA_VERSION) {
        error_set(error, ERROR_USAGE, "trace '%s' has schema version %u, this mokscope reads up to version %d", path, version,
                  TRACE_FILE_SCHEMA_VERSION);
        return error_hint(error, "use the mokscope that recorded it, or a newer one");
    }
    if (version < 1) {
        error_set(error, ERROR_USAGE, "trace '%s' has no schema version", path);
        return error_hint(error, "it was not finished being made; record it again");
    }
    uint32_t page_bytes = big_endian(header + HEADER_PAGE_SIZE, 2);
    int64_t expected = (int64_t)(page_bytes == 1 ? 65536 : page_bytes) * big_endian(header + HEADER_PAGE_COUNT, 4);
    bool valid = memcmp(header + HEADER_CHANGE_COUNTER, header + HEADER_VERSION_VALID_FOR, 4) == 0;
    if (valid && byte_count < expected) {
        error_set(error, ERROR_USAGE, "trace '%s' is truncated: %lld of %lld bytes", path, (long long)byte_count,
                  (long long)expected);
        return error_hint(error, "copy or record it again");
    }
    return 0;
}

int trace_file_fail(const struct trace_file *file, const char *what, struct error *error) {
    int code = sqlite3_errcode(file->database);
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT || code == SQLITE_IOERR) {
        error_set(error, ERROR_USAGE, "cannot %s trace '%s': it is damaged (%s)", what, file->path,
                  sqlite3_errmsg(file->database));
        return error_hint(error, "copy or record it again");
    }
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
        error_set(error, ERROR_FAILURE, "cannot %s trace '%s': another program is writing it", what, file->path);
        return error_hint(error, "wait until it is recorded");
    }
    if (code == SQLITE_FULL) {
        error_set(error, ERROR_FAILURE, "cannot %s trace '%s': disk full", what, file->path);
        return error_hint(error, "free space, or leave the trace as it is with --no-store");
    }
    if (code == SQLITE_ERROR) {
        error_set(error, ERROR_USAGE, "cannot %s trace '%s': %s", what, file->path, sqlite3_errmsg(file->database));
        return error_hint(error, "it has not the tables of schema version %d; record it again", TRACE_FILE_SCHEMA_VERSION);
    }
    return error_set(error, ERROR_FAILURE, "cannot %s trace '%s': sqlite %s: %s", what, file->path, sqlite3_errstr(code),
                     sqlite3_errmsg(file->database));
}

/* Inflates the whole file into memory of SQLite's allocator. */
static int inflate_file(const char *path, unsigned char **bytes, int64_t *byte_count, struct error *error) {
    gzFile input = gzopen(path, "rb");
    unsigned char *buffer = NULL;
    int64_t used = 0, capacity = 0;
    int status = 0, got = 0, code = Z_OK;
    if (input == NULL) return error_set(error, ERROR_FAILURE, "cannot read '%s': %s", path, strerror(errno));
    gzbuffer(input, 1 << 18);
    do {
        if (capacity - used < INFLATE_STEP_BYTES) {
            capacity = capacity * 2 + INFLATE_STEP_BYTES;
            unsigned char *grown =
                capacity > inflated_bytes_maximum ? NULL : sqlite3_realloc64(buffer, (sqlite3_uint64)capacity);
            if (grown == NULL) {
                status = error_set(error, ERROR_FAILURE, "out of memory for '%s', %lld bytes inflated", path, (long long)used);
                error_hint(error, "inflate it into a file with gunzip, and open that");
                goto cleanup;
            }
            buffer = grown;
        }
        got = gzread(input, buffer + used, INFLATE_STEP_BYTES);
        if (got > 0) used += got;
    } while (got > 0);
    const char *message = gzerror(input, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        status = error_set(error, ERROR_USAGE, "'%s' is a damaged or truncated gzip file (%s)", path,
                           code == Z_BUF_ERROR ? "it ends too early" : message);
        error_hint(error, "copy or record it again");
        goto cleanup;
    }
    *bytes = buffer;
    *byte_count = used;
    buffer = NULL;
cleanup:
    sqlite3_free(buffer);
    gzclose(input);
    return status;
}

static int open_compressed(struct trace_file *file, struct error *error) {
    unsigned char *bytes = NULL;
    int64_t count = 0;
    int status = inflate_file(file->path, &bytes, &count, error);
    if (!status) status = check_header(file->path, bytes, (size_t)count, count, error);
    if (status) {
        sqlite3_free(bytes);
        return status;
    }
    if (sqlite3_open_v2(":memory:", &file->database, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        sqlite3_free(bytes);
        return trace_file_fail(file, "open", error);
    }
    /* A file that was left in WAL mode cannot be deserialised as such; the bytes say "no WAL" instead. */
    bytes[18] = bytes[19] = 1;
    if (sqlite3_deserialize(file->database, "main", bytes, count, count,
                            SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
        return trace_file_fail(file, "open", error);
    file->compressed = true;
    return 0;
}

/* First read: SQLite finds out here whether it can use the file at all. */
static int first_read(sqlite3 *database) {
    return sqlite3_exec(database, "SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL);
}

static int open_plain(struct trace_file *file, struct error *error) {
    if (sqlite3_open_v2(file->path, &file->database, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        return trace_file_fail(file, "open", error);
    sqlite3_busy_timeout(file->database, BUSY_MS);
    int code = first_read(file->database);
    if (code == SQLITE_READONLY || code == SQLITE_CANTOPEN) {
        /* A killed recorder left a rollback journal: only a writer may roll it back. */
        sqlite3_close(file->database);
        if (sqlite3_open_v2(file->path, &file->database, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
            return trace_file_fail(file, "open", error);
        sqlite3_busy_timeout(file->database, BUSY_MS);
        code = first_read(file->database);
        if (code == SQLITE_READONLY || code == SQLITE_CANTOPEN) {
            error_set(error, ERROR_FAILURE, "cannot open trace '%s': its recording was killed and must be rolled back first",
                      file->path);
            return error_hint(error, "copy '%s' and '%s-journal' to a folder you may write, and open it there", file->path,
                              file->path);
        }
    }
    return code == SQLITE_OK ? 0 : trace_file_fail(file, "open", error);
}

/* Size and first bytes; refuses what is no regular file with something in it. */
static int examine(const char *path, unsigned char header[HEADER_BYTES], size_t *got, int64_t *byte_count, struct error *error) {
    struct stat information;
    if (stat(path, &information) != 0) {
        error_set(error, ERROR_USAGE, "cannot open trace '%s': %s", path, errno == ENOENT ? "no such file" : strerror(errno));
        return errno == ENOENT ? error_hint(error, "'mokscope record -- APP' makes a trace") : error->code;
    }
    if (S_ISDIR(information.st_mode)) {
        error_set(error, ERROR_USAGE, "cannot open trace '%s': it is a folder", path);
        return error_hint(error, "name a file in it, e.g. %s/trace.db", path);
    }
    if (!S_ISREG(information.st_mode)) return error_set(error, ERROR_USAGE, "cannot open trace '%s': not a regular file", path);
    if (information.st_size == 0) {
        error_set(error, ERROR_USAGE, "trace '%s' is empty", path);
        return error_hint(error, "the recording did not start, or the disk was full; record it again");
    }
    FILE *input = fopen(path, "rb");
    if (input == NULL) {
        error_set(error, ERROR_FAILURE, "cannot read trace '%s': %s", path, strerror(errno));
        return error_hint(error, "check the file's permissions");
    }
    *got = fread(header, 1, HEADER_BYTES, input);
    *byte_count = information.st_size;
    fclose(input);
    return 0;
}

int trace_file_open(struct trace_file *file, const char *path, struct error *error) {
    unsigned char header[HEADER_BYTES] = {0};
    size_t got = 0;
    *file = (struct trace_file){0};
    int status = examine(path, header, &got, &file->byte_count, error);
    if (status) return status;
    file->path = strdup(path);
    if (file->path == NULL) return error_set(error, ERROR_FAILURE, "out of memory");
    if (is_gzip(header, got)) {
        status = open_compressed(file, error);
    } else {
        status = check_header(path, header, got, has_journal(path) ? INT64_MAX : file->byte_count, error);
        if (!status) status = open_plain(file, error);
    }
    if (!status) sqlite3_exec(file->database, "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON", NULL, NULL, NULL);
    if (status) trace_file_close(file);
    return status;
}

void trace_file_close(struct trace_file *file) {
    sqlite3_close(file->database);
    free(file->path);
    *file = (struct trace_file){0};
}

bool trace_file_is_trace(const char *path) {
    unsigned char header[HEADER_BYTES] = {0};
    gzFile input = gzopen(path, "rb"); /* reads plain files too */
    if (input == NULL) return false;
    int got = gzread(input, header, HEADER_BYTES);
    gzclose(input);
    return got == HEADER_BYTES && memcmp(header, "SQLite format 3", 16) == 0 &&
           big_endian(header + HEADER_APPLICATION_ID, 4) == SCHEMA_APPLICATION_ID;
}
