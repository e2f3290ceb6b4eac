[ -f "$MOKSCOPE_ROOT/build/libmokscope_recorder.so" ] || { echo "skipped: built without the CUDA toolkit"; exit 77; }
mokscope execute -o trace.db >/dev/null
before=$(cksum <trace.db)
mokscope record -- true
status=$?
[ "$before" = "$(cksum <trace.db)" ] && echo unchanged
exit $status
