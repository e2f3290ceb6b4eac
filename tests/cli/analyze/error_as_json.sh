mokscope analyze --json missing.db
