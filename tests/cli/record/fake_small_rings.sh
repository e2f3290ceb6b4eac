# Rings that are too small: what is lost is counted exactly, lanes and records.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
mokscope record -q --lanes 4 --records 16 -- ./fake_program small >said
taken=$(ask trace.db "SELECT count(*) FROM lane")
lost=$(cut -d' ' -f1 said)
echo "of $((taken + lost)) lanes, $((lost > 0)) lost"
ask trace.db "SELECT ifnull(sum(count), 0) = $lost FROM loss WHERE kind = 'lane'"
ask trace.db "SELECT sum(record_count) = 40 * $taken, sum(lost_count) = 24 * $taken, sum(span_count + wait_count + signal_count) = 16 * $taken
    FROM lane"
ask trace.db "SELECT sum(count) = 24 * $taken FROM loss WHERE kind = 'record'"
ask trace.db "SELECT count(*) FROM span WHERE argument < 24"
