mokscope analyze --definitions
