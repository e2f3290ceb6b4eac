/* BF16 on the host: conversions as the device makes them (round to nearest even; every NaN becomes 0x7fff, as
 * __float2bfloat16_rn does). A BF16 number is the upper half of a float. */
#ifndef BF16_H
#define BF16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float bf16_to_float(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static inline uint16_t bf16_from_float(float value) {
    uint32_t bits;
    if (value != value) return 0x7fff;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* a carry into the exponent is what rounding up means */
}

/* One rounding: going through the nearest float would round twice. The float on the way is rounded to odd instead. */
static inline uint16_t bf16_from_double(double value) {
    float near = (float)value;
    uint32_t bits;
    if (value != value) return 0x7fff;
    memcpy(&bits, &near, sizeof bits);
    if ((double)near != value) {
        if (fabs((double)near) > fabs(value)) bits -= 1;
        bits |= 1;
    }
    memcpy(&near, &bits, sizeof near);
    return bf16_from_float(near);
}

/* value rounded to BF16. */
static inline double bf16_round(double value) { return (double)bf16_to_float(bf16_from_double(value)); }

#endif
