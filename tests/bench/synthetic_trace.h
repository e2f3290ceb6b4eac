/* A trace as the MoE layer would write it, made from a simple model of its roles in time: dispatch fills minibatches, the load
 * role waits for them, two matrix roles compute, store warps push, everybody meets and reduces. For benchmarks and for looking
 * at reports of any size; nothing here claims to be the hardware's timing. Ticks are half nanoseconds, as an SM at 2 GHz has. */
#ifndef SYNTHETIC_TRACE_H
#define SYNTHETIC_TRACE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOK_EVENTS_ROWS
#include "../../probes/mok_events.h"

#include "../../probes/host/trace_write.h"

enum { SYNTHETIC_WARPS = 12, SYNTHETIC_MINIBATCHES = 16, SYNTHETIC_RING = 1 << 16 };

struct synthetic_options {
    int32_t sms, ranks, comm_sms, iterations;
    int32_t tasks; /* of a compute CTA in an iteration */
    uint64_t seed;
};

struct synthetic {
    struct synthetic_options options;
    struct trace_writer *writer;
    struct mokscope_record *ring;
    uint32_t count;
    uint64_t random;
    int64_t ready_ns[SYNTHETIC_MINIBATCHES]; /* of the rank being made */
    int64_t launch, span_count;
    struct error error;
    int status;
};

static inline double synthetic_random(struct synthetic *s) { /* 0..1, xorshift64* */
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return (double)(s->random * 0x2545f4914f6cdd1du >> 11) / 9007199254740992.0;
}

static inline int64_t synthetic_about(struct synthetic *s, double ns) { return (int64_t)(ns * (0.9 + 0.2 * synthetic_random(s))); }

static inline void synthetic_record(struct synthetic *s, int64_t begin_ns, int64_t end_ns, uint32_t event, uint32_t small, uint32_t argument) {
    if (s->count >= SYNTHETIC_RING) return;
    s->ring[s->count++] = (struct mokscope_record){(uint32_t)(2 * begin_ns), (uint32_t)(2 * (end_ns - begin_ns)), (uint16_t)event,
                                                   (uint16_t)small, argument};
    s->span_count++;
}

static inline void synthetic_wait(struct synthetic *s, int64_t begin_ns, int64_t end_ns, int edge, uint32_t index) {
    if (end_ns > begin_ns) synthetic_record(s, begin_ns, end_ns, (uint32_t)(EVENT_WAIT_FIRST + edge), 1, index);
}

static inline void synthetic_signal(struct synthetic *s, int64_t at_ns, int edge, uint32_t index) {
    synthetic_record(s, at_ns, at_ns, (uint32_t)(EVENT_SIGNAL_FIRST + edge), 1, index);
}

/* Writes the ring as one lane. */
static inline void synthetic_lane(struct synthetic *s, int32_t rank, int32_t cta, uint32_t warp, uint32_t role, int64_t begin_ns, int64_t end_ns) {
    uint32_t capacity = 1;
    while (capacity < s->count) capacity *= 2;
    struct mokscope_lane_header header = {.state = MOKSCOPE_LANE_CLOSED, .count = s->count, .grid_id = (uint64_t)s->launch,
                                          .clock_begin = (uint64_t)(2 * begin_ns), .globaltimer_begin = (uint64_t)begin_ns,
                                          .clock_end = (uint64_t)(2 * end_ns), .globaltimer_end = (uint64_t)end_ns, .cta = (uint32_t)cta,
                                          .rank = (uint32_t)rank, .role = role, .warp = warp, .sm_begin = (uint32_t)cta, .sm_end = (uint32_t)cta};
    if (!s->status) s->status = trace_write_lane(s->writer, s->launch, &header, s->ring, capacity, &s->error);
    s->count = 0;
}

