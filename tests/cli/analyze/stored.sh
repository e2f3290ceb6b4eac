command -v python3 >/dev/null || { echo 'no python3'; exit 77; }
gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mokscope analyze --json trace.db > first.json
mokscope analyze --json trace.db > second.json
cmp first.json second.json
python3 - <<'PY'
import json, sqlite3
d, db = json.load(open('first.json')), sqlite3.connect('trace.db')
assert db.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'
assert db.execute('SELECT used_count, iteration_count, derived_version FROM analysis').fetchall() == [(3, 4, 1)]
stored = {(i, s): v for i, s, v in db.execute('SELECT id, scope, value FROM figure')}
assert stored == {(f['id'], f['scope']): f['value'] for f in d['figures']}
assert db.execute('SELECT count(*) FROM partition').fetchone()[0] == len(d['partition'])
rows = db.execute('SELECT sum(total_ns), count(*) FROM wait_by_edge').fetchone()
assert rows == (sum(w['total_ns'] for w in d['waits']), len(d['waits']))
PY
