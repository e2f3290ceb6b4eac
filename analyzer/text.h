/* Numbers for people: durations, shares and rates with a unit and three to four digits. Each writes into a buffer of the
 * caller's and returns it. */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { TEXT_BYTES = 32 };

struct text {
    char bytes[TEXT_BYTES];
};

/* 0 ns, 12.3 ns, 4.56 us, 1.234 ms, 2.5 s; NaN: '-'. */
struct text text_duration(double ns);
/* A share 0..1 as percent: 12.3 %; NaN: '-'. */
struct text text_share(double share);
/* FLOP/s with a prefix: 512 TFLOP/s. */
struct text text_rate(double per_second);
/* 1,234,567 */
struct text text_count(int64_t count);
/* 1.2 MiB */
struct text text_bytes(double bytes);
/* A figure's value by its unit: '' a share, ns, FLOP/s; with `plain`, a '' is a number, not a share. */
struct text text_value(double value, const char *unit, bool plain);

/* Writes text with &, <, >, " and ' as entities. */
void text_write_html(FILE *file, const char *text);
/* Writes text as a JSON string with its quotes; bytes that are no UTF-8 become U+FFFD. */
void text_write_json(FILE *file, const char *text);

/* Writes text with bytes that are no UTF-8 as U+FFFD. */
void text_write_utf8(FILE *file, const char *text);

/* May stdout be coloured: a terminal, NO_COLOR not set, TERM not dumb. */
bool text_colour_wanted(FILE *file);

#endif
