mokscope execute --help
