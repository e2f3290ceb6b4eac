/* JSON to a stream, over yajl: keys with values in one call, numbers that read back exactly, NaN as null, text that is no
 * UTF-8 repaired. The writer owns yajl's generator; the stream is the caller's. */
#ifndef JSON_OUT_H
#define JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json_out {
    void *generator; /* yajl_gen */
    FILE *file;
    bool failed;     /* out of memory, or a call out of place (a bug) */
};

/* indented: for people, else one line. */
void json_out_open(struct json_out *json, FILE *file, bool indented);
/* Ends the document with a line feed and releases the generator. Returns 0, or -1 if something failed on the way; errors of
 * the stream are the caller's to ask for. */
int json_out_close(struct json_out *json);

/* Values; key NULL: inside an array, or the document itself. */
void json_out_map(struct json_out *json, const char *key);
void json_out_map_end(struct json_out *json);
void json_out_array(struct json_out *json, const char *key);
void json_out_array_end(struct json_out *json);
void json_out_text(struct json_out *json, const char *key, const char *value); /* NULL: null */
void json_out_integer(struct json_out *json, const char *key, int64_t value);
void json_out_real(struct json_out *json, const char *key, double value);
void json_out_flag(struct json_out *json, const char *key, bool value);
void json_out_null(struct json_out *json, const char *key);

#endif
