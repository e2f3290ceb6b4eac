mokscope export missing.db
