command -v python3 >/dev/null || { echo 'no python3'; exit 77; }
gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
python3 - <<'PY'
import sqlite3
db = sqlite3.connect('trace.db')
for table in ('signal', 'wait', 'span', 'sync', 'clock_fit', 'lane', 'launch', 'task', 'edge_target', 'rank'):
    db.execute('DELETE FROM ' + table)
db.commit()
PY
mokscope info trace.db
