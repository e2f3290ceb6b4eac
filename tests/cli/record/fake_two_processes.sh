# Two processes of one command that use CUDA at once: each has a file, both are finished.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
mokscope record -q -o same.db -- sh -c './fake_program whole & ./fake_program whole; wait'
for file in same*.db; do ask "$file" "SELECT state, (SELECT count(*) FROM lane) FROM run"; done
mokscope record -q -- sh -c './fake_program reset; ./fake_program kill'
for file in trace*.db; do ask "$file" "SELECT state, (SELECT count(*) > 0 FROM lane) FROM run"; done
mokscope record --json -o one.db -- sh -c './fake_program reset; ./fake_program reset' | python3 -c '
import json, sys
result = json.load(sys.stdin)
print(*[result[key] for key in ("trace", "state", "launches", "other_traces", "exit")])'
