gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mokscope export trace.db -o out.json.gz > message.txt
mokscope export trace.db -o out.json > message.txt
gunzip -c out.json.gz | cmp - out.json
ls
