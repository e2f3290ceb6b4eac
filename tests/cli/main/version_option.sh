mokscope version --jsno
