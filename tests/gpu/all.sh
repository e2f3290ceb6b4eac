#!/bin/sh
# Everything that needs a GPU, in one call on a machine with a Hopper GPU, Python and PyTorch; works from what is in build/.
# usage: tests/gpu/all.sh [check|sanitize|trace|bench] [OUT]   logs and results go to OUT (default: .)
set -u
cd "$(dirname "$0")/../.."
what=${1:-check}
out=${2:-.}
if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "skipped: no GPU"
    exit 77
fi
failed=0
step() { # step NAME COMMAND...: runs it, keeps the log, remembers a failure
    name=$1
    shift
    echo "== $name"
    "$@" >"$out/$name.log" 2>&1
    status=$?
    tail -n "${LINES_SHOWN:-4}" "$out/$name.log"
    [ $status -eq 0 ] || { echo "FAILED: $name, exit status $status"; failed=1; }
}
small="build/mokscope run --plain --launch one --ranks 2 --tokens 130 --hidden 512 --intermediate 256 --experts-per-rank 2 --top-k 3
       --model-experts 8 --passes 1 --warm-up 0 --timeout 60000"

check() {
    step correctness python3 tests/gpu/correctness.py small backward delays full
    step reference python3 tests/gpu/reference.py
    [ ! -f tests/gpu/recorder.sh ] || step recorder sh tests/gpu/recorder.sh
}
sanitize() {
    step memcheck compute-sanitizer --tool memcheck --error-exitcode 9 $small --backward
    step racecheck compute-sanitizer --tool racecheck --racecheck-report analysis $small
}
trace() {
    step trace build/mokscope run --ranks 4 --tokens 256 --passes 3 --warm-up 1 -o "$out/trace.db" --force
    LINES_SHOWN=60 step analyze build/mokscope analyze "$out/trace.db"
}
bench() {
    LINES_SHOWN=30 step bench python3 tests/gpu/bench.py --backward --out "$out" ${BENCH_OPTIONS:-}
}
case $what in
check | sanitize | trace | bench) "$what" ;;
*) echo "unknown part '$what'; parts: check, sanitize, trace, bench" >&2; exit 2 ;;
esac
exit $failed
