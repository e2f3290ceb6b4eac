# SIGTERM of the recording ends the program by its own handler; its exit status is passed on.
[ -f "$MOKSCOPE_ROOT/build/libmokscope_recorder.so" ] || { echo "skipped: built without the CUDA toolkit"; exit 77; }
mokscope record -- sh -c 'trap "echo got it; exit 9" TERM; touch ready; while :; do sleep 0.05; done' &
while [ ! -f ready ]; do sleep 0.05; done
kill -TERM $!
wait $!
