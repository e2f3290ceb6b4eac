/* Rate of trace_write_lane on synthetic rings: spans a second into a file, commits included.
 * usage: ingest [lanes [records a lane [path]]]; prints one line. Not a test. */
#include "../../probes/host/trace_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct mokscope_role_row roles[] = {{"mma", MOKSCOPE_CLASS_COMPUTE, "bench"}};
static const struct mokscope_event_row events[] = {
    {NULL, 0, 0, 0, -1, "", "", ""},
    {"task", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_CONTAINER, 1, -1, "task", "", ""},
    {"work", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_COMPUTE, 2, -1, "block", "", ""},
    {"wait", MOKSCOPE_KIND_WAIT, MOKSCOPE_CLASS_WAIT, 1, 0, "index", "awaited", ""},
    {"signal", MOKSCOPE_KIND_SIGNAL, MOKSCOPE_CLASS_OVERHEAD, 1, 0, "index", "value", ""},
};
static const struct mokscope_edge_row edges[] = {{"X", 0, 0, "tile", "gpu", 0, "1", "bench"}};
static const struct mokscope_module module = {sizeof module, MOKSCOPE_PROBE_VERSION, "bench", roles, 1, events, 5, edges, 1,
                                              NULL, NULL, NULL};

/* Tasks of 10 records: 8 inner spans, and the task behind them; one record in ten a wait or signal. */
static uint64_t fill_ring(struct mokscope_record *ring, uint32_t count, uint64_t clock) {
    uint64_t task_begin = clock;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = i % 10;
        if (slot == 9) {
            ring[i] = (struct mokscope_record){(uint32_t)task_begin, (uint32_t)(clock - task_begin), 1, 3, i / 10};
            task_begin = clock;
        } else {
            uint32_t length = 300 + i % 50;
            uint16_t event = slot == 8 ? (i / 10 % 2 ? 3 : 4) : 2;
            ring[i] = (struct mokscope_record){(uint32_t)clock, event == 4 ? 0 : length, event, 1, i};
            clock += length + 20;
        }
    }
    return clock;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv) {
    uint32_t lanes = argc > 1 ? (uint32_t)atoi(argv[1]) : 4000, count = argc > 2 ? (uint32_t)atoi(argv[2]) : 2048;
    const char *path = argc > 3 ? argv[3] : "/tmp/mokscope-ingest.db";
    struct error error = {0};
    struct trace_writer *writer = NULL;
    struct trace_run run = {"recorder", NULL, NULL, "bench", ""};
    struct trace_device device = {0, "synthetic", 132, 1980000, 32, 0};
    struct mokscope_record *ring = malloc(count * sizeof *ring);
    int32_t module_id = 0;
    uint64_t clock = 1000000000000u;
    fill_ring(ring, count, clock);
    double begin = seconds();
    int status = trace_write_open(&writer, path, 1, &run, &error);
    if (!status) status = trace_write_device(writer, &device, &error);
    if (!status) status = trace_write_module(writer, &module, &module_id, &error);
    for (uint32_t lane = 0; !status && lane < lanes; lane++) {
        int64_t launch = 0;
        uint64_t end = fill_ring(ring, count, clock);
        struct mokscope_lane_header header = {.state = MOKSCOPE_LANE_CLOSED, .count = count, .grid_id = 1 + lane / 1200,
                                              .clock_begin = clock, .globaltimer_begin = clock / 2 / 32 * 32,
                                              .clock_end = end, .globaltimer_end = end / 2 / 32 * 32,
                                              .cta = lane % 132, .warp = lane / 132 % 12};
        status = trace_write_launch(writer, 0, module_id, header.grid_id, &launch, &error);
        if (!status) status = trace_write_lane(writer, launch, &header, ring, count, &error);
    }
    int closed = trace_write_close(writer, "complete", 0, &error);
    double elapsed = seconds() - begin;
    free(ring);
    if (status || closed) {
        fprintf(stderr, "ingest: %s\n", error.message);
        return 1;
    }
    double rows = (double)lanes * count;
    printf("%.0f records in %.2f s: %.2f million a second into %s\n", rows, elapsed, rows / elapsed / 1e6, path);
    return 0;
}
