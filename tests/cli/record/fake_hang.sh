# A wait that never ends is in the trace though the program is killed; a lane that gets further is none.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
mokscope record -q -- ./fake_program hang
echo "exit status $?"
ask trace.db "SELECT rank, cta, edge, producer, consumer, counter_index, expected, observed, since_ns > 0 FROM v_hang"
ask trace.db "SELECT state, (SELECT count(*) FROM lane) FROM run"
