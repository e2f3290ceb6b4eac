/* SQLite under which things go wrong on demand: the n-th change to a file fails or kills the process, the n-th allocation
 * fails. For tests that try every n. faulty_install comes before any other use of SQLite. */
#ifndef FAULTY_SQLITE_H
#define FAULTY_SQLITE_H

#include <signal.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

struct faulty {
    int changes;     /* writes, truncations and deletions so far */
    int fail_change; /* from this one on they fail with fail_code; 0: none */
    int fail_code;
    int kill_change;             /* before this one the process kills itself; 0: never */
    int allocations;             /* so far */
    int fail_allocation;         /* this one fails; 0: none */
    int allocations_stay_failed; /* and all after it */
    sqlite3_vfs *system, vfs;
    const sqlite3_io_methods *system_methods;
    sqlite3_io_methods methods;
    sqlite3_mem_methods system_memory, memory;
};

static struct faulty faulty;

static inline int faulty_change(void) {
    faulty.changes++;
    if (faulty.changes == faulty.kill_change) kill(getpid(), SIGKILL);
    return faulty.fail_change > 0 && faulty.changes >= faulty.fail_change ? faulty.fail_code : SQLITE_OK;
}

static inline int faulty_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset) {
    int code = faulty_change();
    return code != SQLITE_OK ? code : faulty.system_methods->xWrite(file, bytes, count, offset);
}

static inline int faulty_truncate(sqlite3_file *file, sqlite3_int64 size) {
    int code = faulty_change();
    return code != SQLITE_OK ? code : faulty.system_methods->xTruncate(file, size);
}

static inline int faulty_delete(sqlite3_vfs *vfs, const char *path, int sync) {
    int code = faulty_change();
    (void)vfs;
    return code != SQLITE_OK ? code : faulty.system->xDelete(faulty.system, path, sync);
}

/* All files share one table of methods, as they are on one file system. */
static inline int faulty_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *flags_out) {
    int code = faulty.system->xOpen(faulty.system, path, file, flags, flags_out);
    (void)vfs;
    if (code != SQLITE_OK || file->pMethods == NULL) return code;
    if (faulty.system_methods == NULL) {
        faulty.system_methods = file->pMethods;
        faulty.methods = *file->pMethods;
        faulty.methods.xWrite = faulty_write;
        faulty.methods.xTruncate = faulty_truncate;
    }
    if (file->pMethods == faulty.system_methods) file->pMethods = &faulty.methods;
    return code;
}

static inline int faulty_refuses(void) {
    faulty.allocations++;
    if (faulty.fail_allocation == 0) return 0;
    return faulty.allocations == faulty.fail_allocation ||
           (faulty.allocations_stay_failed && faulty.allocations > faulty.fail_allocation);
}

static inline void *faulty_malloc(int size) { return faulty_refuses() ? NULL : faulty.system_memory.xMalloc(size); }

static inline void *faulty_realloc(void *memory, int size) {
    return faulty_refuses() ? NULL : faulty.system_memory.xRealloc(memory, size);
}

static inline void faulty_install(void) {
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &faulty.system_memory);
    faulty.memory = faulty.system_memory;
    faulty.memory.xMalloc = faulty_malloc;
    faulty.memory.xRealloc = faulty_realloc;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &faulty.memory);
    faulty.system = sqlite3_vfs_find(NULL);
    faulty.vfs = *faulty.system;
    faulty.vfs.zName = "faulty";
    faulty.vfs.xOpen = faulty_open;
    faulty.vfs.xDelete = faulty_delete;
    sqlite3_vfs_register(&faulty.vfs, 1);
}

/* Nothing fails any more; counters start again. */
static inline void faulty_reset(void) {
    faulty.changes = faulty.fail_change = faulty.kill_change = 0;
    faulty.allocations = faulty.fail_allocation = faulty.allocations_stay_failed = 0;
}

#endif
