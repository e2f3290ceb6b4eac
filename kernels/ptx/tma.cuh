/* Bulk and tensor copies (PTX ISA, "cp.async.bulk"; sm_90). All run in the async proxy, by one thread. Completion: loads by
 * the mbarrier's bytes, stores by the issuing thread's bulk groups. */
#ifndef TMA_CUH
#define TMA_CUH

#include <cuda.h>

#include "memory.cuh"

/* 2-D tile, global to shared, through a tensor map; column and row are in elements. */
static __device__ __forceinline__ void tma_load_2d_shared(void *target, const CUtensorMap *map, int32_t column, int32_t row,
                                                          uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(shared_address(target)), "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
                 : "memory");
}

/* The same to the same place of several CTAs of the cluster, completing on the barrier at the same place in each. cta_mask: bit i
 * for CTA i. */
static __device__ __forceinline__ void tma_load_2d_shared_multicast(void *target, const CUtensorMap *map, int32_t column, int32_t row,
                                                                    uint64_t *barrier, uint16_t cta_mask) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(shared_address(target)), "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(cta_mask)
                 : "memory");
}

/* Fetches a tensor map into the descriptor cache. */
static __device__ __forceinline__ void tma_prefetch_map(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Contiguous bytes, global (own or a peer's) to shared; 16-byte aligned, multiple of 16. */
static __device__ __forceinline__ void bulk_load_shared(void *target, const void *source, uint32_t bytes, uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(target)), "l"(source), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* The same to a 32-bit shared address. */
static __device__ __forceinline__ void bulk_load_shared_to(uint32_t target, const void *source, uint32_t bytes, uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(target), "l"(source), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* Contiguous bytes, shared to global (own or a peer's); 16-byte aligned, multiple of 16. */
static __device__ __forceinline__ void bulk_store_global(void *target, const void *source, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(target), "r"(shared_address(source)), "r"(bytes)
                 : "memory");
}

/* The same from a 32-bit shared address. */
static __device__ __forceinline__ void bulk_store_global_from(void *target, uint32_t source, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(source), "r"(bytes) : "memory");
}

/* Closes the thread's current group of bulk stores. */
static __device__ __forceinline__ void bulk_commit_group(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/* Until at most `pending` of the thread's groups have not been read out of shared memory. Says nothing about the writes. */
template <int pending> static __device__ __forceinline__ void bulk_wait_group_read(void) {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

/* Until all of the thread's groups are complete: their writes are done, to be published by a proxy fence and a release. */
static __device__ __forceinline__ void bulk_wait_group_all(void) { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

#endif
