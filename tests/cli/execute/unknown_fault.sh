mokscope execute --plant wait-removed:X
