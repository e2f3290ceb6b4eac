mokscope help frobnicate
