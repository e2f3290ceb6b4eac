mokscope anlyze trace.db
