gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mokscope export trace.db -o none/there.out
echo "exit $?"
ls
