mokscope execute --comm-sm 3
