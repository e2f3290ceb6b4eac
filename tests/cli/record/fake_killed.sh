# A program that is killed leaves a readable trace, cut, with all but the last half second in it.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
FAKE_CUPTI=slow mokscope record -- ./fake_program kill
echo "exit status $?"
ask trace.db "SELECT state, exit_status FROM run"
ask trace.db "SELECT count(*) > 100, max(end_globaltimer_ns) - min(begin_globaltimer_ns) > 900000000 FROM lane"
ask trace.db "SELECT count(*) > 100 FROM kernel"
ask trace.db "PRAGMA integrity_check"
mokscope info trace.db >info.txt && grep -c cut info.txt
