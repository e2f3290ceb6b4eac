mokscope execute --plant slot-early:X_READY
