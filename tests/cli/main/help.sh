mokscope --help
