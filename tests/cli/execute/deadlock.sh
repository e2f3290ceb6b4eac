mokscope execute --plant target-high:H_READY
