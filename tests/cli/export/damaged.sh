gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
dd if=/dev/zero of=trace.db bs=4096 seek=1 count=60 conv=notrunc 2>/dev/null
mokscope export trace.db
