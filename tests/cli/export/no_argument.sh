mokscope export
