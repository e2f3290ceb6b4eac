mokscope analyze missing.db
