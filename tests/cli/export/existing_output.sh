gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
echo mine > trace.json
mokscope export trace.db
echo "exit $?"
cat trace.json
mokscope export --force trace.db > message.txt; head -c 19 trace.json; echo
ls
