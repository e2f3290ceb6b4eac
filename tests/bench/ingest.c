/* Rates of a lane's way into the file: decoding alone, the trace writer, and the recorder's collector with its queue and
 * thread in front of it. usage: ingest [records [records a lane [path]]]; one line a step. Not a test.
 * Goal: 1.2 million records a second by the collector, what 132 SMs of a busy H200 write. */
#include "../../probes/host/trace_write.h"
#include "../../probes/host/lane_decode.h"
#include "../../probes/recorder/collector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LANES_A_LAUNCH = 1200, LANES_A_BLOCK = 64, CTAS = 132, WARPS = 12, TASK_RECORDS = 10 };
enum { TASK = 1, WORK = 2, WAIT = 3, SIGNAL = 4, EVENTS = 5 };

static const struct mokscope_role_row roles[] = {{"mma", MOKSCOPE_CLASS_COMPUTE, "bench"}};
static const struct mokscope_event_row events[EVENTS] = {
    {NULL, 0, 0, 0, -1, "", "", ""},
    {"task", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_CONTAINER, 1, -1, "task", "", ""},
    {"work", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_COMPUTE, 2, -1, "block", "", ""},
    {"wait", MOKSCOPE_KIND_WAIT, MOKSCOPE_CLASS_WAIT, 1, 0, "index", "awaited", ""},
    {"signal", MOKSCOPE_KIND_SIGNAL, MOKSCOPE_CLASS_OVERHEAD, 1, 0, "index", "value", ""},
};
static const struct mokscope_edge_row edges[] = {{"X", 0, 0, "tile", "gpu", 0, "1", "bench"}};
static const struct mokscope_module module = {
    sizeof module, MOKSCOPE_PROBE_VERSION, "bench", roles, 1, events, EVENTS, edges, 1, NULL, NULL, NULL};

struct bench {
    uint32_t lane_count, record_count; /* a lane */
    struct mokscope_record *ring;      /* [record_count] every lane's records: clocks begin at clock_begin */
    uint64_t clock_begin, clock_end;
    char path[512];
};

/* Tasks of 10 records: 8 inner spans, a wait or signal, and the task behind them. */
static void fill_ring(struct bench *bench) {
    uint64_t clock = bench->clock_begin = 1000000000000u, task_begin = clock;
    for (uint32_t i = 0; i < bench->record_count; i++) {
        uint32_t slot = i % TASK_RECORDS, length = 300 + i % 50;
        uint16_t event = slot < 8 ? WORK : slot == 9 ? TASK : i / TASK_RECORDS % 2 ? WAIT : SIGNAL;
        if (event == TASK) {
            bench->ring[i] = (struct mokscope_record){(uint32_t)task_begin, (uint32_t)(clock - task_begin), TASK, 3, i};
            task_begin = clock;
        } else {
            bench->ring[i] = (struct mokscope_record){(uint32_t)clock, event == SIGNAL ? 0 : length, event, 1, i};
            clock += length + 20;
        }
    }
    bench->clock_end = clock;
}

