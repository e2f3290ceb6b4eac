/* mbarrier verbs (PTX ISA, "mbarrier"; sm_90). A barrier is a 64-bit word in shared memory; phases alternate, a waiter names
 * the parity of the phase it wants completed. Arrivals release and completed waits acquire at CTA scope; waiting on a barrier
 * that TMA completed also makes the TMA's data visible. */
#ifndef MBARRIER_CUH
#define MBARRIER_CUH

#include "memory.cuh"

/* One thread, before anybody uses the barrier; then mbarrier_init_fence and a CTA barrier. */
static __device__ __forceinline__ void mbarrier_init_shared(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/* Makes initialised barriers visible to the async proxy. */
static __device__ __forceinline__ void mbarrier_init_fence(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* One arrival by the calling thread. */
static __device__ __forceinline__ void mbarrier_arrive_shared(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* One arrival that also announces bytes which TMA will deliver in this phase. */
static __device__ __forceinline__ void mbarrier_arrive_expect_tx_shared(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

/* Whether the phase of this parity has completed; may suspend the thread for a short time the hardware chooses. */
static __device__ __forceinline__ uint32_t mbarrier_try_wait_parity_shared(uint64_t *barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n"
                 ".reg .pred complete;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, complete;\n"
                 "}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    return done;
}

#endif
