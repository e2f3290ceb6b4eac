# A program that describes its run and then finds no GPU leaves no file, and what was there stays.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
mokscope record -- ./fake_program described
echo "exit status $?"
mokscope execute -o trace.db >/dev/null
before=$(cksum <trace.db)
mokscope record --force -- ./fake_program described
[ "$before" = "$(cksum <trace.db)" ] && ls | grep trace
