/* See arena.h. */
#include "arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 << 10 };

struct arena_block {
    struct arena_block *next;
    size_t used, capacity;
    max_align_t bytes[];
};

void *arena_allocate(struct arena *arena, size_t count, size_t size) {
    size_t bytes, align = sizeof(max_align_t);
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + align - 1) / align * align;
    struct arena_block *block = arena->blocks;
    if (block == NULL || block->capacity - block->used < bytes) {
        size_t capacity = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = malloc(sizeof *block + capacity);
        if (block == NULL) return NULL;
        block->used = 0;
        block->capacity = capacity;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *result = (char *)block->bytes + block->used;
    block->used += bytes;
    return memset(result, 0, bytes);
}

char *arena_copy(struct arena *arena, const char *text) {
    size_t length = text != NULL ? strlen(text) : 0;
    char *copy = arena_allocate(arena, length + 1, 1);
    if (copy != NULL && length > 0) memcpy(copy, text, length);
    return copy;
}

char *arena_print(struct arena *arena, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length < 0 ? NULL : arena_allocate(arena, (size_t)length + 1, 1);
    if (text == NULL) return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

void arena_release(struct arena *arena) {
    while (arena->blocks != NULL) {
        struct arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
}
