#!/bin/sh
# The recorder on a GPU, with the layer and with a program that is not ours (recorder_app.cu): whole recordings without losses,
# without CUPTI's activity, rings that are too small, a context that is reset, programs that are killed and that hang. One line a
# check; exit status 1 on a failure. Works from what is in build/. KEEP=FOLDER keeps the traces there.
set -u
cd "$(dirname "$0")/../.."
nvidia-smi -L >/dev/null 2>&1 || { echo "skipped: no GPU"; exit 77; }
folder=${KEEP:-$(mktemp -d)}
mkdir -p "$folder"
[ -n "${KEEP:-}" ] || trap 'rm -rf "$folder"' EXIT
failed=0
say() { # say NAME GOT EXPECTED
    if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: $2, expected $3"; failed=1; fi
}
ask() { # ask TRACE SQL: rows, columns separated by '|'
    python3 -c 'import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print(*row, sep="|")' "$@" 2>&1 | tail -n 3 | tr '\n' ' ' | sed 's/ $//'
}
check() { say "$1" "$(ask "$2" "$3")" "$4"; } # check NAME TRACE SQL EXPECTED
show() { echo "   $1: $(ask "$2" "$3")"; }    # show WHAT TRACE SQL: a number to look at
record() { # record TRACE OPTIONS... -- PROGRAM...: its stderr is shown
    trace=$folder/$1
    shift
    build/mokscope record --force -o "$trace" "$@"
}

app=build/tests/gpu/recorder_app
record app.db -- $app whole 3 >/dev/null
say "exit status of the program" $? 3
app_trace=$folder/app.db
check "state and exit status" "$app_trace" "SELECT state, exit_status FROM run" "complete|3"
check "nothing lost" "$app_trace" "SELECT source, kind, count, detail FROM loss" ""
check "launches, each with its kernel" "$app_trace" "SELECT count(*), count(kernel_id) FROM launch" "20|20"
check "kernels on two streams" "$app_trace" "SELECT count(*), count(DISTINCT stream_id) FROM kernel WHERE name = 'exchange'" "20|2"
check "lanes, all closed" "$app_trace" "SELECT count(*), sum(closed), sum(lost_count) FROM lane" "640|640|0"
check "records: spans, waits, signals" "$app_trace" \
    "SELECT (SELECT count(*) FROM v_span), (SELECT count(*) FROM v_wait), (SELECT count(*) FROM v_signal)" "16000|16000|16000"
check "each round once in each CTA and launch" "$app_trace" \
    "SELECT count(*), min(n), max(n) FROM (SELECT count(*) AS n FROM v_span GROUP BY launch_id, cta, argument)" "16000|1|1"
check "no wait ends before its signal, to 1 us" "$app_trace" "SELECT count(*) FROM v_wait AS w JOIN v_signal AS s
    USING (launch_id, cta, counter_index) WHERE w.end_ns < s.at_ns - 1000" 0
check "SM clock between 0.3 and 3 GHz in each lane" "$app_trace" "SELECT count(*) FROM v_lane WHERE clock_ghz NOT BETWEEN 0.3 AND 3" 0
check "lanes lie in their kernels, to 20 us" "$app_trace" "SELECT count(*) FROM v_launch
    WHERE lanes_begin_ns < kernel_begin_ns - 20000 OR lanes_end_ns > kernel_end_ns + 20000" 0
show "largest distance outside, ns" "$app_trace" "SELECT max(max(kernel_begin_ns - lanes_begin_ns, lanes_end_ns - kernel_end_ns, 0)) FROM v_launch"
show "clock: offset, drift ppm, residual, width ns" "$app_trace" "SELECT offset_ns, round(drift_ppm, 3), residual_ns, width_ns FROM v_device"
check "NVTX ranges" "$app_trace" "SELECT sum(name LIKE 'pass %'), sum(name = 'all') FROM v_marker" "10|1"
check "kernels lie in the ranges of their passes, to 100 us" "$app_trace" "SELECT count(DISTINCT kernel_id) FROM kernel AS k JOIN marker AS m
    ON m.name LIKE 'pass %' AND k.begin_ns >= m.begin_ns - 100000 AND k.end_ns <= m.end_ns + 100000 WHERE k.name = 'exchange'" 20
check "copies and memsets of the program alone" "$app_trace" \
    "SELECT kind, count(*), min(bytes), max(bytes) FROM copy GROUP BY kind" "host to device|20|1048576|1048576 memset|20|64|64"
check "synchronisations of the program alone" "$app_trace" "SELECT count(*) FROM host_activity WHERE name = 'stream'" 20

record probes.db --no-activity -- $app whole >/dev/null
check "no activity: lanes and no kernels" "$folder/probes.db" "SELECT count(*), (SELECT count(*) FROM kernel) FROM lane" "640|0"
check "no activity: nothing lost" "$folder/probes.db" "SELECT source, kind, count, detail FROM loss" ""
check "no activity: the clock is read, to 20 us" "$folder/probes.db" "SELECT readings > 0, width_ns < 20000 FROM device_clock" "1|1"
show "clock: offset, drift ppm, residual, width ns" "$folder/probes.db" "SELECT offset_ns, round(drift_ppm, 3), residual_ns, width_ns FROM v_device"
check "no activity: lanes lie in the recording" "$folder/probes.db" "SELECT count(*) FROM v_lane, run WHERE begin_ns < begin_utc_ns
    OR end_ns > end_utc_ns" 0
