[ -f "$MOKSCOPE_ROOT/build/libmokscope_recorder.so" ] || { echo "skipped: built without the CUDA toolkit"; exit 77; }
echo precious >trace.db
mokscope record --force -- true
status=$?
cat trace.db
exit $status
