gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
printf '\000\000\000\011' | dd of=trace.db bs=1 seek=60 conv=notrunc 2>/dev/null
mokscope export trace.db
