mokscope export --jsno trace.db