enum synthetic_edge { SYNTHETIC_RANK_START, SYNTHETIC_X_READY, SYNTHETIC_X_FREE, SYNTHETIC_H_READY, SYNTHETIC_H_FREE, SYNTHETIC_Y_READY,
                      SYNTHETIC_Y_FREE, SYNTHETIC_PUSHED, SYNTHETIC_RANK_DONE, SYNTHETIC_TASK_FULL, SYNTHETIC_TASK_EMPTY,
                      SYNTHETIC_STAGE_FULL, SYNTHETIC_STAGE_EMPTY, SYNTHETIC_STAGING_FULL, SYNTHETIC_STAGING_EMPTY };

/* A compute CTA: load, two matrix and two store lanes; returns when its last push is done. */
struct synthetic_task {
    int64_t load_begin, load_ready, load_end, mma_begin[2], mma_end[2], epilogue_end[2], store_end[2];
};

static inline int64_t synthetic_compute_cta(struct synthetic *s, int32_t rank, int32_t cta, int64_t begin_ns, int64_t done_ns, int64_t end_ns,
                                            struct synthetic_task *tasks) {
    int32_t n = s->options.tasks;
    int64_t load_free = begin_ns + synthetic_about(s, 400), last = begin_ns;
    int64_t mma_free[2] = {begin_ns + 500, begin_ns + 500}, store_free[2] = {begin_ns, begin_ns};
    for (int32_t i = 0; i < n; i++) {
        struct synthetic_task *t = &tasks[i];
        int64_t ready = s->ready_ns[(int64_t)i * SYNTHETIC_MINIBATCHES / n];
        t->load_begin = load_free;
        t->load_ready = load_free > ready ? load_free : ready;
        int64_t first = t->load_ready + synthetic_about(s, 700);
        t->load_end = t->load_ready + synthetic_about(s, 3000);
        for (int g = 0; g < 2; g++) {
            t->mma_begin[g] = first > mma_free[g] ? first : mma_free[g];
            t->mma_end[g] = t->mma_begin[g] + synthetic_about(s, 3100);
            if (t->mma_end[g] > t->load_end) t->load_end = t->mma_end[g] - 300;
            t->epilogue_end[g] = t->mma_end[g] + synthetic_about(s, 450);
            mma_free[g] = t->epilogue_end[g] + 20;
            int64_t store_begin = t->epilogue_end[g] > store_free[g] ? t->epilogue_end[g] : store_free[g];
            t->store_end[g] = store_begin + synthetic_about(s, 900);
            store_free[g] = t->store_end[g];
            if (t->store_end[g] > last) last = t->store_end[g];
        }
        load_free = t->load_end + synthetic_about(s, 60);
    }
    for (int32_t i = 0; i < n; i++) { /* load */
        const struct synthetic_task *t = &tasks[i];
        synthetic_wait(s, t->load_begin + 30, t->load_ready, i % 3 == 2 ? SYNTHETIC_H_READY : SYNTHETIC_X_READY, (uint32_t)(i * SYNTHETIC_MINIBATCHES / n));
        synthetic_record(s, t->load_ready, t->load_end, EVENT_LOAD_TILE, 10, (uint32_t)i);
        synthetic_record(s, t->load_begin, t->load_end + 20, i % 3 == 2 ? EVENT_TASK_DOWN : EVENT_TASK_GATE_UP, 1, (uint32_t)i);
    }
    synthetic_lane(s, rank, cta, 0, ROLE_LOAD, begin_ns, last + 1000);
    for (uint32_t g = 0; g < 2; g++) {
        int64_t free_ns = begin_ns + 500;
        for (int32_t i = 0; i < n; i++) {
            const struct synthetic_task *t = &tasks[i];
            bool down = i % 3 == 2;
            int64_t known = t->load_begin + 40 > free_ns ? t->load_begin + 40 : free_ns;
            synthetic_wait(s, free_ns, known < t->mma_begin[g] ? known : t->mma_begin[g], SYNTHETIC_TASK_FULL, 0);
            synthetic_wait(s, known, t->mma_begin[g], SYNTHETIC_STAGE_FULL, 0);
            synthetic_record(s, t->mma_begin[g], t->mma_end[g], EVENT_MMA_TILE, (uint32_t)(synthetic_random(s) * 12), (uint32_t)i);
            synthetic_signal(s, t->mma_end[g] + 5, down ? SYNTHETIC_H_FREE : SYNTHETIC_X_FREE, 0);
            synthetic_record(s, t->mma_end[g] + 10, t->epilogue_end[g], EVENT_EPILOGUE, 0, (uint32_t)i);
            synthetic_record(s, known, t->epilogue_end[g] + 10, down ? EVENT_TASK_DOWN : EVENT_TASK_GATE_UP, 1, (uint32_t)i);
            free_ns = t->epilogue_end[g] + 20;
        }
        synthetic_wait(s, free_ns, done_ns, SYNTHETIC_RANK_DONE, 0);
        synthetic_record(s, done_ns > free_ns ? done_ns : free_ns, end_ns - 50, EVENT_REDUCE_ROWS, 16, (uint32_t)cta);
        synthetic_lane(s, rank, cta, 4 + 4 * g, ROLE_MMA, begin_ns, end_ns);
    }
    for (uint32_t g = 0; g < 2; g++) {
        for (int32_t i = 0; i < n; i++) {
            const struct synthetic_task *t = &tasks[i];
            int64_t from = t->epilogue_end[g] > t->store_end[g] - 900 ? t->epilogue_end[g] : t->store_end[g] - 900;
            synthetic_record(s, from, t->store_end[g], i % 3 == 2 ? EVENT_PUSH_Y : EVENT_STORE_TILE, 64, (uint32_t)i);
            synthetic_signal(s, t->store_end[g] + 5, i % 3 == 2 ? SYNTHETIC_PUSHED : SYNTHETIC_H_READY, 0);
        }
        synthetic_lane(s, rank, cta, 2 + g, ROLE_STORE, begin_ns, last + 1000);
    }
    return last;
}

