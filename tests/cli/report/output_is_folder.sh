gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mkdir out
mokscope report trace.db -o out
