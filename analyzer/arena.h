/* Memory that is given back all at once. Everything an arena hands out belongs to the arena and lives until arena_release.
 * A zeroed struct arena is an empty one. One thread at a time. */
#ifndef ARENA_H
#define ARENA_H

#include <stddef.h>

struct arena {
    struct arena_block *blocks; /* newest first */
};

/* Zeroed memory for count elements of size bytes, aligned for any type; NULL: out of memory, or count * size overflows.
 * A count of 0 gives a valid pointer to nothing. */
void *arena_allocate(struct arena *arena, size_t count, size_t size);

/* Copy of a string; NULL text counts as ''. NULL: out of memory. */
char *arena_copy(struct arena *arena, const char *text);

/* printf into the arena; NULL: out of memory. */
char *arena_print(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Releases everything; the arena is empty and usable again. */
void arena_release(struct arena *arena);

#endif
