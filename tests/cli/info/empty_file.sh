: > empty.db; mokscope info empty.db
