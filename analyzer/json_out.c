/* See json_out.h. */
#include "json_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_gen.h>

#include "text.h"

static void print(void *context, const char *text, size_t length) { fwrite(text, 1, length, context); }

void json_out_open(struct json_out *json, FILE *file, bool indented) {
    yajl_gen generator = yajl_gen_alloc(NULL);
    *json = (struct json_out){generator, file, generator == NULL};
    if (json->failed) return;
    yajl_gen_config(generator, yajl_gen_print_callback, print, file);
    yajl_gen_config(generator, yajl_gen_beautify, indented ? 1 : 0);
    yajl_gen_config(generator, yajl_gen_indent_string, "  ");
}

int json_out_close(struct json_out *json) {
    if (json->generator != NULL) yajl_gen_free(json->generator);
    if (!json->failed) fputc('\n', json->file);
    json->generator = NULL;
    return json->failed ? -1 : 0;
}

static void check(struct json_out *json, yajl_gen_status status) {
    if (status != yajl_gen_status_ok && status != yajl_gen_generation_complete) json->failed = true;
}

/* yajl escapes, but passes on what is no UTF-8: such text is repaired first. */
static void put_text(struct json_out *json, const char *text) {
    char *copy = NULL;
    size_t size = 0;
    bool plain = true;
    for (const char *c = text; *c != '\0' && plain; c++) plain = *c >= 0x20 && *c < 0x7f;
    if (plain) {
        check(json, yajl_gen_string(json->generator, (const unsigned char *)text, strlen(text)));
        return;
    }
    FILE *memory = open_memstream(&copy, &size);
    if (memory == NULL) {
        json->failed = true;
        return;
    }
    text_write_utf8(memory, text);
    if (fclose(memory) == 0)
        check(json, yajl_gen_string(json->generator, (const unsigned char *)copy, size));
    else
        json->failed = true;
    free(copy);
}

static void put_key(struct json_out *json, const char *key) {
    if (key != NULL && !json->failed) put_text(json, key);
}

void json_out_map(struct json_out *json, const char *key) {
    put_key(json, key);
    if (!json->failed) check(json, yajl_gen_map_open(json->generator));
}

void json_out_map_end(struct json_out *json) {
    if (!json->failed) check(json, yajl_gen_map_close(json->generator));
}

void json_out_array(struct json_out *json, const char *key) {
    put_key(json, key);
    if (!json->failed) check(json, yajl_gen_array_open(json->generator));
}

void json_out_array_end(struct json_out *json) {
    if (!json->failed) check(json, yajl_gen_array_close(json->generator));
}

void json_out_null(struct json_out *json, const char *key) {
    put_key(json, key);
    if (!json->failed) check(json, yajl_gen_null(json->generator));
}

void json_out_text(struct json_out *json, const char *key, const char *value) {
    if (value == NULL) {
        json_out_null(json, key);
        return;
    }
    put_key(json, key);
    if (!json->failed) put_text(json, value);
}

void json_out_integer(struct json_out *json, const char *key, int64_t value) {
    put_key(json, key);
    if (!json->failed) check(json, yajl_gen_integer(json->generator, value));
}

void json_out_real(struct json_out *json, const char *key, double value) {
    char text[40];
    if (!isfinite(value)) {
        json_out_null(json, key);
        return;
    }
    put_key(json, key);
    snprintf(text, sizeof text, "%.15g", value);
    if (strtod(text, NULL) != value) snprintf(text, sizeof text, "%.17g", value);
    if (!json->failed) check(json, yajl_gen_number(json->generator, text, strlen(text)));
}

void json_out_flag(struct json_out *json, const char *key, bool value) {
    put_key(json, key);
    if (!json->failed) check(json, yajl_gen_bool(json->generator, value));
}
