gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
cp trace.db before.db
mokscope analyze --no-store trace.db > out.txt
mokscope analyze --rank 1 trace.db > out.txt
mokscope analyze --launch 3 trace.db > out.txt
mokscope analyze --definitions > out.txt
cmp trace.db before.db
