echo hello world > notes.txt
mokscope info notes.txt
