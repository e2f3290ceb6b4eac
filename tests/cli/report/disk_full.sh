[ -w /dev/full ] || { echo 'no /dev/full'; exit 77; }
gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mokscope report trace.db -o - > /dev/full
