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

static uint32_t read_level(const char *name, uint32_t value) {
    static const char *const levels[] = {"task", "phase", "kblock"};
    const char *text = getenv(name);
    if (text == NULL || text[0] == '\0') return value;
    for (uint32_t i = 0; i < 3; i++)
        if (strcmp(text, levels[i]) == 0) return MOKSCOPE_LEVEL_TASK + i;
    recorder_warn("%s='%s' is none of task, phase, kblock, using %s", name, text, levels[value - MOKSCOPE_LEVEL_TASK]);
    return value;
}

void recorder_options_read(struct recorder_options *options) {
    const char *output = getenv("MOKSCOPE_OUTPUT"), *roles = getenv("MOKSCOPE_ROLES");
    options->output = output != NULL && output[0] != '\0' ? output : NULL;
    options->roles = roles != NULL && roles[0] != '\0' ? roles : NULL;
    options->level = read_level("MOKSCOPE_LEVEL", MOKSCOPE_LEVEL_PHASE);
    options->lanes = read_number("MOKSCOPE_LANES", 8192, 1, 1u << 24);
    options->records = read_number("MOKSCOPE_RECORDS", 2048, 2, 1u << 24);
    while (options->records & (options->records - 1)) options->records += options->records & -options->records;
    options->probes = read_switch("MOKSCOPE_PROBES", 1);
    options->activity = read_switch("MOKSCOPE_ACTIVITY", 1);
}

/* Bit of the role of that name, 0: the module has none. */
static uint32_t role_bit(const struct mokscope_module *module, const char *name, size_t length) {
    for (uint32_t role = 0; role < module->role_count && role < 32; role++)
        if (strlen(module->roles[role].name) == length && strncmp(module->roles[role].name, name, length) == 0) return 1u << role;
    return 0;
}

static const char *next_name(const char *name, size_t length) { return name[length] == ',' ? name + length + 1 : NULL; }

uint32_t recorder_options_role_mask(const struct recorder_options *options, const struct mokscope_module *module) {
    uint32_t mask = 0;
    for (const char *name = options->roles; name != NULL;) {
        size_t length = strcspn(name, ",");
        mask |= role_bit(module, name, length);
        name = next_name(name, length);
    }
    return mask != 0 ? mask : 0xffffffffu;
}

const char *recorder_options_unknown_role(const struct recorder_options *options, const struct mokscope_module *const *modules,
                                          size_t count, size_t *length) {
    for (const char *name = options->roles; name != NULL; name = next_name(name, *length)) {
        uint32_t found = 0;
        *length = strcspn(name, ",");
        for (size_t i = 0; i < count; i++) found |= role_bit(modules[i], name, *length);
        if (!found && *length > 0) return name;
    }
    return NULL;
}
