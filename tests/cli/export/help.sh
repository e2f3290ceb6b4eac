mokscope export --help
