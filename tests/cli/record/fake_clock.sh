# Without CUPTI the device's clock is read between two readings of the host's: it is 5 ms ahead. No SM free for it: a loss.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
mokscope record -q --no-activity -- ./fake_program whole
ask trace.db "SELECT device_id, abs(offset_ns + 5000000) <= width_ns, width_ns < 1000000, readings > 0 FROM device_clock"
ask trace.db "SELECT value FROM attribute WHERE name = 'globaltimer_calibration'"
echo "lanes before the recording began, or after it ended:"
ask trace.db "SELECT count(*) FROM v_lane, run WHERE begin_ns < begin_utc_ns OR end_ns > end_utc_ns"
ask trace.db "SELECT count(*) FROM loss"
FAKE_DRIVER=full mokscope record -q --no-activity -o full.db -- ./fake_program whole
ask full.db "SELECT count(*), (SELECT count(*) FROM device_clock) FROM lane"
ask full.db "SELECT DISTINCT source, kind, detail FROM loss"
