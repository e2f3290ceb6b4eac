#!/bin/sh
# The main job: a recording of the MoE layer, analysed, with a report. With a Hopper GPU a new one, else the shipped one.
# Writes trace.db and trace.html in the project's folder; the ones of an earlier demo are replaced.
set -eu
cd "$(dirname "$0")/.."
mokscope=build/mokscope
shipped=tests/data/h200_glm52_4ranks.db.gz
trace=trace.db
if $mokscope run --ranks 4 --tokens 256 --passes 3 --warm-up 1 -o $trace --force 2>build/demo.log; then
    cat build/demo.log >&2
else
    status=$?
    echo "Not recorded here (exit status $status):"
    sed 's/^/    /' build/demo.log
    echo "Using the shipped recording of an H200 instead: $shipped"
    trace=$shipped
fi
echo
$mokscope analyze --brief --no-store $trace
echo
$mokscope report $trace -o trace.html --force
echo "report: $(pwd)/trace.html"
