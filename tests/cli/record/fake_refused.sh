# CUPTI that has another subscriber, or is too old: said once, probes are recorded. One that refuses a kind and drops records: counted.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
FAKE_CUPTI=old mokscope record -q -o old.db -- ./fake_program whole
echo "old: exit status $?"
ask old.db "SELECT (SELECT count(*) FROM kernel), count(*) > 100 FROM lane"
ask old.db "SELECT source, kind, detail FROM loss"
FAKE_CUPTI=busy mokscope record -q -o busy.db -- ./fake_program kill # says nothing of ranks: its context must be found
echo "busy: exit status $?"
ask busy.db "SELECT (SELECT count(*) FROM kernel), count(*) > 100 FROM lane"
FAKE_CUPTI=poor mokscope record -q -o poor.db -- ./fake_program reset
echo "poor: exit status $?"
ask poor.db "SELECT (SELECT count(*) FROM kernel), (SELECT count(*) FROM lane)"
ask poor.db "SELECT source, kind, count, detail FROM loss"
mokscope record -q --no-activity -o none.db -- ./fake_program reset
echo "no activity: exit status $?"
ask none.db "SELECT (SELECT count(*) FROM kernel), count(*) FROM lane"
mokscope record -q --no-probes -o none.db --force -- ./fake_program reset
echo "no probes: exit status $?"
ask none.db "SELECT (SELECT count(*) FROM kernel), (SELECT count(*) FROM lane)"
