/* See recorder_options.h. */
#include "recorder_options.h"

#include "recorder_log.h"

#include <stdlib.h>
#include <string.h>

static uint32_t read_number(const char *name, uint32_t value, uint32_t minimum, uint32_t maximum) {
    const char *text = getenv(name);
    if (text == NULL || text[0] == '\0') return value;
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (*end == '\0' && number >= minimum && number <= maximum) return (uint32_t)number;
    recorder_warn("%s='%s' is not a number in %u..%u, using %u", name, text, minimum, maximum, value);
    return value;
}

static int read_switch(const char *name, int value) {
    const char *text = getenv(name);
    if (text == NULL || text[0] == '\0') return value;
    if (strcmp(text, "on") == 0) return 1;
    if (strcmp(text, "off") == 0) return 0;
    recorder_warn("%s='%s' is neither on nor off, using %s", name, text, value ? "on" : "off");
    return value;
}

void recorder_options_read(struct recorder_options *options) {
    const char *output = getenv("MOKSCOPE_OUTPUT"), *roles = getenv("MOKSCOPE_ROLES"), *level = getenv("MOKSCOPE_LEVEL");
    options->output = output != NULL && output[0] != '\0' ? output : NULL;
    options->roles = roles != NULL && roles[0] != '\0' ? roles : NULL;
    options->level = MOKSCOPE_LEVEL_PHASE;
    if (level != NULL && strcmp(level, "task") == 0) options->level = MOKSCOPE_LEVEL_TASK;
    if (level != NULL && strcmp(level, "kblock") == 0) options->level = MOKSCOPE_LEVEL_KBLOCK;
    options->lanes = read_number("MOKSCOPE_LANES", 8192, 1, 1u << 24);
    options->records = read_number("MOKSCOPE_RECORDS", 2048, 2, 1u << 24);
    while (options->records & (options->records - 1)) options->records += options->records & -options->records;
    options->probes = read_switch("MOKSCOPE_PROBES", 1);
    options->activity = read_switch("MOKSCOPE_ACTIVITY", 1);
}

uint32_t recorder_options_role_mask(const struct recorder_options *options, const struct mokscope_module *module) {
    uint32_t mask = 0;
    for (const char *name = options->roles; name != NULL;) {
        size_t length = strcspn(name, ",");
        for (uint32_t role = 0; role < module->role_count && role < 32; role++)
            if (strlen(module->roles[role].name) == length && strncmp(module->roles[role].name, name, length) == 0)
                mask |= 1u << role;
        name = name[length] == ',' ? name + length + 1 : NULL;
    }
    return mask != 0 ? mask : 0xffffffffu;
}
