#!/bin/sh
# The recorder on a GPU: a whole recording without losses, rings that are too small, and a program that is killed. One line a
# check; exit status 1 on a failure. Works from what is in build/.
set -u
cd "$(dirname "$0")/../.."
nvidia-smi -L >/dev/null 2>&1 || { echo "skipped: no GPU"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
small="--model qwen3.5 --ranks 2 --tokens 256 --warm-up 1"
check() { # check NAME TRACE SQL EXPECTED: what the query gives
    got=$(python3 -c 'import sqlite3, sys; print(*(row[0] for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2])))' "$2" "$3")
    if [ "$got" = "$4" ]; then echo "ok $1"; else echo "FAIL $1: $got, expected $4"; failed=1; fi
}

build/mokscope run $small --passes 5 -q -o "$folder/whole.db" >/dev/null || failed=1
whole="$folder/whole.db"
check "state" "$whole" "SELECT state FROM run" complete
check "launches: 6 passes of 2 ranks" "$whole" "SELECT count(*) FROM launch" 12
check "each launch has its kernel" "$whole" "SELECT count(*) FROM launch WHERE kernel_id IS NULL" 0
check "nothing lost" "$whole" "SELECT count(*) FROM loss" 0
check "lanes closed" "$whole" "SELECT count(*) FROM lane WHERE closed = 0" 0
check "passes as NVTX ranges" "$whole" "SELECT count(*) FROM v_marker WHERE name LIKE 'pass %'" 5
check "a signal for each dispatch task" "$whole" "SELECT (SELECT count(*) FROM v_signal WHERE edge = 'X_READY') =
    6 * (SELECT count(*) FROM task WHERE phase = 'dispatch')" 1
check "an MMA span for each group of each tile" "$whole" "SELECT (SELECT count(*) FROM v_span WHERE event = 'mma') >=
    12 * (SELECT count(*) FROM task WHERE phase IN ('gate+up', 'down'))" 1
check "lanes lie in their kernels, to 20 us" "$whole" "SELECT count(*) FROM v_lane JOIN launch USING (launch_id) JOIN kernel USING (kernel_id)
    WHERE v_lane.begin_ns < kernel.begin_ns - 20000 OR v_lane.end_ns > kernel.end_ns + 20000" 0

build/mokscope run $small --passes 2 --records 32 -q -o "$folder/small.db" >/dev/null || failed=1
check "small rings: lost is what was written less what is there" "$folder/small.db" "SELECT sum(lost_count) =
    sum(max(0, record_count - 32)) AND sum(lost_count) > 0 FROM lane" 1

build/mokscope run $small --passes 3000 -q -o "$folder/killed.db" >/dev/null 2>&1 &
sleep 4
pkill -9 -f "passes 3000 -q -o $folder/killed.db" -n
wait
check "killed: the file opens, cut" "$folder/killed.db" "SELECT state FROM run" cut
check "killed: it holds launches" "$folder/killed.db" "SELECT count(*) > 10 FROM launch" 1
exit $failed
