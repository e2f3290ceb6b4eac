/* SQL of the schemas folder as text; make generates schema_*.c from its .sql files. The strings are static. */
#ifndef SCHEMA_H
#define SCHEMA_H

extern const char schema_trace_sql[];   /* schemas/trace.sql: what was recorded */
extern const char schema_views_sql[];   /* schemas/views.sql: readable views over it */
extern const char schema_derived_sql[]; /* schemas/derived.sql: what can be computed again */

enum { SCHEMA_APPLICATION_ID = 0x4d4f4b53 }; /* 'MOKS', checked against the file by tests/unit/trace_write.c */

#endif