static inline void synthetic_comm_cta(struct synthetic *s, int32_t rank, int32_t cta, int64_t begin_ns, int64_t done_ns, int64_t end_ns) {
    for (uint32_t warp = 0; warp < SYNTHETIC_WARPS; warp++) {
        int64_t free_ns = begin_ns + 200;
        int32_t each = s->options.tasks / 8 + 1;
        for (int32_t m = 0; m < SYNTHETIC_MINIBATCHES; m++) {
            for (int32_t i = 0; i < each; i++) {
                int64_t begin = free_ns, copy = begin + synthetic_about(s, 40);
                int64_t finish = s->ready_ns[m] - (each - i - 1) * 300 - synthetic_about(s, 200);
                if (finish < copy + 100) finish = copy + 100;
                if (finish - copy > 2500) {
                    synthetic_wait(s, copy, finish - 1800, SYNTHETIC_X_FREE, (uint32_t)m);
                    copy = finish - 1800;
                }
                synthetic_record(s, copy, finish, EVENT_PULL_X, 16, (uint32_t)(100000 + i));
                synthetic_signal(s, finish - 10, SYNTHETIC_X_READY, (uint32_t)m);
                synthetic_record(s, begin, finish + 10, EVENT_TASK_DISPATCH, 16, (uint32_t)(100000 + i));
                free_ns = finish + 20;
            }
        }
        synthetic_wait(s, free_ns, done_ns, SYNTHETIC_RANK_DONE, 0);
        synthetic_record(s, done_ns > free_ns ? done_ns : free_ns, end_ns - 50, EVENT_REDUCE_ROWS, 16, warp);
        synthetic_lane(s, rank, cta, warp, ROLE_DISPATCH, begin_ns, end_ns);
    }
}

