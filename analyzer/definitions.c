/* See figure.h: what each figure means. Printed by `analyze --definitions`, shown on hover in the report. C, X: union of a rank's time in state compute and communicate; T: its window; L: its lanes,
 * Lc, Lx: those of compute and communication roles; c(t), x(t): of these, how many are in their state. */
#include <string.h>

#include "figure.h"

static const struct definition table[] = {
    {"time.kernel", "ns", FIGURE_MEDIAN, "time of the kernel", "median over iterations of end - begin",
     "From the CUPTI kernel record if every launch has one, else from first lane's begin to last lane's end. All ranks: from the "
     "first begin to the last end of the ranks' kernels.",
     "this tool"},
    {"work.rate", "FLOP/s", FIGURE_RATIO, "useful work in kernel time", "flops of the tasks / time.kernel",
     "Useful floating-point operations of the task table (rows that carry a route, no padding) over the kernel's time.",
     "classic"},
    {"exposed.in_kernel", "", FIGURE_RATIO, "compute lanes waiting for communication",
     "sum over compute lanes of wait(owner: communication's data) / (Lc T)",
     "Share of the compute lanes' time spent waiting for data that communication had not delivered. Each wait nanosecond has one "
     "owner: the edge waited on, followed through edges inside the CTA to what their producer itself was waiting for at that "
     "moment. It counts if that edge is no slot reuse and its producer role is of class communicate, unless most of its "
     "signals follow compute spans in their lanes (a store warp that hands a tile on inside the GPU). This is the direct cause; who made communication late is not asked here.",
     "Scalasca's late sender, on tiles"},
    {"lanes.capacity_overlap", "", FIGURE_RATIO, "overlap weighted by capacity", "integral of min(c/Lc, x/Lx) dt / integral of x/Lx dt",
     "How much of the communication lanes' work had an equal share of the compute lanes at work beside it. Lanes of SM roles of "
     "other classes do not count. Not a number without communication.",
     "this tool"},
    {"overlap.of_comm", "", FIGURE_RATIO, "overlapped share of communication", "|C and X| / |X|",
     "Time in which some lane computes and some lane communicates, of the time in which some lane communicates. In a "
     "megakernel both unions nearly fill the window; see lanes.capacity_overlap.",
     "HTA"},
    {"overlap.of_compute", "", FIGURE_RATIO, "overlapped share of compute", "|C and X| / |C|",
     "The same overlap as a share of the time in which some lane computes.", "HTA"},
    {"exposed.time", "ns", FIGURE_MEDIAN, "exposed communication", "median of |X without C|",
     "Time in which some lane communicates and none computes; over all ranks: the sum of the ranks'.", "TraceLens"},
    {"exposed.share", "", FIGURE_RATIO, "exposed share of the window", "|X without C| / T",
     "The same as a share of the window.", "TraceLens"},
    {"lanes.partition", "", FIGURE_RATIO, "lane time in a state", "sum over lanes of time(state) / (L T)",
     "Every instrumented lane is at every moment in one state: compute, communicate, wait, overhead (inside a task, in no span "
     "of it), idle (no record, or lane not open), unknown (records lost or not described). The states sum to the window to the "
     "nanosecond, which every run checks. The window is the rank's, from its first lane's begin to its last lane's end.",
     "this tool"},
    {"lanes.stalled", "", FIGURE_RATIO, "compute spent stalled", "sum of stalls inside spans / (L T)",
     "Part of state compute that the spans themselves report as stalled: short waits for operand stages inside a tile's K "
     "loop, which are counted in the span instead of recorded one by one. They have no place in time, so the partition and the "
     "overlap count them as compute.",
     "this tool"},
    {"wait.by_edge", "", FIGURE_RATIO, "waiting on an edge", "sum over lanes of wait(owner edge) / (lanes T)",
     "Share of a class of lanes' time spent waiting, by the edge that owns the wait (see exposed.in_kernel). Each nanosecond is "
     "counted once.",
     "Scalasca's delay cost, first step"},
    {"fill", "ns", FIGURE_MEDIAN, "time to the first compute", "median of first compute on a compute lane - window begin",
     "How long the pipeline takes to fill; all ranks: the slowest rank. A rank that never computes has none.", "classic"},
    {"tail", "", FIGURE_COMPLEMENT, "tail", "1 - sum of lane ends / (L max lane end)",
     "Imbalance at the end, per role. Lane end: end of the lane's last task span, without tasks of its last work, relative to the "
     "window's begin; a lane that did nothing ends at 0.",
     "POP load balance, on lanes"},
    {"quantisation", "", FIGURE_COMPLEMENT, "wave quantisation", "1 - tiles / (ceil(tiles / SMs) SMs)",
     "Loss of the last wave if all tiles took the same time. Tiles: the rank's tasks with floating-point work; SMs: its CTAs "
     "with a compute lane.",
     "classic"},
    {"padding", "", FIGURE_RATIO, "padding rows", "padding rows / all rows of compute tasks",
     "Share of the rows in tiles that carry no route: work that is thrown away.", "this tool"},
    {"expert.imbalance", "", FIGURE_RATIO, "expert imbalance", "max rows / mean rows of an expert",
     "Over all experts, those without rows included where the trace says how many there are. 1 is even.", "Comet"},
    {"expert.variation", "", FIGURE_RATIO, "variation of expert rows", "standard deviation / mean rows of an expert", "Over the same experts.",
     "Comet"},
    {"skew.start", "ns", FIGURE_MEDIAN, "start of a rank after the first", "median of rank's begin - first rank's begin",
     "All ranks: the last one's. Ranks on different GPUs are compared through both clocks' lines to host time and carry their "
     "error.",
     "TraceLens"},
    {"skew.end", "ns", FIGURE_MEDIAN, "end of a rank before the last", "median of last rank's end - rank's end",
     "All ranks: the first one's. The last rank has 0.", "TraceLens"},
    {"probe.lost", "", FIGURE_RATIO, "records lost", "lost records / written records",
     "Records that were overwritten in a lane's ring before they were read. Time in which they may have been is state unknown.",
     "this tool"},
    {"clock.residual", "ns", FIGURE_MEDIAN, "clock residual", "median over iterations of the largest residual of a lane's clock line",
     "Largest distance of a (clock, globaltimer) pair from its lane's line; more than 64 ns marks a frequency step.", "Scalasca, dPRO"},
};

const struct definition *definitions(int32_t *count) {
    *count = (int32_t)(sizeof table / sizeof table[0]);
    return table;
}

const struct definition *definition_find(const char *id) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].id, id) == 0) return &table[i];
    return NULL;
}
