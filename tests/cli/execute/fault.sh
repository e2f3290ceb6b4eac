mokscope execute --plant wait-removed:X_READY
