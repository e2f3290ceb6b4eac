/* See text.h. */
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Three significant digits at least, four for numbers that begin with 1. */
static int decimals(double value) {
    double size = fabs(value);
    return size >= 200 ? 0 : size >= 20 ? 1 : size >= 2 ? 2 : 3;
}

static struct text scaled(double value, const double *steps, const char *const *units, int count) {
    struct text text;
    int i = 0;
    if (isnan(value)) return (struct text){"-"};
    while (i + 1 < count && fabs(value) >= steps[i + 1] * 0.9995) i++;
    double shown = value / steps[i];
    snprintf(text.bytes, sizeof text.bytes, "%.*f %s", shown == 0 ? 0 : decimals(shown), shown, units[i]);
    return text;
}

struct text text_duration(double ns) {
    static const double steps[] = {1, 1e3, 1e6, 1e9};
    static const char *const units[] = {"ns", "us", "ms", "s"};
    struct text text;
    if (!isnan(ns) && fabs(ns) < 1000 && ns == floor(ns)) {
        snprintf(text.bytes, sizeof text.bytes, "%.0f ns", ns);
        return text;
    }
    return scaled(ns, steps, units, 4);
}

struct text text_share(double share) {
    struct text text;
    if (isnan(share)) return (struct text){"-"};
    double percent = share * 100;
    int digits = percent != 0 && fabs(percent) < 0.95 ? 2 : 1;
    if (percent != 0 && fabs(percent) < 0.005) return (struct text){"< 0.01 %"};
    snprintf(text.bytes, sizeof text.bytes, "%.*f %%", digits, percent);
    return text;
}

struct text text_rate(double per_second) {
    static const double steps[] = {1, 1e3, 1e6, 1e9, 1e12, 1e15};
    static const char *const units[] = {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"};
    return scaled(per_second, steps, units, 6);
}

struct text text_bytes(double bytes) {
    static const double steps[] = {1, 1024, 1048576, 1073741824, 1099511627776};
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    struct text text;
    if (fabs(bytes) < 1024) {
        snprintf(text.bytes, sizeof text.bytes, "%.0f bytes", bytes);
        return text;
    }
    return scaled(bytes, steps, units, 5);
}

struct text text_count(int64_t count) {
    char digits[24];
    struct text text;
    int length = snprintf(digits, sizeof digits, "%lld", (long long)(count < 0 ? -count : count)), at = 0;
    if (count < 0) text.bytes[at++] = '-';
    for (int i = 0; i < length && at < TEXT_BYTES - 2; i++) {
        if (i > 0 && (length - i) % 3 == 0) text.bytes[at++] = ',';
        text.bytes[at++] = digits[i];
    }
    text.bytes[at] = '\0';
    return text;
}

struct text text_value(double value, const char *unit, bool plain) {
    struct text text;
    if (strcmp(unit, "ns") == 0) return text_duration(value);
    if (strcmp(unit, "FLOP/s") == 0) return text_rate(value);
    if (!plain) return text_share(value);
    if (isnan(value)) return (struct text){"-"};
    snprintf(text.bytes, sizeof text.bytes, "%.*f", decimals(value), value);
    return text;
}

void text_write_html(FILE *file, const char *text) {
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&': fputs("&amp;", file); break;
        case '<': fputs("&lt;", file); break;
        case '>': fputs("&gt;", file); break;
        case '"': fputs("&quot;", file); break;
        case '\'': fputs("&#39;", file); break;
        default: fputc(*text, file); break;
        }
    }
}

/* Bytes of the UTF-8 sequence at text, or 0 if it is none (RFC 3629, without the finer ranges of the second byte but for
 * overlong forms and surrogates). */
static int utf8_length(const unsigned char *text) {
    if (text[0] < 0x80) return 1;
    int length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4) return 0;
    for (int i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f)) return 0;
    if ((text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f)) return 0;
    return length;
}

void text_write_json(FILE *file, const char *text) {
    fputc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        int length = utf8_length(at);
        if (length == 0) {
            fputs("\\ufffd", file);
            length = 1;
        } else if (*at == '"' || *at == '\\') {
            fprintf(file, "\\%c", *at);
        } else if (*at < 0x20 || *at == 0x7f) {
            fprintf(file, "\\u%04x", *at);
        } else {
            fwrite(at, 1, (size_t)length, file);
        }
        at += length;
    }
    fputc('"', file);
}

void text_write_utf8(FILE *file, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        int length = utf8_length(at);
        if (length == 0)
            fputs("\xef\xbf\xbd", file);
        else
            fwrite(at, 1, (size_t)length, file);
        at += length == 0 ? 1 : length;
    }
}

bool text_colour_wanted(FILE *file) {
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (no_colour != NULL && no_colour[0] != '\0') return false;
    if (terminal == NULL || strcmp(terminal, "dumb") == 0) return false;
    return isatty(fileno(file)) != 0;
}
