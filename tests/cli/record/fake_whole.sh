# A whole recording: each lane and record, launches matched to kernels, ranges, copies; none of the recorder's own copies and waits.
. "$MOKSCOPE_ROOT/tests/cli/record/fake_gpu"
mokscope record -q -- ./fake_program whole 5
echo "exit status $?"
ask trace.db "SELECT state, exit_status, command FROM run"
ask trace.db "SELECT module, device_id, count(*), count(kernel_id), sum(lane_count), sum(lost_count), sum(open_lanes) FROM v_launch
    GROUP BY 1, 2"
ask trace.db "SELECT (SELECT count(*) FROM v_span), (SELECT count(*) FROM v_wait), (SELECT count(*) FROM v_signal)"
ask trace.db "SELECT name, count(*), count(launch_id), cta_count FROM v_kernel GROUP BY name"
echo "lanes more than 50 us outside their kernel:"
ask trace.db "SELECT count(*) FROM v_launch WHERE kernel_begin_ns > lanes_begin_ns + 50000 OR lanes_end_ns > kernel_end_ns + 50000"
ask trace.db "SELECT name, count(*) FROM v_marker GROUP BY name"
ask trace.db "SELECT count(*) FROM v_marker AS i JOIN v_marker AS o WHERE i.name = 'inner' AND o.name = 'outer'
    AND i.begin_ns >= o.begin_ns AND i.end_ns <= o.end_ns"
ask trace.db "SELECT kind, bytes FROM copy UNION ALL SELECT kind, name FROM host_activity ORDER BY 1"
ask trace.db "SELECT name, value, unit FROM attribute WHERE kind = 'knob'"
ask trace.db "SELECT rank, device.name, sm_count, phase, task_id FROM task JOIN rank USING (rank) JOIN device USING (device_id)"
ask trace.db "SELECT source, kind, count FROM loss"
ask trace.db "PRAGMA foreign_key_check"
