/* Clusters of CTAs (PTX ISA, "barrier.cluster", "mapa", distributed shared memory; sm_90). */
#ifndef CLUSTER_CUH
#define CLUSTER_CUH

#include "mbarrier.cuh"

/* Rank of the CTA in its cluster. */
static __device__ __forceinline__ uint32_t cluster_cta_rank(void) {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* All threads of the cluster that have not exited. Arrive releases and wait acquires at cluster scope. */
static __device__ __forceinline__ void cluster_arrive(void) { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
static __device__ __forceinline__ void cluster_wait(void) { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/* shared::cluster address of the same variable in another CTA of the cluster. */
static __device__ __forceinline__ uint32_t cluster_address(const void *shared, uint32_t cta_rank) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(shared)), "r"(cta_rank));
    return address;
}

/* One arrival on another CTA's barrier. Releases at CTA scope only (no fence is issued): enough to say that this CTA has read its
 * copy of something, not to hand over data. */
static __device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* The same, releasing at cluster scope what this thread wrote. */
static __device__ __forceinline__ void mbarrier_arrive_release_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void st_shared_cluster_u32(uint32_t address, uint32_t value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/* Orders what the calling thread saw at cluster scope after a wait whose acquire was at CTA scope. */
static __device__ __forceinline__ void fence_acq_rel_cluster(void) { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }

#endif
