gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
head -c 100000 trace.db > short.db
mokscope report short.db
