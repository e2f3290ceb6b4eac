/* Random BF16 inputs on the device: element i of a seed is the same on any run. Box-Muller on two hashes (splitmix64's
 * finaliser, Steele et al. 2014). Called through mok_fill_normal. */
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "mok.h"

static __device__ uint64_t mix64(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static __global__ void fill_normal(__nv_bfloat16 *values, size_t count, float deviation, uint64_t seed) {
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        uint64_t bits = mix64(seed * 0x9e3779b97f4a7c15ull + mix64(i));
        float u = ((float)(bits >> 40) + 0.5f) * 0x1p-24f;
        float angle = (float)(bits & 0xffffffu) * 0x1p-24f;
        values[i] = __float2bfloat16_rn(deviation * sqrtf(-2.0f * logf(u)) * cospif(2.0f * angle));
    }
}

int mok_fill_normal(void *device_bf16, size_t count, float deviation, uint64_t seed, void *stream) {
    fill_normal<<<1024, 256, 0, (cudaStream_t)stream>>>((__nv_bfloat16 *)device_bf16, count, deviation, seed);
    return (int)cudaGetLastError();
}
