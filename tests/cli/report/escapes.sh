command -v python3 >/dev/null || { echo 'no python3'; exit 77; }
gunzip -c "$MOKSCOPE_ROOT/tests/data/synthetic_v1.db.gz" > trace.db
python3 - <<'PY'
import sqlite3
db = sqlite3.connect('trace.db')
db.execute('UPDATE run SET command = ?', ('<script>alert(1)</script> "&',))
db.execute('UPDATE role SET name = ? WHERE name = ?', ('m<b>a', 'mma'))
db.commit()
PY
mokscope report trace.db -o - > out.html
grep -c '<script>alert' out.html
grep -c 'm<b>a' out.html
grep -c '&lt;script&gt;alert(1)&lt;/script&gt; &quot;&amp;' out.html
mokscope analyze --json --no-store trace.db | python3 -c 'import json, sys; print(json.load(sys.stdin)["run"]["command"])'
