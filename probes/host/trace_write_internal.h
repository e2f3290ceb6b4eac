/* What trace_write.c (file and run), trace_rows.c (plain rows) and trace_lane.c (lanes in bulk) share of one writer. */
#ifndef TRACE_WRITE_INTERNAL_H
#define TRACE_WRITE_INTERNAL_H

#include "lane_decode.h"
#include "trace_write.h"

#include <sqlite3.h>

enum { TRACE_COMMIT_ROWS = 500000, RANK_UNSEEN = -1, RANK_MAXIMUM = 65536 };

enum trace_statement {
    STATEMENT_ATTRIBUTE,
    STATEMENT_DEVICE,
    STATEMENT_RANK,
    STATEMENT_RANK_DEFAULT,
    STATEMENT_DEVICE_CLOCK,
    STATEMENT_REFIT,
    STATEMENT_REFIT_HANGS,
    STATEMENT_MODULE,
    STATEMENT_ROLE,
    STATEMENT_EDGE,
    STATEMENT_EVENT,
    STATEMENT_TARGET,
    STATEMENT_TASK,
    STATEMENT_HANG,
    STATEMENT_KERNEL,
    STATEMENT_COPY,
    STATEMENT_MARKER,
    STATEMENT_HOST_ACTIVITY,
    STATEMENT_LOSS,
    STATEMENT_LAUNCH,
    STATEMENT_LAUNCH_KERNEL,
    STATEMENT_LANE,
    STATEMENT_CLOCK_FIT,
    STATEMENT_SYNC,
    STATEMENT_SPANS,
    STATEMENT_WAITS,
    STATEMENT_SIGNALS,
    STATEMENT_COUNT
};

/* A module's ids in the file, and what decoding needs of its table. */
struct writer_module {
    const struct mokscope_module *module;
    int32_t role_base, event_base, edge_base;
    uint8_t *event_kinds; /* [event_count] enum mokscope_kind, 255: id not used */
};

struct writer_launch {
    int32_t device_id, module_id;
    uint64_t grid_id;
};

struct writer_device {
    int32_t device_id;
    int32_t sm_clock_khz;
    double slope_ns_per_tick; /* of the last lane with a good fit; 0: none yet */
    struct clock_offset clock;
};

/* Source of the bulk inserts: rows of one kind of one lane, read by the virtual table trace_lane_rows. */
struct writer_source {
    const struct lane_row *rows;
    uint32_t count;
    int64_t first_id, lane_id, event_base;
};

struct trace_writer {
    sqlite3 *database;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    char *path;
    struct error failure; /* first failure to write; sticky */
    int in_transaction;
    int64_t pending_rows; /* since the last commit */
    struct writer_module *modules;
    int32_t module_count, role_count, event_count, edge_count;
    struct writer_launch *launches; /* launch_id = position + 1 */
    int64_t launch_count, launch_capacity;
    struct writer_device *devices;
    int32_t device_count;
    int32_t *rank_devices; /* [rank_capacity] device of each rank that has a row, RANK_UNSEEN of the others */
    uint32_t rank_capacity;
    struct lane_decoder decoder;
    struct writer_source source;
    int64_t next_id[LANE_KIND_COUNT];
    int64_t next_lane_id;
    int64_t unknown_events, misplaced_records, refused_lanes;
};

/* Fills error from the database's last error, remembers it as the writer's failure. */
int trace_writer_fail(struct trace_writer *writer, struct error *error, const char *what);
/* Statement ready to bind, inside a transaction; NULL with error set. */
sqlite3_stmt *trace_writer_statement(struct trace_writer *writer, enum trace_statement id, struct error *error);
/* Runs a bound statement that returns no rows; rows is what it adds to the pending count. */
int trace_writer_step(struct trace_writer *writer, sqlite3_stmt *statement, int64_t rows, struct error *error);
/* Binds by a format, a letter a parameter: i int32_t, u uint32_t, l int64_t, d double, s string (NULL: ''),
 * n int64_t where 0 is NULL. */
void trace_writer_bind(sqlite3_stmt *statement, const char *format, ...);
/* The device's entry, made if it is new; NULL: out of memory. */
struct writer_device *trace_writer_device(struct trace_writer *writer, int32_t device_id);
/* Remembers that a rank has a row and on which device it ran; ranks from RANK_MAXIMUM on are not remembered. 0, or -1: out of
 * memory. */
int trace_writer_see_rank(struct trace_writer *writer, uint32_t rank, int32_t device_id);
/* Device of a rank; RANK_UNSEEN: not remembered. */
int32_t trace_writer_rank_device(const struct trace_writer *writer, uint32_t rank);
/* Registers the virtual table of the bulk inserts. */
int trace_lane_register(struct trace_writer *writer, struct error *error);

#endif
