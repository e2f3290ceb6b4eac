mokscope record --help
