: > empty.db; mokscope report empty.db
