mokscope execute --ring 8
