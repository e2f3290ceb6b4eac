/* Roles, events and edges of the MoE layer as enums and as the rows a trace stores; made from events.def and edges.def.
 * Used by the kernel (module registration), by the executor (it writes the same trace) and by nobody who reads traces:
 * readers take the tables from the trace. Define MOK_EVENTS_ROWS in the one place of a program that needs the rows. */
#ifndef MOK_EVENTS_H
#define MOK_EVENTS_H

#ifndef MOKSCOPE_HEADER_REPLACED /* tests/lint compares with a build that never saw the header */
#include "mokscope_probe.h"
#endif

enum role {
#define ROLE(name, label, class, description) ROLE_##name,
#include "events.def"
#undef ROLE
    ROLE_COUNT
};

enum event {
    EVENT_NONE, /* id 0 marks sync entries */
#define SPAN(name, label, class, level, argument, small, description) EVENT_##name,
#include "events.def"
#undef SPAN
    EVENT_WAIT_FIRST,
    EVENT_WAIT_BEFORE = EVENT_WAIT_FIRST - 1,
#define EDGE(name, producer, consumer, granularity, scope, slot_reuse, target, description) EVENT_WAIT_##name,
#include "../kernels/edges.def"
#undef EDGE
    EVENT_SIGNAL_FIRST,
    EVENT_SIGNAL_BEFORE = EVENT_SIGNAL_FIRST - 1,
#define EDGE(name, producer, consumer, granularity, scope, slot_reuse, target, description) EVENT_SIGNAL_##name,
#include "../kernels/edges.def"
#undef EDGE
    EVENT_COUNT
};

#if defined(MOK_EVENTS_ROWS) && !defined(MOKSCOPE_HEADER_REPLACED) && !defined(MOKSCOPE_OFF)

static const struct mokscope_role_row mok_role_rows[] = {
#define ROLE(name, label, class, description) {label, MOKSCOPE_CLASS_##class, description},
#include "events.def"
#undef ROLE
};

static const struct mokscope_event_row mok_event_rows[] = {
    {NULL, 0, 0, 0, -1, "", "", ""},
#define SPAN(name, label, class, level, argument, small, description) \
    {label, MOKSCOPE_KIND_SPAN, MOKSCOPE_CLASS_##class, MOKSCOPE_LEVEL_##level, -1, argument, small, description},
#include "events.def"
#undef SPAN
#define EDGE(name, producer, consumer, granularity, scope, slot_reuse, target, description)                         \
    {"wait " #name, MOKSCOPE_KIND_WAIT, MOKSCOPE_CLASS_WAIT, MOKSCOPE_LEVEL_TASK, EVENT_WAIT_##name - EVENT_WAIT_FIRST, \
     "index", "awaited value", description},
#include "../kernels/edges.def"
#undef EDGE
#define EDGE(name, producer, consumer, granularity, scope, slot_reuse, target, description)                          \
    {"signal " #name, MOKSCOPE_KIND_SIGNAL, MOKSCOPE_CLASS_OVERHEAD, MOKSCOPE_LEVEL_TASK,                            \
     EVENT_SIGNAL_##name - EVENT_SIGNAL_FIRST, "index", "added value", description},
#include "../kernels/edges.def"
#undef EDGE
};

static const struct mokscope_edge_row mok_edge_rows[] = {
#define MOK_SCOPE_CTA "cta"
#define MOK_SCOPE_GPU "gpu"
#define MOK_SCOPE_SYS "sys"
#define MOK_INDEX_PEER "peer"
#define MOK_INDEX_MINIBATCH "minibatch"
#define MOK_INDEX_TILE_ROW "tile row"
#define MOK_INDEX_RANK "rank"
#define MOK_INDEX_CTA_SLOT "slot"
#define MOK_INDEX_EXPERT "expert"
#define EDGE(name, producer, consumer, granularity, scope, slot_reuse, target, description) \
    {#name, ROLE_##producer, ROLE_##consumer, MOK_INDEX_##granularity, MOK_SCOPE_##scope, slot_reuse, target, description},
#include "../kernels/edges.def"
#undef EDGE
};

#endif

#endif
