mokscope info
