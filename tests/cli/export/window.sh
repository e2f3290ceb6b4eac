command -v python3 >/dev/null || { echo 'no python3'; exit 77; }
gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
mokscope export --rank 1 --from 10 --to 20 -o - trace.db > out.json
python3 - <<'PY'
import json
events = [e for e in json.load(open('out.json'))['traceEvents'] if e['ph'] != 'M']
assert events and all(e['pid'] == 1000001 for e in events)
assert all(e['ts'] < 20 and e['ts'] + e.get('dur', 0) >= 10 for e in events)
PY
