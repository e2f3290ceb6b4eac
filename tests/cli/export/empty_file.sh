: > empty.db; mokscope export empty.db
