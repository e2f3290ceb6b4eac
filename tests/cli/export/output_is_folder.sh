gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mkdir out
mokscope export trace.db -o out
