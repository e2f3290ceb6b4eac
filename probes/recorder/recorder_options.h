/* What `mokscope record` asks of the recorder, from MOKSCOPE_* environment variables. */
#ifndef RECORDER_OPTIONS_H
#define RECORDER_OPTIONS_H

#include "../mokscope_probe.h"

#include <stddef.h>
#include <stdint.h>

struct recorder_options {
    const char *output; /* MOKSCOPE_OUTPUT; NULL: not recording */
    const char *roles;  /* MOKSCOPE_ROLES, names separated by commas; NULL: all */
    uint32_t level;     /* MOKSCOPE_LEVEL: task, phase, kblock */
    uint32_t lanes;     /* MOKSCOPE_LANES: slots a module and device */
    uint32_t records;   /* MOKSCOPE_RECORDS: a lane, power of two */
    int probes;         /* MOKSCOPE_PROBES=on|off */
    int activity;       /* MOKSCOPE_ACTIVITY=on|off */
};

/* Defaults, then the environment; nonsense in it falls back to the default and is said on stderr. */
void recorder_options_read(struct recorder_options *options);

/* Roles of the module named in options->roles as a mask; all bits when it names none of them. */
uint32_t recorder_options_role_mask(const struct recorder_options *options, const struct mokscope_module *module);

/* First name in options->roles that none of modules [count] has a role of, its length in *length; NULL: all are known. */
const char *recorder_options_unknown_role(const struct recorder_options *options, const struct mokscope_module *const *modules,
                                          size_t count, size_t *length);

#endif
