command -v python3 >/dev/null || { echo 'no python3'; exit 77; }
gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mokscope info --json trace.db > out.json
python3 - <<'PY'
import json, sqlite3
d, db = json.load(open('out.json')), sqlite3.connect('trace.db')
for name in ('span', 'wait', 'signal'):
    assert d['counts'][name + 's'] == db.execute('SELECT count(*) FROM ' + name).fetchone()[0], name
assert len(d['launches']) == 8 and d['run']['producer'] == 'executor' and d['losses'] == [] and d['hangs'] == []
assert sum(r['spans'] for r in d['roles']) == d['counts']['spans']
PY
