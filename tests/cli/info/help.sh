mokscope info --help
