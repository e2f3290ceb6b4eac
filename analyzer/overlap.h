/* Overlap of compute and communication on one rank, by one sweep over all its lanes.
 *
 * Definitions  overlap.of_comm, overlap.of_compute, exposed.time, exposed.share (any lane), lanes.capacity_overlap.
 * C = moments in which at least one lane is in state compute, X = at least one communicates; c(t), x(t) = lanes of compute
 * roles in state compute, lanes of communication roles in state communicate.
 *
 * Clock error. If two lanes' clocks may differ by u, then m(erode(C, u) and X) <= m(C and X) <= m(dilate(C, u) and X), where
 * each lane's runs of compute are shortened, or lengthened, by u at both ends before the union. shift_ns says which. */
#ifndef OVERLAP_H
#define OVERLAP_H

#include "lane_sweep.h"

struct overlap_lane {
    const struct lane_segment *segments; /* partition of the window, from lane_sweep */
    size_t count;
    enum trace_role_class role_class;
};

struct overlap_sums {
    int64_t compute_ns;     /* |C| */
    int64_t communicate_ns; /* |X| */
    int64_t both_ns;        /* |C and X| */
    double communicate_lane_ns; /* integral of x(t) dt over communication lanes */
    double matched_lane_ns;     /* integral of min(c Lx / Lc, x) dt */
};

/* lanes [lane_count] of one rank; all partition [begin_ns, end_ns).
 * shift_ns  0: as recorded; > 0: compute eroded by so much; < 0: dilated (and clipped to the window)
 * Edge cases: no lanes or no communication give zeros. Touching runs of a lane are one run.
 * O(segments log lanes); allocates in arena only. Errors: out of memory. */
int overlap_sweep(const struct overlap_lane *lanes, int32_t lane_count, int64_t begin_ns, int64_t end_ns, int64_t shift_ns,
                  struct arena *arena, struct overlap_sums *sums, struct error *error);

#endif
