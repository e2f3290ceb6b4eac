mokscope info missing.db
