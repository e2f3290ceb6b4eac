/* A program that knows nothing of mokscope but its probe header, for tests/gpu/recorder.sh: every count of its trace is known.
 *
 * usage: recorder_app whole|loop|hang|reset [EXIT_STATUS]
 * A pass is an NVTX range with, on each of 2 streams, one copy to the device, one memset, one kernel of CTAS CTAs, and one
 * synchronisation. In a CTA, warp 0 publishes ROUNDS values and warp 1 waits for each of them; every wait is recorded. */
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mokscope_probe.h"

enum { PASSES = 10, STREAMS = 2, CTAS = 16, ROUNDS = 50, COPY_BYTES = 1 << 20, WORK_CYCLES = 1000 };
enum { ROLE_PRODUCER, ROLE_CONSUMER };
enum { EVENT_WORK = 1, EVENT_WAIT, EVENT_PUBLISH };

static const struct mokscope_role_row roles[] = {{"producer", MOKSCOPE_CLASS_COMPUTE, "publishes values"},
                                                 {"consumer", MOKSCOPE_CLASS_COMMUNICATE, "waits for them"}};
static const struct mokscope_edge_row edges[] = {{"VALUE", ROLE_PRODUCER, ROLE_CONSUMER, "round", "gpu", 0, "round", "a value is there"}};
static const struct mokscope_event_row events[] = {
    {NULL, 0, 0, 0, -1, "", "", ""},
    {"work", MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_COMPUTE, MOKSCOPE_LEVEL_TASK, -1, "round", "", "makes a value"},
    {"wait VALUE", MOKSCOPE_KIND_WAIT, MOKSCOPE_CLASS_WAIT, MOKSCOPE_LEVEL_TASK, 0, "round", "awaited", "waits for a value"},
    {"publish VALUE", MOKSCOPE_KIND_SIGNAL, MOKSCOPE_CLASS_OVERHEAD, MOKSCOPE_LEVEL_TASK, 0, "round", "value", "a value is there"},
};
MOKSCOPE_MODULE("recorder app", roles, events, edges)

static __device__ void produce(uint32_t *flag) {
    struct mokscope_lane lane = mokscope_lane_open(0, ROLE_PRODUCER, 0);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint32_t begin = mokscope_clock();
        while (mokscope_clock() - begin < WORK_CYCLES) {}
        mokscope_span(&lane, MOKSCOPE_LEVEL_TASK, begin, EVENT_WORK, 0, round);
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            __threadfence();
            *(volatile uint32_t *)flag = round;
        }
        mokscope_instant(&lane, MOKSCOPE_LEVEL_TASK, EVENT_PUBLISH, round, round);
    }
    mokscope_lane_close(&lane);
}

/* A value that never comes: given up after 30 s, long after the program has been killed. */
static __device__ void consume(uint32_t *flag, uint32_t rounds) {
    struct mokscope_lane lane = mokscope_lane_open(0, ROLE_CONSUMER, 0);
    for (uint32_t round = 1; round <= rounds; round++) {
        uint32_t begin = mokscope_clock(), told = 0;
        uint64_t since = mokscope_globaltimer(), now = since;
        while (*(volatile uint32_t *)flag < round && now - since < 30000000000u) {
            now = mokscope_globaltimer();
            if (told || now - since < 100000) continue;
            told = 1;
            if (threadIdx.x % 32 == 0) mokscope_long_wait(lane, EVENT_WAIT, round, round, *(volatile uint32_t *)flag, since);
        }
        __syncwarp();
        if (told && threadIdx.x % 32 == 0) mokscope_long_wait(lane, 0, 0, 0, 0, 0);
        mokscope_span(&lane, MOKSCOPE_LEVEL_TASK, begin, EVENT_WAIT, round, round);
    }
    mokscope_lane_close(&lane);
}

__global__ void exchange(uint32_t *flags, uint32_t rounds) {
    if (threadIdx.x < 32) {
        produce(flags + blockIdx.x);
    } else {
        consume(flags + blockIdx.x, rounds);
    }
}

#define CHECK(call)                                                                                     \
    do {                                                                                                \
        cudaError_t status = (call);                                                                    \
        if (status != cudaSuccess) {                                                                    \
            fprintf(stderr, "recorder_app: %s: %s\n", #call, cudaGetErrorString(status));               \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

struct work {
    cudaStream_t stream;
    uint32_t *flags; /* [CTAS] */
    void *host, *device;
};

static void run_pass(const struct work *work, int index, uint32_t rounds) {
    char name[32];
    snprintf(name, sizeof name, "pass %d", index);
    nvtxRangePushA(name);
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaMemcpyAsync(work[i].device, work[i].host, COPY_BYTES, cudaMemcpyHostToDevice, work[i].stream));
        CHECK(cudaMemsetAsync(work[i].flags, 0, CTAS * sizeof *work[i].flags, work[i].stream));
        exchange<<<CTAS, 64, 0, work[i].stream>>>(work[i].flags, rounds);
        CHECK(cudaGetLastError());
    }
    for (int i = 0; i < STREAMS; i++) CHECK(cudaStreamSynchronize(work[i].stream));
    nvtxRangePop();
}

static void prepare(struct work *work) {
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaStreamCreateWithFlags(&work[i].stream, cudaStreamNonBlocking));
        CHECK(cudaMalloc(&work[i].flags, CTAS * sizeof *work[i].flags));
        CHECK(cudaMalloc(&work[i].device, COPY_BYTES));
        CHECK(cudaMallocHost(&work[i].host, COPY_BYTES));
        memset(work[i].host, i, COPY_BYTES);
    }
}

int main(int argc, char **argv) {
    struct work work[STREAMS] = {};
    const char *what = argc > 1 ? argv[1] : "";
    int loop = strcmp(what, "loop") == 0, hang = strcmp(what, "hang") == 0, reset = strcmp(what, "reset") == 0;
    if (!loop && !hang && !reset && strcmp(what, "whole") != 0) {
        fprintf(stderr, "usage: recorder_app whole|loop|hang|reset [EXIT_STATUS]\n");
        return 2;
    }
    printf("%d\n", (int)getpid());
    fflush(stdout);
    prepare(work);
    nvtxRangePushA("all");
    for (int i = 0; i < PASSES || loop; i++) {
        if (reset && i == PASSES / 2) { /* half the passes in a context of their own */
            CHECK(cudaDeviceReset());
            prepare(work);
        }
        run_pass(work, i, ROUNDS + (hang && i == PASSES - 1)); /* the last one waits for a value more than there are */
    }
    nvtxRangePop();
    return argc > 2 ? atoi(argv[2]) : 0;
}
