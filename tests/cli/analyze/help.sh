mokscope analyze --help
