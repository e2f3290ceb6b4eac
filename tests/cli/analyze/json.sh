command -v python3 >/dev/null || { echo 'no python3'; exit 77; }
gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mokscope analyze --json --no-store trace.db > out.json
python3 - <<'PY'
import json
d = json.load(open('out.json'))
assert set(d) == {'run', 'verdict', 'notes', 'figures', 'partition', 'waits'}, set(d)
assert d['run']['state'] == 'complete' and d['run']['ranks'] == 2 and d['run']['shape']['hidden'] == 6144
states = ['compute_ns', 'communicate_ns', 'wait_ns', 'overhead_ns', 'idle_ns', 'unknown_ns']
for row in d['partition']:
    assert sum(row[s] for s in states) == row['lane_ns'], row
total = [r for r in d['partition'] if r['by'] == 'total'][0]
for by in ('role', 'rank', 'rank_role', 'sm'):
    for key in states + ['lane_ns', 'lanes', 'stalled_ns']:
        assert sum(r[key] for r in d['partition'] if r['by'] == by) == total[key], (by, key)
assert sum(w['total_ns'] for w in d['waits']) == total['wait_ns']
figures = {(f['id'], f['scope']): f for f in d['figures']}
for f in d['figures']:
    assert set(f) >= {'id', 'value', 'unit', 'numerator', 'denominator', 'window_ns', 'iterations', 'scope'}, f
    if f['value'] is not None:
        assert f['low'] <= f['value'] <= f['high'] or f['id'] in ('tail', 'quantisation'), f
exposed = figures['exposed.in_kernel', 'all']
assert exposed['numerator'] == sum(w['total_ns'] for w in d['waits'] if w['communication'] and w['role'] == 'mma')
mma = [r for r in d['partition'] if r['by'] == 'role' and r['role'] == 'mma'][0]
assert exposed['denominator'] == mma['lane_ns'] and exposed['iterations'] == 3
assert exposed['value'] == exposed['numerator'] / exposed['denominator']
overlap = figures['overlap.of_comm', 'all']
assert overlap['clock_error_ns'] == 64 and overlap['low'] < overlap['value'] < overlap['high']
PY
