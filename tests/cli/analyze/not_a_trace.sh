echo hello world > notes.txt
mokscope analyze notes.txt