/* ns = ticks / 2, as at 2 GHz, in steps of 32. */
static struct mokscope_lane_header lane_header(const struct bench *bench, uint32_t lane) {
    return (struct mokscope_lane_header){.state = MOKSCOPE_LANE_CLOSED,
                                         .count = bench->record_count,
                                         .grid_id = 1 + lane / LANES_A_LAUNCH,
                                         .clock_begin = bench->clock_begin,
                                         .globaltimer_begin = bench->clock_begin / 64 * 32,
                                         .clock_end = bench->clock_end,
                                         .globaltimer_end = bench->clock_end / 64 * 32,
                                         .cta = lane % CTAS,
                                         .warp = lane / CTAS % WARPS};
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void report(const struct bench *bench, const char *step, double elapsed) {
    double records = (double)bench->lane_count * bench->record_count;
    printf("%-10s %10.0f records %6.2f s %7.2f million a second\n", step, records, elapsed, records / elapsed / 1e6);
}

static int measure_decode(const struct bench *bench, struct error *error) {
    struct lane_decoder decoder = {0};
    uint8_t kinds[EVENTS];
    int status = 0;
    for (int i = 0; i < EVENTS; i++) kinds[i] = events[i].name != NULL ? (uint8_t)events[i].kind : 255;
    double begin = seconds();
    for (uint32_t lane = 0; !status && lane < bench->lane_count; lane++) {
        struct mokscope_lane_header header = lane_header(bench, lane);
        status = lane_decode(&decoder, &header, bench->ring, bench->record_count, kinds, EVENTS, error);
    }
    report(bench, "decode", seconds() - begin);
    lane_decode_release(&decoder);
    return status;
}

static int measure_writer(const struct bench *bench, struct error *error) {
    struct trace_writer *writer = NULL;
    const struct trace_run run = {"recorder", NULL, NULL, "bench", ""};
    const struct trace_device device = {0, "synthetic", CTAS, 2000000, 32, 0};
    int32_t module_id = 0;
    double begin = seconds();
    int status = trace_write_open(&writer, bench->path, 1, &run, error);
    if (!status) status = trace_write_device(writer, &device, error);
    if (!status) status = trace_write_module(writer, &module, &module_id, error);
    for (uint32_t lane = 0; !status && lane < bench->lane_count; lane++) {
        struct mokscope_lane_header header = lane_header(bench, lane);
        int64_t launch = 0;
        status = trace_write_launch(writer, 0, module_id, header.grid_id, &launch, error);
        if (!status) status = trace_write_lane(writer, launch, &header, bench->ring, bench->record_count, error);
    }
    double close_begin = seconds();
    int closed = trace_write_close(writer, "complete", 0, error);
    double end = seconds();
    report(bench, "write", end - begin);
    printf("%-10s %33.2f s of it\n", "close", end - close_begin);
    return status ? status : closed;
}

/* A block as rings.c makes it. */
static struct lane_block *new_block(const struct bench *bench, uint32_t first_lane, uint32_t count) {
    size_t records = (size_t)count * bench->record_count;
    size_t bytes = sizeof(struct lane_block) + count * (sizeof(struct mokscope_lane_header) + sizeof(size_t)) +
                   records * sizeof *bench->ring;
    struct lane_block *block = malloc(bytes);
    if (block == NULL) return NULL;
    *block = (struct lane_block){NULL, &module, 0, bench->record_count, count, bytes, (void *)(block + 1), NULL, NULL};
    block->records = (void *)(block->headers + count);
    block->first_record = (void *)(block->records + records);
    for (uint32_t i = 0; i < count; i++) {
        block->headers[i] = lane_header(bench, first_lane + i);
        block->first_record[i] = (size_t)i * bench->record_count;
        memcpy(block->records + block->first_record[i], bench->ring, bench->record_count * sizeof *bench->ring);
    }
    return block;
}

static int measure_collector(const struct bench *bench, struct error *error) {
    struct collector *collector = NULL;
    double begin = seconds();
    unlink(bench->path);
    int status = collector_open(&collector, bench->path, "bench", error);
    for (uint32_t lane = 0; !status && lane < bench->lane_count; lane += LANES_A_BLOCK) {
        uint32_t left = bench->lane_count - lane;
        struct lane_block *block = new_block(bench, lane, left < LANES_A_BLOCK ? left : LANES_A_BLOCK);
        if (block == NULL) status = error_set(error, ERROR_FAILURE, "out of memory");
        collector_lanes(collector, block);
    }
    int closed = collector_close(collector, "complete", error);
    report(bench, "collector", seconds() - begin);
    return status ? status : closed;
}

int main(int argc, char **argv) {
    long long records = argc > 1 ? atoll(argv[1]) : 8000000, a_lane = argc > 2 ? atoll(argv[2]) : 2048;
    struct error error = {0};
    struct bench bench = {.record_count = (uint32_t)a_lane};
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    if (argc > 4 || records < 1 || a_lane < 1 || a_lane > 1 << 24 || (a_lane & (a_lane - 1)) != 0) {
        fprintf(stderr, "usage: ingest [records [records a lane, a power of two [path]]]\n");
        return 2;
    }
    bench.lane_count = (uint32_t)((records + a_lane - 1) / a_lane);
    bench.ring = malloc(bench.record_count * sizeof *bench.ring);
    snprintf(bench.path, sizeof bench.path, "%s%s", argc > 3 ? argv[3] : folder, argc > 3 ? "" : "/mokscope-ingest.db");
    if (bench.ring == NULL) return 1;
    fill_ring(&bench);
    int status = measure_decode(&bench, &error);
    if (!status) status = measure_writer(&bench, &error);
    if (!status) status = measure_collector(&bench, &error);
    struct stat file;
    if (!status && stat(bench.path, &file) == 0)
        printf("%-10s %10.1f bytes a record\n", "file",
               (double)file.st_size / ((double)bench.lane_count * bench.record_count));
    if (argc <= 3) unlink(bench.path);
    free(bench.ring);
    if (status) fprintf(stderr, "ingest: %s\n", error.message);
    return status ? 1 : 0;
}
