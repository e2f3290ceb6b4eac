[ -f "$MOKSCOPE_ROOT/build/libmokscope_recorder.so" ] || { echo "skipped: built without the CUDA toolkit"; exit 77; }
mkdir traces
mokscope record -o traces -- true
