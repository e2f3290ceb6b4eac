mokscope analyze
