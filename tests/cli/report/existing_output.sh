gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
echo mine > trace.html
mokscope report trace.db
echo "exit $?"
cat trace.html
mokscope report trace.db --force
mokscope report trace.db
ls
