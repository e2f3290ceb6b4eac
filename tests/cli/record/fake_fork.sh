# Children forked from a recorded program run to their end and leave no rows.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
mokscope record -q -- ./fake_program fork
echo "exit status $?"
ask trace.db "SELECT state, (SELECT count(*) FROM lane), (SELECT count(*) FROM rank WHERE rank = 99),
    (SELECT count(*) FROM attribute WHERE name = 'child') FROM run"
ls trace*
