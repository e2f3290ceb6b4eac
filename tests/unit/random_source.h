/* Random numbers for model tests: the same on every machine, so that a printed seed repeats a failure. */
#ifndef RANDOM_SOURCE_H
#define RANDOM_SOURCE_H

#include <stdint.h>

/* xorshift64*; the state is never 0. */
struct random_source {
    uint64_t state;
};

static inline uint64_t random_next(struct random_source *source) {
    source->state ^= source->state >> 12;
    source->state ^= source->state << 25;
    source->state ^= source->state >> 27;
    return source->state * 0x2545f4914f6cdd1du;
}

static inline struct random_source random_seeded(uint64_t seed) {
    struct random_source source = {seed * 2 + 1};
    for (int i = 0; i < 16; i++) random_next(&source);
    return source;
}

/* 0 .. limit - 1; limit > 0. */
static inline uint64_t random_below(struct random_source *source, uint64_t limit) {
    return (uint64_t)((unsigned __int128)random_next(source) * limit >> 64);
}

/* least .. most, both included. */
static inline int64_t random_between(struct random_source *source, int64_t least, int64_t most) {
    return least + (int64_t)random_below(source, (uint64_t)(most - least) + 1);
}

#endif