static inline void synthetic_iteration(struct synthetic *s, int32_t module_id, int32_t iteration, struct synthetic_task *tasks) {
    int32_t per_rank = s->options.sms / s->options.ranks;
    double length = 4000.0 * s->options.tasks + 60000;
    int64_t base = 1790000000000000000 % 1000000000000 + (int64_t)(iteration * 1.4 * length);
    for (int32_t rank = 0; rank < s->options.ranks && !s->status; rank++) {
        int64_t begin = base + rank * 1500, done = begin + (int64_t)length + synthetic_about(s, 4000), end = done + 9000;
        s->status = trace_write_launch(s->writer, 0, module_id, (uint64_t)(1 + iteration * s->options.ranks + rank), &s->launch, &s->error);
        for (int32_t m = 0; m < SYNTHETIC_MINIBATCHES; m++)
            s->ready_ns[m] = begin + 12000 + (int64_t)((length - 50000) * m / SYNTHETIC_MINIBATCHES * (0.8 + 0.25 * synthetic_random(s)));
        for (int32_t c = 0; c < per_rank && !s->status; c++) {
            int32_t cta = rank * per_rank + c;
            if (c < s->options.comm_sms)
                synthetic_comm_cta(s, rank, cta, begin + synthetic_about(s, 800), done, end);
            else
                synthetic_compute_cta(s, rank, cta, begin + synthetic_about(s, 800), done, end, tasks);
        }
    }
}

static inline void synthetic_describe(struct synthetic *s) {
    static const char *const attributes[][4] = {{"shape", "tokens", "512", "tokens a rank"}, {"shape", "hidden", "6144", "columns"},
                                                {"shape", "intermediate", "2048", "columns"}, {"shape", "top_k", "8", ""}, {"shape", "experts_per_rank", "4", ""},
                                                {"note", "origin", "synthetic timing, made by a benchmark", ""}};
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0] && !s->status; i++)
        s->status = trace_write_attribute(s->writer, attributes[i][0], attributes[i][1], attributes[i][2], attributes[i][3], &s->error);
    for (int32_t rank = 0; rank < s->options.ranks; rank++) {
        for (int32_t i = 0; i < s->options.tasks * (s->options.sms / s->options.ranks - s->options.comm_sms) && !s->status; i++) {
            bool down = i % 3 == 2;
            struct mokscope_task_row row = {rank, i, down ? "down" : "gate+up", i / 400, rank * 4 + i / 16 % 4, i / 16, i % 16, 110, 18,
                                            down ? 2LL * 110 * 256 * 2048 : 4LL * 110 * 128 * 6144, 0};
            s->status = trace_write_tasks(s->writer, &row, 1, &s->error);
        }
    }
}

/* Writes a synthetic trace, replacing one; returns the number of records, or -1 with a message on stderr. */
static inline int64_t synthetic_trace_write(const char *path, const struct synthetic_options *options) {
    static const struct mokscope_module module = {sizeof module, MOKSCOPE_PROBE_VERSION, "mok forward", mok_role_rows,
                                                  sizeof mok_role_rows / sizeof mok_role_rows[0], mok_event_rows,
                                                  sizeof mok_event_rows / sizeof mok_event_rows[0], mok_edge_rows,
                                                  sizeof mok_edge_rows / sizeof mok_edge_rows[0], NULL, NULL, NULL};
    struct synthetic *s = calloc(1, sizeof *s);
    struct synthetic_task *tasks = calloc((size_t)options->tasks + 1, sizeof *tasks);
    struct trace_run run = {"executor", NULL, NULL, "synthetic trace", ""};
    struct trace_device device = {0, "synthetic GPU", options->sms, 2000000, 32, 0};
    int32_t module_id = 0;
    if (s == NULL || tasks == NULL || (s->ring = malloc(SYNTHETIC_RING * sizeof *s->ring)) == NULL) return -1;
    s->options = *options;
    s->random = options->seed * 2 + 1;
    s->status = trace_write_open(&s->writer, path, 1, &run, &s->error);
    if (!s->status) s->status = trace_write_device(s->writer, &device, &s->error);
    if (!s->status) s->status = trace_write_module(s->writer, &module, &module_id, &s->error);
    if (!s->status) synthetic_describe(s);
    for (int32_t i = 0; i < options->iterations && !s->status; i++) synthetic_iteration(s, module_id, i, tasks);
    if (s->writer != NULL && trace_write_close(s->writer, "complete", 0, &s->error)) s->status = -1;
    int64_t count = s->status ? -1 : s->span_count;
    if (s->status) fprintf(stderr, "synthetic trace: %s\n", s->error.message);
    free(s->ring);
    free(s);
    free(tasks);
    return count;
}

#endif
