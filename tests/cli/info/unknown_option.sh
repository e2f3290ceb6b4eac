mokscope info --jsno trace.db
