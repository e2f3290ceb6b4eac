command -v python3 >/dev/null || { echo 'no python3'; exit 77; }
gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mokscope export trace.db
python3 - <<'PY'
import json, sqlite3
d, db = json.load(open('trace.json')), sqlite3.connect('trace.db')
events = d['traceEvents']
count = lambda ph, **kw: sum(e['ph'] == ph and all(e.get(k) == v for k, v in kw.items()) for e in events)
rows = lambda sql: db.execute(sql).fetchone()[0]
assert count('X') == rows('SELECT (SELECT count(*) FROM span) + (SELECT count(*) FROM wait)')
assert count('i') == rows('SELECT count(*) FROM signal')
assert count('X', cat='compute') == rows("SELECT count(*) FROM v_span WHERE class = 'compute'")
base = int(d['otherData']['base_ns'])
assert base == rows('SELECT min(begin_ns) FROM v_lane')
assert {e['args']['name'] for e in events if e['name'] == 'process_name'} == {'rank 0', 'rank 1'}
named = {(e['pid'], e['tid']) for e in events if e['name'] == 'thread_name'}
assert len(named) == 54, len(named) # 2 ranks of 12 + 3 x 5 lanes, the same in all launches
last = {}
for e in events:
    if e['ph'] == 'M':
        continue
    assert (e['pid'], e['tid']) in named
    assert e['ts'] >= 0 and e.get('dur', 0) >= 0
assert all(pid > 0 and tid > 0 and pid != tid for pid, tid in named) # those mean something to Perfetto
# every span, to the nanosecond
ours = sorted((round(e['ts'] * 1000), round(e['dur'] * 1000), e['name']) for e in events if e['ph'] == 'X' and e['cat'] != 'wait')
theirs = sorted((b - base, l - b, n) for b, l, n in db.execute('SELECT begin_ns, end_ns, event FROM v_span'))
assert ours == theirs
task = [e for e in events if e['name'] == 'mma'][0]
assert set(task['args']) == {'task id', 'stall in the span, 64-cycle units'}, task
PY
