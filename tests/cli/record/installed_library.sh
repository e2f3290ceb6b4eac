[ -f "$MOKSCOPE_ROOT/build/libmokscope_recorder.so" ] || { echo "skipped: built without the CUDA toolkit"; exit 77; }
mkdir -p bin lib/mokscope
cp "$(command -v mokscope)" bin/
cp "$MOKSCOPE_ROOT/build/libmokscope_recorder.so" lib/mokscope/
bin/mokscope record -- sh -c 'case $LD_PRELOAD in *"/lib/mokscope/libmokscope_recorder.so") echo preloaded;; esac'
