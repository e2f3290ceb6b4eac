mokscope execute --hidden 30