record level.db --no-probes -- $app whole >/dev/null
check "no probes: kernels and no lanes" "$folder/level.db" "SELECT count(*), (SELECT count(*) FROM lane) FROM kernel WHERE name = 'exchange'" "20|0"
record roles.db --roles consumer -- $app whole >/dev/null
check "one role" "$folder/roles.db" "SELECT count(*), min(role), max(role) FROM v_lane" "320|consumer|consumer"

record small.db --records 32 -- $app whole >/dev/null
check "few records: lost is what was written less what is there" "$folder/small.db" "SELECT count(*), sum(record_count), sum(lost_count),
    sum(span_count + wait_count + signal_count) FROM lane" "640|48000|27520|20480"
check "few records: the last ones are there" "$folder/small.db" "SELECT min(counter_index), max(counter_index) FROM wait" "19|50"
check "few records: counted as a loss" "$folder/small.db" "SELECT sum(count) FROM loss WHERE kind = 'record'" 27520
record slots.db --lanes 8 -- $app whole >/dev/null
check "few slots: lanes there and lanes lost are all lanes" "$folder/slots.db" "SELECT count(*) > 0, count(*) + (SELECT sum(count)
    FROM loss WHERE kind = 'lane') FROM lane" "1|640"
check "few slots: lanes are whole" "$folder/slots.db" "SELECT count(*) FROM lane WHERE NOT closed OR
    span_count + wait_count + signal_count <> record_count OR record_count NOT IN (50, 100)" 0

record reset.db -- $app reset >/dev/null
check "a reset context: all lanes of both" "$folder/reset.db" "SELECT count(*), sum(closed) FROM lane" "640|640"
check "a reset context: nothing lost" "$folder/reset.db" "SELECT source, kind, count, detail FROM loss" ""

killed() { # killed MODE SECONDS TRACE: records the program and kills it by its id
    build/mokscope record --force -o "$3" -- $app "$1" >"$folder/pid" &
    recorder=$!
    while [ ! -s "$folder/pid" ] && kill -0 $recorder 2>/dev/null; do sleep 0.1; done
    sleep "$2"
    kill -9 "$(cat "$folder/pid")"
    wait $recorder
    say "$1: exit status of a killed program" $? 137
}
killed loop 4 "$folder/killed.db"
check "killed: the file opens, cut" "$folder/killed.db" "SELECT state, exit_status FROM run" "cut|137"
check "killed: it holds launches, kernels, ranges" "$folder/killed.db" "SELECT (SELECT count(*) FROM launch) > 100,
    (SELECT count(*) FROM kernel) > 100, (SELECT count(*) FROM marker) > 50" "1|1|1"
check "killed: to the last second" "$folder/killed.db" "SELECT (SELECT max(end_globaltimer_ns) FROM lane) > end_utc_ns - 1000000000 FROM run" 1
killed hang 7 "$folder/hang.db"
check "hanging: who waits for what" "$folder/hang.db" "SELECT count(*), edge, consumer, min(counter_index), max(counter_index), min(expected),
    min(observed) FROM v_hang" "32|VALUE|consumer|51|51|51|50"

small="--model qwen3.5 --ranks 2 --tokens 256 --warm-up 1"
build/mokscope run $small --passes 5 -q --force -o "$folder/layer.db" >/dev/null
say "the layer: exit status" $? 0
layer=$folder/layer.db
check "the layer: state" "$layer" "SELECT state FROM run" complete
check "the layer: 6 passes of 2 ranks, each launch with its kernel" "$layer" "SELECT count(*), count(kernel_id) FROM launch" "12|12"
check "the layer: nothing lost" "$layer" "SELECT source, kind, count, detail FROM loss" ""
check "the layer: lanes closed" "$layer" "SELECT count(*) FROM lane WHERE closed = 0" 0
check "the layer: no hang" "$layer" "SELECT count(*) FROM hang" 0
check "the layer: passes as NVTX ranges" "$layer" "SELECT count(*) FROM v_marker WHERE name LIKE 'pass %'" 5
check "the layer: a signal for each dispatch task" "$layer" "SELECT (SELECT count(*) FROM v_signal WHERE edge = 'X_READY') =
    6 * (SELECT count(*) FROM task WHERE phase = 'dispatch')" 1
check "the layer: an MMA span for each group of each tile" "$layer" "SELECT (SELECT count(*) FROM v_span WHERE event = 'mma') >=
    12 * (SELECT count(*) FROM task WHERE phase IN ('gate+up', 'down'))" 1
check "the layer: lanes lie in their kernels, to 20 us" "$layer" "SELECT count(*) FROM v_launch
    WHERE lanes_begin_ns < kernel_begin_ns - 20000 OR lanes_end_ns > kernel_end_ns + 20000" 0
exit $failed
