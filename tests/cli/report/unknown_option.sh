mokscope report --jsno trace.db
