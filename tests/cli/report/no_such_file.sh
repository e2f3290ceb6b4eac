mokscope report missing.db
