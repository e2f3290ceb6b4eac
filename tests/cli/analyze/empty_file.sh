: > empty.db; mokscope analyze empty.db
