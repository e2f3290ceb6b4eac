/* See clock_fit.h. Sums are taken over distances from the first reading, so that doubles hold them exactly enough. */
#include "clock_fit.h"

#include <math.h>
#include <stddef.h>

int64_t clock_line_apply(const struct clock_line *line, int64_t ticks) {
    return line->base_ns + (int64_t)llround((double)(ticks - line->base_ticks) * line->ns_per_tick);
}

void clock_fit_pairs(const struct clock_pair *pairs, int32_t count, double nominal_ns_per_tick, struct clock_line *line) {
    *line = (struct clock_line){0, 0, nominal_ns_per_tick, 0, count};
    if (count == 0) return;
    double mean_x = 0, mean_y = 0;
    for (int32_t i = 0; i < count; i++) {
        mean_x += (double)(pairs[i].ticks - pairs[0].ticks);
        mean_y += (double)(pairs[i].time_ns - pairs[0].time_ns);
    }
    mean_x /= count;
    mean_y /= count;
    double xx = 0, xy = 0;
    for (int32_t i = 0; i < count; i++) {
        double x = (double)(pairs[i].ticks - pairs[0].ticks) - mean_x;
        double y = (double)(pairs[i].time_ns - pairs[0].time_ns) - mean_y;
        xx += x * x;
        xy += x * y;
    }
    if (xx > 0 && xy > 0) line->ns_per_tick = xy / xx;
    line->base_ticks = pairs[0].ticks;
    line->base_ns = pairs[0].time_ns + (int64_t)llround(mean_y - mean_x * line->ns_per_tick);
    for (int32_t i = 0; i < count; i++) {
        int64_t distance = clock_line_apply(line, pairs[i].ticks) - pairs[i].time_ns;
        if (distance < 0) distance = -distance;
        if (distance > line->residual_ns) line->residual_ns = distance;
    }
}

int64_t clock_offset_apply(const struct clock_offset *offset, int64_t globaltimer_ns) {
    return globaltimer_ns + offset->offset_ns +
           (int64_t)llround(offset->drift * (double)(globaltimer_ns - offset->base_ns));
}

static int64_t reading_width(const struct clock_reading *reading) {
    return reading->host_after_ns - reading->host_before_ns;
}

void clock_fit_readings(const struct clock_reading *readings, int32_t count, struct clock_offset *offset) {
    *offset = (struct clock_offset){0, 0, 0.0, 0, 0, 0};
    const struct clock_reading *first = NULL;
    int64_t narrowest = INT64_MAX, earliest = INT64_MAX, latest = INT64_MIN;
    for (int32_t i = 0; i < count; i++)
        if (reading_width(&readings[i]) >= 0 && reading_width(&readings[i]) < narrowest)
            narrowest = reading_width(&readings[i]);
    if (narrowest == INT64_MAX) return;
    int64_t limit = narrowest > INT64_MAX / 4 ? INT64_MAX : narrowest * 4;
    if (limit == 0) limit = 1;

    double weights = 0, mean_x = 0, mean_y = 0;
    int64_t base_offset = 0;
    for (int32_t i = 0; i < count; i++) {
        int64_t width = reading_width(&readings[i]);
        if (width < 0 || width > limit) continue;
        if (first == NULL) {
            first = &readings[i];
            base_offset = first->host_before_ns + width / 2 - first->device_ns;
        }
        if (readings[i].device_ns < earliest) earliest = readings[i].device_ns;
        if (readings[i].device_ns > latest) latest = readings[i].device_ns;
        double weight = 1.0 / ((double)(width + 1) * (double)(width + 1));
        weights += weight;
        mean_x += weight * (double)(readings[i].device_ns - first->device_ns);
        mean_y += weight * (double)(readings[i].host_before_ns + width / 2 - readings[i].device_ns - base_offset);
        offset->readings++;
        if (width > offset->width_ns) offset->width_ns = width;
    }
    mean_x /= weights;
    mean_y /= weights;
    double xx = 0, xy = 0;
    for (int32_t i = 0; i < count; i++) {
        int64_t width = reading_width(&readings[i]);
        if (width < 0 || width > limit) continue;
        double weight = 1.0 / ((double)(width + 1) * (double)(width + 1));
        double x = (double)(readings[i].device_ns - first->device_ns) - mean_x;
        double y = (double)(readings[i].host_before_ns + width / 2 - readings[i].device_ns - base_offset) - mean_y;
        xx += weight * x * x;
        xy += weight * x * y;
    }
    if (offset->readings >= 3 && latest - earliest >= 10000000 && xx > 0) offset->drift = xy / xx;
    offset->base_ns = first->device_ns + (int64_t)llround(mean_x);
    offset->offset_ns = base_offset + (int64_t)llround(mean_y);
    for (int32_t i = 0; i < count; i++) {
        int64_t width = reading_width(&readings[i]);
        if (width < 0 || width > limit) continue;
        int64_t distance = clock_offset_apply(offset, readings[i].device_ns) - (readings[i].host_before_ns + width / 2);
        if (distance < 0) distance = -distance;
        if (distance > offset->residual_ns) offset->residual_ns = distance;
    }
}
