mokscope execute --lag 2
