mokscope analyze --jsno trace.db
