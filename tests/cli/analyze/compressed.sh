cp "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" trace.db.gz
mokscope analyze trace.db.gz > out.txt
grep -c exposed.in_kernel out.txt
mokscope analyze --no-store trace.db.gz > quiet.txt
cmp out.txt quiet.txt
