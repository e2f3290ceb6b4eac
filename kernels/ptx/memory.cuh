/* Memory order, one verb an instruction (PTX ISA, "Memory Consistency Model"). Names say semantics, scope and space; nothing
 * is implied. None of these orders the async proxy: see the fence_proxy verbs. Included by roles and kernels only. */
#ifndef MEMORY_CUH
#define MEMORY_CUH

#include <stdint.h>

/* ld.acquire.gpu, sm_70+, any thread. */
static __device__ __forceinline__ uint32_t ld_acquire_gpu_global_u32(const uint32_t *address) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

/* ld.acquire.sys, sm_70+, any thread. */
static __device__ __forceinline__ uint32_t ld_acquire_sys_global_u32(const uint32_t *address) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

/* ld.relaxed.sys: a flag whose value orders nothing. */
static __device__ __forceinline__ uint32_t ld_relaxed_sys_global_u32(const uint32_t *address) {
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

static __device__ __forceinline__ void st_relaxed_sys_global_u32(uint32_t *address, uint32_t value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/* red.release.gpu.add: publishes the thread's earlier writes, and those it observed through a barrier, at GPU scope. */
static __device__ __forceinline__ void red_add_release_gpu_global_u32(uint32_t *address, uint32_t value) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/* The same at system scope, for peers' flags. */
static __device__ __forceinline__ void red_add_release_sys_global_u32(uint32_t *address, uint32_t value) {
    asm volatile("red.release.sys.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/* atom.relaxed.gpu.add: a ticket; orders nothing. */
static __device__ __forceinline__ uint32_t atom_add_relaxed_gpu_global_u32(uint32_t *address, uint32_t value) {
    uint32_t old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(value) : "memory");
    return old;
}

/* Orders generic and async proxy accesses of this thread to global memory, both ways (PTX ISA, membar/fence.proxy; sm_90). */
static __device__ __forceinline__ void fence_proxy_async_global(void) { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/* The same for the CTA's shared memory: after st.shared, before TMA or wgmma read it. */
static __device__ __forceinline__ void fence_proxy_async_shared_cta(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ld.global.v4, not kept in L1: data read once. Weak: order comes from an acquire before it. */
static __device__ __forceinline__ uint4 ld_global_stream_v4(const void *address) {
    uint4 value;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(address)
                 : "memory");
    return value;
}

/* Shared memory by its 32-bit address. Ordered by being volatile, as the fences and copies are; without a memory clobber, so that
 * arithmetic and loads around it may move. */
static __device__ __forceinline__ void st_shared_u32(uint32_t address, uint32_t value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value));
}

static __device__ __forceinline__ uint32_t ld_shared_u32(uint32_t address) {
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

/* ns of the GPU's common clock (32 ns steps on Hopper). */
static __device__ __forceinline__ uint64_t global_timer_ns(void) {
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
    return time;
}

/* Shared-memory address of a generic pointer, for the instructions that want 32 bits. */
static __device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

#endif
