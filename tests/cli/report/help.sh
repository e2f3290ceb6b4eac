mokscope report --help
